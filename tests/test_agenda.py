"""The firings of a step: their order, what joins them, what they know."""

from types import SimpleNamespace

from keras_steps.agenda import Agenda, Firing


def callback(name, fired, then=lambda: None, uses_model=False):
    def on_step(step, logs):
        fired.append((name, step, logs))
        then()

    return SimpleNamespace(on_step=on_step, uses_model=uses_model)


def test_fires_in_the_order_of_the_callbacks_each_with_its_logs_and_the_evaluations():
    fired = []
    first, second = callback("first", fired), callback("second", fired)
    agenda = Agenda([first, second])
    agenda.add([Firing(second, 5, {"loss": 1.0}), Firing(first, 5, {})])
    agenda.fire({"val_loss": 2.0})
    assert fired == [
        ("first", 5, {"val_loss": 2.0}),
        ("second", 5, {"loss": 1.0, "val_loss": 2.0}),
    ]
    assert not agenda


def test_what_an_action_adds_fires_at_its_place():
    fired = []
    last = callback("last", fired)
    middle = callback("middle", fired)
    first = callback("first", fired, lambda: agenda.add([Firing(middle, 5, {})]))
    agenda = Agenda([first, middle, last])
    agenda.add([Firing(last, 5, {}), Firing(first, 5, {})])
    agenda.fire({})
    assert [name for name, _, _ in fired] == ["first", "middle", "last"]


def test_an_action_that_clears_it_is_the_last():
    fired = []
    first = callback("first", fired, lambda: agenda.clear())
    last = callback("last", fired)
    agenda = Agenda([first, last])
    agenda.add([Firing(last, 5, {}), Firing(first, 5, {})])
    agenda.fire({})
    assert [name for name, _, _ in fired] == ["first"]


def test_complete_adds_only_what_is_missing():
    fired = []
    one = callback("one", fired)
    agenda = Agenda([one])
    agenda.add([Firing(one, 5, {"loss": 1.0})])
    agenda.complete({"loss": 9.0, "auc": 0.5})
    agenda.fire({})
    assert fired == [("one", 5, {"loss": 1.0, "auc": 0.5})]


def test_knows_who_is_on_it_and_whether_the_model_is_needed():
    plain, looking = callback("plain", []), callback("looking", [], uses_model=True)
    agenda = Agenda([plain, looking])
    agenda.add([Firing(plain, 5, {})])
    assert (plain in agenda, looking in agenda, agenda.uses_model) == (True, False, False)
    agenda.add([Firing(looking, 5, {})])
    assert agenda.uses_model

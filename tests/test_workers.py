"""What each worker gives, and who has failed."""

import pytest
from flavours import FLAVOUR, make_model

from keras_steps.distribution import Seat, seat_of
from keras_steps.workers import Workers

pytestmark = pytest.mark.skipif(FLAVOUR != "tensorflow", reason="no matter of the backend")


def test_alone_nobody_is_asked():
    model = make_model()
    workers = Workers(model, is_chief=True)
    assert seat_of(model) == Seat(0, 1)
    assert workers.gathered("thing") == ["thing"]
    assert workers.by_chief(lambda: 1) == workers.by_all(lambda: 1) == 1
    assert Workers(model, is_chief=False).by_chief(lambda: 1) is None
    with pytest.raises(OSError, match="full"):
        workers.by_chief(lambda: (_ for _ in ()).throw(OSError("full")))
    assert workers.collectives == 0


def test_those_that_have_not_failed_say_who_has():
    workers = Workers(make_model(), is_chief=False)
    workers.seat = Seat(1, 2)
    told = "as one has failed: worker 0: OSError: full"
    with pytest.raises(RuntimeError, match=told):
        workers._raise(["OSError: full", None], None)

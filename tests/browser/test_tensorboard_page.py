"""What TensorBoard's page shows of StepTensorBoard's files, in a real browser.

The files are the demo's own: a session of 60 steps, one that is killed past step 100, and one
that goes on from the backup at that step, or from that at 60, to step 120.
With KEEP_SCREENSHOT=FILE.png in the environment the page's picture is kept.
"""

import os
import re
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

pytestmark = pytest.mark.browser

DEMO = Path(__file__).parents[2] / "demo/digits.py"
PATIENCE = 60  # seconds for the page to show what it should
LIMIT = 300  # seconds after which a process is ended, whatever happens
FLAGS = """--headless=new --no-sandbox --disable-gpu --disable-quic --no-first-run
    --disable-background-networking --disable-component-update --disable-sync
    --force-device-scale-factor=1 --window-size=1000,790"""
POINTS = """
    const done = arguments[arguments.length - 1];
    const steps = (run) => fetch(`/data/plugin/scalars/scalars?run=${run}&tag=loss`)
        .then((answer) => answer.ok ? answer.json() : [])
        .then((points) => points.map(([time, step, value]) => step));
    Promise.all(["train", "validation"].map(steps)).then(done);
"""
CARDS = """
    const texts = (root, css) => [...root.querySelectorAll(css)].map((e) => e.textContent.trim());
    const header = (card) => texts(card, "tb-data-table-header-cell");
    return [...document.querySelectorAll("metrics-filtered-view card-view")].map((card) => ({
        tag: card.querySelector("tb-truncated-path")?.title,
        charts: card.querySelectorAll("line-chart canvas").length,
        ticks: texts(card, ".x-axis .minor text").map(Number),
        rows: [...card.querySelectorAll("tb-data-table-content-row")].map((row) =>
            Object.fromEntries(texts(row, "tb-data-table-content-cell")
                .map((text, i) => [header(card)[i], text]))),
    }));
"""


def demo(folder, steps):
    """The command of the demo, and the environment in which it says at once what it does."""
    command = [sys.executable, str(DEMO), "--steps", str(steps), "--output", str(folder)]
    environment = {"PYTHONUNBUFFERED": "1", "PYTHONPATH": str(DEMO.parents[1])}
    return command, {**os.environ, **environment}


@pytest.fixture(scope="module")
def log_dir(tmp_path_factory):
    """The logs of three sessions of the demo, of which the second is killed past step 100."""
    pytest.importorskip("sklearn", reason="scikit-learn is missing")
    folder = tmp_path_factory.mktemp("page")
    end_session(folder, steps=60)
    kill_session(folder, after="step 100/")
    end_session(folder, steps=60)
    return folder / "logs"


def end_session(folder, steps):
    command, environment = demo(folder, steps)
    ran = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=LIMIT)
    assert ran.returncode == 0, ran.stderr


def kill_session(folder, after):
    """Begin a long session, and kill it at the line that begins like this."""
    command, environment = demo(folder, steps=10**6)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as session:
        limit = threading.Timer(LIMIT, session.kill)
        limit.start()
        try:
            assert any(line.startswith(after) for line in session.stdout)
        finally:
            limit.cancel()
            session.kill()


@pytest.fixture(scope="module", params=["false", "true"], ids=["python", "data_server"])
def url(request, log_dir):
    """The address of a real TensorBoard, with either of its two loaders of event files."""
    if request.param == "true":
        data_server = pytest.importorskip("tensorboard_data_server")
        if data_server.server_binary() is None:
            pytest.skip("TensorBoard has no data server for this platform")
    command = [sys.executable, "-m", "tensorboard.main", f"--load_fast={request.param}"]
    command += ["--logdir", str(log_dir), "--host", "127.0.0.1", "--port", "0"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    limit = threading.Timer(LIMIT, server.kill)
    limit.start()
    try:
        output = ""
        for line in server.stdout:
            output += line
            if found := re.search(r"TensorBoard .* at (http://127\.0\.0\.1:\d+/)", line):
                break
        else:
            pytest.fail(f"TensorBoard did not start:\n{output}")
        yield found[1]
    finally:
        limit.cancel()
        server.terminate()
        try:
            server.communicate(timeout=10)
        except subprocess.TimeoutExpired:
            server.kill()
            server.communicate()


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is missing")
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if not (chromium and driver):
        pytest.skip("chromium or chromedriver is missing")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in FLAGS.split():
        options.add_argument(flag)
    options.add_argument(f"--user-data-dir={tmp_path_factory.mktemp('profile')}")
    browser = webdriver.Chrome(options, webdriver.ChromeService(driver))
    try:
        browser.set_page_load_timeout(PATIENCE)
        browser.set_script_timeout(PATIENCE)
        yield browser
    finally:
        browser.quit()


def wait_until(browser, condition):
    """What the condition returns, as soon as it is true."""
    from selenium.webdriver.support.ui import WebDriverWait

    return WebDriverWait(browser, PATIENCE, poll_frequency=0.1).until(lambda _: condition())


def steps_at_the_end(browser, url):
    """The steps of both losses, as served to a page once the server has read step 120."""
    browser.get(url)

    def steps():
        found = browser.execute_async_script(POINTS)
        return found if all(120 in steps for steps in found) else None

    return wait_until(browser, steps)


def test_a_resumed_run_is_one_rising_curve_for_the_page(browser, url):
    """What the killed run wrote past its backup is not served twice: one value a step."""
    train, validation = steps_at_the_end(browser, url)
    assert train == [10, 20, 30, 40, 50, 60, 70, 80, 90, 100, 110, 120]
    assert validation == [50, 60, 100, 120]  # every 50 steps, and where a session ends


def test_training_and_validation_share_a_chart_and_its_axis(browser, url):
    steps_at_the_end(browser, url)
    browser.get(f"{url}?tagFilter=loss&smoothing=0#timeseries")

    def cards():
        found = browser.execute_script(CARDS)
        return found if found and all(len(card["rows"]) == 2 for card in found) else None

    (card,) = wait_until(browser, cards)  # and no val_loss or epoch_loss beside it
    assert (card["tag"], card["charts"]) == ("loss", 1)
    assert [(row["Run"], row["Step"]) for row in card["rows"]] == [
        ("train", "120"),
        ("validation", "120"),
    ]
    assert card["ticks"] == sorted(set(card["ticks"]))
    assert card["ticks"][0] <= 10 and max(card["ticks"]) >= 120
    if os.environ.get("KEEP_SCREENSHOT"):
        keep_screenshot(browser, os.environ["KEEP_SCREENSHOT"])


def keep_screenshot(browser, path):
    """The page without its pane of settings, the chart as wide as the window."""
    browser.find_element("css selector", ".settings-button").click()
    browser.find_element("css selector", "[aria-label='Toggle full size mode']").click()
    pane = ".sidebar settings-view"
    wait_until(browser, lambda: not browser.find_elements("css selector", pane))
    wide = "return document.querySelector('line-chart canvas').clientWidth > innerWidth / 2"
    wait_until(browser, lambda: browser.execute_script(wide))
    browser.save_screenshot(path)

"""tdbg report: one file, opened from the disk by a real browser with nothing behind it. What it shows is what the page of
`tdbg view` shows."""

import json
import re

import pytest
from page_runs import DEAD, HOSTILE_NAMES, NAN_FROM, SICK
from test_page import browser, page_without_troubles, pixels, until  # noqa: F401
from test_view import Server, record, recorded, serving  # noqa: F401


@pytest.fixture
def page(browser):
    with page_without_troubles(browser, "ERR_CONNECTION_REFUSED") as page:
        yield page


def opened(page, file, state=""):
    """The report, without a network; whatever it asks for is a trouble."""
    page.context.set_offline(True)
    asked = []
    page.on("request", lambda r: asked.append(r.url) if not r.url.startswith(("file:", "data:")) else None)
    page.goto(f"{file.as_uri()}{state}")
    page.wait_for_selector(".sentence")
    return asked


def parts(file):
    """The data in a report."""
    text = file.read_text()
    return json.loads(re.search(r'<script type="application/json" id="report">(.*?)</script>', text, re.DOTALL)[1])


def test_from_the_sentence_to_the_command_without_a_server(tdbg, page, recorded, tmp_path):
    tdbg("watch", recorded / "sick", "--rule", "exploding_tensor", "--rule", "vanishing_gradient", "threshold=1e-7")
    done = tdbg.ok("report", recorded / "sick", "-o", "sick.html")
    file = tmp_path / "sick.html"
    assert done.stdout == "sick.html\n" and file.stat().st_size < 5_000_000
    assert "needs no network" in done.stderr and "left out" in done.stderr
    assert all(len(line) <= 100 for line in done.stderr.splitlines())

    asked = opened(page, file)
    sentence = page.locator(".sentence.bad")
    assert f"NaN since step {NAN_FROM}, first in gradient/{SICK}.weight" in sentence.inner_text()
    until(page, "document.querySelectorAll('.map-label').length > 20")
    page.wait_for_timeout(300)
    assert page.locator(".workers:not([hidden]) canvas").count() == 1
    assert page.locator(".chart .u-over").count() >= 3

    # The layer map is the served one, to the pixel: of the whole run, and of steps around the finding.
    drawn = {}
    states = ("", f"#run=sick&begin={NAN_FROM - 20}&end={NAN_FROM + 12}", "#run=sick&open=-&statistic=l2&show=change")
    for state in states:
        page.evaluate(f"location.hash = '{state.removeprefix('#') or 'run=sick'}'")
        page.wait_for_timeout(400)
        drawn[state] = page.evaluate("document.querySelector('.map-canvas').toDataURL()")
        assert pixels(page, ".map-canvas")["nan"] > 40, state
    page.evaluate("location.hash = 'run=sick'")
    page.wait_for_timeout(200)

    # Who changed first: the gradient that vanished at 120, long before the NaN of 300.
    page.get_by_label("Order of the rows").select_option("first")
    until(page, f"document.querySelector('.map-label').dataset.name.startsWith('gradient/{DEAD}.')")
    page.get_by_label("Order of the rows").select_option("now")
    until(page, f"document.querySelector('.map-label').dataset.name === 'gradient/{SICK}.weight'")
    page.get_by_label("Order of the rows").select_option("")
    until(page, "document.querySelector('.map-label.module') !== null")

    # A finding leads to its tensor and step, its histogram and its distribution; the command is there to copy.
    page.locator(".finding", has_text="VanishingGradient").click()
    page.wait_for_selector("#tensor-name")
    assert page.locator("#tensor-name").inner_text() == f"gradient/{DEAD}.weight"
    until(page, "document.querySelector('.dist-over').getAttribute('aria-label')?.includes('places')")
    step = int(re.search(r"step=(\d+)", page.url)[1])
    assert page.locator("code[data-kind=shell]").inner_text() == \
        f"tdbg show {recorded / 'sick'} gradient/{DEAD}.weight --steps {step}:{step + 1}"
    # Histograms are kept every now and then: the nearest before the finding is in the report.
    kept = {int(entry["parameters"]["step"]) for entry in parts(file)["answers"]
            if entry["question"] == "histogram" and entry["parameters"]["tensor"] == f"gradient/{DEAD}.weight"}
    assert step in kept
    shown = max(at for at in kept if at <= step and at % 10 == 0)
    page.evaluate(f"location.hash = location.hash.replace('step={step}', 'step={shown}')")
    until(page, f"document.querySelector('.dist-one').getAttribute('aria-label')?.includes('step {shown}')")
    page.evaluate(f"location.hash = location.hash.replace('step={shown}', 'step=3')")
    until(page, "document.querySelector('#histogram-head').textContent.endsWith('3')")

    # Keys and links as on the page.
    page.keyboard.press("w")
    until(page, "location.hash.includes('begin=')")
    link = page.url
    page.reload()
    page.wait_for_selector("#tensor-name")
    assert page.url == link
    page.keyboard.press("Escape")
    page.wait_for_selector("#tensor-name", state="detached")

    about = page.get_by_label("About this report")
    assert "values of single elements" in about.inner_text()
    for command in (f"tdbg view {recorded / 'sick'}", f"tdbg explain {recorded / 'sick'}"):
        assert about.locator("code", has_text=command).count() == 1
    assert asked == []
    page.context.set_offline(False)
    with serving(tdbg, recorded / "sick") as address:
        for state in states:
            page.goto(address)
            page.wait_for_selector(".map-label")
            page.evaluate(f"location.hash = '{state.removeprefix('#') or 'run=sick'}'")
            page.wait_for_timeout(500)
            # Beside the served page there is no "About this report", and so no scroll bar may be: compare what is drawn.
            served = page.evaluate("document.querySelector('.map-canvas').toDataURL()")
            assert served == drawn[state], state


def test_its_answers_are_the_servers(tdbg, recorded):
    """Each answer in a report is, byte for byte, what the server says to the question that stands beside it."""
    import base64

    tdbg.ok("report", recorded / "sick", "-o", "same.html")
    data = parts(tdbg.directory / "same.html")
    asked = {entry["question"] for entry in data["answers"]}
    assert {"run", "tensors", "matrix", "line", "histograms", "histogram", "workers"} <= asked
    with serving(tdbg, recorded / "sick") as address:
        server = Server(address)
        compared = 0
        for entry in data["answers"][::7]:
            if "columns" not in entry:
                continue
            parameters = dict(entry["parameters"])
            if first := entry.get("each_of"):
                parameters["rows"] = ";".join(map(str, range(first[0], first[1] + 1)))
            assert server.get(entry["question"], **parameters) == base64.b64decode(entry["columns"]), entry["parameters"]
            compared += 1
        assert compared > 20


def test_a_run_that_nobody_watched_is_judged_by_the_profile(tdbg, page, recorded, tmp_path):
    report = tdbg.json("report", recorded / "fine")
    file = tmp_path / "tdbg-report-fine.html"
    assert report["report"] == file.name and report["bytes"] == file.stat().st_size and report["left_out"]
    opened(page, file)
    assert "Not judged" not in page.locator(".sentence").inner_text()


def test_the_budget_holds_and_what_it_costs_is_said(tdbg, page, tmp_path):
    """3,000 steps of 300 tensors: one NaN in one step of one tensor is seen at every zoom, however small the report."""
    record(tmp_path / "big", "big", 3000, 300)
    sizes = {}
    for budget in ("5MB", "700kB"):
        done = tdbg.json("report", "big", "-o", f"{budget}.html", "--budget", budget)
        sizes[budget] = done
        assert done["bytes"] <= {"5MB": 5_000_000, "700kB": 700_000}[budget]
        opened(page, tmp_path / f"{budget}.html", "#run=big&open=-")
        page.wait_for_selector(".map-label")
        for window in ("", "&begin=900&end=1100", "&begin=990&end=1010"):
            page.evaluate(f"location.hash = 'run=big&open=-{window}'")
            page.wait_for_timeout(400)
            assert pixels(page, ".map-canvas")["nan"] >= 3 * 16, (budget, window)
        said = page.get_by_label("About this report").inner_text()
        for sentence in done["left_out"]:
            assert sentence in said
    assert len(sizes["700kB"]["left_out"]) > len(sizes["5MB"]["left_out"])
    error = tdbg.fails(2, "report", "big", "-o", "no.html", "--budget", "1kB")
    assert "--budget 1kB" in error and "alone take" in error
    assert "no size" in tdbg.fails(2, "report", "big", "--budget", "much")
    assert not (tmp_path / "no.html").exists()


def test_names_are_data(tdbg, page, tmp_path):
    record(tmp_path / "hostile", "hostile")
    tdbg.ok("report", "hostile", "-o", "hostile.html", "--budget", "2MB")
    file = tmp_path / "hostile.html"
    assert file.stat().st_size < 2_000_000
    assert {t["name"] for a in parts(file)["answers"] if a["question"] == "tensors" for t in a["json"]["tensors"]} == \
        set(HOSTILE_NAMES)
    opened(page, file)
    page.wait_for_selector(".map-label")
    until(page, f"document.querySelectorAll('.map-label:not(.module)').length === {len(HOSTILE_NAMES)}")
    assert page.title() != "owned" and page.locator("script").count() == 2
    for place in range(len(HOSTILE_NAMES)):
        page.locator(".map-label:not(.module)").nth(place).click()
        page.wait_for_selector("#tensor-name")
        page.wait_for_timeout(50)
        assert "\u202e" not in page.locator("#tensor-name").inner_text()
    assert page.title() != "owned"


def test_a_notebook_shows_the_page_in_a_frame(tdbg, page, recorded, tmp_path):
    """What `trial.view()` gives a notebook: the page runs in a frame that can reach nothing around it."""
    import tdbg as reading

    trial = reading.open(str(recorded / "sick"))
    view = trial.view(budget="2MB")
    markup = view._repr_html_()
    assert len(view.page) < 2_000_000 and "sandbox='allow-scripts'" in markup
    file = tmp_path / "notebook.html"
    file.write_text(f"<!doctype html><title>notebook</title><body>{markup}</body>")
    page.goto(file.as_uri())
    frame = page.frame_locator("iframe")
    frame.locator(".sentence.bad").wait_for()
    frame.locator(".sentence .go").click()
    frame.locator("#tensor-name").wait_for()
    view.save(tmp_path / "saved.html")
    assert (tmp_path / "saved.html").read_text() == view.page
    assert "sick" in trial._repr_html_() and "<svg" in trial._repr_html_()
    hostile = next(t for t in trial.tensor_names() if "onerror" in t)
    shown = trial.tensor(hostile)._repr_html_()
    assert "<img" not in shown and "\u202e" not in shown and "&lt;img" in shown
    assert "<table>" in trial.findings()._repr_html_() or trial.findings() == []

"""The page in a real browser (Debian's chromium, driven by playwright): what a person does, from the sentence to the
command. Needs both; tools/setup.sh brings them."""

import contextlib
import csv
import json
import pathlib
import re
import shutil
import subprocess
import sys
import time
import urllib.parse

import pytest
from page_runs import DEAD, DEAD_FROM, HOSTILE, HOSTILE_NAMES, NAN_FROM, SICK
from test_view import record, recorded, serving  # noqa: F401

playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright")
CHROMIUM = shutil.which("chromium")
pytestmark = pytest.mark.skipif(not CHROMIUM, reason="needs chromium")


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as driver:
        # Without its sandbox: tests run as root in containers, and the pages are ours.
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


@contextlib.contextmanager
def page_without_troubles(browser, expected):
    """A page whose `troubles` (errors it reports, dialogs, what is added to them) are empty at the end, but for what matches."""
    context = browser.new_context(viewport={"width": 1280, "height": 720})
    context.set_default_timeout(15_000)
    page = context.new_page()
    page.troubles = []
    page.on("console", lambda m: page.troubles.append(m.text) if m.type == "error" else None)
    page.on("pageerror", lambda e: page.troubles.append(str(e)))
    page.on("dialog", lambda d: page.troubles.append(f"a dialog: {d.message}"))
    yield page
    context.close()
    assert [t for t in page.troubles if not re.search(expected, t)] == []


@pytest.fixture
def page(browser):
    # Told with its address below, and the server ends before the page does. A step of a living run that has not come yet, or has no histogram,
    # is a 404, whose reason the page shows.
    with page_without_troubles(browser, r"Failed to load resource|404 .*/(histogram|values|step)\?") as page:
        page.on("response", lambda r: page.troubles.append(f"{r.status} {r.url}") if r.status >= 400 else None)
        page.on("request", lambda r: page.troubles.append(r.url) if "127.0.0.1" not in r.url and not r.url.startswith("data:") else None)
        yield page


def until(page, condition, seconds=30):
    """The page's policy lets nobody evaluate text in it, playwright's own waiting included; the debugger may."""
    end = time.monotonic() + seconds
    while not page.evaluate(condition):
        assert time.monotonic() < end, condition
        page.wait_for_timeout(30)


def pixels(page, selector):
    """How many pixels of the canvas have each of these colours of the theme."""
    return page.evaluate("""(selector) => {
      const canvas = document.querySelector(selector), style = getComputedStyle(document.documentElement);
      const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data, count = {};
      for (const name of ["nan", "zero", "empty"]) {
        const hex = style.getPropertyValue("--" + name).trim(), c = [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));
        count[name] = 0;
        for (let i = 0; i < data.length; i += 4)
          if (data[i] === c[0] && data[i + 1] === c[1] && data[i + 2] === c[2]) count[name]++;
      }
      return count;
    }""", selector)


def test_from_the_sentence_to_the_command(tdbg, page, recorded):
    tdbg("watch", recorded / "sick", "--rule", "exploding_tensor", "--rule", "vanishing_gradient", "threshold=1e-7")
    with serving(tdbg, recorded) as address:
        page.goto(address)
        page.get_by_role("link", name="sick").click()
        sentence = page.locator(".sentence.bad")
        sentence.wait_for()
        assert f"NaN since step {NAN_FROM}, first in gradient/{SICK}.weight" in sentence.inner_text()

        # The layer map shows both faults, each by its own sign, whatever the window.
        until(page, "document.querySelectorAll('.map-label').length > 20")
        page.wait_for_timeout(300)
        whole = pixels(page, ".map-canvas")
        assert whole["nan"] > 500 and whole["zero"] > 500
        assert page.locator(".workers:not([hidden]) canvas").count() == 1

        # The sentence leads to the NaN, a finding to its layer: to the tensor and the step.
        page.locator(".sentence .go").click()
        assert from_the_tensor_to_the_command(page, recorded / "sick", f"gradient/{SICK}.weight", NAN_FROM) == NAN_FROM
        page.locator(".finding", has_text="VanishingGradient").click()
        step = from_the_tensor_to_the_command(page, recorded / "sick", f"gradient/{DEAD}.weight", 150)
        assert DEAD_FROM <= step < 200

        # Keys: a zoom is a window in the address; a link of it shows the same, back leads back.
        page.keyboard.press("w")
        until(page, "location.hash.includes('begin=')")
        link = page.url
        page.reload()
        page.wait_for_selector("#tensor-name")
        assert page.url == link
        page.keyboard.press("r")
        until(page, "!location.hash.includes('begin=')")
        page.keyboard.press("Escape")
        page.wait_for_selector("#tensor-name", state="detached")
        page.keyboard.press("?")
        assert page.locator("dialog[open]").count() == 1
        page.keyboard.press("Escape")

        # A name that is markup is a name.
        page.keyboard.press("/")
        page.keyboard.type("onerror")
        page.locator(".map-label", has_text="<img src=x").click()
        page.wait_for_selector("#tensor-name")
        assert page.locator("#tensor-name").inner_text() == HOSTILE.replace("\u202e", "\\u202e")
        assert page.locator("img").count() == 0


def at(page):
    return {key: values[0] for key, values in urllib.parse.parse_qs(urllib.parse.urlsplit(page.url).fragment).items()}


def from_the_tensor_to_the_command(page, run, tensor, histogram):
    """What follows the click: the tensor beside its row, a histogram at a step that has one, the command, which does what it
    says. Returns the step at which the click arrived."""
    page.wait_for_selector("#tensor-name")
    until(page, f"document.querySelector('#tensor-name').textContent === {json.dumps(tensor)}")
    step = int(at(page)["step"])
    assert at(page)["tensor"] == tensor
    leaf = "gradient of weight" if tensor.startswith("gradient/") else "weight"
    until(page, f"document.querySelector('.map-label.chosen')?.textContent === {json.dumps(leaf)}")
    page.goto(page.url.replace(f"step={step}", f"step={histogram}"))
    until(page, f"document.querySelector('#histogram-head').textContent.endsWith(' {histogram}')")
    until(page, f"document.querySelector('.dist-one').getAttribute('aria-label')?.includes('step {histogram}')")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_label("Copy the shell command").click()
    until(page, "document.querySelector('#commands button').textContent === 'copied'")
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied == f"tdbg show {run} {tensor} --steps {histogram}:{histogram + 1}"
    shown = subprocess.run(["bash", "-c", copied.replace("tdbg ", f"{tdbg_binary()} ", 1)], capture_output=True, text=True)
    assert shown.returncode == 0 and str(histogram) in shown.stdout, shown.stderr
    return step


def tdbg_binary():
    from program import BINARY

    return BINARY


def test_one_bad_step_is_seen_at_every_zoom(tdbg, page, tmp_path):
    """A NaN in one tensor of 300 at one step of 3,000: in the folded row, in the whole run, and close up."""
    record(tmp_path / "big", "big", 3000, 300)
    with serving(tdbg, tmp_path / "big") as address:
        page.goto(f"{address}#run=big&open=-")
        page.wait_for_selector(".map-label")
        page.wait_for_timeout(400)
        assert page.locator(".map-label").count() < 10
        assert pixels(page, ".map-canvas")["nan"] >= 3 * 16
        for begin, end in ((0, 3000), (900, 1100), (990, 1010)):
            page.evaluate(f"location.hash = 'run=big&open=-&begin={begin}&end={end}'")
            page.wait_for_timeout(400)
            assert pixels(page, ".map-canvas")["nan"] >= 3 * 16, (begin, end)


def test_it_follows_a_training_and_can_be_frozen(tdbg, page, tmp_path):
    training = subprocess.Popen([sys.executable, str(pathlib.Path(__file__).parent / "page_runs.py"), str(tmp_path / "live"), "live", "60", "0.05"])
    try:
        tdbg.wait_for(tmp_path / "live" / "run.json")
        with serving(tdbg, tmp_path / "live") as address:
            page.goto(address)
            page.wait_for_selector(".live:has-text('live')")
            until(page, "Number(document.querySelector('main.run').dataset.step) > 10")
            page.keyboard.press("f")
            page.wait_for_selector(".live:has-text('frozen')")
            page.wait_for_timeout(200)
            held = page.locator("main.run").get_attribute("data-step")
            page.wait_for_timeout(400)
            assert page.locator("main.run").get_attribute("data-step") == held
            page.keyboard.press("f")
            until(page, "Number(document.querySelector('main.run').dataset.step) === 59")
    finally:
        training.wait(timeout=60)


def test_a_finding_of_a_living_training_leads_to_the_command(tdbg, page, tmp_path):
    """Nothing is wrong when the page is opened; the finding comes, is announced, and is followed while the training goes on."""
    run = tmp_path / "ailing"
    training = subprocess.Popen([sys.executable, str(pathlib.Path(__file__).parent / "page_runs.py"), str(run), "ailing", "20000", "0.03"])
    watcher = None
    try:
        tdbg.wait_for(run / "run.json")
        with serving(tdbg, run) as address:
            page.goto(address)
            page.wait_for_selector(".live:has-text('live')")
            watcher = tdbg.start("watch", run, "--rule", "vanishing_gradient", "threshold=1e-7", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            until(page, "document.title.startsWith('⚠')", 60)
            page.locator(".finding", has_text="VanishingGradient").click()
            step = from_the_tensor_to_the_command(page, run, f"gradient/{DEAD}.weight", 50)
            assert 20 <= step < 100
            assert page.locator(".state.running").count() == 1 and training.poll() is None
    finally:
        for process in (watcher, training):
            if process:
                process.terminate()
                process.wait(timeout=60)


@pytest.mark.long
def test_two_runs_laid_over(tdbg, page, recorded, tmp_path):
    # Of as many workers: a cell of the map is of all of a run's workers, and theirs differ a little.
    shutil.copytree(recorded / "sick", tmp_path / "sick")
    record(tmp_path / "fine", "twin")
    with serving(tdbg, tmp_path) as address:
        page.goto(address)
        for name in ("sick", "fine"):
            page.get_by_label(f"Compare {name}").check()
        page.get_by_role("button", name="compare two").click()
        page.wait_for_selector(".charts .u-legend")
        legend = page.locator(".chart").first.locator(".u-label").all_inner_texts()
        assert {"sick", "fine"} <= {text.rstrip(":") for text in legend}

        # Where they part, found while one looks; the place is a click away, the command the same question.
        tensor = f"gradient/{DEAD}.weight"
        until(page, f"document.querySelector('.parting')?.textContent.startsWith('They part at step {DEAD_FROM}: {tensor} differs')")
        page.locator(".parting .go").click()
        page.wait_for_selector("#tensor-name")
        assert at(page) | {"open": ""} == {"run": "sick", "other": "fine", "show": "ratio", "tensor": tensor, "step": str(DEAD_FROM), "open": ""}
        legend = page.locator(".tensor .u-label").all_inner_texts()
        assert {"mean_abs", "fine"} <= {text.rstrip(":") for text in legend}
        page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        page.get_by_label("Copy the comparison command").click()
        until(page, "document.querySelector('.compare .command button')?.textContent === 'copied'")
        copied = page.evaluate("navigator.clipboard.readText()")
        assert copied == f"tdbg diff {tmp_path / 'sick'} {tmp_path / 'fine'}"
        assert tdbg(*copied.split()[1:]).returncode == 1

        # The map is of the ratio: no colour where they are the same, all of the layer's half where it vanished, and the NaN's
        # sign in the upper half of the row, for it is the first run's.
        page.keyboard.press("Escape")
        until(page, "document.querySelectorAll('.map-label').length > 20")
        page.get_by_label("Order of the rows").select_option("parts")
        until(page, f"document.querySelector('.map-label')?.title.startsWith('gradient/{DEAD}.')")
        assert page.locator(".legend").inner_text().startswith("÷")
        page.wait_for_timeout(300)
        colours = page.evaluate("""() => {
          const canvas = document.querySelector('.map-canvas'), data = canvas.getContext('2d');
          const at = (part, y) => [...data.getImageData(Math.round(canvas.width * part), y, 1, 1).data.slice(0, 3)];
          return { before: at(0.1, 9), after: at(0.35, 9), last: document.querySelectorAll('.map-label').length };
        }""")
        middle = zip(colours["before"], [240, 240, 236], strict=True)
        assert all(abs(seen - wanted) <= 2 for seen, wanted in middle), "the middle of the scale"
        assert colours["after"][2] > colours["after"][0], "blue: far below"
        assert pixels(page, ".map-canvas")["nan"] > 300

        # The tolerance lies in the address, and so does everything else.
        page.get_by_label("When two numbers are the same").select_option("1e-1")
        until(page, "document.querySelector('.compare code')?.textContent.endsWith('--rtol 1e-1')")
        link, said = page.url, page.locator(".parting").inner_text()
        page.reload()
        until(page, f"document.querySelector('.parting')?.textContent.startsWith({json.dumps(said[:30])})")
        assert page.url == link and at(page)["order"] == "parts" and at(page)["rtol"] == "1e-1"
        page.get_by_role("button", name="swap").click()
        until(page, "location.hash.includes('run=fine') && document.querySelector('.parting')?.textContent.startsWith('They part')")
        page.get_by_role("button", name="this run alone").click()
        page.wait_for_selector(".compare", state="detached")
        assert "other" not in at(page) and at(page)["run"] == "fine"

        # A run and itself.
        page.goto(f"{address}#run=fine&other=fine&show=ratio")
        until(page, "document.querySelector('.parting')?.textContent.startsWith('The same exactly at all steps')")


def test_a_name_of_two_lines_shifts_no_rows(tdbg, page, tmp_path):
    """Each row has its own tensor's numbers, whatever the names hold: as a table, where both can be read."""
    record(tmp_path / "hostile", "hostile")
    with serving(tdbg, tmp_path / "hostile") as address:
        page.goto(f"{address}#run=hostile")
        until(page, f"document.querySelectorAll('.map-label:not(.module)').length === {len(HOSTILE_NAMES)}")
        page.wait_for_timeout(400)
        with page.expect_download() as waiting:
            page.locator(".map").get_by_role("button", name="CSV").click()
        with open(waiting.value.path(), newline="", encoding="utf-8") as file:
            rows = list(csv.reader(file))
    for number, name in enumerate(HOSTILE_NAMES):
        high = {int(row[1]): float(row[4]) for row in rows[1:] if row[0] == name}
        assert high[0] == (3 * number + 1) / 4, name  # mean |x| of three times its number, and of 1


def test_who_of_four_workers_is_the_odd_one_out(tdbg, page, tmp_path):
    record(tmp_path / "ranks", "ranks")
    with serving(tdbg, tmp_path / "ranks") as address:
        page.goto(address)
        until(page, "document.querySelector('.workers .note')?.textContent.includes('worker_3: nothing after step 89')")
        assert "All are the same" in page.locator(".workers .note").inner_text()  # their losses
        page.locator(".map-label", has_text="weight").first.click()
        until(page, "document.querySelector('.workers .note').textContent.includes('odd one out: worker_2')")
        assert "at step 60" in page.locator(".workers .note").inner_text()
        page.get_by_label("Statistic of the workers").select_option("l2")
        until(page, "location.hash.includes('field=l2')")
        until(page, "document.querySelector('.workers .note').textContent.includes('odd one out: worker_2')")

        # Values where they were kept: kernels as pictures, a matrix as one, whole numbers as a table.
        page.goto(f"{address}#run=ranks&tensor=Net_conv.weight&step=20")
        page.get_by_role("button", name="values of this step").click()
        until(page, "document.querySelector('.values .note')?.textContent.startsWith('18 pictures of 5 × 5')")
        colours = page.evaluate("""() => {
          const canvas = document.querySelector('.values-picture'), data = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
          const seen = new Set();
          for (let i = 0; i < data.length; i += 4) seen.add(`${data[i]},${data[i + 1]},${data[i + 2]}`);
          return seen.size;
        }""")
        assert colours > 50
        page.goto(f"{address}#run=ranks&tensor=Net_fc.weight&step=20")
        page.get_by_role("button", name="values of this step").click()
        until(page, "document.querySelector('.values .note')?.textContent.startsWith('12 rows, 40 columns')")
        page.goto(f"{address}#run=ranks&tensor=Net_ids&step=20")
        page.get_by_role("button", name="values of this step").click()
        until(page, "document.querySelector('.values td')?.textContent === '0'")
        assert page.locator(".values td").all_inner_texts() == ["0", "100", "200", "300", "400", "500"]

        # What was going on at the step, and a table to take along.
        page.goto(f"{address}#run=ranks&tensor=Net_fc.weight&step=25")
        until(page, "document.querySelector('#context-head').textContent === 'At step 25'")
        page.goto(f"{address}#run=ranks&tensor=Net_fc.weight&step=25&field=l2")
        until(page, "document.querySelector('.tensor .u-legend')?.textContent.includes('l2')")
        with page.expect_download() as waiting:
            page.locator(".tensor").get_by_role("button", name="CSV").click()
        lines = pathlib.Path(waiting.value.path()).read_text().splitlines()
        assert waiting.value.suggested_filename == "Net_fc.weight-l2.csv"
        assert lines[0] == "run,tensor,field,step,value" and len(lines) == 121
        assert lines[1].startswith("ranks,Net_fc.weight,l2,0,")
        with page.expect_download() as waiting:
            page.locator(".map").get_by_role("button", name="CSV").click()
        rows = pathlib.Path(waiting.value.path()).read_text().splitlines()
        assert rows[0] == "row,first_step,last_step,low,high,flags" and any(row.startswith("Net_fc.weight,0,0,") for row in rows)

        # On paper: light, one page wide.
        page.emulate_media(color_scheme="dark")
        assert page.pdf()[:5] == b"%PDF-"
        assert "theme" not in page.evaluate("({...document.documentElement.dataset})"), "as it was before"


def test_the_list_can_be_sorted_and_filtered_and_a_link_of_it_shows_the_same(tdbg, page, recorded):
    with serving(tdbg, recorded) as address:
        page.goto(address)
        names = "[...document.querySelectorAll('.list tbody a')].map((a) => a.textContent).join()"
        until(page, f"{names}.length > 8")
        page.get_by_role("button", name="size").click()
        until(page, f"{names} === 'fine,sick'")
        page.get_by_role("button", name="size").click()
        until(page, f"{names} === 'sick,fine'")
        assert page.locator("th[aria-sort=descending]").inner_text() == "size ▼"
        page.keyboard.press("/")
        page.keyboard.type("fin")
        until(page, f"{names} === 'fine'")
        link = page.url
        page.reload()
        until(page, f"{names} === 'fine'")
        assert page.url == link and at(page) == {"sort": "-size", "filter": "fin"}


def test_on_a_narrow_screen_the_tensor_stands_above_the_run(tdbg, page, recorded):
    page.set_viewport_size({"width": 420, "height": 800})
    with serving(tdbg, recorded) as address:
        page.goto(f"{address}#run=sick&tensor=gradient/{SICK}.weight&step=20")
        page.wait_for_selector("#tensor-name")
        page.wait_for_selector(".map-label")
        run, tensor = page.locator(".column").bounding_box(), page.locator(".tensor").bounding_box()
        assert run["width"] > 350 and tensor["y"] < run["y"]
        assert page.locator(".map-canvas").bounding_box()["width"] > 150


def test_without_its_token_the_page_is_none(tdbg, page, recorded):
    with serving(tdbg, recorded) as address:
        root = address.rsplit("/", 2)[0]
        assert page.goto(f"{root}/").status == 403
        page.wait_for_timeout(200)
        assert page.troubles and all("403" in trouble for trouble in page.troubles)
        page.troubles.clear()

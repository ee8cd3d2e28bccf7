#!/usr/bin/env python3
"""Pictures of the page by a real browser: those of docs/page.md, and any other size or theme to look at.

    tools/page_pictures.py docs/page          a recorded run, served, photographed (needs chromium and playwright)
    tools/page_pictures.py /tmp/x --sizes 1280x720 2560x1440 --themes light dark
"""

import argparse
import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile

from playwright.sync_api import sync_playwright

ROOT = pathlib.Path(__file__).resolve().parents[1]
RUNS = ROOT / "tests" / "cli" / "page_runs.py"


def tdbg():
    return os.environ.get("TDBG_BIN", str(pathlib.Path(sys.executable).with_name("tdbg")))


@contextlib.contextmanager
def served(where):
    process = subprocess.Popen([tdbg(), "view", where, "--json"], stdout=subprocess.PIPE, text=True)
    try:
        yield json.loads(process.stdout.readline())["address"]
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=10)


def take(address, report, out, size, theme):
    width, height = map(int, size.split("x"))
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=theme)
        page.on("console", lambda m: print("page says:", m.text) if m.type in ("error", "warning") else None)
        page.on("pageerror", lambda e: print("page fails:", e))

        def shot(name, full=False):
            page.wait_for_load_state("networkidle") if name == "runs" else page.wait_for_timeout(500)
            page.screenshot(path=str(out / f"{name}-{width}-{theme}.png"), full_page=full)

        page.goto(address)
        page.wait_for_selector("table.list tbody tr")
        shot("runs")
        page.goto(f"{address}#run=sick")
        page.wait_for_selector(".sentence.bad")
        shot("run")
        page.click(".sentence .go")
        page.wait_for_selector("#tensor-name")
        shot("finding")
        page.goto(f"{address}#run=sick&show=change&statistic=l2")
        page.wait_for_selector(".map-label")
        page.evaluate("document.querySelector('.map').scrollIntoView()")
        shot("layers")
        page.goto(f"{address}#run=sick&tensor=gradient%2FNet_blocks_4_mlp.weight&step=180")
        shot("tensor", full=True)
        page.goto(f"{address}#run=sick&other=fine&show=ratio&order=parts")
        page.wait_for_selector(".parting b")
        page.evaluate("document.querySelector('.compare').scrollIntoView()")
        page.evaluate("window.scrollBy(0, -60)")
        shot("compare")
        page.evaluate("document.querySelector('.map').scrollIntoView()")
        page.evaluate("window.scrollBy(0, -60)")
        shot("ratio")
        page.goto(f"{address}#run=ranks&tensor=Net_conv.weight&step=80")
        page.get_by_role("button", name="values of this step").click()
        page.wait_for_selector(".values-picture")
        page.evaluate("document.querySelector('.workers').scrollIntoView({ block: 'end' })")
        page.evaluate("document.querySelector('.tensor').scrollTo(0, 10000)")
        shot("workers")
        page.goto(report)
        page.wait_for_selector(".about")
        shot("report")
        page.evaluate("document.querySelector('.about').scrollIntoView()")
        shot("report-end")
        browser.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--sizes", nargs="+", default=["1280x720"])
    parser.add_argument("--themes", nargs="+", default=["light"])
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as runs:
        for name in ("ranks", "fine", "sick"):
            subprocess.run([sys.executable, RUNS, f"{runs}/{name}", name], check=True)
            if name == "ranks":
                continue
            subprocess.run([tdbg(), "watch", f"{runs}/{name}", "--rule", "exploding_tensor", "--rule", "vanishing_gradient"],
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
        report = pathlib.Path(runs) / "report.html"
        # What nobody watched is judged by the profile: its incidents are seen.
        shutil.copytree(f"{runs}/sick", f"{runs}/unwatched/sick", ignore=shutil.ignore_patterns("events.jsonl"))
        subprocess.run([tdbg(), "report", f"{runs}/unwatched/sick", "-o", report], check=True)
        shutil.rmtree(f"{runs}/unwatched")
        with served(runs) as address:
            for size in arguments.sizes:
                for theme in arguments.themes:
                    take(address, report.as_uri(), arguments.out, size, theme)


if __name__ == "__main__":
    main()

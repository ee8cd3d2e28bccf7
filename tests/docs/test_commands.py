"""Every command of docs/*.md that can run does: typed as it stands there, beside a script that is called train.py."""

import dataclasses
import json
import pathlib
import shutil

import pytest

pytest.importorskip("torch", reason="needs torch in this Python")

import documents  # noqa: E402
from program import ROOT  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
RUNS = "tdbg-runs"


@dataclasses.dataclass
class Page:
    """What a page needs beside train.py and tdbg-runs/mine.

    :param elsewhere: the test that executes it, or why nothing can
    :param not_here: the same of single commands, by how they begin
    :param answers: exit codes of commands that say something by them, by how they begin
    :param before: a shell command
    :param python: what stands before a block of Python
    """

    elsewhere: str = ""
    not_here: dict = dataclasses.field(default_factory=dict)
    answers: dict = dataclasses.field(default_factory=dict)
    before: str = ""
    python: str = "import numpy as np, tdbg"


PAGES = {
    "docs/actions.md": Page(python="import torch, tdbg\nfrom train import Net\nmodel = Net()"),
    "docs/adding-a-framework.md": Page(elsewhere="pieces of an adaptor; of the build, tests/README.md"),
    "docs/adding-a-rule.md": Page(elsewhere="a build from the sources"),
    "docs/adding-a-statistic.md": Page(elsewhere="a build from the sources"),
    "docs/agents.md": Page(not_here={"pip install": "an index of packages", "tdbg mcp": "tests/cli/test_mcp.py, with a client"}),
    "docs/black-box.md": Page(
        before="tdbg run --dir live --detach -- python train.py --nan 5 --until enough; until ls live/black_box/*; do sleep 0.1; done",
        answers={"tdbg continue last": 6},      # nothing is held: no gradient is that large
        python="import tdbg\nfrom train import Net, loss_function\nmodel = Net()"),
    "docs/cluster.md": Page(elsewhere="tests/cli/test_nodes.py: two machines"),
    "docs/configuration.md": Page(python=f"import sys\nsys.path.append({str(ROOT / 'smdebug-compat' / 'src')!r})\nfrom train import Net\nmodel = Net()"),
    "docs/events.md": Page(elsewhere="tests/cli/test_events.py"),
    "docs/incidents.md": Page(
        before=f"tdbg run --dir tdbg-runs/cut -- python {HERE}/detached.py",
        answers={"tdbg explain last": 1}),      # there is an incident
    "docs/jobs.md": Page(elsewhere="tests/cli/test_job_registry.py and test_resume.py"),
    "docs/migrating-from-smdebug.md": Page(elsewhere="tests/python/test_sagemaker_notebooks.py"),
    "docs/monitoring.md": Page(elsewhere="tests/cli/test_monitoring.py: collectors and trackers"),
    "docs/sagemaker.md": Page(elsewhere="tests/frameworks/sagemaker"),
    "docs/storage.md": Page(elsewhere="tests/storage/test_storage_docs.py"),
    "docs/cli.md": Page(
        before="mkdir runs; cp -r tdbg-runs/mine runs/before; cp -r tdbg-runs/mine runs/after; cp -r runs/after runs/cpu; cp -r runs/cpu runs/gpu; touch debug.yaml",
        answers={"tdbg run --rule vanishing_gradient": 0}),
    "docs/custom-rules.md": Page(
        before=f"mkdir rules; cp {ROOT}/examples/rules/custom_gradient_rule.py rules/",
        not_here={"tdbg check last --rule-file build/libmine.so": "tests/customrules: a C++ compiler"}),
    "docs/http.md": Page(elsewhere="tests/cli/test_view.py and tests/cli/test_page.py: an address of the moment"),
}
TRIED = [page for page in documents.pages()
         if page != "README.md" and documents.blocks(page, "sh", "python") and not PAGES.get(page, Page()).elsewhere]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """A run of 1,300 steps, of which one has a NaN and a black box."""
    from program import Tdbg

    tdbg = Tdbg(tmp_path_factory.mktemp("recorded"))
    shutil.copy(HERE / "train.py", tdbg.directory)
    code, said = documents.execute(tdbg, f"tdbg run --dir {RUNS}/mine --collect weights:100 --collect outputs:100 -- "
                                         "python train.py --steps 1300 --nan 1250")
    assert code == 0, said
    return tdbg.directory


@pytest.fixture
def reader(tdbg, recorded):
    shutil.copytree(recorded, tdbg.directory, dirs_exist_ok=True)
    yield tdbg
    if (tdbg.directory / "live").exists():
        (tdbg.directory / "enough").touch()
        documents.execute(tdbg, "tdbg logs live -f")     # until it has ended


@pytest.mark.long
@pytest.mark.parametrize("name", TRIED)
def test_what_a_page_says_can_be_typed(reader, name):
    page = PAGES.get(name, Page())
    if page.before:
        code, said = documents.execute(reader, page.before)
        assert code == 0, said
    failed = []
    for block in documents.blocks(name, "sh", "python"):
        if block.language == "python":
            code, said = documents.execute_python(reader, block.text, page.python)
            if code:
                failed.append((block.text, code, said))
            continue
        for command in block.commands():
            if command.startswith(tuple(page.not_here)):
                continue
            code, said = documents.execute(reader, command)
            if code != next((answer for start, answer in page.answers.items() if command.startswith(start)), 0):
                failed.append((command, code, said))
    assert not failed, "\n".join(f"{command}\n-> {code}: {said}" for command, code, said in failed)


def test_all_that_the_table_names_is_there():
    for name, page in PAGES.items():
        text = "".join(block.text for block in documents.blocks(name, "sh", "python"))
        assert text, f"{name} has nothing to be typed any more"
        for start in [*page.not_here, *page.answers]:
            assert start in text, f"{name}: {start} is not there any more"
        for word in page.elsewhere.replace(",", " ").replace(":", " ").split():
            assert not word.startswith("tests/") or (ROOT / word).exists(), word


def test_languages_are_said():
    """A block without one would be executed by no test."""
    for name in documents.pages():
        assert all(block.language for block in documents.blocks(name)), f"{name}: a block without a language (sh, python, text, ...)"
        for block in documents.blocks(name, "json"):
            if "..." not in block.text:     # what is cut short is no document
                json.loads(block.text)

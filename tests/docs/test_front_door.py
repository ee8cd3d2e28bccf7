"""README.md, as somebody follows it who has never seen tdbg: what is to be typed works, and what it shows comes out."""

import re

import pytest

pytest.importorskip("torch", reason="needs torch in this Python")

import documents  # noqa: E402
from program import ROOT  # noqa: E402

#: What is tried elsewhere, and where.
NOT_HERE = {
    "make install": "every test runs what it installs",
    "pip install dist/tdbg-": "tools/wheels.sh",
    "tdbg serve": "tests/frameworks/sagemaker",
    "tdbg aws-env": "tests/frameworks/sagemaker",
}
#: Exit codes that are an answer: something was found, or changes.
FOUND = {"tdbg explain last": 1, "tdbg check last": 1, "tdbg migrate": 1}
PROGRAM = """
from sagemaker.pytorch import PyTorch
PyTorch(entry_point="train.py", role="r", instance_count=1, instance_type="ml.m5.large").fit()
"""


@pytest.fixture
def clone(tdbg):
    """What a reader sees in a clone, and a directory of a team."""
    (tdbg.directory / "examples").symlink_to(ROOT / "examples")
    (tdbg.directory / "team").mkdir()
    (tdbg.directory / "team" / "train_with_estimator.py").write_text(PROGRAM)
    return tdbg


def rows():
    """[(file, what tdbg says of it)] of the table of faults."""
    return re.findall(r"^\| [^|]* \| ([^|]+) \| `(\w+\.py)` \|$", (ROOT / "README.md").read_text(), re.MULTILINE)


def test_the_first_screen_and_all_commands_do_what_they_say(clone):
    said = {}
    for block in documents.blocks("README.md", "sh"):
        for command in block.commands():
            if command.startswith(tuple(NOT_HERE)):
                continue
            code, said[command] = documents.execute(clone, command)
            expected = next((code for start, code in FOUND.items() if command.startswith(start)), 0)
            assert code == expected, (command, code, said[command])
    (shown,) = documents.blocks("README.md", "text")
    trained = documents.words(said["tdbg run -- python examples/faults/born_nan.py"])
    assert documents.words(shown.text) in trained, trained
    (code,) = documents.blocks("README.md", "python")
    code, answer = documents.execute_python(clone, code.text + "\nprint(trial.incidents()[0])")
    assert code == 0 and "in the derivative of sqrt, between embed and the loss" in answer, answer


def test_its_table_has_six_faults_of_which_each_is_one_of_the_examples():
    assert len(rows()) == 6
    assert all((ROOT / "examples" / "faults" / file).exists() for _, file in rows())


@pytest.mark.long
@pytest.mark.parametrize("says, file", rows(), ids=[file for _, file in rows()])
def test_its_table_says_what_tdbg_says(clone, says, file):
    code, said = documents.execute(clone, f"tdbg run --dir r -- python examples/faults/{file}")
    assert code == 0 and documents.words(says) in documents.words(said), said
    code, said = documents.execute(clone, f"tdbg run --dir healthy -- python examples/faults/{file} --healthy")
    assert code == 0 and "no issue found" in said, said


def test_it_is_read_in_a_minute():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 80

"""At which step an attempt begins: tdbg.resume_step, metadata.json, the optimizer's count, against every history there may be."""

import json
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tdbg
from tdbg import resume
from tdbg.resume import EarlierSteps, beginning

MODES = ("TRAIN", "EVAL", "PREDICT")
STEPS = st.lists(st.sampled_from([("TRAIN", False), ("TRAIN", False), ("TRAIN", True), ("EVAL", False),
                                  ("PREDICT", False)]), max_size=60)


def spans_of(steps):
    """As the launcher writes them, and the number of each step in its mode."""
    counts, spans, numbers = dict.fromkeys(MODES, 0), [], []
    for at, (mode, skipped) in enumerate(steps):
        if spans and spans[-1][0] == mode and spans[-1][4] == skipped:
            spans[-1][3] += 1
        else:
            spans.append([mode, at, counts[mode], 1, skipped])
        numbers.append(counts[mode])
        counts[mode] += 1
    return [tuple(span) for span in spans], numbers


@given(steps=STEPS, trained=st.integers(0, 60), by_optimizer=st.booleans(), evaluates=st.booleans())
def test_the_step_behind_so_many_is_the_one_that_counting_finds(steps, trained, by_optimizer, evaluates):
    spans, _ = spans_of(steps)
    found = EarlierSteps(spans).behind(trained, by_optimizer, evaluates)
    counted, at = 0, 0      # steps that count; the step behind the last of them
    while counted < trained and at < len(steps):
        mode, skipped = steps[at]
        counted += mode == "TRAIN" and not (by_optimizer and skipped)
        at += 1
    if counted == trained and not evaluates:    # evaluations stay, up to the next step of training
        while at < len(steps) and steps[at][0] != "TRAIN":
            at += 1
    missing = trained - counted
    modes = {mode: sum(m == mode for m, _ in steps[:at]) for mode in MODES}
    modes["TRAIN"] += missing
    assert (found.step, found.modes) == (at + missing, modes)
    assert found.recorded == len(steps) - found.step


@given(steps=STEPS, behind=STEPS, trained=st.integers(0, 60), evaluates=st.booleans())
def test_a_number_behind_an_attempt_of_unknown_place_hides_nothing(steps, behind, trained, evaluates):
    """An attempt that was laid behind the others follows `steps`: what the script counts from there on is no place in the run."""
    before, _ = spans_of(steps)
    both, _ = spans_of(steps + behind)
    # The launcher closes a span where an attempt begins.
    after = [(mode, max(first, len(steps)), mode_first + max(0, len(steps) - first), count - max(0, len(steps) - first), skipped)
             for mode, first, mode_first, count, skipped in both if first + count > len(steps)]
    earlier = EarlierSteps(before + after, 0, len(steps) + len(behind), len(steps) if behind else None)
    found = earlier.behind(trained, evaluates=evaluates)
    if trained <= sum(mode == "TRAIN" for mode, _ in steps) or not behind:
        expected = EarlierSteps(before).behind(trained, evaluates=evaluates)
        assert (found.step, found.modes, found.source) == (expected.step, expected.modes, "")
    else:
        modes = {mode: sum(m == mode for m, _ in steps + behind) for mode in MODES}
        assert (found.step, found.modes, found.source, found.recorded) == (len(steps) + len(behind), modes, "behind", 0)


@pytest.fixture
def attempt(tmp_path, monkeypatch):
    """The second attempt of a run of 25 steps: ten of training, an evaluation, ten, three evaluations, one."""
    spans, _ = spans_of([("TRAIN", False)] * 10 + [("EVAL", False)] + [("TRAIN", False)] * 10 + [("EVAL", False)] * 3
                        + [("TRAIN", False)])
    (tmp_path / "1").mkdir()
    (tmp_path / "1/earlier_steps.json").write_text(json.dumps({"spans": spans, "next_step": 25, "optimizer_began": 100}))
    monkeypatch.setenv("TDBG_RUN", str(tmp_path))
    monkeypatch.setenv("TDBG_ATTEMPT", "1")
    monkeypatch.setenv("TDBG_CHECKPOINT_DIR", str(tmp_path / "c"))
    (tmp_path / "c").mkdir()
    yield tmp_path
    resume.take_said()


def test_the_script_comes_first_then_metadata_then_the_optimizer(attempt):
    def optimizer():
        return 115, "Adam"

    found, who, steps = beginning(optimizer)
    assert (found.step, found.source, found.recorded, steps) == (16, "optimizer", 9, 115) and "(Adam)" in who
    assert found.modes == {"TRAIN": 15, "EVAL": 1, "PREDICT": 0}
    assert found.words(1, who) == ("attempt 1 goes on at step 16, as the optimizer's own state (Adam) says; "
                                   "steps 16 to 24 are trained again")
    (attempt / "c/metadata.json").write_text(json.dumps([
        {"latest-global-step-seen": 3, "latest-mode-step": {"TRAIN": 3}},
        {"latest-global-step-seen": 19, "latest-mode-step": {"GLOBAL": 19, "TRAIN": 17, "EVAL": 0}}]))
    found, who, steps = beginning(optimizer)
    assert (found.step, found.source, found.recorded) == (20, "metadata.json", 5)
    assert found.modes == {"TRAIN": 18, "EVAL": 1, "PREDICT": 20}       # as smdebug goes on
    tdbg.resume_step(7)
    tdbg.resume_step(24)
    found, who, _ = beginning(optimizer)
    assert (found.step, found.source, found.recorded) == (28, "script", -3)
    assert "nothing is known of steps 25 to 27" in found.words(1, who)
    assert beginning(optimizer)[0].source == "metadata.json"    # what was said is said of one training


@pytest.mark.parametrize("text", ["", "[1]", "{}", '{"spans": 3}', '{"spans": [[1]], "next_step": 3}', "\0", "[" * 100000])
def test_files_that_say_nothing_are_passed_over(attempt, text):
    for path in ("1/earlier_steps.json", "c/metadata.json"):
        (attempt / path).write_text(text)
    found, who, _ = beginning(lambda: (5, "Adam"))
    assert (found.step, found.source, who) == (0, "", "")


@pytest.mark.parametrize("n", [-1, 1.5, "3", None, True, 2**60])
def test_a_step_that_is_none_is_refused_where_it_is_said(n):
    with pytest.raises(ValueError, match="number of training steps"):
        tdbg.resume_step(n)


def test_an_optimizer_that_was_never_stepped_says_nothing_where_there_is_a_checkpoint(attempt, monkeypatch):
    """Its state may not have been in the checkpoint; without one, the training begins again."""
    found, who, steps = beginning(lambda: (0, "Adam"))
    assert (found.step, found.source, who, steps) == (0, "optimizer", "the optimizer's own state (Adam)", 0)
    (attempt / "c/deep").mkdir()
    assert beginning(lambda: (0, "Adam"))[0].source == "optimizer"
    (attempt / "c/deep/weights.pt").touch()
    assert beginning(lambda: (0, "Adam"))[0] == resume.Beginning()
    monkeypatch.delenv("TDBG_CHECKPOINT_DIR")
    assert beginning(lambda: (0, "Adam"))[0] == resume.Beginning()


def test_a_first_attempt_goes_by_no_count(monkeypatch):
    monkeypatch.delenv("TDBG_RUN", raising=False)
    assert beginning(lambda: (1000, "Adam"))[0] == resume.Beginning()
    tdbg.resume_step(50)
    found = beginning(lambda: None)[0]
    assert (found.step, found.modes["TRAIN"], found.source) == (50, 50, "script")


def test_a_log_beside_the_checkpoints_does_not_make_the_state_grow(tmp_path, monkeypatch):
    from tdbg.hook.checkpoint_state import StateStore

    monkeypatch.setenv("CHECKPOINT_CONFIG_FILE_PATH", str(tmp_path / "absent.json"))
    monkeypatch.setenv("TDBG_CHECKPOINT_DIR", str(tmp_path))
    store = StateStore()
    for step in range(300):
        (tmp_path / "log").write_text("x" * (step + 1))
        assert store.is_checkpoint_updated()
        store.update_state({"training-run": 0, "latest-global-step-saved": step, "latest-global-step-seen": step,
                            "latest-mode-step": {"GLOBAL": step}})
    assert len(json.loads((tmp_path / "metadata.json").read_text())) == 100
    assert StateStore().get_last_saved_state()["latest-global-step-seen"] == 299
    assert sorted(os.listdir(tmp_path)) == ["log", "metadata.json"]

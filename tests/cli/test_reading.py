"""The reading commands over a recorded run (tests/golden), as text and as JSON."""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import textwrap

from program import BINARY, GOLDEN, ROOT

EXPECTED = json.loads((GOLDEN / "expected.json").read_text())


def write_training(tdbg, rate, steps):
    """train.py: one linear layer, SGD at this rate."""
    (tdbg.directory / "train.py").write_text(textwrap.dedent(f"""
        import torch
        model = torch.nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), {rate})
        for _ in range({steps}):
            loss = torch.nn.functional.mse_loss(model(torch.ones(2, 4)), torch.zeros(2, 1))
            optimizer.zero_grad(), loss.backward(), optimizer.step()
        """))


def test_help_names_every_command_and_each_explains_itself(tdbg):
    overview = tdbg.ok("--help").stdout
    for command in ("run", "ls", "status", "tensors", "show", "check", "rules", "watch", "stop", "plan", "dump", "doctor"):
        assert f"  {command} " in overview
        assert "--help" in tdbg.ok(command, "--help").stdout
    assert tdbg.ok("--version").stdout.startswith("tdbg ")


def test_status_has_sagemakers_fields_and_the_run(tdbg, golden):
    report = tdbg.json("status", golden)
    assert report["rules"] == [] and report["workers"] == ["worker_0"]
    assert report["steps"]["all"] == 3
    assert report["dropped"][0]["cause"] == "journal_full"
    assert report["losses"] == report["dropped"], "the old name, for one minor version"
    text = tdbg.ok("status", golden).stdout
    assert "no rule was watching" in text and "journal_full" in text
    assert tdbg.ok("status", golden, "--verbose").stdout == text


def test_status_begins_with_what_was_found_and_no_line_is_too_wide(tdbg):
    write_training(tdbg, rate=1e20, steps=8)
    ended = tdbg("run", "--quiet", "--rule", "all", "--dir", "r", "--", sys.executable, "train.py")
    assert ended.returncode == 0, ended.stderr
    texts = {"status": tdbg.ok("status", "r").stdout, "verbose": tdbg.ok("status", "r", "--verbose").stdout,
             "check": tdbg("check", "r").stdout, "rules": tdbg.ok("rules").stdout}
    below = texts["status"].partition("\n\n")[2]  # a rule's line is whole where no terminal cuts it
    for name, text in {**texts, "status": below}.items():
        assert max(map(len, text.splitlines())) <= 100, (name, max(text.splitlines(), key=len))
    said = {name: state for name, state in (line.split()[:2] for line in texts["status"].split("\n\n")[0].splitlines())}
    states = list(said.values())
    rules = {rule["RuleConfigurationName"]: rule for rule in tdbg.json("status", "r")["rules"]}
    assert len(states) == len(rules) and states[0] == "IssuesFound" and states[-1] == "unused"
    assert texts["status"].count("IssuesFound ") == states.count("IssuesFound") + states.count("NoIssuesFound")
    # Who has seen nothing has not found that nothing is wrong.
    assert {name for name, state in said.items() if state == "unused"} == {
        name for name, rule in rules.items() if rule["StatusDetails"].startswith("Nothing to judge: ")}
    assert texts["verbose"].count("RuleEvaluationStatus") == len(rules) and "RuleEval" not in texts["status"]
    assert texts["status"].splitlines()[-1] == "details   tdbg status r --verbose"


def test_an_answer_that_cannot_be_written_is_an_error(tdbg, golden):
    for arguments in (["status", golden], ["show", golden, "conv1.weight", "--json"], ["--help"]):
        with open("/dev/full", "w") as full:
            done = tdbg.start(*arguments, stdout=full, stderr=subprocess.PIPE)
            _, error = done.communicate(timeout=20)
        assert done.returncode == 6 and error == "tdbg: cannot write the output: No space left on device\n", arguments
    closed = tdbg.start("status", golden, stderr=subprocess.PIPE, preexec_fn=lambda: os.close(1))
    assert "cannot write the output" in closed.communicate(timeout=20)[1] and closed.returncode == 6


def by_python(tdbg, *arguments, program=BINARY, **kwargs):
    """`python -m tdbg`, which is what the wheel's `tdbg` is."""
    return subprocess.run([sys.executable, "-m", "tdbg", *arguments], cwd=tdbg.directory, text=True, timeout=20, stderr=subprocess.PIPE,
                          env={**tdbg.env, "PYTHONPATH": tdbg.env["TDBG_HOME"], "TDBG_CLI": str(program)}, **kwargs)


def test_a_reader_that_has_enough_is_no_error(tdbg, golden):
    read, write = os.pipe()
    os.close(read)
    done = by_python(tdbg, "status", golden, stdout=write)
    os.close(write)
    assert done.stderr == "" and done.returncode == -signal.SIGPIPE


def test_a_package_without_its_program_says_what_to_do(tdbg, golden):
    done = by_python(tdbg, "status", golden, program=tdbg.directory / "tdbg")
    assert done.returncode == 6 and done.stderr.startswith("tdbg: cannot start ") and "PYTHONPATH" in done.stderr


def test_program_package_and_distributions_are_of_one_version(tdbg):
    program = tdbg.ok("--version").stdout.split()[1]
    asked = subprocess.run([sys.executable, "-c", "import tdbg; print(tdbg.__version__)"], capture_output=True, text=True,
                           env={**tdbg.env, "PYTHONPATH": tdbg.env["TDBG_HOME"]}, timeout=60)
    assert asked.stdout.strip() == program, asked.stderr
    for project in ("pyproject.toml", "smdebug-compat/pyproject.toml"):
        assert f'\nversion = "{program}"\n' in (ROOT / project).read_text()


def test_tensors_lists_and_filters(tdbg, golden):
    names = [t["name"] for t in tdbg.json("tensors", golden)]
    assert "gradient/Net_conv1.weight" in names
    assert [t["name"] for t in tdbg.json("tensors", golden, "^grad")] == ["gradient/Net_conv1.weight"]
    assert "float32" in tdbg.ok("tensors", golden).stdout


def test_show_gives_statistics_a_field_and_values(tdbg, golden):
    name = "gradient/Net_conv1.weight"
    steps = tdbg.json("show", golden, name)["steps"]
    assert [s["global_step"] for s in steps] == [0, 1, 2]
    assert steps[0]["count"] == 6
    series = tdbg.json("show", golden, name, "--field", "l2")["series"]
    assert [s for s, _ in series] == [0, 1, 2] and series[1][1] == steps[1]["l2"]
    raw = tdbg.json("show", golden, name, "--raw", "--steps", "0:2")["values"]
    assert [v["global_step"] for v in raw] == [0, 1]
    assert len(raw[0]["values"]) == 2 and len(raw[0]["values"][0]) == 3
    assert "MEAN_ABS" in tdbg.ok("show", golden, "conv1.weight").stdout


def test_a_part_of_a_name_is_enough_where_one_tensor_has_it(tdbg, golden):
    names = [t["name"] for t in tdbg.json("tensors", golden)]
    whole = next(n for n in names if n.startswith("gradient/") and n.endswith("weight"))
    part = whole[3:-3].upper()
    assert sum(part in n.upper() for n in names) == 1
    done = tdbg.ok("show", golden, part)
    assert done.stdout.startswith(whole) and f"'{part}' is {whole} here" in done.stderr
    several = tdbg.fails(4, "show", golden, "e")
    assert "no tensor 'e'; it is part of the names of" in several and whole in several


def test_words_typed_first_are_understood(tdbg, golden):
    for arguments in (["run", "--rule", "vanishing", "--", "true"], ["check", golden, "--rule", "vanishing"]):
        assert "unknown rule 'vanishing', did you mean vanishing_gradient? there are" in tdbg.fails(2, *arguments)
    for command in ("rules", "handlers"):
        assert "(0x)" not in tdbg.ok(command, "--help").stdout and "...]" in tdbg.ok(command, "--help").stdout
    assert "recommended" in tdbg.ok("run", "--help").stdout
    overview = tdbg.ok("--help").stdout
    assert re.search(r"^  interrupt +rehearse a reclaim", overview, re.MULTILINE), overview
    assert len({line.index(re.split(" +", line.strip(), maxsplit=1)[1]) for line in overview.splitlines()
                if re.match(r"  [a-z]", line)}) == 1, "the descriptions stand in one column"


def test_a_run_is_found_in_one_order_whoever_asks(tdbg, golden):
    shutil.copytree(golden, tdbg.directory / "tdbg-runs" / "a")
    assert tdbg.ok("ls", "--where", "a").stdout == f"{tdbg.directory}/tdbg-runs/a\n"
    assert tdbg.ok("ls", "--where", "last").stdout == f"{tdbg.directory}/tdbg-runs/a\n"
    shutil.copytree(golden, tdbg.directory / "a")
    assert tdbg.ok("ls", "--where", "a").stdout == f"{tdbg.directory}/a\n", "./NAME comes before ./tdbg-runs/NAME"
    assert tdbg.json("ls", "--where", "a") == {"run": f"{tdbg.directory}/a"}
    assert "no run 'b'" in tdbg.fails(4, "ls", "--where", "b")


def test_logs_around_a_step_at_which_nothing_was_printed_shows_what_was_printed_about_it(tdbg):
    (tdbg.directory / "train.py").write_text(textwrap.dedent("""
        import time, torch
        model = torch.nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), 1e-3)
        for step in range(60):
            time.sleep(0.02)
            loss = model(torch.ones(2, 4)).sum()
            optimizer.zero_grad(), loss.backward(), optimizer.step()
            if step % 20 == 0:
                print("printed at", step, flush=True)
        """))
    tdbg.ok("run", "--quiet", "--dir", "r", "--", sys.executable, "train.py")
    assert tdbg.ok("logs", "r", "--around", "20").stdout.splitlines() == ["printed at 0", "printed at 20", "printed at 40"]
    assert tdbg.ok("logs", "r", "--around", "30").stdout.splitlines() == ["printed at 0", "printed at 20", "printed at 40"]
    assert re.search(r"nothing was printed about step 900: the last line of the output was printed at step \d+\n$",
                     tdbg.ok("logs", "r", "--around", "900").stderr)


def test_a_run_without_anything_to_judge_is_not_one_without_issues(tdbg):
    (tdbg.directory / "train.py").write_text(textwrap.dedent("""
        import torch
        model = torch.nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), 1e-3)
        for step in range(12):
            loss = model(torch.ones(2, 4)).sum()
            optimizer.zero_grad(), loss.backward(), optimizer.step()
        """))
    rules = ["--rule", "overfit", "--rule", "loss_not_decreasing"]
    done = tdbg("run", *rules, "--dir", "named", "--", sys.executable, "train.py")
    assert "tdbg: nothing to judge (completed)" in done.stderr and "no issue found" not in done.stderr
    done = tdbg("run", "--rule", "exploding_tensor", *rules, "--dir", "some", "--", sys.executable, "train.py")
    assert "tdbg: no issue found by 1 of 3 rules (completed)" in done.stderr
    listed = {line.split()[0]: line for line in tdbg.ok("ls", ".").stdout.splitlines()}
    assert listed["named"].endswith("Overfit (not judged), LossNotDecreasing (not judged)"), listed
    assert "nothing was judged" in tdbg("explain", "named").stdout
    assert "…" not in tdbg.ok("status", "named").stdout, "no line is cut where no terminal is"
    assert "no incident by 1 of 3 rules" in " ".join(tdbg("explain", "some").stdout.split())
    assert tdbg("check", "named", "--own").returncode == 8


def test_check_says_a_findings_sentence_as_run_does(tdbg):
    write_training(tdbg, rate=0.0, steps=40)
    done = tdbg("run", "--rule", "loss_not_decreasing", "--dir", "r", "--", sys.executable, "train.py")
    (rule,) = tdbg.json("status", "r")["rules"]
    sentence = rule["findings"][0]["text"]
    assert "the loss's 40 TRAIN values are fewer than the 1000 that intervals of 500 need" in sentence
    checked = tdbg("check", "r", "--own")
    assert checked.returncode == 1
    for said in (done.stderr, checked.stdout):
        assert sentence in " ".join(said.split()), said


def test_check_judges_again_and_its_exit_code_says_what(tdbg, golden):
    clean = tdbg("check", golden, "--rule", "vanishing_gradient", "threshold=1e-30", "--json")
    hit = tdbg("check", "--rule", "vanishing_gradient", "threshold=1e30", str(golden), "--json")
    verdict = json.loads(hit.stdout)["rules"][0]
    assert verdict["RuleEvaluationStatus"] == "IssuesFound" and hit.returncode == 1
    assert verdict["findings"][0]["tensor"] == "gradient/Net_conv1.weight"
    assert json.loads(clean.stdout)["rules"][0]["RuleEvaluationStatus"] == "NoIssuesFound" and clean.returncode == 0
    unjudged = tdbg("check", golden, "--rule", "loss_not_decreasing")
    assert unjudged.returncode == 8, unjudged.stdout
    tdbg.fails(2, "check", golden, "--own")
    tdbg.fails(2, "check", golden, "--own", "--rule", "vanishing_gradient")


def test_one_word_stands_for_all_rules_and_one_for_those_that_cost_nothing(tdbg, golden):
    done = tdbg("check", golden, "--rule", "all", "--json")
    answer = json.loads(done.stdout)
    every = {rule["class_name"] for rule in tdbg.json("rules")}
    tried = {rule["RuleConfigurationName"] for rule in answer["rules"]} | {rule["rule"] for rule in answer["not_run"]}
    needy = {"AllZero", "TensorVariance", "UnchangedTensor", "SimilarAcrossRuns"}
    assert tried == every - needy
    said = " ".join(done.stderr.split())
    assert "leaves out what needs a parameter: all_zero, tensor_variance, unchanged_tensor, similar_across_runs" in said
    assert done.returncode in (0, 1), "what found nothing to judge was not asked for by name"
    tdbg.fails(2, "check", golden, "--rule", "all", "threshold=1")

    plan = json.loads(tdbg.ok("plan", "--dir", "d", "--rule", "recommended", "--rule", "loss_not_decreasing", "interval=7").stdout)
    recorded = {r["rule"]: r for r in json.loads((tdbg.directory / "d" / "rules.json").read_text())["rules"]}
    assert {"VanishingGradient", "ExplodingTensor", "Overfit", "Overtraining", "StalledTrainingRule"} <= set(recorded)
    assert not {"WeightUpdateRatio", "DeadRelu", "CheckInputImages", "ClassImbalance"} & set(recorded)
    assert recorded["loss_not_decreasing"]["parameters"] == {"interval": "7"} and "LossNotDecreasing" not in recorded
    assert recorded["Overfit"]["optional"] and "optional" not in recorded["loss_not_decreasing"]
    assert plan["first_verdict"]["LossNotDecreasing"] == 21 and "Overtraining" not in plan["first_verdict"]
    kept = json.loads((tdbg.directory / "d" / "plan.json").read_text())
    assert not [c["name"] for c in kept["collections"] if c["name"].startswith("rule:")], "nothing more is kept for them"


def test_check_without_a_rule_runs_every_rule_and_says_which_could_not(tdbg, golden):
    done = tdbg("check", golden, "--json")
    answer = json.loads(done.stdout)
    judged = {rule["RuleConfigurationName"]: rule["RuleEvaluationStatus"] for rule in answer["rules"]}
    not_run = {rule["rule"]: rule["why"] for rule in answer["not_run"]}
    assert "VanishingGradient" in judged and "StalledTrainingRule" in judged
    assert "what to inspect" in not_run["AllZero"] and "other_trials" in not_run["SimilarAcrossRuns"]
    assert "trees/ID" in not_run["TreeDepth"]
    assert set(judged) | set(not_run) == {rule["class_name"] for rule in tdbg.json("rules")} | {"Profile"}
    assert not set(judged) & set(not_run)
    # A person gets names and what to do next; the reasons, which fill two screens, stay in --json.
    verdicts, _, rest = tdbg("check", golden).stdout.partition("\ncould not run; ")
    lines = rest.splitlines()
    assert lines[0] == "tdbg check golden --json says why of each" and len(lines) < 12
    assert sorted(re.findall(r"\b[A-Z]\w+\b(?=,|$)", rest, re.MULTILINE)) == sorted([*not_run, "VALUE"])
    assert "trees/ID" not in rest and "TreeDepth" not in verdicts
    at = lines.index("  next: tdbg rules all_zero lists them")
    assert lines[at + 1] == "  next: tdbg check golden --rule all_zero KEY=VALUE"
    assert "collection_names" in tdbg.ok("rules", "all_zero").stdout
    assert tdbg("check", golden, "--rule", "all_zero", "collection_names=gradients").returncode in (0, 1)


def test_ls_lists_the_unreadable_beside_the_others(tdbg, golden):
    bad = golden.parent / "bad"
    bad.mkdir()
    (bad / "run.json").write_text('{"format": {"major": 99, "minor": 0}, "kind": "run", "id": "x"}')
    entries = {e["run"].rsplit("/", 1)[1]: e for e in tdbg.json("ls", ".", code=7)}
    assert "error" in entries["bad"] and entries["golden"]["steps"]["all"] == 3
    assert tdbg.json("ls") == []


def test_runs_in_folders_are_listed_and_named_from_the_root(tdbg, golden):
    """As `make demo` leaves them: tdbg-runs/demo-TIME/hopeless."""
    folder = tdbg.directory / "tdbg-runs" / "experiment"
    folder.mkdir(parents=True)
    shutil.copytree(golden, folder / "one")
    assert "experiment/one " in tdbg("ls").stdout
    assert tdbg.json("status", "experiment/one")["run"] == tdbg.json("status", "last")["run"] == str(folder / "one")
    refused = tdbg("status", "experiment/on")
    assert refused.returncode == 4 and "did you mean 'experiment/one'" in refused.stderr


def test_doctor_answers(tdbg):
    done = tdbg("doctor", "--json")
    answers = {f["what"]: f for f in json.loads(done.stdout)}
    assert {"python", "file system", "map and pre-allocate", "page size", "processors", "inotify"} <= set(answers)
    assert answers["map and pre-allocate"]["verdict"] == "good"
    assert done.returncode in (0, 6)


def test_doctor_asks_the_python_that_a_user_would_type(tdbg):
    bin = tdbg.directory / "bin"
    bin.mkdir()
    for name in ("python", "python3"):
        (bin / name).write_text(f'#!/bin/sh\n: > {tdbg.directory}/asked-{name}\nexec {sys.executable} "$@"\n')
        (bin / name).chmod(0o755)
    tdbg("doctor", "--json", env={"PATH": f"{bin}:/usr/bin:/bin"})
    asked = [name for name in ("python", "python3") if (tdbg.directory / f"asked-{name}").exists()]
    assert asked == ["python"], "as in tdbg run -- python train.py"


def test_doctor_names_the_frameworks_of_the_python_that_trains(tdbg):
    metadata = tdbg.directory / "there" / "tensorflow_cpu-2.21.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: tensorflow-cpu\nVersion: 2.21.0\n")
    (metadata / "top_level.txt").write_text("tensorflow\n")
    python = tdbg.directory / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={metadata.parent}:$PYTHONPATH exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    answers = {f["what"]: f["answer"] for f in json.loads(tdbg("doctor", "--python", python, "--json").stdout)}
    assert "tensorflow 2.21.0" in answers["frameworks"].split(", ")


def test_doctor_does_not_take_what_lies_beside_tdbg_for_the_pythons_own(tdbg):
    home = tdbg.directory / "site-packages"         # of another environment, where the wheel is
    (home / "torch-99.0.dist-info").mkdir(parents=True)
    (home / "torch-99.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 99.0\n")
    here = pathlib.Path(tdbg.env["TDBG_HOME"])
    (home / "tdbg" / "bin").mkdir(parents=True)
    shutil.copy2(BINARY, home / "tdbg" / "bin" / "tdbg")        # a copy: through a link it would find where it is from
    for part in [*(here / "tdbg").iterdir(), here / "tdbg.libs"]:
        if part.name != "bin" and part.exists():
            (home / part.relative_to(here)).symlink_to(part)
    done = subprocess.run([home / "tdbg" / "bin" / "tdbg", "doctor", "--python", sys.executable, "--json"], env=tdbg.env,
                          capture_output=True, text=True, timeout=60)
    answers = {f["what"]: f["answer"] for f in json.loads(done.stdout)}
    assert answers["python part"] == str(home) and answers["tdbg._capture"] == "loads"
    assert "torch 99.0" not in answers["frameworks"]


def test_rules_lists_and_explains(tdbg):
    assert {"VanishingGradient", "LossNotDecreasing", "ExplodingTensor"} <= {r["class_name"] for r in tdbg.json("rules")}
    one = tdbg.json("rules", "VanishingGradient")
    assert one["parameters"][0]["name"] == "threshold" and one["parameters"][0]["default"] == "1e-7"
    assert "threshold" in tdbg.ok("rules", "vanishing_gradient").stdout


def test_a_rules_page_is_shown_on_the_terminal(tdbg):
    page = tdbg.ok("rules", "show", "vanishing_gradient").stdout
    assert page.startswith("VanishingGradient (vanishing_gradient)\n") and "**" not in page and "\033" not in page
    assert "What to do next." in page and "mean(|g|)" in page
    document = tdbg.json("rules", "show", "VanishingGradient")
    assert document["page"].startswith("# VanishingGradient") and document["parameters"][0]["default"] == "1e-7"
    assert "did you mean vanishing_gradient?" in tdbg.fails(2, "rules", "show", "vanishing_gradien")
    tdbg.fails(2, "rules", "show")
    tdbg.fails(2, "rules", "explain", "vanishing_gradient")


def test_plan_lays_out_a_run_that_nobody_has_started(tdbg):
    answer = json.loads(tdbg.ok("plan", "--dir", "d", "--rule", "vanishing_gradient").stdout)
    assert answer == {"directory": str(tdbg.directory / "d"), "attempt": 0, "judge": True}
    for name in ("run.json", "plan.json", "control", "rules.json"):
        assert (tdbg.directory / "d" / name).exists()
    assert tdbg.json("status", "d")["state"] == "not started"


def test_dump_names_fields_and_refuses_what_is_none_of_ours(tdbg, golden):
    worker = golden / "0" / "worker_0"
    for path in (worker / "journal", next((worker / "segments").iterdir()), golden / "run.json"):
        assert tdbg.ok("dump", path).stdout
        json.loads(tdbg.ok("dump", path, "--json").stdout)
    header = tdbg.json("dump", worker / "journal")["header"]
    assert header["dropped"][0]["drop_count"] == header["losses"][0]["loss_count"] > 0, "the old name, for one minor version"
    (golden / "picture.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    tdbg.fails(5, "dump", golden / "picture.png")
    tdbg.fails(4, "dump", golden / "missing")

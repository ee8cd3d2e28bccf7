"""What judging costs: replays against smdebug's and against reading, and the watcher's share of a core.

    python bench/rules.py [--json FILE] [--quick]

Needs build-bench/bench/rules_runs, the tdbg program ($TDBG_BIN) and, for the rival, .venv-smdebug. Rounds are
interleaved and the best of each counts; both sides read from the page cache.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
RUNS = ROOT / os.environ.get("TDBG_BENCH_BUILD", "build-bench") / "bench" / "rules_runs"
TDBG = os.environ.get("TDBG_BIN", str(ROOT / ".venv" / "bin" / "tdbg"))
SMDEBUG = ROOT / ".venv-smdebug" / "bin" / "python"
SMDEBUG_STEPS = 500

# Every rule that judges statistics alone, with parameters for those that need some.
SUMMARY_RULES = [
    ["vanishing_gradient"],
    ["exploding_tensor"],
    ["loss_not_decreasing"],
    ["overtraining", "patience_train=1000"],
    ["overfit"],
    ["all_zero", "collection_names=gradients"],
    ["tensor_variance", "collection_names=gradients", "max_threshold=1e9"],
    ["stalled_training_rule"],
    ["feature_importance_overweight"],
]


def rule_flags(rules):
    return [word for rule in rules for word in ("--rule", *rule)]


def write(directory, tensors, steps, rate=0, how="write"):
    subprocess.run([str(RUNS), how, str(directory), str(tensors), str(steps), str(rate)], check=True)


def timed(command, codes=(0,)):
    begin = time.perf_counter()
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    seconds = time.perf_counter() - begin
    assert done.returncode in codes, (command, done.returncode, done.stdout, done.stderr)
    return seconds, done.stdout


def vanishing_against_smdebug(scratch, rounds):
    """100 gradients x 10,000 steps by `tdbg check`; the same over 500 steps by smdebug, scaled by 20."""
    run = scratch / "vanishing"
    write(run, 100, 10_000)
    ours, theirs, judged = [], [], 0
    rival = scratch / "smdebug"
    have_rival = SMDEBUG.exists()
    if have_rival:
        subprocess.run([str(SMDEBUG), __file__, "--smdebug-write", str(rival)], check=True, capture_output=True)
    for _ in range(rounds):
        seconds, out = timed([TDBG, "check", run, "--rule", "vanishing_gradient", "--json"])
        judged = json.loads(out)["rules"][0]["steps_judged"]
        ours.append(seconds)
        if have_rival:
            done = subprocess.run([str(SMDEBUG), __file__, "--smdebug-judge", str(rival)], check=True,
                                  capture_output=True, text=True)
            theirs.append(float(done.stdout.strip().splitlines()[-1]))
    assert judged == 10_000, judged
    result = {"tdbg_seconds": min(ours), "steps": judged, "tensors": 100}
    if theirs:
        result["smdebug_seconds_500_steps"] = min(theirs)
        result["smdebug_seconds_scaled"] = min(theirs) * 10_000 / SMDEBUG_STEPS
        result["ratio"] = result["smdebug_seconds_scaled"] / min(ours)
    return result


def check_against_reading(scratch, rounds):
    run = scratch / "check"
    write(run, 300, 10_000)
    judging, reading = [], []
    for _ in range(rounds + 1):  # the first brings the pages in
        _, out = timed([RUNS, "read", run])
        reading.append(json.loads(out)["seconds"])
        seconds, out = timed([TDBG, "check", run, *rule_flags(SUMMARY_RULES), "--json"], codes=(0, 8))
        judging.append(seconds)
    statuses = {rule["RuleConfigurationName"]: rule["steps_judged"] for rule in json.loads(out)["rules"]}
    return {"tdbg_check_seconds": min(judging), "read_seconds": min(reading), "ratio": min(judging) / min(reading),
            "rules": len(SUMMARY_RULES), "steps_judged": statuses}


def profile_against_reading(scratch, rounds):
    """Replay of a training of 150 weights and their gradients by the profile, against reading its statistics once: user
    and system time of both, which a busy machine moves least."""
    run = scratch / "profile"
    write(run, 300, 5_000, how="train")
    seconds = {}
    for name, command in (("read", [RUNS, "read", run]), ("check", [TDBG, "check", run, "--rule", "Profile", "--json"])):
        for _ in range(rounds + 1):
            child = subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, text=True)
            out = child.stdout.read()
            _, status, usage = os.wait4(child.pid, 0)
            child.returncode = os.waitstatus_to_exitcode(status)
            assert child.returncode == 0, out
            seconds[name] = min(seconds.get(name, 1e9), usage.ru_utime + usage.ru_stime)
    assert json.loads(out)["rules"][0]["steps_judged"] == 5_000, out
    return {"check_cpu_seconds": seconds["check"], "read_cpu_seconds": seconds["read"],
            "ratio": seconds["check"] / seconds["read"], "us_a_step": 1e6 * seconds["check"] / 5_000}


def watcher_share(scratch, seconds, how="write", rate=100, flags=None):
    """CPU seconds of `tdbg watch` per second, while 300 tensors come at `rate` steps a second. Without flags the profile
    judges."""
    run = scratch / f"watched-{how}"
    flags = rule_flags(SUMMARY_RULES) if flags is None else flags
    writer = subprocess.Popen([str(RUNS), how, str(run), "300", str(rate * seconds), str(rate)])
    while not (run / "run.json").exists():
        time.sleep(0.01)
    begin = time.monotonic()
    watcher = subprocess.Popen([TDBG, "watch", str(run), *flags, "--json", "--quiet"],
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(watcher.pid, 0)
    wall = time.monotonic() - begin
    watcher.returncode = os.waitstatus_to_exitcode(status)
    assert writer.wait() == 0 and watcher.returncode in (0, 8), watcher.returncode
    return {"cpu_seconds": usage.ru_utime + usage.ru_stime, "wall_seconds": wall,
            "share_of_a_core": (usage.ru_utime + usage.ru_stime) / wall}


# ---- In smdebug's own environment ------------------------------------------------------------------------------------


def smdebug_write(directory):
    """Its own trial: a hundred gradients of sixteen elements, at every one of 500 steps."""
    import smdebug.pytorch as smd
    import torch

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            for i in range(100):
                self.register_parameter(f"layer{i}", torch.nn.Parameter(torch.randn(16)))

        def forward(self, x):
            return sum((p * x).sum() for p in self.parameters())

    net = Net()
    hook = smd.Hook(out_dir=directory, save_config=smd.SaveConfig(save_interval=1), include_collections=["gradients"])
    hook.register_module(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-6)
    for _ in range(SMDEBUG_STEPS):
        optimizer.zero_grad()
        net(torch.randn(16)).backward()
        optimizer.step()
    hook.close()


def smdebug_judge(directory):
    from smdebug.rules import invoke_rule
    from smdebug.rules.rule import Rule
    from smdebug.trials import create_trial

    class VanishingGradient(Rule):
        """As smdebug's documentation writes it."""

        def __init__(self, base_trial, threshold=1e-7):
            super().__init__(base_trial, action_str="")
            self.threshold = float(threshold)

        def invoke_at_step(self, step):
            for name in self.base_trial.tensor_names(collection="gradients"):
                if self.base_trial.tensor(name).reduction_value(step, "mean", abs=True) < self.threshold:
                    return True
            return False

    trial = create_trial(directory)
    begin = time.perf_counter()
    invoke_rule(VanishingGradient(trial), start_step=0, end_step=SMDEBUG_STEPS)
    print(time.perf_counter() - begin)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--smdebug-write", help=argparse.SUPPRESS)
    parser.add_argument("--smdebug-judge", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.smdebug_write:
        return smdebug_write(given.smdebug_write)
    if given.smdebug_judge:
        return smdebug_judge(given.smdebug_judge)
    rounds = 1 if given.quick else 3
    with tempfile.TemporaryDirectory(prefix="tdbg-rules-") as name:
        scratch = pathlib.Path(name)
        figures = {"vanishing": vanishing_against_smdebug(scratch, rounds)}
        figures["check"] = check_against_reading(scratch, rounds)
        figures["watcher"] = watcher_share(scratch, 5 if given.quick else 20)
        figures["profile"] = profile_against_reading(scratch, rounds)
        figures["profile_watcher"] = watcher_share(scratch, 5 if given.quick else 20, "train", 50, [])
    v, c, w = figures["vanishing"], figures["check"], figures["watcher"]
    print(f"VanishingGradient, 100 tensors x 10,000 steps: tdbg check {v['tdbg_seconds']:.3f} s", end="")
    if "ratio" in v:
        print(f"; smdebug's invoke_rule {v['smdebug_seconds_500_steps']:.1f} s for 500 steps, scaled to "
              f"{v['smdebug_seconds_scaled']:.0f} s: {v['ratio']:.0f} times (bar: 1000)")
    else:
        print("; smdebug is not installed (bench/setup_rivals.sh)")
    print(f"{c['rules']} summary rules, 300 tensors x 10,000 steps: check {c['tdbg_check_seconds']:.3f} s, reading "
          f"{c['read_seconds']:.3f} s: {c['ratio']:.2f} (bar: 3)")
    print(f"watcher, 300 tensors at 100 steps/s: {100 * w['share_of_a_core']:.1f} % of a core (bar: 10)")
    p, w = figures["profile"], figures["profile_watcher"]
    print(f"profile, 150 weights and gradients x 5,000 steps: check {p['check_cpu_seconds']:.3f} s of a core, reading "
          f"{p['read_cpu_seconds']:.3f} s: {p['ratio']:.1f} times ({p['us_a_step']:.0f} us a step)")
    print(f"watcher with the profile, 300 tensors at 50 steps/s: {100 * w['share_of_a_core']:.1f} % of a core (bar: 5)")
    if given.json:
        given.json.write_text(json.dumps(figures, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Zero-code attach and the ends of a process, each in a process of its own, with a stand-in for the extension."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import textwrap

import pytest

HERE = pathlib.Path(__file__).resolve().parent
PACKAGE = HERE.parents[2] / "python" / "tdbg"

CAPTURE = '''
import json, os, recording_run
def fingerprint(pointer, size):
    return size
class NumberCopy:
    """None is made: this module reads no tensors."""
def compare_elements(*_):
    """Of predictions and targets, which are none of this file's matter."""
    return (0.0,) * 9
class Forecast:
    """Says yes to everything, which it may."""
    always, more = True, False
    def __init__(self, plan):
        pass
    def due(self, mode, mode_step):
        return True
    raw_due = due
class Run(recording_run.RecordingRun):
    NOT_WANTED = recording_run.NOT_WANTED
    @classmethod
    def open(cls, **options):
        options.setdefault("directory", os.environ.get("TDBG_RUN", ""))
        run = cls(**options)
        run.log("open", rank=options["rank"], world_size=options["world_size"], directory=run.directory)
        return run
    def log(self, event, **facts):
        # One line, one write: several processes append.
        with open(os.environ["TDBG_TEST_LOG"], "a") as f:
            f.write(json.dumps({"event": event, "pid": os.getpid(), **facts}) + "\\n")
    def end_step(self, skipped=False):
        self.log("step", mode=self.open.mode, names=sorted({k[0] for k in self.open.values}))
        return super().end_step(skipped)
    def end(self, reason, message=""):
        self.log("end", reason=reason, message=message)
'''

TRAIN = """
import torch
from torch import nn
def train(steps=2):
    model = nn.Linear(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        optimizer.zero_grad()
        nn.functional.mse_loss(model(torch.ones(2, 4)), torch.zeros(2, 3)).backward()
        optimizer.step()
    return model, optimizer
"""


@pytest.fixture
def program(tmp_path):
    """program(source, ...) runs it as `tdbg run` would; returns (process, events of the stand-in)."""
    home = tmp_path / "home"
    (home / "tdbg").mkdir(parents=True)
    (home / "tdbg" / "__init__.py").write_text("from .adaptors import attach\n")
    (home / "tdbg" / "_capture.py").write_text(CAPTURE)
    for part in PACKAGE.iterdir():
        if not part.name.startswith(("_", ".")):
            (home / "tdbg" / part.name).symlink_to(part)
    (tmp_path / "work").mkdir()
    log = tmp_path / "log"

    def run(source, *arguments, path=(), launched=True, environment=(), prefix=(), background=False):
        script = tmp_path / "work" / "train.py"
        script.write_text(TRAIN + textwrap.dedent(source))
        env = {k: v for k, v in os.environ.items() if (not k.startswith("TDBG_") or k == "TDBG_OVERHEAD") and k not in ("RANK", "WORLD_SIZE")}
        env["PYTHONPATH"] = os.pathsep.join(
            [*([str(PACKAGE / "boot")] if launched else [str(home)]), *map(str, path), str(HERE)])
        env.update(TDBG_TEST_LOG=str(log), TDBG_TRACEBACK="1")
        if launched:
            env.update(TDBG_RUN=str(tmp_path / "run"), TDBG_ATTEMPT="0", TDBG_HOME=str(home))
        env.update(environment)
        command = [sys.executable, *prefix, str(script), *arguments]
        options = dict(cwd=tmp_path / "work", env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if background:
            return subprocess.Popen(command, **options)
        done = subprocess.run(command, timeout=120, **options)
        return done, events()

    def events():
        return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []

    run.events, run.home, run.tmp = events, home, tmp_path
    return run


def kinds(events):
    return [e["event"] for e in events]


def test_unmodified_script_is_watched(program):
    done, events = program("train(3)")
    assert done.returncode == 0 and done.stderr == ""
    assert kinds(events) == ["open", "step", "step", "step", "end"]
    assert events[1]["names"] == ["Linear_bias", "Linear_weight", "MSELoss_output_0", "gradient/Linear_bias",
                                  "gradient/Linear_weight"]
    assert events[-1]["reason"] == "completed" and events[0]["directory"].endswith("/run")


def test_script_that_does_not_train_leaves_nothing(program):
    done, events = program("model = nn.Linear(4, 3); model(torch.ones(2, 4)).sum().backward(); print(model.weight.grad.sum())")
    assert done.returncode == 0 and events == [] and not (program.tmp / "run").exists()


@pytest.mark.parametrize("source, said", [
    ("model = nn.Linear(4, 3); [model(torch.ones(2, 4)).sum().backward() for _ in range(3)]",
     "torch: 3 forwards of the model, 3 calls of backward, and no optimizer stepped: an update that the script writes itself is recorded where "),
    ("model = nn.Linear(4, 3).eval()\nwith torch.no_grad(): nn.functional.mse_loss(model(torch.ones(2, 4)), torch.zeros(2, 3))",
     "torch: 1 losses, and no optimizer stepped: this was an evaluation, and tdbg records trainings"),
    ("nn.Linear(4, 3)(torch.ones(2, 4))", "torch was imported, and nothing was trained: "),
])
def test_a_script_that_trains_nothing_leaves_the_launcher_a_word_of_what_was_seen(program, source, said):
    attempt = program.tmp / "run" / "0"
    attempt.mkdir(parents=True)
    done, events = program(source)
    assert done.returncode == 0 and done.stderr == "" and events == []
    word, = attempt.glob("*.log")
    assert word.read_text().startswith(said) and word.read_text().endswith("\n")


def test_uncaught_exception_is_the_reason_and_the_scripts_own_affair(program):
    done, events = program("""
        import sys
        sys.excepthook = lambda *a: print("the script's own hook", file=sys.stderr)
        train(1)
        raise ValueError("what went wrong")""")
    assert done.returncode == 1 and done.stderr == "the script's own hook\n"
    assert (events[-1]["reason"], events[-1]["message"]) == ("exception", "ValueError: what went wrong")


def test_exit_code_is_the_scripts(program):
    done, events = program("import sys; train(1); sys.exit(7)")
    assert done.returncode == 7 and events[-1]["reason"] == "completed"


def test_sigterm_is_not_ours_to_handle(program):
    process = program("train(1); print('ready', flush=True); import time; time.sleep(60)", background=True)
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == -signal.SIGTERM
    process.communicate()
    assert kinds(program.events()) == ["open", "step"]


def test_forked_workers_are_inert(program):
    done, events = program("""
        from torch.utils.data import DataLoader
        import os
        model, optimizer = train(1)
        for batch in DataLoader(torch.ones(8, 4), num_workers=2, batch_size=4):
            optimizer.zero_grad()
            model(batch).sum().backward()
            optimizer.step()
        child = os.fork()
        if child == 0:
            train(2)
            os._exit(0)
        os.waitpid(child, 0)""")
    assert done.returncode == 0, done.stderr
    assert len({e["pid"] for e in events}) == 1 and kinds(events).count("step") == 3


@pytest.mark.long
def test_worker_processes_that_only_load_data_open_nothing(program):
    done, events = program("""
        from torch.utils.data import DataLoader, Dataset
        class Data(Dataset):
            def __len__(self):
                return 2
            def __getitem__(self, index):
                train(1)       # even if it trains: a data set is not a worker of the run
                return index
        if __name__ == "__main__":
            list(DataLoader(Data(), num_workers=1, multiprocessing_context="spawn"))""")
    assert done.returncode == 0 and events == [], done.stderr


def test_spawned_process_that_trains_is_a_worker(program):
    script = """
        import torch.distributed as dist, torch.multiprocessing as mp
        def worker(rank, file):
            dist.init_process_group("gloo", init_method="file://" + file, rank=rank, world_size=2)
            torch.manual_seed(0)
            model = nn.parallel.DistributedDataParallel(nn.Linear(4, 3))
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for _ in range(2):
                optimizer.zero_grad()
                nn.functional.mse_loss(model(torch.full((2, 4), rank + 1.0)), torch.zeros(2, 3)).backward()
                optimizer.step()
            dist.barrier()      # gloo aborts a rank whose peer has left already
            dist.destroy_process_group()
        if __name__ == "__main__":
            import sys
            mp.spawn(worker, (sys.argv[1],), 2)"""
    for attempt in range(3):
        (program.tmp / "log").unlink(missing_ok=True)
        done, events = program(script, str(program.tmp / f"rendezvous{attempt}"))
        # gloo aborts a rank now and then while it leaves a busy machine; the extension is not even loaded here.
        if "terminate called without an active exception" not in done.stderr:
            break
    assert done.returncode == 0, done.stderr
    opened = [e for e in events if e["event"] == "open"]
    assert sorted((e["rank"], e["world_size"]) for e in opened) == [(0, 2), (1, 2)]
    assert "Linear_weight" in next(e for e in events if e["event"] == "step")["names"], "without module."


def test_next_sitecustomize_runs_too(program, tmp_path):
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text("import sys; sys.marked = True\n")
    done, events = program("import sys, sitecustomize; assert sys.marked; print(sitecustomize.__file__); train(1)",
                           path=[tmp_path / "site"])
    assert done.stdout.strip() == str(tmp_path / "site" / "sitecustomize.py"), done.stderr
    assert kinds(events) == ["open", "step", "end"]


def test_a_framework_that_somebody_asked_after_before_it_was_imported_is_watched(program, tmp_path):
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(
        "import importlib.util, sys; sys.asked = importlib.util.find_spec('torch').name, 'torch' in sys.modules\n")
    done, events = program("import sys; print(*sys.asked); train(1)", path=[tmp_path / "site"])
    assert done.stdout == "torch False\n", done.stderr
    assert kinds(events) == ["open", "step", "end"]


@pytest.mark.long
def test_extension_of_another_python_is_said_and_training_goes_on(program):
    (program.home / "tdbg" / "_capture.py").write_text("raise ImportError('built for another Python')")
    done, events = program("train(1); print('trained')")
    assert done.returncode == 0 and done.stdout == "trained\n" and events == []
    assert done.stderr.count("tdbg:") == 1 and "built for another Python" in done.stderr

    (program.home / "tdbg" / "_capture.py").unlink()
    (program.home / "tdbg" / "_capture.cpython-27-x86_64-linux-gnu.so").touch()
    done, events = program("train(1); print('trained')")
    assert done.returncode == 0 and done.stdout == "trained\n" and events == []
    assert done.stderr.count("tdbg:") == 1 and "tdbg was built for cpython-27" in done.stderr
    assert "install its wheel for Python 3." in done.stderr


def test_boot_is_light_and_leaves_the_path_alone(program):
    done, _ = program("""
        import subprocess, sys
        code = "import sys; print(sorted(m for m in sys.modules)); print(sys.path)"
        import os
        with_boot = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.splitlines()
        env = {k: v for k, v in os.environ.items() if not k.startswith(("TDBG_", "PYTHONPATH"))}
        without = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env).stdout.splitlines()
        extra = set(eval(with_boot[0])) - set(eval(without[0]))
        print(sorted(extra))
        print(os.environ["TDBG_HOME"] in eval(with_boot[1]))""")
    assert done.stdout.splitlines() == ["['sitecustomize']", "False"], done.stderr


def test_boot_does_nothing_without_a_run(program):
    done, events = program("""
        import sys
        assert not any(type(f).__name__ == "_Finder" for f in sys.meta_path)
        train(1)""", environment={"TDBG_RUN": ""})
    assert done.returncode == 0 and events == [], done.stderr


def test_isolated_python_is_not_reached(program):
    done, events = program("train(1)", prefix=["-E"])
    assert done.returncode == 0 and events == []


def test_the_scripts_own_attach_takes_over(program):
    done, events = program("""
        import tdbg
        model = nn.Linear(4, 3)
        run = tdbg.attach(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        nn.functional.mse_loss(model(torch.ones(2, 4)), torch.zeros(2, 3)).backward()
        run.scalar("mine", 4.0)
        optimizer.step()
        run.close()""")
    assert kinds(events) == ["open", "step", "end"], done.stderr
    assert events[0]["directory"].endswith("/run")


def test_what_the_script_says_of_its_run_counts_under_a_launcher_too(program):
    done, events = program("""
        import tdbg
        run = tdbg.attach(step_base=7)
        train(1)
        print(run._session.run.options["step_base"], run._session.run.options["step_base_from"])
        tdbg.attach(step_base=9)
        run.close()""")
    assert kinds(events) == ["open", "step", "end"], done.stderr
    assert done.stdout == "7 script\n" and done.stderr == "tdbg: attach: the run is open already; step_base is not used\n"


def test_models_may_be_attached_one_by_one(program):
    done, events = program("""
        import tdbg
        one, two = nn.Linear(4, 3), nn.Linear(3, 2)
        tdbg.attach(one)
        run = tdbg.attach(two)
        optimizer = torch.optim.SGD([*one.parameters(), *two.parameters()], lr=0.1)
        two(one(torch.ones(2, 4))).sum().backward()
        optimizer.step()
        run.close()""", launched=False, environment={"PATH": "/nonexistent"})
    assert kinds(events) == ["open", "step", "end"], done.stderr
    assert {"Linear_weight", "Linear_1_weight"} <= set(events[1]["names"])


def test_attach_without_a_launcher(program):
    done, events = program("""
        import tdbg
        with tdbg.attach(dir="elsewhere") as run:
            train(2)
            assert run.directory == "elsewhere"
        """, launched=False, environment={"PATH": "/nonexistent"})
    assert kinds(events) == ["open", "step", "step", "end"], done.stderr
    assert events[0]["directory"] == "elsewhere"


def test_attach_asks_the_command_line_for_the_plan(program):
    tool = program.tmp / "tdbg"
    tool.write_text(textwrap.dedent(f"""\
        #!{sys.executable}
        import json, os, sys
        directory = sys.argv[sys.argv.index("--dir") + 1]
        config = json.load(sys.stdin)
        if "rulez" in config:
            sys.exit("config: rulez: unknown key; did you mean rules?")
        os.makedirs(directory)
        open(os.path.join(directory, "plan.json"), "w").write(json.dumps({{"context": False, "asked": config}}))
        print(json.dumps({{"directory": os.path.abspath(directory), "attempt": 0}}))
        """))
    tool.chmod(0o755)
    done, events = program("""
        import json, tdbg
        try:
            tdbg.attach(config={"rulez": []}, dir="a")
        except ValueError as error:
            print(error)
        run = tdbg.attach(config={"rules": ["x"]}, dir="b")
        train(1)
        print(json.loads(run._session.open_run and run._session.options["plan_json"])["asked"])
        """, launched=False, environment={"TDBG_CLI": str(tool)})
    assert done.stdout.splitlines() == ["config: rulez: unknown key; did you mean rules?", "{'rules': ['x']}"], done.stderr
    assert kinds(events) == ["open", "step", "end"]

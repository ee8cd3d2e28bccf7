"""One job on several machines: a launcher a node over one directory. With shell commands for what needs no training, and
with two network namespaces as hosts, where torchrun meets over a cable of its own."""

import json
import os
import pathlib
import random
import shlex
import shutil
import signal
import subprocess
import sys
import time

import pytest
from program import BINARY, ROOT

KILLS = int(os.environ.get("TDBG_TEST_KILLS", "2"))
QUICK = ("--node-timeout", "2s")

TRAIN = """
import os, sys, time, torch
import torch.distributed as dist

class Loss(torch.nn.Module):
    extra = 0.0
    def forward(self, y, target):
        return ((y - target) ** 2).mean() + self.extra

steps, bad, pause = [float(word) for word in sys.argv[1:] or (60, 20, 0.01)]
steps = int(steps)
torch.set_num_threads(1)
dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
random = torch.Generator().manual_seed(rank)
criterion = Loss()
for step in range(steps):
    while step == steps - 30 and os.path.exists("hold"):
        time.sleep(0.05)
    x = torch.randn(16, 8, generator=random)
    optimizer.zero_grad()
    criterion.extra = float("inf") if rank == 1 and step == bad else 0.0
    criterion(model(x), x[:, :1]).backward()
    optimizer.step()
    time.sleep(pause)
dist.barrier()
dist.destroy_process_group()
print("trained to the end", rank, flush=True)
"""
RULE = ("--rule", "exploding_tensor", "collection_names=losses")


def until(condition, seconds=180):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come to that"
        time.sleep(0.05)


def events(tdbg, kind=None, run="r"):
    path = tdbg.directory / run / "events.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return [line for line in lines if kind in (None, line["kind"])]


def start(tdbg, node, *words, nodes=2, run="r", flags=QUICK):
    """Its registry is its own machine's."""
    env = {**tdbg.env, "XDG_STATE_HOME": str(tdbg.directory / f".state-{node}")}
    return subprocess.Popen([str(BINARY), "run", "--node", f"{node}/{nodes}", "--dir", run, *flags, *words], cwd=tdbg.directory,
                            env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def ends(process, seconds=180):
    out, err = process.communicate(timeout=seconds)
    return process.returncode, out, err


def training(tdbg):
    return [e for e in (tdbg.directory / "r/nodes").glob("*-node-*.json")] if (tdbg.directory / "r/nodes").exists() else []


def test_each_node_has_its_commands_exit_code_and_one_tells_of_the_job(tdbg):
    second = start(tdbg, 1, "--", "sh", "-c", "sleep 0.5; echo of node 1; exit 5")
    first = start(tdbg, 0, "--", "sh", "-c", "sleep 1.5; echo of node 0")
    assert ends(first)[0] == 0
    code, out, err = ends(second)
    assert (code, out) == (5, "of node 1\n")
    assert [e["attempt"] for e in events(tdbg, "job_started")] == [0]
    end, = events(tdbg, "job_ended")
    assert (end["exit_code"], end["nodes"]) == (5, 2)
    assert tdbg.ok("logs", "r").stdout == "of node 0\n" and tdbg.ok("logs", "r", "--node", 1).stdout == "of node 1\n"
    job = tdbg.json("jobs", "r", env={"XDG_STATE_HOME": str(tdbg.directory / ".state-1")})
    assert (job["settings"]["node"], job["settings"]["nodes"], job["status"]) == (1, 2, "Failed")
    assert any("node 1 of 2" in t["message"] for t in job["transitions"])
    # Another number of nodes is the next attempt.
    assert ends(start(tdbg, 0, "--", "true", nodes=1))[0] == 0
    assert [e["attempt"] for e in events(tdbg, "job_started")] == [0, 1] and events(tdbg, "job_ended")[1]["nodes"] == 1


def test_a_stop_reaches_all_nodes(tdbg):
    nodes = [start(tdbg, node, "--", "sleep", "60") for node in (0, 1)]
    until(lambda: len(training(tdbg)) == 2 and events(tdbg, "job_started"))
    assert "another tdbg is running a job" in tdbg.fails(6, "run", "--dir", "r", "--", "true")
    tdbg.ok("stop", "r")
    assert [ends(node)[0] for node in nodes] == [3, 3]
    assert events(tdbg, "job_ended")[-1]["stop"] == "requested"


def test_a_node_that_does_not_come_is_named_and_what_cannot_be_is_refused(tdbg):
    first = start(tdbg, 0, "--", "sleep", "60")
    until(lambda: events(tdbg, "node_missing"))
    assert [e["node"] for e in events(tdbg, "node_missing")] == [1]
    assert "has a launcher already" in tdbg.fails(6, "run", "--node", "0/2", "--dir", "r", "--", "true")
    assert "has 2 nodes, and --node says 3" in tdbg.fails(6, "run", "--node", "1/3", "--dir", "r", "--", "true")
    for words in (("--node", "2/2"), ("--node", "1"), ("--node-timeout", "5s"), ("--node", "0/2", "--node-timeout", "soon")):
        tdbg.fails(2, "run", *words, "--dir", "r", "--", "true")
    tdbg.fails(2, "run", "--node", "0/2", "--", "true")
    late = start(tdbg, 1, "--", "true")
    until(lambda: any("exit_code" in path.read_text() for path in (tdbg.directory / "r/nodes").glob("*-node-1-*.json")))
    tdbg.ok("stop", "r")
    assert ends(late)[0] == 0       # its command had ended by itself
    code, _, err = ends(first)
    assert code == 3 and "node 1 of 2 has not come yet" in err and "node 1 of 2 is here" in err


def test_a_launcher_that_is_stopped_for_a_while_judges_no_more_when_it_goes_on(tdbg):
    waits = ("--", "sh", "-c", "while [ ! -e go ]; do sleep 0.1; done")
    first = start(tdbg, 0, *waits)
    until(lambda: events(tdbg, "job_started"))
    second = start(tdbg, 1, *waits)
    until(lambda: len(training(tdbg)) == 2)
    first.send_signal(signal.SIGSTOP)
    try:
        until(lambda: events(tdbg, "judge"))
    finally:
        first.send_signal(signal.SIGCONT)
    said = ""
    while "another one judges" not in said:
        line = first.stderr.readline()
        assert line, said
        said += line
    (tdbg.directory / "go").touch()
    assert (ends(first)[0], ends(second)[0]) == (0, 0)
    assert [e["node"] for e in events(tdbg, "judge")] == [1]
    assert len(events(tdbg, "job_ended")) == 1


# ---- Hosts


@pytest.fixture
def hosts(tdbg):
    """Two network namespaces with a cable between them. A function that starts a node in its own."""
    pytest.importorskip("torch", reason="needs torch in this Python")
    if not shutil.which("ip") or not shutil.which("unshare"):
        pytest.skip("no ip or unshare: no network namespaces")
    names = [f"tdbg-{os.getpid()}-{node}" for node in (0, 1)]

    def ip(*words):
        return subprocess.run(["ip", *words], capture_output=True, text=True)

    made = [ip("netns", "add", name) for name in names]
    try:
        if any(done.returncode for done in made):
            pytest.skip(f"network namespaces are not permitted: {made[0].stderr.strip()}")
        wired = ip("link", "add", "c0", "netns", names[0], "type", "veth", "peer", "name", "c0", "netns", names[1])
        if wired.returncode:
            pytest.skip(f"no virtual cable is permitted: {wired.stderr.strip()}")
        for node, name in enumerate(names):
            for words in (("addr", "add", f"10.77.0.{node + 1}/24", "dev", "c0"), ("link", "set", "c0", "up"), ("link", "set", "lo", "up")):
                assert ip("-n", name, *words).returncode == 0
        (tdbg.directory / "train.py").write_text(TRAIN)
        # Names are looked up here and nowhere else: a name server that cannot be reached is waited for, 40 s at each connection.
        (tdbg.directory / "hosts").write_text("127.0.0.1 localhost\n" + "".join(f"10.77.0.{n + 1} {name}\n" for n, name in enumerate(names)))
        (tdbg.directory / "resolv.conf").write_text("nameserver 127.0.0.1\noptions timeout:1 attempts:1\n")
        boot = 'hostname "$0"; mount --bind hosts /etc/hosts; mount --bind resolv.conf "$(readlink -f /etc/resolv.conf)"; exec "$@"'

        def start_node(node, *arguments, flags=RULE):
            torchrun = (sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--node-rank", node, "--master-addr", "10.77.0.1",
                        "--master-port", "29511", "--local-addr", f"10.77.0.{node + 1}", "--nproc-per-node", "1", "train.py", *arguments)
            return in_namespace(node, "run", "--quiet", "--node", f"{node}/2", "--dir", "r", *QUICK, *flags, "--", *map(str, torchrun))

        def in_namespace(node, *words):
            env = {**tdbg.env, "XDG_STATE_HOME": str(tdbg.directory / f".state-{node}"), "GLOO_SOCKET_IFNAME": "c0", "OMP_NUM_THREADS": "1"}
            return subprocess.Popen(["ip", "netns", "exec", names[node], "unshare", "--uts", "--mount", "sh", "-c", boot, names[node],
                                     str(BINARY), *words], cwd=tdbg.directory, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        start_node.names, start_node.run = names, in_namespace
        yield start_node
    finally:
        for name in names:
            ip("netns", "del", name)


def steps_of(tdbg):
    status = tdbg("status", "r", "--json")
    return json.loads(status.stdout)["steps"]["all"] if status.returncode == 0 else 0


def verdicts(statuses):
    """As text, of which a failure shows where it differs."""
    kept = [{key: value for key, value in status.items() if key != "LastModifiedTime"} for status in statuses]
    return json.dumps(kept, indent=1, sort_keys=True)


def said_once(tdbg):
    """The finding, in the events and by a replay."""
    hits = [e for e in events(tdbg, "rule_status") if e["status"] == "IssuesFound"]
    assert len(hits) == 1, hits
    live = tdbg.json("status", "r")["rules"]
    assert verdicts(live) == verdicts(json.loads(tdbg("check", "r", "--own", "--json").stdout)["rules"])
    finding, = live[0]["findings"]
    return finding["global_step"], finding["worker"]


def test_two_hosts_train_one_run(tdbg, hosts):
    """By the commands of docs/cluster.md."""
    block = (ROOT / "docs/cluster.md").read_text().split("```sh\n")[1].split("```")[0]
    commands = [shlex.split(line)[1:] for line in block.strip().splitlines()]
    python = [sys.executable, "-m", "torch.distributed.run"]
    commands = [[w for word in words for w in (python if word == "torchrun" else [word])] for words in commands]
    second = hosts.run(1, *commands[1])     # the one with the store comes later
    time.sleep(0.3)
    first = hosts.run(0, *commands[0])
    for node in (ends(first, 240), ends(second, 120)):
        assert node[0] == 0, node[2]
    shown = tdbg.json("status", "r")
    assert (shown["incidents"][0]["detector"], shown["incidents"][0]["first_step"]) == ("nonfinite", 20)
    assert verdicts(shown["rules"]) == verdicts(json.loads(tdbg("check", "r", "--own", "--json").stdout)["rules"])
    assert steps_of(tdbg) == 60
    info = [json.loads((tdbg.directory / f"r/0/worker_{rank}/worker.json").read_text()) for rank in (0, 1)]
    assert [one["host"] for one in info] == hosts.names


def test_a_finding_on_one_host_stops_both(tdbg, hosts):
    nodes = [hosts(node, 3000, 20, 0.01, flags=(*RULE, "--on-issue", "stop")) for node in (0, 1)]
    for code, out, err in [ends(node, 240) for node in nodes]:
        assert code == 3, err
        assert "trained to the end" not in out
    assert said_once(tdbg) == (20, "worker_1")
    assert len([e for e in events(tdbg, "action") if e["action"] == "stop"]) == 1


@pytest.mark.long
@pytest.mark.parametrize("seed", range(KILLS))
def test_a_judge_that_is_killed_is_followed_and_nothing_is_lost_or_said_twice(tdbg, hosts, seed):
    chance = random.Random(seed)
    (tdbg.directory / "hold").touch()
    first = hosts(0, 300, 150, 0.02)
    until(lambda: events(tdbg, "job_started"))
    second = hosts(1, 300, 150, 0.02)
    at = 5 + 260 * chance.random()     # before the finding, or behind it
    until(lambda: steps_of(tdbg) > at)
    first.kill()
    first.wait(20)
    (tdbg.directory / "hold").unlink()
    code, out, err = ends(second, 240)
    assert code == 0 and "trained to the end 1" in out, err
    assert [e["node"] for e in events(tdbg, "judge")] == [1]
    assert said_once(tdbg) == (150, "worker_1")
    assert steps_of(tdbg) == 300
    assert len(events(tdbg, "job_started")) == len(events(tdbg, "job_ended")) == 1
    first.stdout.close(), first.stderr.close()


@pytest.mark.long
def test_launchers_that_are_killed_are_followed_by_others_on_their_nodes(tdbg, hosts):
    """Node 1's, which did not judge; then all of them, so that nobody is there to join."""
    (tdbg.directory / "hold").touch()
    first = hosts(0, 500, 250, 0.02)
    until(lambda: events(tdbg, "job_started"))
    second = hosts(1, 500, 250, 0.02)
    until(lambda: steps_of(tdbg) > 5)

    def jobs(node):
        return tdbg.json("jobs", "r", env={"XDG_STATE_HOME": str(tdbg.directory / f".state-{node}")})

    def kill(*launchers):
        for launcher in launchers:
            launcher.kill()
            launcher.wait(20)
            launcher.stdout.close(), launcher.stderr.close()

    kill(second)
    until(lambda: events(tdbg, "node_lost"))
    second = hosts.run(1, "resume", "r")
    until(lambda: events(tdbg, "node_joined"))
    kill(first, second)
    first, second = hosts.run(0, "resume", "r"), hosts.run(1, "resume", "r")
    until(lambda: len(training(tdbg)) == 5)     # launchers, one after the other: of node 0 two, of node 1 three
    (tdbg.directory / "hold").unlink()
    for code, out, err in (ends(first, 200), ends(second, 200)):
        assert code == 0, err
    assert said_once(tdbg) == (250, "worker_1")
    assert steps_of(tdbg) == 500
    assert len(events(tdbg, "job_started")) == len(events(tdbg, "job_ended")) == 1
    assert events(tdbg, "job_ended")[0]["exit_code"] == 0
    for node in (0, 1):
        state = jobs(node)
        assert (state["status"], len(state["attempts"]), state["attempt"]) == ("Completed", 1, 0), state


def test_a_part_without_a_launcher_is_told_and_looked_after_again(tdbg):
    """Not by the other node's launcher, which holds the run."""
    first = start(tdbg, 0, "--", "sleep", "60")
    until(lambda: events(tdbg, "job_started"))
    second = start(tdbg, 1, "--", "sleep", "60")
    until(lambda: len(training(tdbg)) == 2)
    own = {"XDG_STATE_HOME": str(tdbg.directory / ".state-1")}
    until(lambda: tdbg.json("jobs", "r", env=own)["phase"] == "Training")
    assert "is running" in tdbg.fails(6, "resume", "r", env=own)
    second.kill()
    second.wait(20)
    second.stdout.close(), second.stderr.close()    # whose ends the command holds
    assert tdbg.json("jobs", "r", env=own)["life"] == "unwatched"
    assert tdbg.json("jobs", "r", env={"XDG_STATE_HOME": str(tdbg.directory / ".state-0")})["life"] == "watched"
    second = subprocess.Popen([str(BINARY), "resume", "r"], cwd=tdbg.directory, env={**tdbg.env, **own}, text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE)
    until(lambda: tdbg.json("jobs", "r", env=own)["life"] == "watched")
    tdbg.ok("stop", "r")
    assert [ends(node)[0] for node in (first, second)] == [3, 3]
    assert events(tdbg, "job_ended")[-1]["stop"] == "requested"


def on_host(name):
    """Processes in the UTS namespace that calls itself so."""
    of_namespace, found = {}, []
    for process in pathlib.Path("/proc").iterdir():
        try:
            namespace = os.readlink(process / "ns/uts") if process.name.isdigit() else ""
        except OSError:
            continue
        if namespace and namespace not in of_namespace:
            asked = subprocess.run(["nsenter", "-t", process.name, "-u", "hostname"], capture_output=True, text=True)
            of_namespace[namespace] = asked.stdout.strip()
        if namespace and of_namespace[namespace] == name:
            found.append(int(process.name))
    return found


@pytest.mark.long
def test_a_host_that_dies_is_told_and_the_other_ends(tdbg, hosts):
    first = hosts(0, 3000, -1, 0.01)
    until(lambda: events(tdbg, "job_started"))
    second = hosts(1, 3000, -1, 0.01)
    until(lambda: steps_of(tdbg) > 5)
    dead = on_host(hosts.names[1])
    assert second.pid in dead and len(dead) >= 3
    for pid in dead:
        os.kill(pid, signal.SIGKILL)
    second.wait(20)
    code, out, err = ends(first, 240)
    assert code not in (0, 3) and "trained to the end" not in out
    assert [e["node"] for e in events(tdbg, "node_lost")] == [1]
    end, = events(tdbg, "job_ended")
    assert end["exit_code"] != 0 and end["stop"] == "none"
    assert tdbg.json("status", "r")["rules"][0]["steps_judged"] > 5
    second.stdout.close(), second.stderr.close()

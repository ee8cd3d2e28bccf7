"""The Slurm recipe of docs/cluster.md, run by a real Slurm of one node that this test starts, without munge's daemon where
the system has none running: slurmctld, slurmd, and jobs that are requeued."""

import getpass
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import time

import pytest
from program import BINARY, ROOT

PROGRAMS = ("slurmctld", "slurmd", "sbatch", "scontrol", "srun", "munged")

CONF = """
ClusterName=tdbg
SlurmctldHost={host}(127.0.0.1)
SlurmUser={user}
SlurmdUser={user}
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket,cred_expire=5
CryptoType=crypto/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
MailProg=/bin/true
ReturnToService=2
KillWait=30
SchedulerParameters=sched_min_interval=100000,batch_sched_delay=1
SlurmdParameters=config_overrides
NodeName={host} NodeAddr=127.0.0.1 CPUs=2 State=UNKNOWN
PartitionName=all Nodes={host} Default=YES MaxTime=INFINITE State=UP
"""

#: test_resume's training: with Adam, whose own count says where an attempt begins, and a checkpoint at every seventh step.
PAUSED_TRAINING_STEPS = 80


def free_ports(count):
    with_socket = [socket.socket() for _ in range(count)]
    try:
        for one in with_socket:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in with_socket]
    finally:
        for one in with_socket:
            one.close()


def until(condition, what, seconds=90):
    end = time.monotonic() + seconds
    while not (answer := condition()):
        assert time.monotonic() < end, what()
        time.sleep(0.2)
    return answer


@pytest.fixture
def slurm(tdbg):
    """A cluster of this machine; a function that runs one of its programs."""
    missing = [name for name in PROGRAMS if shutil.which(name) is None and not os.path.exists(f"/usr/sbin/{name}")]
    if missing:
        pytest.skip(f"no {', '.join(missing)}: Slurm is not installed (slurm-wlm and munge of Debian)")
    if os.getuid() != 0:
        pytest.skip("slurmd needs root")
    folder = tdbg.directory / "slurm"
    for part in ("state", "spool", "munge"):
        (folder / part).mkdir(parents=True)
    path = f"/usr/sbin:{os.environ['PATH']}"
    host = socket.gethostname().split(".")[0]
    conf = folder / "slurm.conf"
    conf.write_text(CONF.format(folder=folder, host=host, user=getpass.getuser(), ports=free_ports(2)))
    env = {**tdbg.env, "SLURM_CONF": str(conf), "PATH": path}
    (folder / "munge/key").write_bytes(os.urandom(64))
    for part in (folder / "munge/key", folder / "munge"):
        part.chmod(0o700 if part.is_dir() else 0o600)
    daemons = []

    def daemon(name, *words):
        with open(folder / f"{name}.out", "w") as log:
            daemons.append(subprocess.Popen([name, *map(str, words)], env=env, stdout=log, stderr=log, cwd=folder))

    def run(*words, **more):
        return subprocess.run([*map(str, words)], env={**env, **more}, cwd=tdbg.directory, capture_output=True, text=True, timeout=60)

    def logs():
        return "\n".join(f"{log.name}: {log.read_text()[-1500:]}" for log in sorted(folder.glob("*.out")) + sorted(folder.glob("*.log")))

    run.logs = logs
    try:
        daemon("munged", "--foreground", "--force", "--num-threads=1", f"--key-file={folder}/munge/key", f"--socket={folder}/munge/socket",
               f"--pid-file={folder}/munge/pid", f"--log-file={folder}/munge/log", f"--seed-file={folder}/munge/seed")
        until(lambda: (folder / "munge/socket").exists(), logs)
        daemon("slurmctld", "-D", "-i")
        daemon("slurmd", "-D", "-N", host)
        until(lambda: "idle" in run("sinfo", "--noheader", "--format=%T").stdout, logs)
        yield run
    finally:
        run("scancel", "--user", getpass.getuser())
        for one in reversed(daemons):
            one.terminate()
            try:
                one.wait(20)
            except subprocess.TimeoutExpired:
                one.kill()
                one.wait()


def test_a_job_that_slurm_requeues_goes_on_as_the_next_attempt(tdbg, slurm):
    pytest.importorskip("torch")
    import test_resume

    (tdbg.directory / "train.py").write_text(test_resume.TRAIN.replace("OPTIMIZER", "Adam").replace("SAID", "").replace(
        '["80", "none"]', f'["{PAUSED_TRAINING_STEPS}", "none"]'))
    recipe = (ROOT / "examples/slurm/train.sh").read_text().replace("/shared/", f"{tdbg.directory}/")
    recipe = recipe.replace("torchrun ", f"{sys.executable} -m torch.distributed.run ").replace("29511", str(free_ports(1)[0]))
    (tdbg.directory / "job.sh").write_text(recipe)
    sent = slurm("sbatch", "--parsable", "--nodes", "1", "--output", "job.out", "job.sh", PAUSE="0.1",
                 PATH=f"{pathlib.Path(BINARY).parent}:/usr/sbin:{os.environ['PATH']}")
    assert sent.returncode == 0, sent.stderr + slurm.logs()
    job = sent.stdout.strip()
    run = f"runs/{job}"

    def told():
        output = tdbg.directory / "job.out"
        return (output.read_text() if output.exists() else "no output") + slurm.logs()

    def steps():
        done = tdbg("status", run, "--json")
        return done.returncode == 0 and '"all": 0' not in done.stdout and tdbg.json("status", run)["steps"]["all"]

    until(lambda: (steps() or 0) > 10, told)
    requeued = slurm("scontrol", "requeue", job)
    assert requeued.returncode == 0, requeued.stderr
    until(lambda: re.search(r"Restarts=1", slurm("scontrol", "show", "job", job).stdout), told)
    # Slurm waits for two minutes by itself, so that what made a node fail is over.
    until(lambda: (tdbg.directory / run / "1").exists() or not slurm("scontrol", "update", f"JobId={job}", "StartTime=now").returncode
          and (tdbg.directory / run / "1").exists(), told)
    until(lambda: "JobState=COMPLETED" in slurm("scontrol", "show", "job", job).stdout, told)
    assert [s["global_step"] for s in tdbg.json("steps", run)["steps"]] == list(range(PAUSED_TRAINING_STEPS + PAUSED_TRAINING_STEPS // 10))
    [base] = tdbg.json("status", run)["step_bases"]
    assert (base["attempt"], base["from"], base["missing"]) == (1, "optimizer", 0) and base["step"] > 0
    assert sorted(p.name for p in (tdbg.directory / run).glob("[0-9]*")) == ["0", "1"]

"""A store that is slow, breaks off, refuses, lies in its lists, or is away: the run arrives whole, the training does not wait."""

import pathlib
import shutil
import subprocess
import sys
import time
import uuid

import pytest
import servers
import ship_run
from program import BINARY

TRAINING = str(pathlib.Path(ship_run.__file__))
STORE = BINARY.parent / "tdbg-store"


def place():
    return f"s3://bucket/{uuid.uuid4().hex}"


@pytest.fixture
def proxy(bucket):
    with servers.FaultyProxy(bucket.endpoint) as proxy:
        yield proxy


def through(tdbg, proxy):
    return {"AWS_ENDPOINT_URL": proxy.endpoint, "TDBG_CACHE": str(tdbg.directory / f"cache-{uuid.uuid4().hex}")}


@pytest.mark.parametrize("fault", ["reset", "500", "503", "truncated", pytest.param("slow", marks=pytest.mark.long), "stale"])
def test_a_run_goes_through_and_comes_back_in_spite_of(tdbg, proxy, fault):
    url = place()
    proxy.faults = {fault: 0.3}
    env = through(tdbg, proxy)
    done = tdbg("run", "--dir", "r", "--upload", url, "--", sys.executable, TRAINING, "10", env=env)
    assert done.returncode == 0 and f"all of the run is in {url}" in done.stderr, done.stderr
    here = tdbg.json("show", "r", "Net_fc.weight")
    shutil.rmtree(tdbg.directory / "r")
    for _ in range(3):
        there = tdbg.json("show", url, "Net_fc.weight", env=through(tdbg, proxy))
        assert {k: v for k, v in there.items() if k != "run"} == {k: v for k, v in here.items() if k != "run"}
    assert proxy.counts[fault] > 0


@pytest.mark.long
def test_a_store_that_is_away_is_said_once_and_gets_the_rest(tdbg, proxy):
    tdbg.env.update(through(tdbg, proxy))
    url = place()
    began = time.monotonic()
    job = tdbg.start("run", "--dir", "r", "--upload", url, "--", sys.executable, TRAINING, "300", "0.1",
                     stderr=subprocess.PIPE)
    tdbg.wait_for("r/0/worker_0/worker.json")
    proxy.down = True
    time.sleep(20)
    proxy.down = False
    said = job.communicate(timeout=120)[1]
    assert job.returncode == 0 and f"all of the run is in {url}" in said, said
    assert said.count("the training goes on") == 1, said
    assert time.monotonic() - began < 60
    assert len(tdbg.json("steps", url)["steps"]) == 300


def test_what_could_not_be_sent_is_said_and_sent_later(tdbg, bucket, proxy):
    url = place()
    tdbg.ok("run", "--dir", "r", "--quiet", "--", sys.executable, TRAINING, "5")
    proxy.faults = {"503": 1.0}
    failed = subprocess.run([STORE, "upload", "r", url, "--grace-seconds", "0", "--tries", "1"], cwd=tdbg.directory,
                            env={**tdbg.env, **through(tdbg, proxy)}, capture_output=True, text=True, timeout=60)
    assert failed.returncode == 6 and "SlowDown" in failed.stderr, failed.stderr
    proxy.faults = {}
    sent = subprocess.run([STORE, "upload", "r", url], cwd=tdbg.directory, env={**tdbg.env, **through(tdbg, proxy)},
                          capture_output=True, text=True, timeout=60)
    assert sent.returncode == 0, sent.stderr
    assert len(tdbg.json("steps", url)["steps"]) == 5


def test_a_clock_that_is_off_is_said(tdbg, bucket):
    class Skewed(servers.FaultyProxy):
        def _forward(self, client):
            if not self._head(client):
                return False
            text = b"<Error><Code>RequestTimeTooSkewed</Code><Message>too large</Message></Error>"
            client.wfile.write(b"HTTP/1.1 403 no\r\nDate: Mon, 01 Jan 2024 00:00:00 GMT\r\nContent-Length: %d\r\n\r\n" % len(text) + text)
            return True

    with Skewed(bucket.endpoint) as skewed:
        line = tdbg.fails(6, "run", "--upload", "s3://bucket/x", "--", "true", env={"AWS_ENDPOINT_URL": skewed.endpoint})
        assert "clock is off by" in line


class Answers(servers.FaultyProxy):
    """Answers every request as it is told: status line and headers, and the body."""

    def __init__(self, head, body):
        super().__init__("http://127.0.0.1:0")
        self.head, self.body, self.at = head.encode(), body.encode(), []

    def _forward(self, client):
        if not self._head(client):
            return False
        self.at.append(time.monotonic())
        client.wfile.write(b"HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n" % (self.head, len(self.body)) + self.body)
        return True


def store(tdbg, endpoint, *arguments, **env):
    return subprocess.run([STORE, *arguments], env={**tdbg.env, "AWS_ENDPOINT_URL": endpoint, **env}, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("head, body", [
    ("400 no", "<Error><Code>AuthorizationHeaderMalformed</Code><Message>expecting 'eu-west-3'</Message><Region>eu-west-3</Region></Error>"),
    ("301 no\r\nx-amz-bucket-region: eu-west-3", "<Error><Code>PermanentRedirect</Code><Message>elsewhere</Message></Error>"),
    ("307 no\r\nx-amz-bucket-region: eu-west-3", "")])
def test_a_bucket_of_another_region_is_said_with_it_before_anything_is_made(tdbg, head, body):
    with Answers(head, body) as elsewhere:
        line = tdbg.fails(2, "run", "--upload", "s3://bucket/x", "--", "true", env={"AWS_ENDPOINT_URL": elsewhere.endpoint})
        assert line.strip() == "tdbg: the bucket 'bucket' is in another region: set AWS_REGION=eu-west-3"
        assert len(elsewhere.at) == 1


def test_a_store_that_says_when_to_come_back_is_not_asked_before(tdbg):
    with Answers("503 no\r\nRetry-After: 1", "<Error><Code>SlowDown</Code></Error>") as busy:
        assert store(tdbg, busy.endpoint, "ls", "s3://bucket/x/", "--tries", "3").returncode == 6
        assert len(busy.at) == 3 and all(b - a >= 1 for a, b in zip(busy.at, busy.at[1:], strict=False)), busy.at


def test_a_store_that_has_other_bytes_than_were_sent_is_not_believed(tdbg, proxy):
    (tdbg.directory / "file").write_text("as it was")
    with Answers('200 OK\r\nETag: "%032x"' % 1, "as it became") as keeps_another:
        put = store(tdbg, keeps_another.endpoint, "put", str(tdbg.directory / "file"), "s3://bucket/file", "--tries", "2")
        assert put.returncode == 6 and "other bytes than were sent" in put.stderr, put.stderr
    # ETags that are no MD5s, of a store that has the bytes.
    proxy.faults = {"renamed": 1.0}
    key = place() + "/file"
    assert store(tdbg, proxy.endpoint, "put", str(tdbg.directory / "file"), key).returncode == 0 and proxy.counts
    assert store(tdbg, proxy.endpoint, "cat", key).stdout == "as it was"


@pytest.fixture
def certificate(tdbg):
    """A certificate of this machine's, which nobody has signed, and its key."""
    files = [str(tdbg.directory / name) for name in ("certificate.pem", "key.pem")]
    made = subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1",
                           "-addext", "subjectAltName=IP:127.0.0.1", "-out", files[0], "-keyout", files[1]], capture_output=True)
    if made.returncode != 0:
        pytest.skip("openssl makes no certificate here")
    return files


def test_a_store_whose_certificate_is_wrong_gets_nothing(tdbg, bucket, certificate):
    with servers.FaultyProxy(bucket.endpoint, tls=certificate) as proxy:
        line = tdbg.fails(6, "run", "--upload", place(), "--", "true", env={"AWS_ENDPOINT_URL": proxy.endpoint})
        assert "certificate that is not trusted" in line and "AWS_CA_BUNDLE" in line and not proxy.requests, line
        # A name that is not the certificate's, though who signed it is known.
        by_name = proxy.endpoint.replace("127.0.0.1", "localhost")
        assert "not trusted" in store(tdbg, by_name, "ls", "s3://bucket/x/", AWS_CA_BUNDLE=certificate[0]).stderr and not proxy.requests
        url = place()
        tdbg.ok("run", "--dir", "r", "--upload", url, "--quiet", "--", sys.executable, TRAINING, "3",
                env={"AWS_ENDPOINT_URL": proxy.endpoint, "AWS_CA_BUNDLE": certificate[0]})
        assert proxy.requests and len(tdbg.json("steps", url)["steps"]) == 3


def test_a_transfer_that_stalls_is_given_up_and_tried_again(tdbg, proxy):
    """For a minute or for ever: what counts is how long nothing came (20 s, here one)."""
    (tdbg.directory / "file").write_bytes(b"x" * 100_000)
    key = place() + "/file"
    assert store(tdbg, proxy.endpoint, "put", str(tdbg.directory / "file"), key).returncode == 0
    proxy.faults = {"stalled": 1.0}
    gone = store(tdbg, proxy.endpoint, "cat", key, "--silent-millis", "1000", "--tries", "2")
    assert gone.returncode == 6 and "cannot be reached" in gone.stderr and proxy.counts == {"stalled": 2}
    proxy.faults = {"stalled": 0.5}
    assert store(tdbg, proxy.endpoint, "cat", key, "--silent-millis", "1000").stdout == "x" * 100_000


def test_only_what_is_looked_at_is_fetched(tdbg, proxy):
    """One value of megabytes of them: a segment's index, and that value."""
    url = place()
    script = """
import sys, numpy as np
from tdbg._capture import Run
run = Run.open()
ids = [run.define(f"w{i}", f"w{i}", "weight", "linear", "float32", [64, 1024]) for i in range(8)]
for step in range(10):
    run.begin_step(1)
    for i in ids: run.put_array(i, np.full((64, 1024), step * 10 + i, np.float32))
    run.end_step()
run.end("completed")
"""
    (tdbg.directory / "t.py").write_text(script)
    (tdbg.directory / "c.yaml").write_text("collections:\n  w:\n    include_regex: [\"^w\"]\n    raw: true\n    save_interval: 1\n")
    tdbg.ok("run", "--config", "c.yaml", "--dir", "r", "--upload", url, "--quiet", "--", sys.executable, "t.py",
            env={"PYTHONPATH": tdbg.env["TDBG_HOME"]})
    whole = sum(f.stat().st_size for f in (tdbg.directory / "r").rglob("*.safetensors"))
    assert whole > 10 << 20
    before = proxy.bytes_down
    read = subprocess.run([sys.executable, "-c", "import sys, tdbg; t = tdbg.open(sys.argv[1]); "
                           "print(float(t.tensor('w3').value(7).mean()))", url], capture_output=True, text=True, timeout=60,
                          env={**tdbg.env, **through(tdbg, proxy), "PYTHONPATH": tdbg.env["TDBG_HOME"]})
    assert read.stdout.strip() == "73.0", read.stderr
    answer = 64 * 1024 * 4
    assert proxy.bytes_down - before <= 3 * answer, proxy.bytes_down - before


#: Prints each loss to the bit, meets a NaN, and ends with a code of its own.
TORCH = """
import pathlib, sys, time, torch
torch.manual_seed(1)
net = torch.nn.Sequential(torch.nn.Linear(256, 4096), torch.nn.ReLU(), torch.nn.Dropout(0.1), torch.nn.Linear(4096, 1024))
optimizer = torch.optim.Adam(net.parameters(), 1e-3)
for step in range(40):
    x, y = torch.randn(8, 256), torch.randint(0, 1024, (8,))
    if step == 30:
        x[0, 0] = float("nan")
    loss = torch.nn.functional.cross_entropy(net(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item().hex(), net[0].bias.double().sum().item().hex(), flush=True)
    time.sleep(0.02)
pathlib.Path(sys.argv[1]).touch()
sys.exit(3)
"""
HANDLERS = """
handlers:
  - {name: falls, python: "h.py:falls"}
  - {name: raises, python: "h.py:raises"}
  - {name: hangs, python: "h.py:hangs", limit_seconds: 1}
  - {name: refuses, exec: "exit 7"}
  - {name: nobody, webhook: "http://127.0.0.1:9/x"}
  - {name: nowhere, log: /proc/none/log}
"""


@pytest.mark.long
def test_whatever_breaks_beside_a_training_it_is_the_same_to_the_bit_and_each_trouble_is_told_once(tdbg, proxy):
    """All at once: a bucket that goes away, handlers that crash, raise and hang, metrics that can go nowhere, and a full disk under
    the run when its black box is to be written."""
    pytest.importorskip("torch")
    for name, text in (("t.py", TORCH), ("h.yaml", HANDLERS),
                       ("h.py", "import os, time\ndef falls(e, c): os._exit(9)\ndef raises(e, c): 1 / 0\n"
                                "def hangs(e, c): time.sleep(1000)\n")):
        (tdbg.directory / name).write_text(text)
    bare = subprocess.run([sys.executable, "t.py", "bare"], cwd=tdbg.directory, env=tdbg.env, capture_output=True, text=True, timeout=120)
    assert bare.returncode == 3 and len(bare.stdout.splitlines()) == 40, bare.stderr
    tiny = tdbg.directory / "tiny"
    tiny.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=40m", "tmpfs", tiny], capture_output=True).returncode == 0
    try:
        tdbg.env.update(through(tdbg, proxy))
        job = tdbg.start("run", "--dir", "tiny/r", "--upload", place(), "--on-event", "h.yaml", "--prometheus", "/proc/none/x.prom",
                         "--otlp", "http://127.0.0.1:9", "--", sys.executable, "t.py", "done", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        tdbg.wait_for("tiny/r/0/worker_0/worker.json", 60)
        proxy.down = True
        tdbg.wait_for("done", 120)
        time.sleep(12)
        proxy.down = False
        printed, said = job.communicate(timeout=240)
    finally:
        proxy.down = False
        if mounted:
            subprocess.run(["umount", "-l", tiny])
    assert (printed, job.returncode) == (bare.stdout, 3), said
    words = " ".join(said.split())
    for once in ("the training goes on, and what is due is sent", "left to send, tried again for up to 600 s", "tdbg: metrics: "):
        assert words.count(once) == 1, (once, said)
    for name in ("falls", "raises", "hangs", "refuses", "nobody", "nowhere"):
        assert words.count(f"handler {name} failed: ") == 1 and words.count(f"handler {name} failed at ") == 1, (name, said)
    if mounted:
        assert words.count("no black box of step 30") == 1 and "No space left on device" in words, said
    assert "Traceback" not in said and "stops capturing" not in said, said

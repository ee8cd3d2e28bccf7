"""tdbg view without a browser: what is answered is what Python reads, and who may not ask gets nothing."""

import contextlib
import http.client
import json
import os
import pathlib
import random
import resource
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request

import numpy as np
import pytest
import safetensors.numpy
from page_runs import DEAD, DEAD_FROM, HOSTILE, NAN_FROM, SICK, STEPS

HERE = pathlib.Path(__file__).parent


def record(*arguments):
    """In a process of its own: a run is written by a training process, and not by pytest."""
    done = subprocess.run([sys.executable, str(HERE / "page_runs.py"), *map(str, arguments)], capture_output=True,
                          text=True, timeout=120)
    if "ModuleNotFoundError" in done.stderr:
        pytest.skip("the extension is not installed in this Python")
    assert done.returncode == 0, done.stderr


@contextlib.contextmanager
def serving(tdbg, *arguments):
    """The address of `tdbg view`; ended by SIGTERM, as a user's terminal would."""
    process = tdbg.start("view", *map(str, arguments), "--json", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        line = process.stdout.readline()
        assert line, process.stderr.read()
        yield json.loads(line)["address"]
        assert process.poll() is None, "the server is gone"
    finally:
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=10)
    assert process.returncode == 0 and not errors, errors


class Server:
    def __init__(self, address):
        self.address = address
        parts = urllib.parse.urlsplit(address)
        self.port, self.token = parts.port, parts.path.strip("/")

    def get(self, question, **parameters):
        query = urllib.parse.urlencode(parameters)
        with urllib.request.urlopen(f"{self.address}api/v1/{question}?{query}", timeout=30) as response:
            return response.read()

    def json(self, question, **parameters):
        return json.loads(self.get(question, **parameters))

    def columns(self, question, **parameters):
        body = self.get(question, **parameters)
        size = int.from_bytes(body[:8], "little")
        head = json.loads(json.loads(body[8:8 + size])["__metadata__"]["answer"])
        return head, safetensors.numpy.load(body)

    def error(self, question, **parameters):
        with pytest.raises(urllib.error.HTTPError) as refused:
            self.get(question, **parameters)
        return refused.value.code, json.loads(refused.value.read())["error"]

    def raw(self, data, timeout=5):
        """What the server says to these bytes, until it closes or says nothing more."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=timeout) as connection:
            with contextlib.suppress(OSError):
                connection.sendall(data)
            connection.settimeout(0.3)
            said = b""
            with contextlib.suppress(OSError):
                while chunk := connection.recv(65536):
                    said += chunk
            return said

    def status(self, method="GET", path=None, **headers):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        connection.putrequest(method, f"/{self.token}/api/v1/runs" if path is None else path, skip_host="Host" in headers)
        for key, value in headers.items():
            connection.putheader(key.replace("_", "-"), value)
        connection.endheaders()
        response = connection.getresponse()
        body = response.read()
        connection.close()
        return response.status, dict(response.getheaders()), body


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    directory = tmp_path_factory.mktemp("runs")
    record(directory / "sick", "sick")
    record(directory / "fine", "fine")
    return directory


@pytest.fixture
def server(tdbg, recorded):
    with serving(tdbg, recorded) as address:
        yield Server(address)


def test_answers_are_what_python_reads(server, recorded):
    import tdbg as reading

    trial = reading.open(str(recorded / "sick"))
    tree = server.json("tensors", run="sick")
    ids = {t["name"]: t["id"] for t in tree["tensors"]}
    names = [n for n in ids if n.startswith(("Net", "gradient"))]
    assert DEAD in "".join(names) and HOSTILE in ids

    # Every cell of every width is the extremes, and the signs, of the rows that it stands for.
    frame = trial.frame(regex="^(Net|gradient)", fields=["mean_abs", "nan_count", "zero_count", "count"], worker="*")
    by_name = {n: frame["tensor"] == n for n in names}
    for columns, begin, end in ((1000, 0, STEPS), (64, 0, STEPS), (7, 0, STEPS), (40, 137, 291), (1, 299, 301)):
        rows = [[n] for n in names[:6]] + [names]
        head, answer = server.columns("matrix", run="sick", columns=columns, begin=begin, end=end,
                                      rows=";".join(",".join(str(ids[n]) for n in row) for row in rows))
        first, last = answer["step_first"], answer["step_last"]
        assert len(first) <= max(columns + 1, 1) and first[0] <= begin and last[-1] >= end - 1
        assert (np.bincount(last - first + 1)[:-1].sum() <= 2), "blocks of one width, but for the ends"
        for i, row in enumerate(rows):
            mine = np.logical_or.reduce([by_name[n] for n in row])
            for b in range(len(first)):
                here = mine & (frame["step"] >= first[b]) & (frame["step"] <= last[b])
                values = frame["mean_abs"][here]
                values = values[np.isfinite(values)]
                assert answer["high"][i, b] == np.float32(values.max()) and answer["low"][i, b] == np.float32(values.min())
                wanted = 8 + (1 if frame["nan_count"][here].any() else 0)
                wanted += 4 if (frame["zero_count"][here] == frame["count"][here]).any() else 0
                assert answer["flags"][i, b] == wanted, (row, first[b])

    # A group of many tensors is a long address: each is named where no range holds them.
    head, long = server.columns("matrix", run="sick", columns=4, rows=",".join([str(ids[names[0]])] * 40_000))
    head, short = server.columns("matrix", run="sick", columns=4, rows=str(ids[names[0]]))
    assert (long["high"] == short["high"]).all()

    # A line keeps what a pixel shows: the extremes, and the step at which it is no number any more.
    loss = "CrossEntropyLoss_output_0"
    steps, values = trial.tensor(loss).series("value")[:2]
    for columns in (3, 50, 1000):
        head, line = server.columns("line", run="sick", tensor=loss, columns=columns)
        assert head["points"] == STEPS and line["nonfinite_step"][0] == NAN_FROM
        finite = values[np.isfinite(values)]
        assert line["value"].min() == finite.min() and line["value"].max() == finite.max()
        assert set(zip(line["step"], line["value"], strict=True)) <= set(zip(steps, values, strict=True))

    tensor = f"gradient/{SICK}.weight"
    head, one = server.columns("histogram", run="sick", tensor=tensor, step=20)
    mine = trial.tensor(tensor).histogram(20, worker="worker_0")
    assert one["count"].sum() + head["summary"]["zero_count"] == 512
    assert list(one["count"]) == list(mine.count)
    head, many = server.columns("histograms", run="sick", tensor=tensor, columns=4)
    assert many["count"].sum() + many["zero_count"].sum() + many["nonfinite_count"].sum() == 512 * head["read"]
    head, ranks = server.columns("workers", run="sick", tensor=loss, field="value")
    assert head["workers"] == ["worker_0", "worker_1"] and ranks["high"].shape[0] == 2
    # One rank's NaN is that rank's, of whatever statistic; the statistic itself is of the finite elements.
    head, ranks = server.columns("workers", run="sick", tensor=tensor, field="mean_abs", columns=1000)
    nan = (ranks["flags"] & 1).astype(bool)
    assert list(nan[head["workers"].index("worker_0")]) == list(ranks["step_last"] >= NAN_FROM)
    assert not nan[head["workers"].index("worker_1")].any() and np.isfinite(ranks["high"]).all()
    assert server.json("step", run="sick", step=5)["workers"] == ["worker_0", "worker_1"]


def test_two_runs_are_compared_as_diff_and_python_do(server, tdbg, recorded):
    """They are the same until a layer of one vanishes; only the parting step is told, a piece of the way at a time."""
    import tdbg as reading

    answers, begin = [], 0
    while begin >= 0:
        answers.append(server.json("compare", run="sick", other="fine", begin=begin))
        begin = answers[-1]["next_step"]
    last = answers[-1]
    assert len(answers) > 1 and not any(a["parted"] for a in answers[:-1])
    assert sum(a["compared"]["steps"] for a in answers) == DEAD_FROM + 1
    first = last["differences"][0]
    assert last["parted"] and first["global_step"] == DEAD_FROM and first["tensor"] == f"gradient/{DEAD}.weight"
    said = tdbg.json("diff", recorded / "sick", recorded / "fine", code=1)
    assert last["different"] == len(said["differences"])
    assert {k: first[k] for k in ("tensor", "worker", "by", "field")} == {k: said["first"][k] for k in ("tensor", "worker", "by", "field")}
    assert (first["value"], first["other_value"]) == (said["first"]["a"], said["first"]["b"])
    assert answers[0]["only_in_run"]["workers"] == ["worker_1"] and answers[0]["only_in_other"]["workers"] == []
    same = server.json("compare", run="sick", other="sick", begin=STEPS - 3)
    assert not same["parted"] and same["next_step"] == -1 and same["last_step"] == STEPS - 1 and same["over"]
    # Within a tolerance that holds the vanished layer's numbers, they part where a number is none.
    far = server.json("compare", run="sick", other="fine", begin=NAN_FROM - 2, rtol=1e12, atol=1e12)
    assert far["differences"][0]["global_step"] == NAN_FROM

    # The ratio of two layer maps, cell by cell, and of the worst tensor in a group.
    ids = {t["name"]: t["id"] for t in server.json("tensors", run="sick")["tensors"]}
    names = [n for n in ids if n.startswith("gradient/")]
    rows = [[n] for n in names[:4]] + [[f"gradient/{DEAD}.weight"], names]
    head, ratio = server.columns("ratio", run="sick", other="fine", columns=50,
                                 rows=";".join(",".join(str(ids[n]) for n in row) for row in rows))
    assert head["tensors_missing"] == 0
    series = {run: {n: reading.open(str(recorded / run)).frame(tensors=[n], fields=["mean_abs", "nan_count"], worker="*") for n in names}
              for run in ("sick", "fine")}
    for b, (first_step, last_step) in enumerate(zip(ratio["step_first"], ratio["step_last"], strict=True)):
        def cell(run, name):
            frame = series[run][name]
            values = frame["mean_abs"][(frame["step"] >= first_step) & (frame["step"] <= last_step)].astype(np.float32)  # noqa: B023
            values = values[np.isfinite(values)].astype(float)
            return values.min(), values.max()

        for i, row in enumerate(rows):
            ratios = []
            for name in row:
                (low, high), (low_there, high_there) = cell("sick", name), cell("fine", name)
                ratios += [low / low_there, high / high_there]
            assert ratio["low"][i, b] == pytest.approx(min(ratios), rel=1e-6)
            assert ratio["high"][i, b] == pytest.approx(max(ratios), rel=1e-6)
        assert bool(ratio["flags"][-1, b] & 1) == (last_step >= NAN_FROM) and not ratio["other_flags"][-1, b] & 1
    assert ratio["low"][4, -1] == 0 and ratio["flags"][4, -1] & 4, "all zero in one, and not in the other"

    assert server.error("compare", run="sick")[0] == 400 and "other" in server.error("ratio", run="sick")[1]
    assert server.error("compare", run="sick", other="nobody")[0] == 404
    assert server.error("compare", run="sick", other="fine", rtol="1x")[0] == 400
    assert server.error("compare", run="sick", other="fine", atol="-1")[0] == 400
    assert server.error("ratio", run="sick", other="fine", statistic="meen")[1].startswith("ratio: no statistic 'meen'")


def test_it_says_how_a_run_is(server, tdbg, recorded):
    said = server.json("run", run="sick")["sentence"]
    assert said["step"] == NAN_FROM and said["mood"] == "bad" and f"NaN since step {NAN_FROM}" in said["text"]
    assert server.json("run", run="fine")["sentence"]["mood"] == "unknown"  # nobody has judged it
    assert not {r["name"]: r for r in server.json("runs")["runs"]}["fine"]["judged"]
    tdbg("watch", recorded / "fine", "--rule", "exploding_tensor")
    assert server.json("run", run="fine")["sentence"]["mood"] == "good"
    entries = {r["name"]: r for r in server.json("runs")["runs"]}
    assert set(entries) == {"sick", "fine"} and entries["sick"]["steps"] == STEPS and len(entries["fine"]["loss"]) > 10
    # A run that is over can be judged later, and a job can go on in it.
    assert entries["fine"]["judged"] and entries["fine"]["undecided"] == entries["fine"]["damaged"] == 0


def test_how_a_scale_is_found_is_no_infinity(tdbg, tmp_path):
    """Overflows of gradients in steps that AMP skipped are how it finds its scale; the profile says nothing of them, either."""
    record(tmp_path / "scaled", "scaled")
    with serving(tdbg, tmp_path / "scaled") as address:
        overview = Server(address).json("run")
        assert "first_nonfinite" not in overview
        assert overview["sentence"]["mood"] == "unknown" and "All recorded tensors are finite" in overview["sentence"]["text"]


def test_what_is_not_there_is_said(server):
    assert server.error("matrix", run="sick", statistic="meen")[0] == 400
    assert "there are: mean_abs" in server.error("matrix", run="sick", statistic="meen")[1]
    assert server.error("matrix", run="sick", widht=3)[1].startswith("matrix: no parameter 'widht'")
    assert server.error("line", run="sick", tensor="Net_blocks_0_mlp.wieght")[0] == 404
    assert server.error("run", run="nobody")[0] == 404
    for path in ("../../../etc/passwd", "/etc/passwd", "sick/../fine", "..", "sick/run.json"):
        assert server.error("run", run=path)[0] == 404


def test_who_may_not_ask_is_refused(server):
    own = f"127.0.0.1:{server.port}"
    assert server.status()[0] == 200
    assert server.status(Host="localhost:8080")[0] == 200  # behind a tunnel
    assert server.status(Origin=f"http://{own}")[0] == 200
    for headers in ({"Host": "evil.example"}, {"Host": f"evil.example:{server.port}"}, {"Host": "127.0.0.1.evil.example"},
                    {"Host": "127.0.0.1@evil.example"}, {"Host": ""}, {"Origin": "http://evil.example"}, {"Origin": "null"},
                    {"Origin": f"https://{own}"}, {"Sec_Fetch_Site": "cross-site"}, {"Sec_Fetch_Site": "same-site"}):
        assert server.status(**headers)[0] == 403, headers
    for path in ("/", "/api/v1/runs", "/wrong/api/v1/runs", f"/{server.token[:-1]}/", f"/{server.token}0/", f"/{server.token[::-1]}/", "//", "/%2f/"):
        assert server.status(path=path)[0] == 403, path
    for method in ("POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "CONNECT", "NONSENSE"):
        assert server.status(method)[0] in (400, 405), method
    status, headers, body = server.status(path=f"/{server.token}/")
    assert status == 200 and b"page.js" in body
    assert "default-src 'none'" in headers["Content-Security-Policy"] and "unsafe" not in headers["Content-Security-Policy"]
    assert headers["Referrer-Policy"] == "no-referrer" and headers["X-Content-Type-Options"] == "nosniff"
    assert server.status(path=f"/{server.token}/../../etc/passwd")[0] == 404
    assert server.status("HEAD", path=f"/{server.token}/page.js")[2] == b""


def test_mutated_requests_neither_crash_nor_hang(server):
    """10,000 of them, the most over connections that are kept; the server answers a proper one at once afterwards."""
    random_ = random.Random(7)
    seeds = [f"/{server.token}/api/v1/{q}" for q in (
        "run?run=sick", "runs?offset=0&limit=2", "tensors?run=sick", "step?run=sick&step=3", "values?run=sick&tensor=x&step=1",
        "matrix?run=sick&statistic=l2&rows=0-11,14;3&columns=40&begin=0&end=99", "histogram?run=sick&tensor=Net_blocks_0_mlp.weight&step=10",
        "line?run=sick&tensor=CrossEntropyLoss_output_0&field=value&columns=30", "workers?run=sick&tensor=Net_blocks_0_mlp.bias",
        "histograms?run=sick&tensor=Net_blocks_0_mlp.weight&columns=5",
        "ratio?run=sick&other=fine&statistic=mean&rows=0-11,14;3&columns=40&begin=9&end=99", "compare?run=sick&other=fine&begin=399&rtol=1e-3")]
    pieces = ["%00", "%", "%ff", "..", "/", "&", "=", "?", ";", ",", "-", "9" * 25, "-1", "nan", "%e2%80%ae", "A" * 3000, "\t", "#", "0-4294967295"]

    def mutated():
        text = random_.choice(seeds)
        for _ in range(random_.randint(1, 4)):
            at = random_.randrange(34, len(text) + 1)
            kind = random_.randrange(3)
            if kind == 0:
                text = text[:at] + random_.choice(pieces) + text[at:]
            elif kind == 1:
                text = text[:at] + text[at + random_.randint(1, 6):]
            else:
                text = text[:at] + chr(random_.randrange(33, 127)) + text[at + 1:]
        return text

    connection, seen = None, set()
    for i in range(9500):
        if connection is None:
            connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
        path = mutated()
        if path[33:].startswith("/api/v1/news") or any(c in path for c in "\t #"):
            continue
        connection.putrequest("GET", path)
        connection.endheaders()
        response = connection.getresponse()
        body = response.read()
        seen.add(response.status)
        assert response.status in (200, 301, 400, 403, 404, 501), (path, response.status, body[:200])
        assert b"root:" not in body
        if response.will_close:
            connection.close()
            connection = None
    assert seen >= {200, 400, 404}
    whole = f"GET {seeds[0]} HTTP/1.1\r\nHost: 127.0.0.1\r\nX: y\r\n\r\n".encode()
    for i in range(120):
        data = bytearray(whole)
        for _ in range(random_.randint(1, 6)):
            data[random_.randrange(len(data))] = random_.randrange(256)
        if i % 3 == 0:
            data = data[:random_.randrange(len(data))] + os.urandom(random_.randrange(300))
        server.raw(bytes(data), timeout=5)
    for data in (b"GET / HTTP/1.1\r\n" + b"X: " + b"y" * (1 << 20), b"\x16\x03\x01\x02\x00" * 50, b"\r\n" * 1000,
                 b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n",
                 b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999\r\n\r\n"):
        server.raw(data)
    begin = time.monotonic()
    assert server.json("run", run="fine")["steps"] == STEPS
    assert time.monotonic() - begin < 2


def test_a_run_that_is_damaged_or_gone_is_said_to_be(tdbg, golden, tmp_path):
    import shutil

    root = tmp_path / "root"
    root.mkdir()
    shutil.copytree(golden, root / "one")
    (root / "two").mkdir()
    newer = (golden / "run.json").read_text().replace('"major": 1', '"major": 9')
    (root / "two" / "run.json").write_text(newer)
    with serving(tdbg, root) as address:
        server = Server(address)
        entries = {r["name"]: r for r in server.json("runs")["runs"]}
        assert entries["two"]["state"] == "unreadable" and entries["one"]["steps"] == 3
        assert server.json("run", run="one")["steps"] == 3
        shutil.rmtree(root / "one")
        assert server.error("run", run="one")[0] in (404, 500, 503)
        assert set(r["name"] for r in server.json("runs")["runs"]) == {"two"}


def test_a_new_step_is_told_of_while_it_trains(tdbg, tmp_path):
    training = subprocess.Popen([sys.executable, str(HERE / "page_runs.py"), str(tmp_path / "live"), "live", "40", "0.05"])
    try:
        tdbg.wait_for(tmp_path / "live" / "run.json")
        with serving(tdbg, tmp_path / "live") as address:
            late, last = [], -1
            with urllib.request.urlopen(f"{address}api/v1/news?run=live", timeout=20) as news:
                while last < 30:
                    line = news.readline().decode()
                    assert line, "the news ended"
                    if not line.startswith("data: "):
                        continue
                    last = json.loads(line[6:])["last_step"]
                    if last < 0:
                        continue
                    step = Server(address).json("step", step=last)
                    late.append(time.time() - step["wall_nanos"] / 1e9)
            late.sort()
            assert len(late) > 5 and late[len(late) // 2] < 0.25, late
    finally:
        training.wait(timeout=60)


def test_a_link_from_another_site_can_be_followed_and_nothing_else_from_there(server):
    site = {"Sec_Fetch_Site": "cross-site"}
    document = f"/{server.token}/"
    assert server.status(path=document, **site, Sec_Fetch_Mode="navigate", Sec_Fetch_Dest="document")[0] == 200
    for mode, dest in (("navigate", "iframe"), ("no-cors", "script"), ("cors", "empty"), ("no-cors", "image")):
        assert server.status(path=document, **site, Sec_Fetch_Mode=mode, Sec_Fetch_Dest=dest)[0] == 403
    assert server.status(path=document, **site, Origin="http://example.org", Sec_Fetch_Mode="navigate", Sec_Fetch_Dest="document")[0] == 403


def test_news_goes_on_once_the_server_has_been_out_of_descriptors(tdbg, tmp_path):
    training = subprocess.Popen([sys.executable, str(HERE / "page_runs.py"), str(tmp_path / "live"), "live", "150", "0.05"])
    tdbg.wait_for(tmp_path / "live" / "run.json")
    view = tdbg.start("view", tmp_path / "live", "--json", stdout=subprocess.PIPE,
                      preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (32, 32)))
    try:
        address = json.loads(view.stdout.readline())["address"]
        with urllib.request.urlopen(f"{address}api/v1/news?run=live", timeout=10) as news:
            def next_step(least):
                while True:
                    line = news.readline().decode()
                    assert line, "the news ended"
                    if line.startswith("data: ") and (last := json.loads(line[6:])["last_step"]) >= least:
                        return last
            seen = next_step(0)
            port = urllib.parse.urlsplit(address).port
            crowd = [socket.create_connection(("127.0.0.1", port), timeout=10) for _ in range(60)]
            time.sleep(0.5)
            for connection in crowd:
                connection.close()
            next_step(seen + 20)
    finally:
        view.terminate()
        view.communicate(timeout=10)
        training.terminate()
        training.wait(timeout=60)


def test_a_port_that_is_taken_is_one_sentence(tdbg, recorded):
    with serving(tdbg, recorded) as address:
        port = urllib.parse.urlsplit(address).port
        line = tdbg.fails(6, "view", recorded, "--port", port)
        assert f"127.0.0.1:{port}" in line and "--port" in line
    tdbg.fails(4, "view", "no-such-run")

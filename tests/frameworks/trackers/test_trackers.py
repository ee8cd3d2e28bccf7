"""Real libraries of trackers, offline, and the real parsers of what `tdbg metrics` writes, on one training."""

import http.server
import json
import os
import pathlib
import subprocess
import sys
import threading

import pytest

mlflow = pytest.importorskip("mlflow")
prometheus = pytest.importorskip("prometheus_client.parser")

HOME = os.environ["TDBG_HOME"]
BINARY = pathlib.Path(os.environ["TDBG_BIN"])
STEPS = 20
TRAINING = """
import os, pathlib, time
import numpy as np
from tdbg._capture import Run
directory = os.environ["TDBG_RUN"]
run = Run.open(directory=directory, plan_json=next(pathlib.Path(directory).rglob("plan.json")).read_text(), attempt=0)
weight = run.define("gradient/a", "gradient/a", "gradient", "", "float32", [4])
loss = run.define_scalar("loss", "losses")
for step in range(%d):
    run.begin_step(1)
    run.put_array(weight, np.full(4, step, np.float32))
    run.put_scalars(np.array([loss], np.uint32), [1 / (step + 1) if step != 7 else float("nan")])
    run.end_step()
    time.sleep(0.02)
run.end("completed")
""" % STEPS
RULE = """
import tdbg
class Grows(tdbg.Rule):
    needs = tdbg.needs("gradients")
    def judge(self, step):
        s = step.statistics("gradients")
        return [s.finding(i, "mean", ">", 5) for i in range(len(s)) if s.mean[i] > 5]
"""


class CollectorStandIn(http.server.ThreadingHTTPServer):
    """Takes what an OpenTelemetry collector takes, and keeps it."""

    def __init__(self):
        self.got = []

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(handler):
                body = handler.rfile.read(int(handler.headers["Content-Length"]))
                self.got.append((handler.path, dict(handler.headers), body))
                handler.send_response(200)
                handler.end_headers()

            def log_message(handler, *args):
                pass

        super().__init__(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A training under `tdbg run --prometheus --otlp`."""
    directory = tmp_path_factory.mktemp("trained")
    (directory / "train.py").write_text(TRAINING)
    (directory / "rule.py").write_text(RULE)
    collector = CollectorStandIn()
    env = {**os.environ, "PYTHONPATH": HOME, "XDG_STATE_HOME": str(directory / "state"), "no_proxy": "127.0.0.1",
           "OTEL_EXPORTER_OTLP_HEADERS": "x-key=given"}
    done = subprocess.run([BINARY, "run", "--dir", "r", "--rule-file", "rule.py:Grows", "--prometheus", "r.prom", "--otlp",
                           f"http://127.0.0.1:{collector.server_address[1]}", "--", sys.executable, "train.py"],
                          cwd=directory, env=env, capture_output=True, text=True, timeout=120)
    collector.shutdown()
    assert done.returncode == 0, done.stderr
    return directory, collector.got


def call(directory, *words, **env):
    return subprocess.run([BINARY, *words], cwd=directory, env={**os.environ, "XDG_STATE_HOME": str(directory / "state"), **env},
                          capture_output=True, text=True, timeout=180)


def values_of(families):
    return {(sample.name, *sorted(sample.labels.items())): sample.value for family in families for sample in family.samples}


@pytest.mark.smoke
def test_prometheus_own_parser_reads_the_metrics(trained):
    directory, _ = trained
    said = call(directory, "metrics", "r").stdout
    for text in (said, (directory / "r.prom").read_text()):  # asked for later, and kept while it trained
        families = list(prometheus.text_string_to_metric_families(text))
        assert all(family.documentation for family in families)
        values = values_of(families)
        assert values["tdbg_last_step", ("run", "r")] == STEPS - 1 and values["tdbg_steps_recorded", ("run", "r")] == STEPS
        status = ("name", "Grows"), ("rule", "Grows"), ("run", "r")
        assert values[("tdbg_rule_status", *status, ("status", "IssuesFound"))] == 1
        assert values[("tdbg_rule_status", *status, ("status", "InProgress"))] == 0
        assert values[("tdbg_rule_finding_step", *status)] == 6
        assert values["tdbg_value", ("collection", "losses"), ("name", "loss"), ("run", "r")] == 1 / STEPS
        assert values["tdbg_run_state", ("run", "r"), ("state", "ended")] == 1


def test_a_collector_stand_in_gets_messages_of_opentelemetry(trained):
    from google.protobuf import json_format
    from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

    _, got = trained
    path, headers, body = got[-1]
    assert path == "/v1/metrics" and headers["Content-Type"] == "application/json" and headers["x-key"] == "given"
    request = json_format.Parse(body, ExportMetricsServiceRequest())
    [resource] = request.resource_metrics
    attributes = {item.key: item.value.string_value for item in resource.resource.attributes}
    assert attributes["service.name"] == "tdbg" and attributes["service.instance.id"] == "r"
    metrics = {metric.name: metric for metric in resource.scope_metrics[0].metrics}
    [last] = metrics["tdbg_last_step"].gauge.data_points
    assert last.as_double == STEPS - 1 and last.time_unix_nano > 0
    judged = metrics["tdbg_rule_steps_judged_total"].sum
    assert judged.is_monotonic and judged.aggregation_temporality == 2
    assert 0 < judged.data_points[0].start_time_unix_nano < judged.data_points[0].time_unix_nano


@pytest.mark.smoke
def test_mlflow_gets_numbers_and_verdicts(trained):
    directory, _ = trained
    store = (directory / "mlruns").as_uri()
    done = call(directory, "forward", "r", "--to", "mlflow", "--tensors", "gradient/", "--fields", "mean_abs,max", "--python",
                sys.executable, MLFLOW_TRACKING_URI=store, MLFLOW_ALLOW_FILE_STORE="true")
    assert done.returncode == 0, done.stderr
    os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"
    client = mlflow.MlflowClient(store)
    [run] = client.search_runs([client.get_experiment_by_name("tdbg").experiment_id])
    assert run.info.run_name == "r" and run.info.status == "FINISHED"
    loss = {metric.step: metric.value for metric in client.get_metric_history(run.info.run_id, "loss")}
    assert sorted(loss) == list(range(STEPS)) and loss[4] == 0.2 and loss[7] != loss[7]
    grown = {metric.step: metric.value for metric in client.get_metric_history(run.info.run_id, "gradient/a/max")}
    assert grown == {step: float(step) for step in range(STEPS)}
    assert run.data.tags["tdbg.rule.Grows"].startswith("IssuesFound: ") and run.data.metrics["tdbg/rule/Grows"] == 1


def wandb_records(path):
    """The messages in one of wandb's files, which are LevelDB logs: blocks of 32 KiB, of records in parts."""
    from wandb.proto import wandb_internal_pb2

    data, position, whole = path.read_bytes(), 7, b""
    while position < len(data):
        left = 32768 - position % 32768
        if left < 7:
            position += left
            continue
        size, kind = int.from_bytes(data[position + 4:position + 6], "little"), data[position + 6]
        whole += data[position + 7:position + 7 + size]
        position += 7 + size
        if kind in (1, 4):  # a whole record, or its last part
            yield wandb_internal_pb2.Record.FromString(whole)
            whole = b""


def test_wandb_offline_keeps_a_run(trained):
    pytest.importorskip("wandb")
    directory, _ = trained
    done = call(directory, "forward", "r", "--to", "wandb", "--python", sys.executable, "--follow", WANDB_MODE="offline",
                WANDB_DIR=str(directory), WANDB_SILENT="true")
    assert done.returncode == 0, done.stderr
    [log] = directory.glob("wandb/offline-run-*/*.wandb")
    history, summary = {}, {}
    for record in wandb_records(log):
        kind = record.WhichOneof("record_type")
        if kind == "history":
            items = {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in record.history.item}
            history[items["global_step"]] = items.get("loss")
        for item in record.summary.update if kind == "summary" else []:
            summary[item.key or "/".join(item.nested_key)] = json.loads(item.value_json)
    assert sorted(history) == list(range(STEPS)) and history[4] == 0.2
    assert summary["tdbg/rule/Grows"].startswith("IssuesFound: ")


def test_trackio_keeps_a_run(trained):
    pytest.importorskip("trackio")
    directory, _ = trained
    done = call(directory, "forward", "r", "--to", "trackio", "--python", sys.executable, TRACKIO_DIR=str(directory / "trackio"))
    assert done.returncode == 0, done.stderr
    script = ("import json; from trackio.sqlite_storage import SQLiteStorage; "
              "print(json.dumps(SQLiteStorage.get_logs('tdbg', 'r'), default=str))")
    logs = json.loads(subprocess.run([sys.executable, "-c", script], env={**os.environ, "TRACKIO_DIR": str(directory / "trackio")},
                                     capture_output=True, text=True, check=True).stdout)
    loss = {log["step"]: log["loss"] for log in logs if "loss" in log}
    assert sorted(loss) == list(range(STEPS)) and loss[4] == 0.2
    assert max(log.get("tdbg/rule/Grows", 0) for log in logs) == 1


def test_a_tracker_that_is_not_there_is_one_line(trained, tmp_path):
    directory, _ = trained
    # Refused by the first finder: where tdbg lies beside the real one, a module of this name on the path comes second.
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\n"
        "class Refuses:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'wandb': raise ImportError('none here')\n"
        "sys.meta_path.insert(0, Refuses())\n")
    done = call(directory, "forward", "r", "--to", "wandb", "--python", sys.executable, PYTHONPATH=str(tmp_path))
    assert done.returncode == 1 and done.stderr.startswith("tdbg: forward: --to wandb needs wandb")
    assert len(done.stderr.splitlines()) == 1
    done = call(directory, "forward", "r", "--to", "wandbb")
    assert done.returncode == 2 and "did you mean wandb?" in done.stderr

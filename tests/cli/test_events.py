"""Changes of statuses as events, and the handlers that they are delivered to: `tdbg run --on-event`, `tdbg handlers`."""

import contextlib
import http.server
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import threading
import time

import pytest

from program import processes_marked

#: A training without a framework: a gradient that is 0 from step 5 on, and a step every 20 ms.
TRAINING = """
import os, pathlib, sys, time
import numpy as np
from tdbg._capture import Run
directory = os.environ["TDBG_RUN"]
plan = (pathlib.Path(directory) / "0" / "plan.json")
plan = plan if plan.exists() else next(pathlib.Path(directory).rglob("plan.json"))
run = Run.open(directory=directory, plan_json=plan.read_text(), attempt=int(os.environ["TDBG_ATTEMPT"]))
ident = run.define("gradient/a", "gradient/a", "gradient", "", "float32", [4])
for step in range(int(sys.argv[1])):
    run.begin_step(1)
    run.put_array(ident, np.full(4, 0 if step > 5 else 1, np.float32))
    run.end_step()
    time.sleep(0.02)
run.end("completed")
"""
RULE = """
import tdbg
class Vanishes(tdbg.Rule):
    needs = tdbg.needs("gradients")
    def judge(self, step):
        s = step.statistics("gradients")
        return [s.finding(i, "mean", "<", 0.5) for i in range(len(s)) if s.mean[i] < 0.5]
"""
ISSUES = {"detail": {"DebugRuleEvaluationStatuses": {"RuleEvaluationStatus": ["IssuesFound"]}}}


def write(tdbg, name, text):
    path = pathlib.Path(tdbg.directory) / name
    path.write_text(text if isinstance(text, str) else json.dumps(text))
    return path


def train(tdbg, handlers, steps=10, *flags, **kwargs):
    write(tdbg, "train.py", TRAINING)
    write(tdbg, "rule.py", RULE)
    on_event = ["--on-event", write(tdbg, "handlers.yaml", {"handlers": handlers})] if handlers is not None else []
    env = {"PYTHONPATH": tdbg.env["TDBG_HOME"], **kwargs.pop("env", {})}
    return tdbg("run", "--dir", "r", "--rule-file", "rule.py:Vanishes", *on_event, *flags, "--", sys.executable,
                "train.py", str(steps), env=env, **kwargs)


def lines(tdbg, kind, run="r"):
    text = (pathlib.Path(tdbg.directory) / run / "events.jsonl").read_text()
    return [line for line in map(json.loads, text.splitlines()) if line["kind"] == kind]


def told(event):
    """(what changed, its status) in short."""
    detail = event["detail"]
    ours = detail["tdbg"]
    return (ours["name"], ours["status"]) if ours["change"] == "rule" else ("job", detail["SecondaryStatus"])


def test_an_unmodified_lambda_function_stops_the_job(tdbg):
    """A handler as the Lambda guide has it: it reads the rules' statuses from `detail`, and ends the job."""
    write(tdbg, "handler.py", """
import json
import logging
import os
import subprocess

logger = logging.getLogger()
logger.setLevel(logging.INFO)


def lambda_handler(event, context):
    name = event.get("detail").get("TrainingJobName")
    statuses = event.get("detail").get("DebugRuleEvaluationStatuses", None)
    if statuses is None or len(statuses) == 0:
        return {"statusCode": 200, "body": json.dumps("nothing to do")}
    for status in statuses:
        logger.info(name + ": " + status.get("RuleEvaluationStatus") + " " + status.get("StatusDetails"))
        if status.get("RuleEvaluationStatus") == "IssuesFound":
            assert context.get_remaining_time_in_millis() > 1000 and context.function_name == "stopper"
            if event["detail"]["TrainingJobStatus"] == "InProgress":
                subprocess.run([os.environ["TDBG_BINARY"], "stop", event["detail"]["tdbg"]["run"]], check=True)
    return {"statusCode": 200, "body": json.dumps(name)}
""")
    from program import BINARY

    done = train(tdbg, [{"name": "stopper", "python": "handler.py:lambda_handler"}], 3000,
                 env={"TDBG_BINARY": str(BINARY)})
    assert done.returncode == 3, done.stderr  # stopped: 3000 steps would have taken a minute
    events = [line["event"] for line in lines(tdbg, "state_change")]
    changes = [told(event) for event in events]
    expected = [("job", "Starting"), ("job", "Training"), ("Vanishes", "IssuesFound"), ("job", "Stopping"),
                ("job", "Stopped")]
    assert [change for change in changes if change in expected] == expected, changes
    assert len({event["id"] for event in events}) == len(events)
    last = events[-1]
    assert last["source"] == "aws.sagemaker" and last["detail-type"] == "SageMaker Training Job State Change"
    assert last["detail"]["TrainingJobStatus"] == "Stopped" and last["detail"]["TrainingJobName"] == "r"
    assert last["resources"] == [last["detail"]["TrainingJobArn"]]
    [rule] = events[0]["detail"]["DebugRuleEvaluationStatuses"]
    assert rule["RuleEvaluationStatus"] == "InProgress" and rule["RuleConfigurationName"] == "Vanishes"
    delivered = lines(tdbg, "delivery")
    assert [line["event_id"] for line in delivered] == [event["id"] for event in events]
    assert all(line["ok"] and line["tries"] == 1 for line in delivered), delivered
    found = delivered[changes.index(("Vanishes", "IssuesFound"))]
    assert "IssuesFound" in found["output"] and "[INFO]" in found["output"]


#: As on AWS, without a guard of the status: it is called again once the job has stopped, and is refused then.
ON_AWS = """
import boto3

sagemaker = boto3.client("sagemaker")


def lambda_handler(event, context):
    name = event["detail"]["TrainingJobName"]
    for status in event["detail"]["DebugRuleEvaluationStatuses"]:
        if status["RuleEvaluationStatus"] == "IssuesFound":
            sagemaker.stop_training_job(TrainingJobName=name)
"""


def test_a_function_that_calls_sagemaker_stops_its_own_job(tdbg):
    """boto3's client reaches the job of the event, and nothing of AWS, whatever credentials there are or are not."""
    pytest.importorskip("boto3")
    write(tdbg, "handler.py", ON_AWS)
    for key in [key for key in tdbg.env if key.startswith("AWS_")]:
        del tdbg.env[key]
    done = train(tdbg, [{"name": "stopper", "python": "handler.py:lambda_handler"}], 3000,
                 env={"AWS_EC2_METADATA_DISABLED": "true"})
    assert done.returncode == 3, done.stderr  # stopped: 3000 steps would have taken a minute
    assert lines(tdbg, "state_change")[-1]["event"]["detail"]["TrainingJobStatus"] == "Stopped"
    delivered = {line["event_id"]: line for line in lines(tdbg, "delivery")}
    for event in (line["event"] for line in lines(tdbg, "state_change")):
        got = delivered[event["id"]]
        if event["detail"]["SecondaryStatus"] == "Stopped":
            assert not got["ok"] and "the training job is in status Stopped" in got["error"], got
        else:
            assert got["ok"], got


def test_what_a_handlers_client_of_sagemaker_sees_and_is_refused(tdbg):
    """Describe and list say what the events say; another job, another operation and another's address are refused."""
    pytest.importorskip("boto3")
    write(tdbg, "handler.py", """
import json, os, urllib.error, urllib.request
import boto3
from botocore.exceptions import ClientError

def said(call, **named):
    try:
        return call(**named)
    except ClientError as error:
        return error.response["Error"]

def lambda_handler(event, context):
    if event["detail"]["tdbg"].get("status") != "IssuesFound":
        return
    client = boto3.session.Session(aws_access_key_id="real", aws_secret_access_key="real").client("sagemaker")
    address = os.environ["AWS_ENDPOINT_URL_SAGEMAKER"]
    assert client.meta.endpoint_url == address
    try:
        urllib.request.urlopen(urllib.request.Request(address[:-1], b"{}", {"X-Amz-Target": "SageMaker.ListTrainingJobs"}))
        other = 200
    except urllib.error.HTTPError as error:
        other = error.code
    elsewhere = boto3.client("sagemaker", endpoint_url="http://127.0.0.1:9").meta.endpoint_url
    told = {
        "job": said(client.describe_training_job, TrainingJobName="r"),
        "listed": said(client.list_training_jobs, NameContains="R", StatusEquals="InProgress")["TrainingJobSummaries"],
        "none": said(client.list_training_jobs, StatusEquals="Failed")["TrainingJobSummaries"],
        "another": said(client.stop_training_job, TrainingJobName="production"),
        "operation": said(client.delete_training_job, TrainingJobName="r"),
        "s3": boto3.client("s3").meta.endpoint_url,
        "elsewhere": elsewhere, "other": other,
    }
    open("told.json", "w").write(json.dumps(told, default=str))
""")
    done = train(tdbg, [{"python": "handler.py:lambda_handler"}], 100, env={"AWS_ENDPOINT_URL": "http://127.0.0.1:7"})
    assert done.returncode == 0, done.stderr
    told = json.loads((pathlib.Path(tdbg.directory) / "told.json").read_text())
    assert told["job"]["TrainingJobStatus"] == "InProgress" and told["job"]["SecondaryStatus"] == "Training"
    assert told["job"]["CreationTime"].startswith("20") and told["job"]["ResourceConfig"]["InstanceCount"] == 1
    [rule] = told["job"]["DebugRuleEvaluationStatuses"]
    assert rule["RuleEvaluationStatus"] == "IssuesFound" and "tdbg" not in told["job"]
    assert [job["TrainingJobName"] for job in told["listed"]] == ["r"] and told["none"] == []
    assert told["another"]["Code"] == "ValidationException" and "not found: production" in told["another"]["Message"]
    assert "StopTrainingJob, DescribeTrainingJob, ListTrainingJobs" in told["operation"]["Message"]
    assert told["s3"] == "http://127.0.0.1:7" and told["elsewhere"] == "http://127.0.0.1:9" and told["other"] == 403


def test_a_handler_may_name_another_sagemaker(tdbg):
    """An address that its user sets stays."""
    pytest.importorskip("boto3")
    write(tdbg, "handler.py", """
import boto3
def lambda_handler(event, context):
    print(boto3.client("sagemaker").meta.endpoint_url)
""")
    train(tdbg, [{"python": "handler.py:lambda_handler",
                  "environment": {"AWS_ENDPOINT_URL_SAGEMAKER": "http://127.0.0.1:11"}}], 3)
    outputs = [line["output"] for line in lines(tdbg, "delivery")]
    assert outputs and set(map(str.strip, outputs)) == {"http://127.0.0.1:11"}


class Hooks(http.server.ThreadingHTTPServer):
    def __init__(self):
        self.got = []

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(handler):
                self.got.append(json.loads(handler.rfile.read(int(handler.headers["Content-Length"]))))
                handler.send_response(200)
                handler.end_headers()

            def log_message(handler, *args):
                pass

        super().__init__(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()


def test_each_target_gets_what_its_pattern_matches_in_order_and_failures_are_lines(tdbg):
    hooks = Hooks()
    url = f"http://127.0.0.1:{hooks.server_address[1]}"
    write(tdbg, "broken.py", """
import os, sys, time
calls = 0
def fails(event, context):
    global calls
    calls += 1
    print("call", calls)
    raise KeyError("no such thing")
def hangs(event, context):
    time.sleep(60)
def leaves(event, context):
    sys.exit(3)
def vanishes(event, context):
    os._exit(7)
def eats(event, context):
    return len(bytearray(2 << 30))
def closes(event, context):
    if not sys.stdout.closed:
        sys.stdout.close()
""")
    write(tdbg, "absent.py", "import nothing_of_that_name\ndef handle(event, context): pass\n")
    final = {"detail": {"SecondaryStatus": ["Completed"]}}
    done = train(tdbg, [
        {"name": "log", "log": "events.log"},
        {"name": "found", "log": "found.log", "pattern": ISSUES},
        {"name": "hook", "webhook": url + "/events", "pattern": final},
        {"name": "slack", "webhook": url + "/slack", "format": "slack", "pattern": ISSUES},
        {"name": "exec", "exec": "cat > exec.json; echo $TDBG_EVENT_ID; echo $GIVEN", "pattern": final,
         "environment": {"GIVEN": "it"}},
        {"name": "false", "exec": "echo no; false", "pattern": final, "retries": 1},
        {"name": "fails", "python": "broken.py:fails", "pattern": {"detail": {"tdbg": {"change": ["job"]}}}},
        {"name": "hangs", "python": "broken.py:hangs", "pattern": final, "limit_seconds": 1},
        {"name": "leaves", "python": "broken.py:leaves", "pattern": final},
        {"name": "vanishes", "python": "broken.py:vanishes", "pattern": final},
        {"name": "eats", "python": "broken.py:eats", "pattern": final, "limit_memory": "512MiB"},
        {"name": "closes", "python": "broken.py:closes"},
        {"name": "absent", "python": "absent.py:handle", "pattern": final},
    ], env={"no_proxy": "127.0.0.1"})
    hooks.shutdown()
    assert done.returncode == 0, done.stderr
    events = [line["event"] for line in lines(tdbg, "state_change")]
    assert [json.loads(line) for line in (tdbg.directory / "events.log").read_text().splitlines()] == events
    found = [json.loads(line) for line in (tdbg.directory / "found.log").read_text().splitlines()]
    first = [told(event) for event in events].index(("Vanishes", "IssuesFound"))
    assert found == events[first:] and len(found) >= 2
    assert json.loads((tdbg.directory / "exec.json").read_text()) == events[-1]
    assert events[-1] in hooks.got
    slack = [body["text"] for body in hooks.got if list(body) == ["text"]]
    assert slack[0].startswith("*r*: rule Vanishes is IssuesFound at step 6\n") and "&lt;" in slack[0]
    assert slack[-1] == "*r*: the job is Completed (Completed)"

    by_name = {}
    for line in lines(tdbg, "delivery"):
        by_name.setdefault(line["handler"], []).append(line)
    ok = {name: [line["ok"] for line in of] for name, of in by_name.items()}
    assert set(ok["log"]) == set(ok["closes"]) == {True} and len(ok["log"]) == len(events) == len(ok["closes"])
    assert ok["exec"] == ok["hook"] == [True]
    assert by_name["exec"][0]["output"] == events[-1]["id"] + "\nit\n"
    jobs = [line for line in by_name["fails"]]
    assert [line["output"].splitlines()[0] for line in jobs] == [f"call {n + 1}" for n in range(len(jobs))]  # warm
    assert len(jobs) == 3 and "KeyError: 'no such thing'" in jobs[0]["error"] and "broken.py" in jobs[0]["error"]
    why = {name: of[0]["error"] for name, of in by_name.items() if not of[0]["ok"]}
    assert "exit code was 1" in why["false"] and by_name["false"][0]["tries"] == 2
    assert "still busy after 1" in why["hangs"] and by_name["hangs"][0]["tries"] == 1
    assert "SystemExit: 3" in why["leaves"]
    assert "exited with code 7" in why["vanishes"] and by_name["vanishes"][0]["tries"] == 3  # once more, as documented
    assert "MemoryError" in why["eats"]
    assert "cannot be imported" in why["absent"] and "nothing_of_that_name" in why["absent"]
    for name in why:
        assert f"handler {name} failed" in done.stderr


@pytest.mark.parametrize("handlers, said", [
    ([{"pythn": "h.py:f"}], ['unknown key "pythn"', 'did you mean "python"?']),
    ([{"name": "x"}], ["handlers[0]", "found no target", "python, exec, webhook, log"]),
    ([{"exec": "true", "log": "x"}], ["found exec, log", "exactly one"]),
    ([{"python": "absent.py:f"}], ["handlers[0].python", "absent.py"]),
    ([{"python": "h.py:g"}], ["has no function g; it has f"]),
    ([{"python": "bad.py:f"}], ["bad.py:1", "invalid syntax"]),
    ([{"webhook": "ftp://x"}], ["handlers[0].webhook", "http://"]),
    ([{"exec": "true", "format": "slack"}], ["only a webhook has a format"]),
    ([{"exec": "true", "limit_seconds": 0}], ["handlers[0].limit_seconds: found 0, expected an integer of at least 1"]),
    ([{"exec": "true", "pattern": {"detail": "x"}}], ["handlers[0].pattern.detail", 'a list of values: ["x"]']),
    ([{"exec": "true", "pattern": {"detail": []}}], ["an empty list"]),
    ([{"exec": "true", "pattern": {"a": [{"prefx": "x"}]}}], ['unknown key "prefx"', "prefix"]),
    ([{"exec": "true", "pattern": {"a": [{"numeric": [">", "x"]}]}}], ["numeric[1]", "a number"]),
    ([{"exec": "true"}, {"exec": "false"}], ["a second handler is called exec"]),
    ({"exec": "true"}, ["expected a list of handlers"]),
])
def test_a_mistake_is_told_before_anything_starts(tdbg, handlers, said):
    write(tdbg, "h.py", "def f(event, context): pass\n")
    write(tdbg, "bad.py", "def f(:\n")
    write(tdbg, "e.json", {"handlers": handlers})
    line = tdbg.fails(2, "run", "--dir", "r", "--on-event", "e.json", "--", sys.executable, "-c", "pass")
    assert not (tdbg.directory / "r").exists()
    for part in ["e.json", *said]:
        assert part in line, line


def test_a_function_is_named_with_its_file_on_the_command_line(tdbg):
    (tdbg.directory / "b").mkdir()
    for folder in (".", "b"):
        write(tdbg, f"{folder}/h{folder[-1:].strip('.')}.py", "def lambda_handler(event, context): print('event', event['detail']['SecondaryStatus'])\n")
    done = tdbg.ok("run", "--dir", "r", "--on-event", "h.py:lambda_handler", "--on-event", "b/hb.py:lambda_handler", "--", "true")
    assert done.stderr.count("handler") == 0, done.stderr
    events = [json.loads(line) for line in (tdbg.directory / "r/events.jsonl").read_text().splitlines()]
    delivered = [event for event in events if event["kind"] == "delivery"]
    assert {event["handler"] for event in delivered} == {"h.lambda_handler", "hb.lambda_handler"}
    assert all(event["ok"] for event in delivered)
    assert [event["output"].split() for event in delivered if event["handler"] == "h.lambda_handler"][-1] == ["event", "Completed"]


@pytest.mark.parametrize("word, said", [
    ("absent.py:f", ["--on-event", "absent.py"]),
    ("h.py:g", ["--on-event", "has no function g; it has f"]),
    ("h.py:", ["FILE:FUNCTION"]),
    ("bad.py:f", ["bad.py:1", "invalid syntax"]),
    ("absent.yaml", ["--on-event", "absent.yaml", "FILE.py:FUNCTION"]),
])
def test_a_word_that_names_no_function_is_told_before_anything_starts(tdbg, word, said):
    write(tdbg, "h.py", "def f(event, context): pass\n")
    write(tdbg, "bad.py", "def f(:\n")
    line = tdbg.fails(2, "run", "--dir", "r", "--on-event", word, "--", sys.executable, "-c", "pass")
    assert not (tdbg.directory / "r").exists() and "--config" not in line
    for part in said:
        assert part in line, line


def test_registered_handlers_hear_of_every_job(tdbg):
    write(tdbg, "h.py", "def f(event, context): print(event['detail']['SecondaryStatus'])\n")
    tdbg.ok("handlers", "add", "mine", "--python", "h.py:f", "--pattern", json.dumps(ISSUES))
    tdbg.ok("handlers", "add", "kept", "--log", "kept.log")
    assert "there is a handler mine" in tdbg.fails(2, "handlers", "add", "mine", "--exec", "true")
    assert "--pattern" in tdbg.fails(2, "handlers", "add", "b", "--exec", "true", "--pattern", '{"a": 1}')
    listed = tdbg.json("handlers", "list")["handlers"]
    assert [handler["name"] for handler in listed] == ["mine", "kept"]
    assert oct((tdbg.directory / ".state/tdbg/handlers.json").stat().st_mode & 0o777) == "0o600"
    assert train(tdbg, None).returncode == 0
    assert len((tdbg.directory / "kept.log").read_text().splitlines()) == len(lines(tdbg, "state_change"))
    assert [line["output"].strip() for line in lines(tdbg, "delivery") if line["handler"] == "mine"][-1] == "Completed"

    # Who follows later is told of what nobody was told of, and of nothing twice.
    write(tdbg, "later.yaml", "handlers:\n  - {name: kept, log: kept.log}\n  - {name: later, log: later.log}\n")
    before = (tdbg.directory / "kept.log").read_text()
    tdbg.ok("handlers", "deliver", "r", "--on-event", "later.yaml")
    assert (tdbg.directory / "kept.log").read_text() == before == (tdbg.directory / "later.log").read_text()

    tdbg.ok("handlers", "remove", "mine")
    assert "no handler mine; there are kept" in tdbg.fails(2, "handlers", "remove", "mine")
    (tdbg.directory / ".state/tdbg/handlers.json").chmod(0o666)
    assert "others may write to it" in tdbg.fails(2, "run", "--dir", "s", "--", "true")
    assert tdbg("run", "--dir", "s", "--no-handlers", "--", "true").returncode == 0


def test_a_registered_handler_whose_file_is_gone_can_be_taken_out(tdbg):
    """It keeps every training from starting until then."""
    write(tdbg, "h.py", "def f(event, context): pass\n")
    tdbg.ok("handlers", "add", "gone", "--python", "h.py:f")
    tdbg.ok("handlers", "add", "kept", "--log", "kept.log")
    (tdbg.directory / "h.py").unlink()
    line = tdbg.fails(2, "run", "--dir", "s", "--", "true")
    assert all(part in line for part in ("h.py", "tdbg handlers remove NAME", "--no-handlers")), line
    tdbg.ok("handlers", "remove", "gone")
    assert [handler["name"] for handler in tdbg.json("handlers", "list")["handlers"]] == ["kept"]
    assert tdbg("run", "--dir", "s", "--", "true").returncode == 0


def test_a_run_that_somebody_else_made_calls_nobody(tdbg):
    """Events of a run are data: what they say is handed over, and names nothing that is executed."""
    evil = {"kind": "state_change", "wall_nanos": 1, "event": {"id": "1", "handler": "touch evil", "exec": "touch evil",
                                                              "python": "evil.py:f", "detail": "[" * 9}}
    run = tdbg.directory / "r"
    run.mkdir()
    deep = '{"kind": "state_change", "event": {"id": "2", "detail": ' + "[" * 100_000 + "]" * 100_000 + "}}"
    torn = '{"kind": "state_change", "event": {"id": "3"'
    (run / "run.json").write_text(json.dumps({"kind": "tdbg.run", "major": 1, "minor": 0, "run_id": "x"}))
    (run / "events.jsonl").write_text("\n".join([json.dumps(evil), deep, '{"kind": "state_change", "event": 7}', torn]))
    write(tdbg, "h.yaml", "- log: got.log\n")
    assert tdbg("handlers", "deliver", "r", "--on-event", "h.yaml").returncode == 0
    assert [json.loads(line)["id"] for line in (tdbg.directory / "got.log").read_text().splitlines()] == ["1"]
    assert not (tdbg.directory / "evil").exists()


#: Of each of the two; 100 where somebody waits for them.
KILLS = int(os.environ.get("TDBG_TEST_KILLS", "5"))
#: A handler that tells when it is imported, and when it begins and ends with which event; and by which processes: its
#: own and its parent, which delivers. A search among command lines would tell them from others by words that may be the
#: name of a folder: for the "check" of `host.py check FILE`, all of them were left out in a folder called checkout.
TELLS = """
import os, time
def tell(what, event):
    with open("told.log", "a") as file:
        file.write(f"{what} {event} {os.getpid()} {os.getppid()}\\n")
tell("imported", "none")
def f(event, context):
    tell("begins", event["id"])
    time.sleep(0.2)
    tell("ends", event["id"])
"""


@pytest.mark.parametrize("whom", [pytest.param("hosts", marks=pytest.mark.long), "deliverers"])
def test_killed_at_random_instants_every_event_is_delivered(tdbg, whom):
    """At least once, in order; what was handled when its process was killed comes again, under the same id."""
    chance = random.Random(int(os.environ.get("TDBG_TEST_SEED", "0")))
    write(tdbg, "h.py", TELLS)
    told = tdbg.directory / "told.log"
    stop = threading.Event()
    program = {"hosts": "handlers/host.py", "deliverers": "handlers deliver"}[whom]

    def kill():
        """A random while behind what the handler tells: amid an event, behind it, or at a start. Twice for an event at
        most: three deaths at one are a failed try, with a pause."""
        nonlocal done
        read, begun, killed, left = 0, set(), set(), 0
        while not stop.is_set() and done < KILLS:
            news = told.read_text().split("\n")[read:-1] if told.exists() else []
            if not news:
                time.sleep(0.02)
                continue
            read += 1
            what, event, *pids = news[0].split()
            if what == "begins" and event not in begun:
                begun.add(event)
                left = 2
            pid = int(pids[0] if whom == "hosts" else pids[1])
            if left == 0 or pid in killed or what == "ends" or (what == "imported" and chance.random() < 0.5):
                continue
            time.sleep(0.3 * chance.random())
            with contextlib.suppress(ProcessLookupError):
                if program in dict(processes_marked(tdbg.mark)).get(pid, ""):
                    os.kill(pid, signal.SIGKILL)
                    killed.add(pid)
                    done += 1
                    left -= 1

    done = 0
    killing = threading.Thread(target=kill)
    killing.start()
    try:
        # Each start of the command is three events or more.
        trained = train(tdbg, [{"name": "f", "python": "h.py:f", "retries": 3}], 60, "--interrupt-every", "20steps",
                        "--interruptions", KILLS // 2 + 1, timeout=120 + 10 * KILLS)
    finally:
        stop.set()
        killing.join()
    assert trained.returncode == 0 and done == KILLS, (done, trained.stderr)
    ids = [line["event"]["id"] for line in lines(tdbg, "state_change")]
    for word in ("begins", "ends"):
        seen = [line.split()[1] for line in told.read_text().splitlines() if line.startswith(word)]
        assert list(dict.fromkeys(seen)) == ids
    failed = [line for line in lines(tdbg, "delivery") if not line["ok"]]
    assert not failed, failed


def test_the_commands_of_the_documentation(tdbg):
    """docs/events.md, word by word, with a training of ours; only Slack is not told."""
    from program import BINARY, ROOT

    write(tdbg, "train.py", TRAINING.replace("0 if step > 5 else 1", "np.nan if step > 5 else 1")
          .replace("sys.argv[1]", "3000"))
    blocks = (ROOT / "docs/events.md").read_text().split("```sh\n")
    commands = "set -e\n" + "".join(block.split("```")[0] for block in blocks[1:]).replace(
        "tdbg run ", "set +e; tdbg run ").replace("python train.py", f"{sys.executable} train.py; echo ended $?; set -e")
    env = {**tdbg.env, "PYTHONPATH": tdbg.env["TDBG_HOME"], "PATH": f"{BINARY.parent}:{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-c", commands], cwd=tdbg.directory, env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and "ended 3" in done.stdout, (done.stdout, done.stderr)
    assert "slack" in done.stdout and "https://hooks.slack.com" in done.stdout and "T0/B0" not in done.stdout
    events = [line["event"] for line in lines(tdbg, "state_change", "runs/a")]
    assert [json.loads(line) for line in (tdbg.directory / "all-events.jsonl").read_text().splitlines()] == events
    assert events[-1]["detail"]["TrainingJobStatus"] == "Stopped"
    assert [handler["name"] for handler in tdbg.json("handlers", "list")["handlers"]] == ["stop"]

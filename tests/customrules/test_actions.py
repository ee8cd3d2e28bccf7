"""Actions of `tdbg watch` on a real run: a mail to a real SMTP server, a signed webhook, once per finding, tdbg capture."""

import email
import email.policy
import hashlib
import hmac
import http.server
import json
import socket
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from judging import Judge, write_run


@pytest.fixture
def mails():
    controller = pytest.importorskip("aiosmtpd.controller")
    got = []

    class Inbox:
        async def handle_DATA(self, server, session, envelope):
            got.append((envelope.mail_from, envelope.rcpt_tos, envelope.content))
            return "250 kept"

    with socket.socket() as probe:  # the controller connects to the port it was given, so 0 will not do
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = controller.Controller(Inbox(), hostname="127.0.0.1", port=port)
    server.start()
    yield got, f"smtp://127.0.0.1:{port}"
    server.stop()


@pytest.fixture
def hooks():
    got = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            got.append((dict(self.headers), body))
            self.send_response(503 if len(got) == 1 else 204)  # the first try meets a server that restarts
            self.end_headers()

        def log_message(self, *args):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield got, f"http://127.0.0.1:{server.server_address[1]}/hooks/token"
    server.shutdown()


@pytest.fixture
def fresh(judge, tmp_path):
    """A finished run of its own, to be watched."""
    write_run(tmp_path / "watched")
    return Judge(tmp_path, tmp_path / "watched")


RULE = '''
import tdbg
class Grows(tdbg.Rule):
    needs = tdbg.needs("gradients")
    def judge(self, step):
        s = step.statistics("gradients")
        return [s.finding(i, "mean", ">", 5) for i in range(len(s)) if s.mean[i] > 5]
'''


def watch(judge, *actions, **env):
    file = judge.file("rule.py", RULE)
    words = [word for action in actions for word in ("--on-issue", action)]
    done = judge("watch", judge.run, "--rule-file", f"{file}:Grows", *words, "--quiet",
                 env={"no_proxy": "127.0.0.1", **env})
    assert done.returncode == 1, (done.returncode, done.stderr)
    return done


def actions_of(judge):
    return json.loads(judge("status", judge.run, "--json").stdout)["actions"]


def test_a_mail_reaches_its_server(fresh, mails):
    inbox, url = mails
    watch(fresh, "email:me@example.com", TDBG_SMTP_URL=url, TDBG_SMTP_FROM="tdbg@example.com")
    (sender, to, content), = inbox
    assert (sender, to) == ("tdbg@example.com", ["me@example.com"])
    message = email.message_from_bytes(content, policy=email.policy.default)
    assert message["Subject"] == "tdbg: Grows IssuesFound at step 6"
    assert message["To"] == "me@example.com"
    assert "gradient/a: mean 6 > 5" in message.get_content()
    action, = actions_of(fresh)
    assert action["ok"] and action["action"] == "email" and action["global_step"] == 6
    assert "email me@example.com for Grows at step 6: done" in fresh("status", fresh.run).stdout


@pytest.fixture
def broken(judge, tmp_path):
    """A finished run of its own, whose weight is NaN from step 6 on."""
    from tdbg._capture import Run

    run = Run.open(directory=str(tmp_path / "broken"))
    weight = run.define("Net_l1.weight", "l1.weight", "weight", "linear", "float32", [4, 4])
    for step in range(12):
        run.begin_step(1)
        values = np.full((4, 4), 0.5, np.float32)
        values[1, :3] = np.nan if step >= 6 else 0.5
        run.put_array(weight, values)
        run.end_step()
    run.end("completed")
    return Judge(tmp_path, tmp_path / "broken")


def test_of_an_incident_a_mail_and_a_text_message_say_what_the_status_says(broken, mails, hooks):
    (inbox, url), (got, hook) = mails, hooks
    done = broken("watch", broken.run, "--rule", "profile", "--on-issue", "email:me@example.com", "--on-issue", "sms:+4912345",
                  "--on-issue", "exec:printf '%s\\n' \"$TDBG_INCIDENT\" \"$TDBG_ADVICE\" > acted", "--quiet",
                  env={"TDBG_SMTP_URL": url, "TDBG_SMS_WEBHOOK": hook, "no_proxy": "127.0.0.1"})
    assert done.returncode == 1, done.stderr
    (incident,) = json.loads(broken("status", broken.run, "--json").stdout)["incidents"]
    assert incident["sentence"] == "3 of the 16 elements of Net_l1.weight are NaN" and incident["advice"]
    (_, _, content), = inbox
    message = email.message_from_bytes(content, policy=email.policy.default)
    assert message["Subject"] == "tdbg: NaN or infinity at step 6"
    assert message.get_content().splitlines() == [
        f"step 6: {incident['sentence']}", f"certain; {incident['advice']}", "", "", f"Rule Profile of {broken.run}"]
    shown = " ".join(broken("status", broken.run).stdout.split())
    assert all(line in shown for line in message.get_content().splitlines()[:2]), shown
    assert json.loads(got[-1][1])["text"] == f"SMDebugRule:Profile fired. {incident['sentence']}"
    assert (broken.directory / "acted").read_text().splitlines() == [incident["sentence"], incident["advice"]]


def test_of_an_incident_that_is_muted_no_mail_is_sent(broken, mails):
    inbox, url = mails
    assert broken("watch", broken.run, "--rule", "profile", "--quiet").returncode == 1
    mute = broken("mute", broken.run, "nonfinite", "--because", "it is known", env={"XDG_STATE_HOME": str(broken.directory / "state")})
    assert mute.returncode == 0, mute.stderr
    again = broken("watch", broken.run, "--rule", "profile", "--on-issue", "email:me@example.com", "--quiet", env={"TDBG_SMTP_URL": url})
    assert again.returncode == 0 and not inbox and not actions_of(broken), again


def test_a_mail_that_cannot_be_sent_is_said_and_changes_no_verdict(fresh):
    done = watch(fresh, "email:me@example.com", "sms:+4912345")
    failed = {action["action"]: action["error"] for action in actions_of(fresh)}
    assert "TDBG_SMTP_URL" in failed["email"] and "TDBG_SMS_WEBHOOK" in failed["sms"]
    assert "email for rule Grows failed" in done.stderr


def test_a_webhook_is_signed_and_tried_again(fresh, hooks):
    got, url = hooks
    watch(fresh, f"webhook:{url}", TDBG_WEBHOOK_SECRET="our secret")
    assert len(got) == 2
    headers, body = got[1]
    assert headers["X-Tdbg-Signature-256"] == "sha256=" + hmac.new(b"our secret", body, hashlib.sha256).hexdigest()
    assert json.loads(body)["status"] == "IssuesFound" and json.loads(body)["name"] == "Grows"


def test_a_text_message_goes_to_the_webhook_that_knows_a_provider(fresh, hooks):
    got, url = hooks
    watch(fresh, "sms:+4912345", TDBG_SMS_WEBHOOK=url)
    body = json.loads(got[-1][1])
    assert body["to"] == "+4912345" and body["text"].startswith("SMDebugRule:Grows fired. ")


def test_a_finding_is_acted_on_once_whoever_watches(fresh, hooks):
    got, url = hooks
    watch(fresh, f"webhook:{url}")
    seen = len(got)
    watch(fresh, f"webhook:{url}")
    assert len(got) == seen and len(actions_of(fresh)) == 1


@pytest.mark.parametrize("cooldown, sent", [("3600", 1), ("0", 2), (None, 1)])
def test_the_jobs_next_attempt_sends_the_same_again_only_after_the_cool_down(fresh, hooks, cooldown, sent):
    got, url = hooks
    file = fresh.file("rule.py", RULE)
    words = [] if cooldown is None else [f"action_cooldown_seconds={cooldown}"]
    for attempt in range(2):
        done = fresh("watch", fresh.run, "--rule-file", f"{file}:Grows", *words, "--on-issue", f"webhook:{url}", "--quiet",
                     env={"no_proxy": "127.0.0.1"})
        assert done.returncode == 1, done.stderr
        assert ("was done a moment ago" in done.stderr) == (attempt == 1 and sent == 1), done.stderr
        write_run(fresh.run)    # the next attempt: the same steps, the same hit, a finding of its own
    assert len(actions_of(fresh)) == sent


def test_a_cool_down_that_is_no_number_is_refused(judge):
    file = judge.file("rule.py", RULE)
    done = judge("watch", judge.run, "--rule-file", f"{file}:Grows", "action_cooldown_seconds=soon")
    assert done.returncode == 2 and "found action_cooldown_seconds=soon; accepted: whole seconds" in done.stderr


def test_sagemakers_action_json_is_understood(fresh, mails):
    inbox, url = mails
    file = fresh.file("rule.py", RULE)
    text = json.dumps([{"name": "email", "endpoint": "me@example.com"}, {"name": "page"}]).replace('"', '\\"')
    done = fresh("watch", fresh.run, "--rule-file", f"{file}:Grows", f"action_json={text}", "--quiet",
                 env={"TDBG_SMTP_URL": url})
    assert done.returncode == 1 and len(inbox) == 1, done.stderr
    assert "action_json: left out" in done.stderr


TRAINING = '''
import sys, time
sys.path[:0] = {path!r}
import numpy as np
from tdbg._capture import Run
import json
plan = {{"kind": "tdbg.plan", "major": 1, "minor": 0, "summaries_every": 1,
         "collections": [{{"name": "gradients", "kinds": ["gradient"], "keep": True, "summaries": True}},
                         {{"name": "weights", "kinds": ["weight"], "keep": True, "summaries": True}}]}}
run = Run.open(directory={run!r}, plan_json=json.dumps(plan))
ids = [run.define(n, n, k, "", "float32", [4]) for n, k in (("gradient/a", "gradient"), ("a", "weight"))]
requests = []
for step in range(3000):
    run.begin_step(1)
    for i in ids:
        run.put_array(i, np.full(4, step, np.float32))
    run.end_step()
    request = run.take_request()
    if request:
        requests.append((step, json.loads(request)["action"]))
    if requests and step > requests[0][0] + 30:
        break
    time.sleep(0.01)
run.end("completed")
print(json.dumps(requests))
'''


def test_more_detail_is_captured_for_the_steps_that_were_asked_for(judge, tmp_path):
    live = Judge(tmp_path, tmp_path / "live")
    script = live.file("training.py", TRAINING.format(path=sys.path, run=str(live.run)))
    training = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True)
    try:
        end = time.monotonic() + 60
        while not (live.run / "0" / "worker_0" / "worker.json").exists():
            assert time.monotonic() < end and training.poll() is None
            time.sleep(0.02)
        time.sleep(0.3)
        unknown = live("capture", live.run, "--collect", "gradeints", "--steps", "3")
        assert unknown.returncode == 2 and "gradeints" in unknown.stderr
        done = live("capture", live.run, "--collect", "gradients", "--steps", "7", "--raw", "--json")
        assert done.returncode == 0, done.stderr
        first = json.loads(done.stdout)["first_step"]
    finally:
        out, _ = training.communicate(timeout=60)
    (step, action), = json.loads(out)
    assert action == "capture"
    import tdbg

    trial = tdbg.open(live.run)
    kept = trial.tensor("gradient/a").steps(kind="raw")
    assert kept == list(range(step + 1, step + 8)) and kept[0] >= first
    assert trial.tensor("a").steps(kind="raw") == []
    assert "not running" in live("capture", live.run, "--collect", "gradients").stderr

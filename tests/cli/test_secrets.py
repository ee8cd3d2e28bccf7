"""A secret that a job is given stands in none of the files that tdbg writes, and in nothing that it says."""

import http.server
import json
import pathlib
import sys
import threading
import urllib.parse

import pytest
from test_events import TRAINING

#: A rule that finds something, with a parameter that is a secret.
RULE = """
import tdbg
class Vanishes(tdbg.Rule):
    needs = tdbg.needs("gradients")
    api_token: str = ""
    def judge(self, step):
        s = step.statistics("gradients")
        return [s.finding(i, "mean", "<", 0.5) for i in range(len(s)) if s.mean[i] < 0.5]
"""
REFUSED = 6


class Canaries:
    """Secrets that can be told from each other and from everything else."""

    def __init__(self):
        self.all = {}

    def __getitem__(self, way):
        return self.all.setdefault(way, f"CANARY{len(self.all):02}zQ7x9Kp3")

    def found_in(self, data):
        if b"CANARY" not in data:
            return []
        return sorted((way for way, secret in self.all.items() if secret.encode() in data), key=str)


def files_with(canaries, *folders):
    found = {}
    for folder in folders:
        for path in pathlib.Path(folder).rglob("*"):
            if path.is_file() and (ways := canaries.found_in(path.read_bytes())):
                found[path.name] = ways
    return found


def write(tdbg, name, text):
    (tdbg.directory / name).write_text(text if isinstance(text, str) else json.dumps(text))
    return name


def train(tdbg, *flags, env=None, command=(), **kwargs):
    write(tdbg, "rule.py", RULE)
    script = write(tdbg, "train.py", TRAINING + "import secret_prints\n")
    if not (tdbg.directory / "secret_prints.py").exists():
        write(tdbg, "secret_prints.py", "")
    env = {"PYTHONPATH": tdbg.env["TDBG_HOME"], **(env or {})}
    return tdbg("run", "--quiet", "--dir", "r", "--journal", "4MiB", *flags, "--", sys.executable, script, "10", *command, env=env, **kwargs)


@pytest.fixture
def address():
    """HOST:PORT of a server that refuses what is posted to it: such a webhook is not tried again."""
    class Refuses(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            self.send_error(403)

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Refuses)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_a_secret_stands_in_no_file_and_is_said_by_no_command(tdbg, address):
    secret = Canaries()
    config = write(tdbg, "debug.json", {"on_issue": ["exec:true --password " + secret["configuration"]], "rules": [
        {"rule": "all_zero", "parameters": {"tensor_regex": "gradient/a"},
         "on_issue": [f"webhook:http://{address}/hook/" + secret["configured hook"]]}]})
    events = write(tdbg, "handlers.json", {"handlers": [
        {"exec": "false --token " + secret["handler"], "name": "a"},
        {"webhook": f"http://{address}/" + secret["handler's hook"], "name": "b"}]})
    write(tdbg, "secret_prints.py",
          "import os, sys, json, urllib.parse\n"
          "print(sys.argv, json.dumps(dict(os.environ)), urllib.parse.urlencode(os.environ), *os.environ.values())\n")
    done = train(
        tdbg, "--config", config, "--on-event", events,
        "--rule-file", "rule.py:Vanishes", "api_token=" + secret["parameter"],
        f"on_issue=exec:u=https://127.0.0.1:9/ping/{secret['address']}; echo $MY_TOKEN $u; curl -s $u",
        "--rule", f"exploding_tensor:on_issue=webhook:https://hooks.slack.com/services/T0/{secret['rule']}",
        "--on-issue", f"webhook:https://me:{secret['user']}@127.0.0.1:9/x?token={secret['query']}",
        "--on-issue", f"exec:curl -H 'Authorization: Bearer {secret['header']}' http://127.0.0.1:9",
        "--rule", "vanishing_gradient", "--otlp", f"http://me:{secret['exporter']}@127.0.0.1:9/", "--secret", "PLAIN",
        command=("--api-key", secret["flag"], "--password=" + secret["assigned"]),
        env={"MY_TOKEN": secret["variable"], "PLAIN": "plain " + secret["named variable"],
             "DATABASE_URL": f"postgres://me:{secret['database']}@h/db", "TDBG_WEBHOOK_SECRET": secret["signature"],
             "OTEL_EXPORTER_OTLP_HEADERS": "api-key=" + secret["exporter's header"]})
    assert done.returncode == 0, done.stderr
    assert secret.found_in(done.stderr.encode()) == []
    assert "plain" in done.stdout and secret["variable"] in done.stdout
    assert urllib.parse.quote_plus("plain " + secret["named variable"]) in done.stdout
    assert files_with(secret, tdbg.directory / "r", tdbg.directory / ".state") == {}
    kinds = [json.loads(line)["kind"] for line in (tdbg.directory / "r" / "events.jsonl").read_text().splitlines()]
    assert "action" in kinds and "delivery" in kinds  # what they were given to was done
    for words in (["jobs", "r", "--json"], ["jobs", "--json"], ["jobs", "r"], ["status", "r", "--json"], ["logs", "r"],
                  ["explain", "r"], ["dump", "r"], ["doctor"], ["metrics", "r"], ["ls", "--json"], ["watch", "r"],
                  ["check", "r", "--json"], ["handlers", "list"], ["report", "r", "--output", "report.html"]):
        said = tdbg(*words)
        assert secret.found_in((said.stdout + said.stderr).encode()) == [], words
    assert secret.found_in((tdbg.directory / "report.html").read_bytes()) == []


def test_a_registered_handler_keeps_its_secret_where_only_its_user_reads_it(tdbg):
    secret = Canaries()
    tdbg.ok("handlers", "add", "slack", "--webhook", "https://hooks.slack.com/services/T0/" + secret["registered"])
    assert files_with(secret, tdbg.directory / ".state") == {"handlers.json": ["registered"]}
    (file,) = (tdbg.directory / ".state").rglob("handlers.json")
    assert file.stat().st_mode & 0o777 == 0o600
    assert secret.found_in(tdbg.ok("handlers", "list").stdout.encode()) == []


def test_a_job_whose_secrets_are_in_variables_or_files_is_resumed_with_its_actions(tdbg, address):
    secret = Canaries()
    config = write(tdbg, "debug.json", {"on_issue": ["exec:true --password " + secret["configuration"]], "rules": [
        {"rule": "exploding_tensor", "on_issue": ["webhook:${HOOK}"]}]})
    env = {"HOOK": f"http://{address}/" + secret["variable"], "PLAIN": secret["named variable"]}
    flags = ("--config", config, "--rule-file", "rule.py:Vanishes", "on_issue=webhook:$HOOK", "--secret", "PLAIN")
    assert train(tdbg, *flags, env=env).returncode == 0
    assert tdbg("resume", "r", env={**env, "PYTHONPATH": tdbg.env["TDBG_HOME"]}).returncode == 0
    actions = [json.loads(line) for line in (tdbg.directory / "r" / "events.jsonl").read_text().splitlines()]
    assert {line["target"] for line in actions if line["kind"] == "action"} == {"$HOOK"}
    assert tdbg.json("jobs", "r")["attempt"] == 1
    assert files_with(secret, tdbg.directory / "r", tdbg.directory / ".state") == {}
    # Where the variable is missing it is said before the training begins; who only watches goes on without.
    assert "webhook: $HOOK is not set" in tdbg.fails(2, "resume", "r")
    (tdbg.directory / "r" / "events.jsonl").unlink()
    assert "action webhook:$HOOK of rule Vanishes is left out: webhook: $HOOK is not set" in " ".join(
        tdbg("watch", "r", "--quiet").stderr.split())
    hook = "webhook:https://hooks.slack.com/services/T0/" + secret["flag"]
    assert train(tdbg, "--on-issue", hook).returncode == 0
    line = tdbg.fails(REFUSED, "resume", "r")
    assert "in the flags of tdbg run was not kept" in line and "webhook:$NAME" in line
    assert files_with(secret, tdbg.directory / "r", tdbg.directory / ".state") == {}


def test_secrets_of_any_size_and_form_are_kept_out_of_the_log(tdbg):
    secret = Canaries()
    key = "-----BEGIN PRIVATE KEY-----\n" + "".join(f"{secret[i]}{'x' * 40}/+\n" for i in range(600)) + "-----END PRIVATE KEY-----\n"
    account = json.dumps({"type": "service_account", "private_key": key.replace("x", "y")}, indent=2)
    env = {"BIG_TOKEN": secret["long"] + "t" * 90000 + secret["end"], "SIGNING_KEY": key, "ACCOUNT_CREDENTIALS": account}
    write(tdbg, "secret_prints.py",
          "import json, os, time, urllib.parse\n"
          "for name in ('BIG_TOKEN', 'SIGNING_KEY', 'ACCOUNT_CREDENTIALS'):\n"
          "    value = os.environ[name]\n"
          "    print(value, json.dumps({'a': value}), repr(value), urllib.parse.quote(value), urllib.parse.quote(value, safe=''))\n"
          "    print('    ' + value.replace('\\n', '\\n    '))\n"
          "print(json.loads(value)['private_key'])\n"
          "for at in range(0, 90000, 1000):\n"  # in pieces
          "    print(os.environ['BIG_TOKEN'][at:at + 1000], end='', flush=True)\n"
          "print(os.environ['BIG_TOKEN'][90000:], 'the end')\n")
    done = train(tdbg, env=env)
    assert done.returncode == 0, done.stderr
    for folder in ("r", ".state"):
        assert files_with(secret, tdbg.directory / folder) == {}
    log = tdbg.ok("logs", "r").stdout
    assert log.endswith("[redacted] the end\n") and "[redacted]" in log

"""What answers a handler's calls of SageMaker where its job is one of `tdbg run`: the job that the handler was told of.

Handlers that were written for AWS call ``boto3.client("sagemaker").stop_training_job(...)``. Under `tdbg serve` such a
call goes to the server. Under `tdbg run` there is none, and without this it would go to AWS itself, with the user's
credentials. The endpoint is a thread of the handler's own process, listens on loopback, and its address holds a random
word. It knows one job; other operations than those below are refused with a message that says so.
"""

from __future__ import annotations

import http.server
import json
import os
import secrets
import subprocess
import threading
from collections.abc import Callable
from typing import Any, ClassVar

from tdbg.program import program

#: One object of the conversation.
Message = dict[str, Any]

VARIABLE = "AWS_ENDPOINT_URL_SAGEMAKER"
_ENDED = ("Completed", "Failed", "Stopped")
_BLOCK = 1 << 20
_MOST_BODY = 1 << 20
_STOP_SECONDS = 60
_TIMES = ("CreationTime", "LastModifiedTime", "TrainingStartTime", "TrainingEndTime", "StartTime", "EndTime")


class Refusal(Exception):
    """An error as clients of AWS's JSON protocol take it: HTTP 400, a code and a message."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def last_detail(path: str) -> Message:
    """`detail` of the last change of status in a run's events; empty before the first one.

    Read from the end, in growing pieces: of a long run it is among the last lines, as a rule.
    """
    block = _BLOCK
    try:
        with open(path, "rb") as events:
            size = events.seek(0, os.SEEK_END)
            while True:
                events.seek(max(0, size - block))
                for line in reversed(events.read(min(block, size)).split(b"\n")):
                    if b'"state_change"' not in line:
                        continue
                    try:
                        told = json.loads(line)
                        if told["kind"] == "state_change":
                            detail: Message = told["event"]["detail"]
                            return detail
                    except (ValueError, KeyError, TypeError):
                        pass  # cut at the piece's beginning, or being written
                if block >= size:
                    return {}
                block *= 8
    except OSError:
        return {}


def described(detail: Message) -> Message:
    """An event's `detail` as DescribeTrainingJob answers: times in seconds, and what clients read unasked."""

    def in_seconds(value: object) -> object:
        if isinstance(value, dict):
            return {key: item / 1000 if key in _TIMES and isinstance(item, (int, float)) else in_seconds(item)
                    for key, item in value.items() if key != "tdbg"}
        if isinstance(value, list):
            return [in_seconds(item) for item in value]
        return value

    answer = in_seconds(detail)
    assert isinstance(answer, dict)
    answer["ResourceConfig"] = {"InstanceType": "local", "InstanceCount": 1, "VolumeSizeInGB": 1}
    answer["StoppingCondition"] = {"MaxRuntimeInSeconds": 86400}
    return answer


class Job:
    """The job that a handler is told of, as SageMaker's operations see it."""

    def __init__(self, run: str) -> None:
        self._run = run

    def answer(self, operation: str, request: Message) -> Message:
        """What an operation answers. Raises Refusal."""
        operations: dict[str, Callable[[Message], Message]] = {
            "StopTrainingJob": self._stop, "DescribeTrainingJob": self._describe, "ListTrainingJobs": self._list}
        if operation not in operations:
            raise Refusal("UnknownOperationException",
                          f"{operation}: a handler of tdbg run reaches its own job, with {', '.join(operations)}; "
                          f"for the real service set {VARIABLE} in the handler's `environment`")
        return operations[operation](request)

    def _named(self, request: Message) -> Message:
        detail = last_detail(os.path.join(self._run, "events.jsonl"))
        name = request.get("TrainingJobName")
        if not isinstance(name, str):
            raise Refusal("ValidationException", "1 validation error detected: Value null at 'trainingJobName' failed "
                                                 "to satisfy constraint: Member must not be null")
        if name != detail.get("TrainingJobName"):
            raise Refusal("ValidationException", f"Requested resource not found: {name[:128]}; this handler reaches "
                                                 f"{detail.get('TrainingJobName', 'no job yet')} alone")
        return detail

    def _describe(self, request: Message) -> Message:
        return described(self._named(request))

    def _list(self, request: Message) -> Message:
        job = described(last_detail(os.path.join(self._run, "events.jsonl")))
        part, status = request.get("NameContains"), request.get("StatusEquals")
        wanted = (str(part or "").lower() in job.get("TrainingJobName", "").lower()
                  and status in (None, job.get("TrainingJobStatus")))
        kept = ("TrainingJobName", "TrainingJobArn", "TrainingJobStatus", "SecondaryStatus", "CreationTime",
                "LastModifiedTime", "TrainingEndTime")
        summary = {key: job[key] for key in kept if key in job}
        return {"TrainingJobSummaries": [summary] if wanted and "TrainingJobName" in job else []}

    def _stop(self, request: Message) -> Message:
        status = self._named(request).get("TrainingJobStatus")
        if status in _ENDED:
            raise Refusal("ValidationException",
                          f"The request was rejected because the training job is in status {status}.")
        try:
            asked = subprocess.run([program(), "stop", self._run], stdin=subprocess.DEVNULL, capture_output=True,
                                   text=True, errors="replace", timeout=_STOP_SECONDS, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise Refusal("InternalFailure", f"tdbg stop: {error}") from None
        if asked.returncode != 0:
            raise Refusal("ValidationException", asked.stderr.strip()[-1000:] or "tdbg stop failed")
        return {}


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, job: Job) -> None:
        self.job = job
        self.word = secrets.token_urlsafe(24)
        super().__init__(("127.0.0.1", 0), _Requests)

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that went away is no line in the handler's output."""


class _Requests(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout: ClassVar[float] = 60.0
    server: _Server

    def do_POST(self) -> None:
        """Answers one operation."""
        length = self.headers.get("Content-Length", "")
        if not length.isdigit() or int(length) > _MOST_BODY:
            self.close_connection = True
            return self._say(400, {"__type": "SerializationException", "message": "the request is too long"})
        body = self.rfile.read(int(length))
        if not secrets.compare_digest(self.path.strip("/").encode(), self.server.word.encode()):
            return self._say(403, {"__type": "AccessDeniedException", "message": "this address is another handler's"})
        service, _, operation = self.headers.get("X-Amz-Target", "").rpartition(".")
        try:
            request = json.loads(body or b"{}")
            if not isinstance(request, dict):
                raise ValueError
            if service != "SageMaker":
                raise Refusal("UnknownOperationException", "SageMaker's JSON operations are answered here")
            answer = self.server.job.answer(operation[:128], request)
        except Refusal as refusal:
            return self._say(400, {"__type": refusal.code, "message": str(refusal)})
        except (ValueError, RecursionError):
            return self._say(400, {"__type": "SerializationException", "message": "the request is no JSON object"})
        return self._say(200, answer)

    def _say(self, status: int, answer: Message) -> None:
        data = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/x-amz-json-1.1")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing is printed: what stands in the output is the handler's."""


def start(run: str) -> str:
    """Answers calls that concern `run`'s job, until this process ends. Returns the address for a client."""
    server = _Server(Job(run))
    threading.Thread(target=server.serve_forever, daemon=True, name="tdbg-endpoint").start()
    return f"http://127.0.0.1:{server.server_address[1]}/{server.word}"

"""The process in which one handler of events is called, as AWS Lambda calls it. Started by tdbg; docs/events.md.

Standard input is a socket: events come and answers go as JSON objects, one a line. What the handler prints goes to our
standard output and error, which tdbg keeps.
"""

from __future__ import annotations

import importlib.util
import json
import logging
import os
import sys
import time
import traceback
import types
from collections.abc import Callable
from typing import Any

#: One object of the conversation.
Message = dict[str, Any]
Handler = Callable[[Message, "Context"], object]

_HOME = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
_PACKAGE = os.path.join(_HOME, "tdbg") + os.sep
_ROOM = 2000  # of the line that tells of a failure
_REGION = "us-east-1"
_ACCOUNT = "000000000000"


class Context:
    """Lambda's second argument."""

    function_version = "$LATEST"
    identity = None
    client_context = None

    def __init__(self, name: str, memory_bytes: int, request_id: str, seconds: float) -> None:
        self.function_name = name
        self.invoked_function_arn = f"arn:aws:lambda:{_REGION}:{_ACCOUNT}:function:{name}"
        self.memory_limit_in_mb = str(memory_bytes >> 20)
        self.aws_request_id = request_id
        self.log_group_name = f"/aws/lambda/{name}"
        self.log_stream_name = os.environ["AWS_LAMBDA_LOG_STREAM_NAME"]
        self._end = time.monotonic() + seconds

    def get_remaining_time_in_millis(self) -> int:
        """Milliseconds until the time limit ends this process."""
        return max(0, int((self._end - time.monotonic()) * 1000))


def prepare(message: Message) -> None:
    """Sets up what Lambda's runtime provides: environment variables and a root logger."""
    name, file = message["name"], message["file"]
    own = {"AWS_REGION": _REGION, "AWS_DEFAULT_REGION": _REGION}
    for key, value in own.items():
        os.environ.setdefault(key, value)
    if os.environ.get("AWS_ENDPOINT_URL") and not os.environ.get("AWS_PROFILE"):
        # A local endpoint accepts any credentials, but boto3 sends nothing without.
        os.environ.setdefault("AWS_ACCESS_KEY_ID", "local")
        os.environ.setdefault("AWS_SECRET_ACCESS_KEY", "local")
    lead_to_own_job()
    module = os.path.splitext(os.path.basename(file))[0]
    os.environ.update({
        "AWS_LAMBDA_FUNCTION_NAME": name,
        "AWS_LAMBDA_FUNCTION_VERSION": Context.function_version,
        "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": str(message["limit_memory"] >> 20),
        "AWS_LAMBDA_LOG_GROUP_NAME": f"/aws/lambda/{name}",
        "AWS_LAMBDA_LOG_STREAM_NAME": f"tdbg/[$LATEST]{os.getpid()}",
        "_HANDLER": f"{module}.{message['function']}",
        "LAMBDA_TASK_ROOT": os.path.dirname(file),
    })
    root = logging.getLogger()
    root.addHandler(logging.StreamHandler(sys.stdout))
    root.handlers[0].setFormatter(logging.Formatter("[%(levelname)s] %(asctime)s %(message)s"))


def lead_to_own_job() -> None:
    """Has SageMaker's clients in this process reach the job of `tdbg run`. An address that is set already stays: that
    of `tdbg serve`, or the user's own. (What a Lambda function is invoked with alone is no event of a run.)"""
    from tdbg.awsclient.imports import before_clients, when_imported
    from tdbg.handlers import endpoint

    run = os.environ.get("TDBG_RUN")
    if not run or os.environ.get(endpoint.VARIABLE):
        return
    address = os.environ[endpoint.VARIABLE] = endpoint.start(run)

    def lead(service: str, named: dict[str, Any]) -> None:
        if service == "sagemaker" and not named.get("endpoint_url"):
            # By argument, since an older botocore, or AWS_IGNORE_CONFIGURED_ENDPOINT_URLS, looks at no variable. With
            # keys of its own: none may be there, and real ones need not be sent.
            named.update(endpoint_url=address, aws_access_key_id="local", aws_secret_access_key="local",
                         aws_session_token=None)

    when_imported({"botocore.session": before_clients(lead)})


def load(file: str, function: str) -> Handler:
    """Returns the function; imports its file under the file's name, with its folder first in `sys.path`."""
    folder, name = os.path.split(file)
    sys.path[0] = folder  # and not our own, whose modules have common names
    sys.path.append(_HOME)
    stem = os.path.splitext(name)[0]
    spec = importlib.util.spec_from_file_location(stem, file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{file} is no Python file; accepted: *.py")
    module: types.ModuleType = importlib.util.module_from_spec(spec)
    sys.modules[stem] = module
    spec.loader.exec_module(module)
    found = getattr(module, function, None)
    if not callable(found):
        have = sorted(key for key, value in vars(module).items() if isinstance(value, types.FunctionType))
        raise AttributeError(f"{file} has no function {function}; it has {', '.join(have) or 'none'}")
    handler: Handler = found
    return handler


def words(error: BaseException) -> str:
    """An exception as one text: its message, and where in the handler's own files it was raised."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith(_PACKAGE)]
    lines = [f'\n  File "{f.filename}", line {f.lineno}, in {f.name}' for f in frames]
    message = str(error)
    return (f"{type(error).__name__}{': ' if message else ''}{message}"[:_ROOM // 2] + "".join(lines[-6:]))[:_ROOM]


def raised(error: BaseException) -> Message:
    """An exception as Lambda answers it to who invoked the function."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith(_PACKAGE)]
    return {"errorMessage": str(error)[:_ROOM], "errorType": type(error).__name__,
            "stackTrace": traceback.format_list(frames)[-20:]}


def plain(value: object) -> object:
    """What a function returned, as far as JSON can tell it; Lambda refuses the rest, too."""
    try:
        return json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise TypeError(f"Unable to marshal response: {error}") from None


def mark() -> None:
    """Marks in our output where the next event's output begins."""
    try:
        os.write(1, b"\x1e\n")
    except OSError:
        pass  # the handler closed it


def main() -> None:
    """Calls the handler with each event until the socket is closed."""
    sys.path.insert(1, _HOME)
    from tdbg.rules.host import Socket

    sys.path.remove(_HOME)
    socket = Socket()
    handler: Handler | None = None
    first: Message = {}
    while (message := socket.next()) is not None:
        answer: Message = {"ok": True}
        try:
            if message["op"] == "load":
                first = message
                prepare(message)
                handler = load(message["file"], message["function"])
            elif handler is not None and message["op"] == "invoke":
                mark()
                context = Context(first["name"], first["limit_memory"], message["request_id"], first["limit_seconds"])
                answer["returned"] = plain(handler(message["payload"], context))
            elif handler is not None:
                mark()
                context = Context(first["name"], first["limit_memory"], message["event"].get("id", ""),
                                  first["limit_seconds"])
                handler(message["event"], context)
        except BaseException as error:  # a SystemExit or MemoryError, too, is the handler's failure, not ours
            answer = {"failed": words(error), "raised": raised(error)}
            traceback.print_exception(error)
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except (OSError, ValueError):
                pass  # closed by the handler
        socket.answer(answer)


def check(file: str, function: str) -> str:
    """What is wrong with a file, as far as that can be told without running it; empty: nothing."""
    import ast

    try:
        with open(file, "rb") as source:
            tree = ast.parse(source.read(), file)
    except SyntaxError as error:
        return f"{file}:{error.lineno}: {error.msg}"
    except (OSError, ValueError) as error:
        return f"{file}: {error}"
    names: set[str] = set()
    for node in ast.walk(tree):  # also what an `if` or `try` at the top defines, or an import brings
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.alias):
            names.add((node.asname or node.name).split(".")[0])
    if function in names or "*" in names:
        return ""
    have = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
    return f"{file} has no function {function}; it has {', '.join(have) or 'none'}"


if __name__ == "__main__":
    if sys.argv[1:2] == ["check"]:
        wrong = check(*sys.argv[2:4])
        print(wrong or "ok")
        sys.exit(1 if wrong else 0)
    main()

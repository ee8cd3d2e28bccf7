"""A bucket to test with: moto's S3, which verifies signatures, and a proxy in front of it that misbehaves."""

import collections
import contextlib
import importlib.util
import json
import os
import random
import re
import socket
import socketserver
import ssl
import subprocess
import sys
import threading
import time
import urllib.parse

import pytest

#: A Python that has moto and boto3 (tools/requirements.in): this one, or another.
PYTHON = os.environ.get("TDBG_MOTO_PYTHON") or (sys.executable if importlib.util.find_spec("moto") else None)

_SETUP = """
import boto3, json, sys
endpoint = sys.argv[1]
first = dict(endpoint_url=endpoint, region_name="us-east-1", aws_access_key_id="first", aws_secret_access_key="first")
iam = boto3.client("iam", **first)
iam.create_user(UserName="tdbg")
key = iam.create_access_key(UserName="tdbg")["AccessKey"]
iam.put_user_policy(UserName="tdbg", PolicyName="all", PolicyDocument=json.dumps(
    {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]}))
s3 = boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1", aws_access_key_id=key["AccessKeyId"],
                  aws_secret_access_key=key["SecretAccessKey"])
s3.create_bucket(Bucket="bucket")
print(json.dumps([key["AccessKeyId"], key["SecretAccessKey"]]))
"""


class Bucket:
    """A running server's bucket "bucket", and the variables that lead to it."""

    def __init__(self, endpoint, key, secret):
        self.endpoint, self.key, self.secret = endpoint, key, secret

    def env(self, endpoint=None):
        return {"AWS_ACCESS_KEY_ID": self.key, "AWS_SECRET_ACCESS_KEY": self.secret, "AWS_REGION": "us-east-1",
                "AWS_ENDPOINT_URL": endpoint or self.endpoint, "AWS_EC2_METADATA_DISABLED": "true"}


def clean_environment():
    """Without anything that leads to somebody's real account."""
    return {k: v for k, v in os.environ.items() if not k.startswith("AWS_")}


@contextlib.contextmanager
def moto():
    """moto_server that checks every signature but those of the first calls, which make the user."""
    if PYTHON is None:
        pytest.skip("moto is not installed (tools/requirements.txt); TDBG_MOTO_PYTHON may name a Python that has it")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    # Of three calls: create user, create key, put policy. Everything after them is verified.
    env = {**clean_environment(), "INITIAL_NO_AUTH_ACTION_COUNT": "3", "MOTO_S3_CUSTOM_ENDPOINTS": ""}
    server = subprocess.Popen([PYTHON, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)], env=env,
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        endpoint = f"http://127.0.0.1:{port}"
        end = time.monotonic() + 60
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            assert time.monotonic() < end and server.poll() is None, "moto did not start"
            time.sleep(0.05)
        made = subprocess.run([PYTHON, "-c", _SETUP, endpoint], env=clean_environment(), capture_output=True,
                              text=True, timeout=60)
        assert made.returncode == 0, made.stderr
        yield Bucket(endpoint, *json.loads(made.stdout))
    finally:
        server.kill()
        server.wait()


class FaultyProxy:
    """Forwards HTTP to a server; each request waits `latency` seconds, and each of `faults` happens at its rate:

    reset (no answer), 500, 503 (SlowDown), truncated (half of a body, then the end), slow (a body in drops),
    stale (a list as it was when it was first asked for), uncopied (a store that copies no part of an object), stalled (no answer,
    and no end), renamed (an ETag that is the store's own). `down`: nobody answers; `refuses`: a function of a request's
    head, true where it is answered 403. `tls`: the files of a certificate and its key.
    """

    def __init__(self, endpoint, latency=0.0, faults=None, seed=1, tls=None):
        self.target = endpoint.removeprefix("http://").split(":")
        self.latency, self.faults, self.down = latency, dict(faults or {}), False
        self.refuses = lambda head: False
        self.counts, self.requests, self.bytes_down = {}, 0, 0
        self.bytes_up = collections.Counter()  # by key
        self._random, self._lists, self._lock = random.Random(seed), {}, threading.Lock()
        proxy = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self):
                with contextlib.suppress(OSError, ValueError):
                    while proxy._forward(self):
                        pass

        class Server(socketserver.ThreadingTCPServer):
            daemon_threads, allow_reuse_address, request_queue_size = True, True, 128

            def finish_request(self, request, address):
                if tls:  # in the connection's own thread
                    with contextlib.suppress(OSError), context.wrap_socket(request, server_side=True) as wrapped:
                        super().finish_request(wrapped, address)
                else:
                    super().finish_request(request, address)

        if tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*tls)
        self._over = threading.Event()
        self._server = Server(("127.0.0.1", 0), Handler)
        self.endpoint = f"http{'s' if tls else ''}://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._over.set()
        self._server.shutdown()
        self._server.server_close()

    def _fault(self):
        with self._lock:
            self.requests += 1
            point = self._random.random()
            for name, rate in self.faults.items():
                if point < rate:
                    self.counts[name] = self.counts.get(name, 0) + 1
                    return name
                point -= rate
        return None

    @staticmethod
    def _head(client):
        """A request's head; empty where the client has ended."""
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            line = client.rfile.readline(65536)
            if not line:
                return b""
            head += line
        return head

    def _forward(self, client):
        head = self._head(client)
        if not head:
            return False
        length = int((re.search(rb"(?i)\r\ncontent-length: *(\d+)", head) or [0, 0])[1])
        body = client.rfile.read(length)
        with self._lock:
            self.bytes_up[urllib.parse.unquote(head.split(b" ", 2)[1].split(b"?")[0].decode()).removeprefix("/bucket/")] += length
        if self.down:
            return False
        time.sleep(self.latency)
        fault = self._fault()
        if self.refuses(head):
            text = b"<Error><Code>AccessDenied</Code><Message>as asked for</Message></Error>"
            client.wfile.write(b"HTTP/1.1 403 no\r\nContent-Length: %d\r\n\r\n" % len(text) + text)
            return True
        if fault == "reset":
            return False
        if fault in ("500", "503"):
            code = "InternalError" if fault == "500" else "SlowDown"
            text = f"<Error><Code>{code}</Code><Message>as asked for</Message></Error>".encode()
            client.wfile.write(f"HTTP/1.1 {fault} no\r\nContent-Length: {len(text)}\r\n\r\n".encode() + text)
            return True
        if fault == "uncopied" and b"x-amz-copy-source" in head.lower():
            text = b"<Error><Code>NotImplemented</Code><Message>as asked for</Message></Error>"
            client.wfile.write(b"HTTP/1.1 501 no\r\nContent-Length: %d\r\n\r\n" % len(text) + text)
            return True
        is_list = b"list-type=2" in head.split(b"\r\n", 1)[0]
        with socket.create_connection((self.target[0], int(self.target[1])), 30) as server:
            # Closed behind the answer, so that its end is its end; the client's connection stays.
            server.sendall(head.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n") + body)
            answer = b""
            while chunk := server.recv(1 << 20):
                answer += chunk
        if is_list:
            key = head.split(b" ", 2)[1]
            first = self._lists.setdefault(key, answer)
            answer = first if fault == "stale" else answer
        answer = re.sub(rb"(?i)\r\nconnection: close", b"", answer, count=1)
        begin = answer.find(b"\r\n\r\n") + 4
        self.bytes_down += len(answer) - begin
        if fault == "truncated" and len(answer) - begin > 1:
            client.wfile.write(answer[:begin + (len(answer) - begin) // 2])
            return False
        if fault == "renamed":
            answer = re.sub(rb'(?i)(etag: *")([0-9a-f]{31})', lambda m: m[1] + m[2][::-1], answer, count=1)
        if fault == "stalled":
            self._over.wait()
            return False
        if fault == "slow":
            for at in range(0, len(answer), 1 + len(answer) // 8):
                client.wfile.write(answer[at:at + 1 + len(answer) // 8])
                client.wfile.flush()
                time.sleep(0.1)
            return True
        client.wfile.write(answer)
        client.wfile.flush()
        return True

"""What the two servers, `tdbg view` and `tdbg serve`, promise of their connections, without a browser and without AWS's
library: slow, odd and rude clients, many at once, and TLS."""

import contextlib
import datetime
import http.client
import ipaddress
import json
import os
import pathlib
import re
import resource
import signal
import socket
import ssl
import subprocess
import threading
import urllib.parse

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from program import GOLDEN, Tdbg, until

KEY = "AKIDTESTTESTTESTTEST"
CLOSE_ON_EXEC = 0o2000000
LONG = pytest.mark.long


def certificate(folder):
    """A self-signed one for 127.0.0.1: the files of the certificate and of its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "tdbg")])
    now = datetime.datetime.now(datetime.timezone.utc)
    made = (x509.CertificateBuilder().subject_name(subject).issuer_name(subject).public_key(key.public_key())
            .serial_number(x509.random_serial_number()).not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=30))
            .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(key, hashes.SHA256()))
    files = folder / "tdbg.pem", folder / "tdbg.key"
    files[0].write_bytes(made.public_bytes(serialization.Encoding.PEM))
    files[1].write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8,
                                           serialization.NoEncryption()))
    return files


class Server:
    """One of the servers: how a client reaches it, and a request that it answers with 200."""

    def __init__(self, process, port, path, bundle=None):
        self.process, self.port, self.path = process, port, path
        self.context = ssl.create_default_context(cafile=str(bundle)) if bundle else None
        self.views = not bundle and path != "/"

    def plain(self):
        return socket.create_connection(("127.0.0.1", self.port), timeout=60)

    def connect(self):
        plain = self.plain()
        return self.context.wrap_socket(plain, server_hostname="127.0.0.1", suppress_ragged_eofs=False) if self.context else plain

    def request(self, *headers, body=b"{}", first=None):
        """The bytes of a request; its first line may be another one, and headers may be added."""
        if self.views:
            lines = [first or f"GET {self.path} HTTP/1.1", "Host: 127.0.0.1", *headers]
            return "\r\n".join([*lines, "", ""]).encode()
        lines = [first or f"POST {self.path} HTTP/1.1", "Host: 127.0.0.1", "X-Amz-Target: SageMaker.ListTrainingJobs",
                 f"Authorization: AWS4-HMAC-SHA256 Credential={KEY}/20261124/us-east-1/sagemaker/aws4_request", *headers]
        if not any("ength:" in header or "ncoding:" in header for header in headers):
            lines.append(f"Content-Length: {len(body)}")
        return "\r\n".join([*lines, "", ""]).encode() + body

    def ask(self, data=None):
        """Status and body that come for these bytes, on a connection of their own."""
        with self.connect() as connection:
            connection.sendall(data or self.request())
            return Answers(connection).next()[::2]

    def sockets(self):
        """The flags of each socket that the server has open."""
        flags = []
        for entry in pathlib.Path(f"/proc/{self.process.pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                if os.readlink(entry).startswith("socket:"):
                    text = pathlib.Path(f"/proc/{self.process.pid}/fdinfo/{entry.name}").read_text()
                    flags.append(int(re.search(r"flags:\s*(\d+)", text)[1], 8))
        return flags


class Answers:
    """The answers that come on a connection, one after the other."""

    def __init__(self, connection):
        self.connection, self.buffer = connection, b""

    def more(self):
        piece = self.connection.recv(65536)
        self.buffer += piece
        return piece

    def next(self, head_only=False):
        """(status, headers, body); raises EOFError where the server has closed."""
        while b"\r\n\r\n" not in self.buffer:
            if not self.more():
                raise EOFError(self.buffer)
        head, _, self.buffer = self.buffer.partition(b"\r\n\r\n")
        first, *lines = head.decode().split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
        length = 0 if head_only else int(headers["content-length"])
        while len(self.buffer) < length:
            if not self.more():
                raise EOFError(self.buffer)
        body, self.buffer = self.buffer[:length], self.buffer[length:]
        return int(first.split()[1]), headers, body

    def rest(self):
        """What still comes until the server closes."""
        with contextlib.suppress(ConnectionResetError):
            while self.more():
                pass
        return self.buffer


@contextlib.contextmanager
def started(directory, kind, **kwargs):
    """`tdbg view`, or `tdbg serve` by its plain or its TLS address ("tls")."""
    tdbg = Tdbg(directory)
    bundle = None
    if kind == "view":
        words = ["view", GOLDEN, "--json"]
    else:
        tdbg.env |= {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": "secret", "HOME": str(directory)}
        words = ["serve", "--state", directory / "service", "--json"]
    if kind == "tls":
        bundle, key = certificate(directory)
        words += ["--host", "0.0.0.0", "--tls-name", "127.0.0.1", "--tls-cert", bundle, "--tls-key", key]
    process = tdbg.start(*words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **kwargs)
    try:
        line = process.stdout.readline()
        assert line, process.stderr.read()
        said = json.loads(line)
        address = urllib.parse.urlsplit(said["remote"] if kind == "tls" else said["address"])
        yield Server(process, address.port, address.path + "api/v1/runs" if kind == "view" else address.path + "/", bundle)
        assert process.poll() is None, "the server is gone"
    finally:
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 0 and not errors, errors


@pytest.fixture(scope="module", params=["view", "serve", "tls"])
def server(request, tmp_path_factory):
    with started(tmp_path_factory.mktemp(request.param), request.param) as running:
        yield running


def test_a_request_in_single_bytes_is_answered_as_a_whole_one(server):
    whole = server.ask()
    assert whole[0] == 200
    with server.connect() as connection:
        if not server.context:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in server.request():
            connection.sendall(bytes([byte]))
        assert Answers(connection).next()[::2] == whole


def test_pipelined_requests_are_answered_one_after_the_other(server):
    with server.connect() as connection:
        connection.sendall(b"".join(server.request(f"X-Filler: {'y' * i}") for i in range(40)))
        answers = Answers(connection)
        assert {answers.next()[::2] for _ in range(40)} == {server.ask()}


def test_a_connection_is_kept_until_one_of_both_wants_it_closed(server):
    with server.connect() as connection:
        answers = Answers(connection)
        for _ in range(3):
            connection.sendall(server.request())
            assert "connection" not in answers.next()[1]
        connection.sendall(server.request("Connection: close"))
        status, headers, _ = answers.next()
        assert status == 200 and headers["connection"] == "close" and answers.rest() == b""
    old = server.request().replace(b"HTTP/1.1", b"HTTP/1.0")
    with server.connect() as connection:
        connection.sendall(old)
        answers = Answers(connection)
        assert answers.next()[0] == 200 and answers.rest() == b""


def test_what_is_cut_off_gets_no_answer_of_success_and_disturbs_nobody(server):
    """In the middle of its first line, of its header, of its body."""
    whole = server.request("X-More: y", body=b"{}")
    body_begins = whole.index(b"\r\n\r\n") + 4
    cuts = [5, body_begins // 2, body_begins - 1] + ([] if server.views else [body_begins + 1])
    for cut in cuts:
        with server.connect() as connection:
            connection.sendall(whole[:cut])
            if server.context:
                connection.unwrap()             # says that nothing more comes, as TLS does
                continue
            connection.shutdown(socket.SHUT_WR)
            said = Answers(connection).rest()
            assert said.startswith(b"HTTP/1.1 400") if server.views else said == b"", (cut, said)
    assert server.ask()[0] == 200


def test_what_is_no_request_ends_its_connection(server):
    for data in (b"NONSENSE\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"\x16\x03\x01\x02\x00" * 50, b"GET  / HTTP/1.1\r\nHost: x\r\n\r\n",
                 server.request("Bad Header: y"), server.request("Content-Length: -1"),
                 server.request("Transfer-Encoding: chunked", "Content-Length: 3")):
        with server.connect() as connection:
            connection.sendall(data + server.request())       # what follows is not taken for a request
            said = Answers(connection).rest()
            assert said.count(b"HTTP/1.1") == (1 if server.views else 0), (data, said)
            assert not server.views or said.startswith(b"HTTP/1.1 400")


def test_a_header_has_an_end(server):
    long = server.request("X-Long: " + "y" * (2 << 20 if server.views else 64 << 10))
    with server.connect() as connection:
        with contextlib.suppress(OSError):
            connection.sendall(long)
        said = b""
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            said = Answers(connection).rest()
        assert not said or (server.views and said.startswith(b"HTTP/1.1 431")), said
    fits = server.request(*[f"X-Long-{i}: " + "y" * (60 << 10 if server.views else 1500) for i in range(16)])
    assert server.ask(fits)[0] == 200


def test_a_field_that_is_longer_than_the_parser_takes_is_a_header_that_is_too_long(server):
    """Beast counts a field's bytes in sixteen bits, and throws: in a header, and in the fields behind chunks."""
    chunks = b"0\r\n" if server.views else b"2\r\n{}\r\n0\r\n"
    for field in ("X-Long: " + "y" * (70 << 10), "X" * (70 << 10) + ": y"):
        behind = server.request("Transfer-Encoding: chunked", body=b"") + chunks + f"{field}\r\n\r\n".encode()
        for data in (behind, server.request(field)):
            with server.connect() as connection:
                with contextlib.suppress(ConnectionError):      # serve has seen enough before all is sent
                    connection.sendall(data)
                said = b""
                with contextlib.suppress(ConnectionError, ssl.SSLError):
                    said = Answers(connection).rest()
                assert said.startswith(b"HTTP/1.1 431") if server.views else said == b"", said
    assert server.ask()[0] == 200


def test_bodies(server):
    if server.views:        # takes none, however it comes
        for headers in (["Content-Length: 2"], ["Transfer-Encoding: chunked"]):
            with server.connect() as connection:
                connection.sendall(server.request(*headers) + (b"{}" if "ength" in headers[0] else b"2\r\n{}\r\n0\r\n\r\n"))
                answers = Answers(connection)
                status, said, _ = answers.next()
                assert status == 413 and said["connection"] == "close" and answers.rest() == b""
        assert server.ask(server.request("Transfer-Encoding: chunked") + b"0\r\n\r\n")[0] == 200
        return
    assert server.ask(server.request("Transfer-Encoding: chunked", body=b"1\r\n{\r\n1;x=y\r\n}\r\n0\r\nA: b\r\n\r\n")) == server.ask()
    large = b'{"NextToken": "' + b"y" * (7 << 20) + b'"}'
    assert server.ask(server.request(body=large))[0] in (200, 400)
    # A request that is too long is read on until its client listens; chunks say so on the way.
    for data in (server.request(body=b"y" * (20 << 20)),
                 server.request("Transfer-Encoding: chunked", body=(b"100000\r\n" + b"y" * (1 << 20) + b"\r\n") * 20)):
        with server.connect() as connection:
            connection.sendall(data)
            status, said, body = Answers(connection).next()
            assert status == 400 and json.loads(body)["__type"] == "RequestEntityTooLargeException" and said["connection"] == "close"


def test_a_stranger_is_refused_before_its_body_is_read(server):
    if server.views:
        with server.connect() as connection:    # and its connection kept, if it only lacks the token
            answers = Answers(connection)
            for _ in range(2):
                connection.sendall(server.request(first="GET /api/v1/runs HTTP/1.1"))
                assert answers.next()[0] == 403
            connection.sendall(server.request())
            assert answers.next()[0] == 200
        return
    strange = server.request("Content-Length: 4000000", body=b"").replace(KEY.encode(), b"AKIDOTHER")
    with server.connect() as connection:
        connection.sendall(strange)
        status, headers, body = Answers(connection).next()
        assert status == 400 and json.loads(body)["__type"] == "UnrecognizedClientException" and headers["connection"] == "close"
    with server.connect() as connection:        # a short one is read, and the connection goes on
        answers = Answers(connection)
        connection.sendall(server.request().replace(KEY.encode(), b"AKIDOTHER"))
        assert answers.next()[0] == 400
        connection.sendall(server.request())
        assert answers.next()[0] == 200


def test_head_has_the_length_and_not_the_body(server):
    if not server.views:
        return                                  # HEAD is no request of AWS's protocol
    with server.connect() as connection:
        answers = Answers(connection)
        connection.sendall(server.request(first=f"HEAD {server.path} HTTP/1.1"))
        status, headers, _ = answers.next(head_only=True)
        connection.sendall(server.request())
        assert status == 200 and len(answers.next()[2]) == int(headers["content-length"]) > 0
        # What is refused after it is no answer to a HEAD.
        connection.sendall(server.request(first=f"HEAD {server.path} HTTP/1.1") + b"NONSENSE\r\n\r\n")
        assert answers.next(head_only=True)[0] == 200
        status, _, body = answers.next()
        assert status == 400 and body


def test_so_many_at_once_and_no_more(server):
    """A hundred clients: those that fit are served, the others closed at once; when they have gone there is room again."""
    fit = 64 if server.views else 100
    crowd = [server.plain() if server.views else server.connect() for _ in range(100)]
    for connection in crowd[:fit]:
        connection.sendall(server.request())
    for connection in crowd[:fit]:
        assert Answers(connection).next()[0] == 200
    for connection in crowd[fit:]:
        assert Answers(connection).rest() == b""
    for connection in crowd:
        connection.close()

    def room():
        with contextlib.suppress(EOFError, OSError):
            return server.ask()[0] == 200
    until(room, "room for new connections")


def test_who_reads_nothing_keeps_nobody_waiting(server):
    with server.connect() as lazy:
        many = b"".join(server.request() for _ in range(100 if server.context else 3000))

        def send():
            with contextlib.suppress(OSError):
                lazy.sendall(many)
        sender = threading.Thread(target=send)
        sender.start()
        for _ in range(20):
            assert server.ask()[0] == 200
        lazy.close()
        sender.join(60)
        assert not sender.is_alive()


def test_connections_are_no_legacy_of_children(server):
    with server.connect() as connection:
        connection.sendall(server.request())
        Answers(connection).next()
        flags = server.sockets()
        assert len(flags) >= 2 and all(flag & CLOSE_ON_EXEC for flag in flags), list(map(oct, flags))


def test_news_ends_with_its_client_and_other_requests_go_on(server):
    if not server.views:
        return
    news = server.request(first=f"GET {server.path.replace('runs', 'news')} HTTP/1.1")
    before = len(server.sockets())
    with server.connect() as connection:
        connection.sendall(news)
        answers = Answers(connection)
        while b"\r\n\r\nevent: news\ndata: " not in answers.buffer:
            assert answers.more()
        head = answers.buffer.partition(b"\r\n\r\n")[0].decode().lower()
        assert "text/event-stream" in head and "connection: close" in head and "content-length" not in head
        connection.sendall(b"what a client says meanwhile is nothing\r\n\r\n")
        assert server.ask()[0] == 200
    until(lambda: len(server.sockets()) <= before, "the connection's end")


@LONG
def test_whose_handshake_never_ends_is_closed_and_others_are_served(server):
    if not server.context:
        return
    with server.plain() as silent, server.plain() as stops, server.plain() as nonsense:
        stops.sendall(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")
        nonsense.sendall(server.request())
        with contextlib.suppress(ConnectionResetError):
            assert not nonsense.recv(4096).startswith(b"HTTP")
        assert server.ask()[0] == 200
        assert silent.recv(1) == b"" and stops.recv(4096) == b""     # after ten seconds


def test_tls_ends_as_tls_does(server):
    if not server.context:
        return
    with server.connect() as connection:
        connection.sendall(server.request("Connection: close"))
        answers = Answers(connection)
        answers.next()
        assert connection.recv(1) == b""        # else SSLEOFError, as of one who cut the wire


@LONG
def test_who_stops_in_the_middle_of_a_request_is_closed(server):
    """After 30 seconds, or 60; a run's news stays open."""
    with contextlib.ExitStack() as stack:
        half = [stack.enter_context(server.connect()) for _ in range(3)]
        for connection, data in zip(half, (b"", server.request()[:20], server.request("Content-Length: 9000")[:-1]), strict=True):
            if not server.views or data[-1:] != b"\n":
                connection.sendall(data)
        answered = stack.enter_context(server.connect())
        answered.sendall(server.request())
        answers = Answers(answered)
        answers.next()
        for connection in half:
            connection.settimeout(100)
            with contextlib.suppress(ssl.SSLError):
                assert Answers(connection).rest() == b""
        with contextlib.suppress(ssl.SSLError):
            assert answers.rest() == b""


@pytest.mark.parametrize("kind", ["view", "serve"])
def test_out_of_descriptors_connections_wait(kind, tmp_path):
    """With 32 descriptors and 60 clients the server goes on, and answers those that waited once others have gone."""
    limit = (32, 32)
    with started(tmp_path, kind, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, limit)) as server:
        crowd = [server.plain() for _ in range(60)]
        for connection in crowd[:4]:
            connection.sendall(server.request())
            assert Answers(connection).next()[0] in (200, 503)       # of a run whose files it cannot open
        until(lambda: len(list(pathlib.Path(f"/proc/{server.process.pid}/fd").iterdir())) >= limit[0] - 1, "no descriptor is left")
        for connection in crowd[:59]:
            connection.close()
        crowd[59].sendall(server.request())
        assert Answers(crowd[59]).next()[0] == 200
        crowd[59].close()
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        with contextlib.closing(connection):
            connection.request("GET", "/")
            assert connection.getresponse().status in (400, 403)

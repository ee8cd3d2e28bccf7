"""Where credentials come from. The endpoints of containers, machines and STS are stand-ins; the bucket that believes them is not."""

import http.server
import json
import subprocess
import threading
import time

import pytest
import servers
from program import BINARY

STORE = BINARY.parent / "tdbg-store"


class StandIn:
    """Answers what `answers` says of "METHOD /path", and remembers what it was asked."""

    def __init__(self, answers):
        self.asked = []
        stand_in = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def answer(self):
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
                stand_in.asked.append((self.command, self.path, {k.lower(): v for k, v in self.headers.items()}, body))
                text = answers.get(f"{self.command} {self.path}")
                self.send_response(404 if text is None else 200)
                self.send_header("Content-Length", str(len((text or "").encode())))
                self.end_headers()
                self.wfile.write((text or "").encode())

            do_GET = do_PUT = do_POST = answer

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()


def ls(tdbg, env, code=0):
    plain = {k: v for k, v in tdbg.env.items() if k not in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")}
    done = subprocess.run([STORE, "ls", "s3://bucket/none/"], env={**plain, **env}, capture_output=True, text=True, timeout=60)
    assert done.returncode == code, (env, done.stderr)
    return done.stderr


@pytest.fixture
def keys(bucket):
    return {"AccessKeyId": bucket.key, "SecretAccessKey": bucket.secret, "Expiration": "2099-01-01T00:00:00Z"}


def test_a_profile(tdbg, bucket):
    (tdbg.directory / ".aws").mkdir()
    (tdbg.directory / ".aws/credentials").write_text(
        f"[lab]\naws_access_key_id = {bucket.key}\naws_secret_access_key={bucket.secret}\n[wrong]\naws_access_key_id = x\naws_secret_access_key=y\n")
    ls(tdbg, {"AWS_PROFILE": "lab"})
    assert "not allowed" in ls(tdbg, {"AWS_PROFILE": "wrong"}, code=6)
    assert "no AWS credentials" in ls(tdbg, {}, code=6)
    (tdbg.directory / "elsewhere").write_text((tdbg.directory / ".aws/credentials").read_text().replace("[lab]", "[default]"))
    ls(tdbg, {"AWS_SHARED_CREDENTIALS_FILE": str(tdbg.directory / "elsewhere")})


def test_a_container(tdbg, keys):
    with StandIn({"GET /creds": json.dumps(keys)}) as server:
        (tdbg.directory / "token").write_text("secret\n")
        ls(tdbg, {"AWS_CONTAINER_CREDENTIALS_FULL_URI": server.url + "/creds",
                  "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": str(tdbg.directory / "token")})
        assert server.asked[0][2]["authorization"] == "secret" and len(server.asked) == 1
        assert "gives no credentials" in ls(tdbg, {"AWS_CONTAINER_CREDENTIALS_FULL_URI": server.url + "/none"}, code=6)
    for elsewhere in ("203.0.113.1", "127.0.0.1.example.org", "localhost.example.org", "localhost@203.0.113.1",
                      "169.254.170.2.example.org", "127.1:80@203.0.113.1"):
        said = ls(tdbg, {"AWS_CONTAINER_CREDENTIALS_FULL_URI": f"http://{elsewhere}/creds"}, code=2)
        assert "https, or http to this machine" in said, said


def test_keys_that_expire_are_renewed_before(tdbg, bucket, keys):
    """The container's endpoint gives others the second time; the first are near their end, and the store would take them for ever."""
    soon = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 200))
    answers = {"GET /creds": json.dumps({**keys, "Expiration": soon})}
    with StandIn(answers) as server, servers.FaultyProxy(bucket.endpoint) as proxy:
        plain = {k: v for k, v in tdbg.env.items() if k not in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")}
        (tdbg.directory / "r").mkdir()
        (tdbg.directory / "r/run.json").write_text('{"format": {"major": 1, "minor": 2}, "kind": "run", "id": "%032x", "name": "x"}' % 1)
        url = "s3://bucket/renewed"
        uploader = subprocess.Popen([STORE, "upload", tdbg.directory / "r", url, "--follow"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                    env={**plain, "AWS_ENDPOINT_URL": proxy.endpoint, "AWS_CONTAINER_CREDENTIALS_FULL_URI": server.url + "/creds"})
        assert uploader.stdout.readline().startswith(b"ok ")
        requests = proxy.requests
        assert 1 < requests <= len(server.asked), "keys that are about to expire are asked for again"
        answers["GET /creds"] = json.dumps(keys)
        (tdbg.directory / "r/more").write_text("x")
        uploader.stdin.close()
        assert uploader.wait(60) == 0
        assert proxy.requests - requests > len(server.asked) - requests + 1, "and those that are not are kept"
        assert subprocess.run([STORE, "cat", url + "/more"], env=tdbg.env, capture_output=True, text=True, timeout=60).stdout == "x"


def test_keys_that_the_store_calls_expired_are_asked_for_again(tdbg, bucket, keys):
    class Expires(servers.FaultyProxy):
        refused = False

        def _forward(self, client):
            if self.refused:
                return super()._forward(client)
            self.refused = bool(self._head(client))
            text = b"<Error><Code>ExpiredToken</Code><Message>as asked for</Message></Error>"
            client.wfile.write(b"HTTP/1.1 400 no\r\nContent-Length: %d\r\n\r\n" % len(text) + text)
            return True

    with StandIn({"GET /creds": json.dumps(keys)}) as server, Expires(bucket.endpoint) as proxy:
        ls(tdbg, {"AWS_CONTAINER_CREDENTIALS_FULL_URI": server.url + "/creds", "AWS_ENDPOINT_URL": proxy.endpoint})
        assert len(server.asked) == 2


def test_what_a_machine_says_to_itself_goes_through_no_proxy(tdbg, keys):
    """The answers are secrets, and a proxy is somebody else's machine."""
    path = "/latest/meta-data/iam/security-credentials/"
    with StandIn({}) as proxy, StandIn({"GET /creds": json.dumps(keys), "PUT /latest/api/token": "t0", f"GET {path}": "role\n",
                                        f"GET {path}role": json.dumps(keys)}) as server:
        # The bucket is asked through the proxy, which knows none: what matters is who was asked for the keys.
        for env in ({"AWS_CONTAINER_CREDENTIALS_FULL_URI": server.url + "/creds"},
                    {"AWS_EC2_METADATA_SERVICE_ENDPOINT": server.url, "AWS_EC2_METADATA_DISABLED": "false"}):
            ls(tdbg, {**env, "http_proxy": proxy.url, "no_proxy": ""}, code=4)
        assert len(server.asked) == 4
        assert proxy.asked and all("/bucket?" in asked[1] for asked in proxy.asked), proxy.asked


def test_a_machine(tdbg, keys):
    path = "/latest/meta-data/iam/security-credentials/"
    with StandIn({"PUT /latest/api/token": "t0", f"GET {path}": "role\n", f"GET {path}role": json.dumps(keys)}) as server:
        env = {"AWS_EC2_METADATA_SERVICE_ENDPOINT": server.url, "AWS_EC2_METADATA_DISABLED": "false"}
        ls(tdbg, env)
        assert [ask[1] for ask in server.asked] == ["/latest/api/token", path, path + "role"]
        assert server.asked[1][2]["x-aws-ec2-metadata-token"] == "t0"
        assert "no AWS credentials" in ls(tdbg, {**env, "AWS_EC2_METADATA_DISABLED": "true"}, code=6)


def test_a_web_identity(tdbg, bucket):
    answer = ("<AssumeRoleWithWebIdentityResponse xmlns='https://sts.amazonaws.com/doc/2011-06-15/'><AssumeRoleWithWebIdentityResult>"
              f"<Credentials><AccessKeyId>{bucket.key}</AccessKeyId><SecretAccessKey>{bucket.secret}</SecretAccessKey>"
              "<Expiration>2099-01-01T00:00:00Z</Expiration></Credentials>"
              "</AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>")
    with StandIn({"POST /": answer}) as server:
        (tdbg.directory / "token").write_text("a.b.c\n")
        env = {"AWS_WEB_IDENTITY_TOKEN_FILE": str(tdbg.directory / "token"), "AWS_ROLE_ARN": "arn:aws:iam::1:role/r",
               "AWS_ENDPOINT_URL_STS": server.url}
        ls(tdbg, env)
        assert "WebIdentityToken=a.b.c" in server.asked[0][3] and "RoleArn=arn%3Aaws" in server.asked[0][3]
        assert "token" in ls(tdbg, {**env, "AWS_WEB_IDENTITY_TOKEN_FILE": "/none"}, code=6)

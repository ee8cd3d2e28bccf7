"""Elsewhere than on loopback: TLS with a certificate made here, the token of the address, and the key; nothing else."""

import contextlib
import datetime
import http.client
import ipaddress
import json
import ssl
import subprocess
import urllib.parse

import boto3
import botocore.config
import botocore.exceptions
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from . import service as parts

#: Every address of this machine, so that the test needs no network of its own; it asks by this one.
HOST, NAME = "0.0.0.0", "127.0.0.1"
KEY = "AKIDTESTTESTTESTTEST"


def certificate(folder, name):
    """A self-signed one for this machine: the files of the certificate and of its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.timezone.utc)
    made = (x509.CertificateBuilder().subject_name(subject).issuer_name(subject).public_key(key.public_key())
            .serial_number(x509.random_serial_number()).not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=30))
            .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(NAME))]), critical=False)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(key, hashes.SHA256()))
    files = folder / f"{name}.pem", folder / f"{name}.key"
    files[0].write_bytes(made.public_bytes(serialization.Encoding.PEM))
    files[1].write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8,
                                           serialization.NoEncryption()))
    return files


@pytest.fixture(scope="module")
def pems(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tls")
    return {name: certificate(folder, name) for name in ("ours", "other")}


def serve(folder, *flags):
    return [parts.BINARY, "serve", "--state", folder / "service", "--json", *flags]


def environment(folder):
    return {**parts.clean_environment(), "HOME": str(folder), "XDG_STATE_HOME": str(folder), "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": "secret"}


@pytest.fixture(scope="module")
def remote(tmp_path_factory, pems):
    """The address that `aws-env --remote` prints of a server that listens elsewhere, too."""
    folder = tmp_path_factory.mktemp("remote")
    cert, key = pems["ours"]
    with open(folder / "log", "w") as log:
        process = subprocess.Popen(
            serve(folder, "--host", HOST, "--tls-name", NAME, "--tls-cert", cert, "--tls-key", key),
            env=environment(folder), stdout=subprocess.PIPE, stderr=log, text=True)
    try:
        assert process.stdout.readline(), (folder / "log").read_text()
        told = subprocess.run([parts.BINARY, "aws-env", "--state", folder / "service", "--json", "--remote"],
                              env=environment(folder), capture_output=True, text=True, timeout=60)
        assert told.returncode == 0, told.stderr
        yield json.loads(told.stdout)["environment"]["AWS_ENDPOINT_URL_SAGEMAKER"]
        assert process.poll() is None
    finally:
        process.terminate()
        process.wait(60)


def client(address, bundle, key=KEY, service="sagemaker"):
    return boto3.client(service, endpoint_url=address, region_name="us-east-1", aws_access_key_id=key,
                        aws_secret_access_key="secret", verify=str(bundle),
                        config=botocore.config.Config(retries={"max_attempts": 0}))


def test_who_has_certificate_token_and_key_is_answered(remote, pems):
    assert remote.startswith(f"https://{NAME}:") and len(urllib.parse.urlsplit(remote).path) == 33, remote
    ours = client(remote, pems["ours"][0])
    assert ours.list_training_jobs()["TrainingJobSummaries"] == []
    assert client(remote, pems["ours"][0], service="lambda").list_functions()["Functions"] == []
    with pytest.raises(ours.exceptions.ClientError, match="not found"):
        ours.describe_training_job(TrainingJobName="none")      # on the same connection as the first call


def test_who_lacks_one_of_them_is_not(remote, pems):
    address = urllib.parse.urlsplit(remote)
    bundle = pems["ours"][0]
    for path in ("", "/", "/" + "0" * 32, address.path[:-1], address.path + "x"):
        stranger = client(f"https://{address.netloc}{path}", bundle)
        with pytest.raises(stranger.exceptions.ClientError, match="token"):
            stranger.list_training_jobs()
    guess = client(remote, bundle, key="guess")
    with pytest.raises(guess.exceptions.ClientError, match="access key"):
        guess.list_training_jobs()
    with pytest.raises(botocore.exceptions.SSLError):
        client(remote, pems["other"][0]).list_training_jobs()
    # Without TLS there is no answer at all, whatever is known.
    plain = http.client.HTTPConnection(address.hostname, address.port, timeout=30)
    with contextlib.closing(plain), pytest.raises((http.client.HTTPException, OSError)):
        plain.request("POST", address.path, b"{}", {"X-Amz-Target": "SageMaker.ListTrainingJobs"})
        plain.getresponse()


def test_old_protocols_and_pages_of_browsers_are_refused(remote, pems):
    address = urllib.parse.urlsplit(remote)
    context = ssl.create_default_context(cafile=str(pems["ours"][0]))
    page = http.client.HTTPSConnection(address.hostname, address.port, timeout=30, context=context)
    with contextlib.closing(page):
        page.request("POST", address.path + "/", b"{}", {
            "X-Amz-Target": "SageMaker.ListTrainingJobs", "Origin": "https://evil.example",
            "Authorization": f"AWS4-HMAC-SHA256 Credential={KEY}/20261124/us-east-1/sagemaker/aws4_request"})
        answer = page.getresponse()
        assert answer.status == 400 and b"browser" in answer.read()
    big = http.client.HTTPSConnection(address.hostname, address.port, timeout=30, context=context)
    with contextlib.closing(big):                               # a stranger's megabytes are not taken in
        big.putrequest("POST", "/")
        big.putheader("Content-Length", str(4 << 20))
        big.endheaders()
        assert big.getresponse().status == 400


@pytest.mark.parametrize(("flags", "said"), [
    (["--host", "0.0.0.0"], "--tls-cert FILE and --tls-key FILE"),
    (["--host", "0.0.0.0", "--tls-cert", "{ours}"], "--tls-cert FILE and --tls-key FILE"),
    (["--host", "0.0.0.0", "--tls-cert", "{ours}", "--tls-key", "{other key}"], "no private key in PEM that belongs to"),
    (["--host", "0.0.0.0", "--tls-cert", "{ours key}", "--tls-key", "{ours key}"], "no certificate in PEM"),
    (["--host", "elsewhere", "--tls-cert", "{ours}", "--tls-key", "{ours key}"], "accepted: an IP address"),
    (["--host", "0.0.0.0", "--tls-cert", "{ours}", "--tls-key", "{ours key}", "--local-aws"], "moto_server has no TLS"),
    (["--tls-cert", "{ours}"], "--tls-* is for --host ADDRESS"),
])
def test_what_is_not_safe_is_refused_with_a_sentence(tmp_path, pems, flags, said):
    names = {f"{{{name}}}": str(pem[0]) for name, pem in pems.items()} | {
        f"{{{name} key}}": str(pem[1]) for name, pem in pems.items()}
    done = subprocess.run(serve(tmp_path, *[names.get(flag, flag) for flag in flags]), env=environment(tmp_path),
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and said in done.stderr, (done.returncode, done.stderr)

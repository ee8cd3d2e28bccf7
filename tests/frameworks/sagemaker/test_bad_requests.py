"""Requests that botocore's own model generates, and what is left of them after a few mutations: each gets an answer, none
a crash, and no job begins that nobody asked for."""

import contextlib
import http.client
import json
import random
import urllib.parse

import botocore.session
import pytest

from . import service as parts

ROUNDS = 10_000
#: Jobs that fail at once cost a process each; so many are enough.
MOST_JOBS = 15
OPERATIONS = {
    "sagemaker": ("SageMaker", [
        "CreateTrainingJob", "DescribeTrainingJob", "ListTrainingJobs", "StopTrainingJob", "DeleteTrainingJob",
        "UpdateTrainingJob", "AddTags", "ListTags", "DeleteTags", "DescribeProcessingJob", "StopProcessingJob",
        "ListProcessingJobs", "CreateModel"]),
    "logs": ("Logs_20140328", ["DescribeLogStreams", "GetLogEvents", "DescribeLogGroups"]),
    "events": ("AWSEvents", [
        "PutRule", "PutTargets", "RemoveTargets", "ListRules", "ListTargetsByRule", "ListRuleNamesByTarget", "DescribeRule",
        "EnableRule", "DisableRule", "DeleteRule", "TestEventPattern", "PutEvents"])}
ODD = ["", " ", "a b", "../../etc/passwd", "/etc/passwd", "s3://", "s3://b/../c", "\u0000", "\ud83d\ude00" * 50, "x" * 5000,
       -1, 0, 1.5, 1 << 62, 1e300, True, None, [], {}, [[]], {"": ""}, "NaN"]


def value_of(shape, rng, depth=0):
    """Something that the model allows, and sometimes something that it does not."""
    if rng.random() < 0.06 or depth > 6:
        return rng.choice(ODD)
    kind = shape.type_name
    if kind == "structure":
        return {name: value_of(member, rng, depth + 1) for name, member in shape.members.items()
                if name in shape.required_members or rng.random() < 0.3}
    if kind == "list":
        return [value_of(shape.member, rng, depth + 1) for _ in range(rng.randrange(3))]
    if kind == "map":
        return {f"k{i}": value_of(shape.value, rng, depth + 1) for i in range(rng.randrange(3))}
    if kind == "string":
        return rng.choice(shape.enum) if shape.enum else rng.choice(["a", "job-1", "s3://bucket/key", "/opt/ml/x", "x" * 21])
    return {"integer": 3, "long": 3, "float": 0.5, "double": 0.5, "boolean": True, "timestamp": 1.7e9}.get(kind, "x")


def mutated(data, rng):
    """Bytes flipped, cut or doubled."""
    data = bytearray(data)
    for _ in range(rng.randrange(1, 4)):
        if data:
            at = rng.randrange(len(data))
            change = rng.randrange(3)
            if change == 0:
                data[at] = rng.randrange(256)
            elif change == 1:
                del data[at:at + rng.randrange(20)]
            else:
                data[at:at] = data[at:at + rng.randrange(50)]
    return bytes(data)


@pytest.fixture
def ask(service):
    address = urllib.parse.urlsplit(service.variables["AWS_ENDPOINT_URL_SAGEMAKER"])
    key = service.variables["AWS_ACCESS_KEY_ID"]

    connection = http.client.HTTPConnection(address.hostname, address.port, timeout=60)

    def ask(target, body):
        connection.request("POST", "/", body, {
            "X-Amz-Target": target, "Content-Type": "application/x-amz-json-1.1",
            "Authorization": f"AWS4-HMAC-SHA256 Credential={key}/20261124/us-east-1/sagemaker/aws4_request"})
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())

    yield ask
    connection.close()


def test_generated_and_mutated_requests(service, sagemaker, ask):
    rng = random.Random(20261124)
    operations = []
    for name, (prefix, offered) in OPERATIONS.items():
        model = botocore.session.get_session().get_service_model(name)
        operations += [(f"{prefix}.{o}", model.operation_model(o).input_shape) for o in offered]
    before = {p.name for p in (service.state / "jobs").iterdir()}
    asked_for, codes = set(), {}
    for _ in range(ROUNDS):
        target, shape = rng.choice(operations)
        request = value_of(shape, rng)
        if target.endswith("CreateTrainingJob") and isinstance(request, dict):
            # An image that no environment stands for: what is valid becomes a job that fails at once.
            request["AlgorithmSpecification"] = {"TrainingImage": "none:1", "TrainingInputMode": "File"}
            request["TrainingJobName"] = rng.choice(
                [f"fuzz-{rng.randrange(10**9)}" if len(asked_for) < MOST_JOBS else "fuzz-", "../x", "a" * 64, 7, ""])
        body = json.dumps(request).encode()
        if rng.random() < 0.5:
            body = mutated(body, rng)
        status, answer = ask(target, body)
        assert status in (200, 400), (status, target, body, answer)
        if status == 400:
            assert answer["__type"] and answer["message"], answer
            codes[answer["__type"]] = codes.get(answer["__type"], 0) + 1
        elif target.endswith("CreateTrainingJob"):
            asked_for.add(answer["TrainingJobArn"].rpartition("/")[2])
    assert service.process.poll() is None
    assert {"ValidationException", "SerializationException", "UnknownOperationException", "ResourceNotFoundException",
            "InvalidEventPatternException"} <= set(codes), codes
    assert {p.name for p in (service.state / "jobs").iterdir()} - before == asked_for
    for name in asked_for:
        assert parts.wait(sagemaker, name)["TrainingJobStatus"] in ("Failed", "Stopped")


@pytest.mark.parametrize("raw", [
    b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: evil.example\r\nContent-Length: 0\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nOrigin: https://evil.example\r\nContent-Length: 0\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 99999999999\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: -1\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    b"A" * 100_000,
])
def test_what_is_no_request_gets_an_error_or_the_end(service, raw):
    import socket
    address = urllib.parse.urlsplit(service.variables["AWS_ENDPOINT_URL_SAGEMAKER"])
    with socket.create_connection((address.hostname, address.port), 20) as connection:
        connection.settimeout(20)
        answer = b""
        with contextlib.suppress(OSError):  # the server may have had enough before all was sent
            connection.sendall(raw)
            connection.shutdown(socket.SHUT_WR)
        with contextlib.suppress(ConnectionResetError):
            while chunk := connection.recv(65536):
                answer += chunk
    assert not answer or answer.startswith(b"HTTP/1.1 4"), answer
    assert service.process.poll() is None

"""One suite for every store: a directory and a bucket do the same."""

import os
import subprocess
import uuid

import pytest
from program import BINARY

STORE = BINARY.parent / "tdbg-store"
NOT_FOUND, REFUSED = 4, 6
PART_BYTES = 5 << 20  # the least that S3 takes


class Store:
    def __init__(self, root, env, directory):
        self.root, self.env, self.directory = root, env, directory

    def __call__(self, verb, key="", *flags, data=None, code=0):
        arguments = [verb]
        if data is not None:
            (self.directory / "data").write_bytes(data)
            arguments.append("data")
        done = subprocess.run([STORE, *arguments, f"{self.root}/{key}", *flags], cwd=self.directory, env=self.env,
                              capture_output=True, timeout=120)
        assert done.returncode == code, (verb, key, done.returncode, done.stderr)
        return done.stdout

    def keys(self, prefix="", *flags):
        return [line.rpartition(self.root.partition("://")[2].partition("/")[2] + "/")[2]
                for line in self("ls", prefix, *flags).decode().splitlines()]

    def etag(self, key):
        return self("head", key).decode().split()[1]


@pytest.fixture(params=["file", "s3"])
def store(request, tdbg):
    root = f"file://{tdbg.directory}/objects" if request.param == "file" else f"s3://bucket/{uuid.uuid4().hex}"
    return Store(root, tdbg.env, tdbg.directory)


def test_what_is_put_is_got_whole_and_in_ranges(store):
    data = os.urandom(10_000)
    store("put", "a/b", data=data)
    assert store("cat", "a/b") == data
    for offset, count in [(0, 1), (5, 10), (9_999, 1), (9_990, 100), (0, 0), (9_000, 0)]:
        end = offset + count if count else None
        assert store("cat", "a/b", "--range", f"{offset},{count}") == data[offset:end], (offset, count)
    for offset in (10_000, 99_999):
        assert store("cat", "a/b", "--range", f"{offset},10") == b""
    store("put", "empty", data=b"")
    assert store("cat", "empty") == b""
    store("put", "a/b", data=b"new")
    assert store("cat", "a/b") == b"new"


def test_names_are_taken_as_they_are(store):
    names = ["w@1", "a b", "a+b", "é", "100%", "x=1&y", "q?#", "t~'(!)*", "dots..", ".hidden", "a:b;c,d"]
    for name in names:
        store("put", f"names/{name}", data=name.encode())
    assert sorted(store.keys("names/")) == sorted(f"names/{name}" for name in names)
    for name in names:
        assert store("cat", f"names/{name}") == name.encode()


def test_lists_begin_with_a_prefix_and_are_in_order(store):
    for key in ("b/2", "b/10", "b/1/x", "bc", "a"):
        store("put", key, data=b"1")
    assert store.keys("b/") == ["b/1/x", "b/10", "b/2"]
    assert store.keys("b") == ["b/1/x", "b/10", "b/2", "bc"]
    assert store.keys("b/", "--most", "2") == ["b/1/x", "b/10"]
    assert store.keys("nothing/") == []


def test_what_is_not_there(store):
    for verb in ("cat", "head"):
        store(verb, "none", code=NOT_FOUND)
    store("rm", "none")
    store("put", "some", data=b"1")
    store("rm", "some")
    store("cat", "some", code=NOT_FOUND)


def test_conditions(store):
    store("put", "c", "--if-absent", data=b"first")
    store("put", "c", "--if-absent", data=b"second", code=REFUSED)
    assert store("cat", "c") == b"first"
    etag = store.etag("c")
    store("put", "c", "--if-match", etag, data=b"third")
    store("put", "c", "--if-match", etag, data=b"fourth", code=REFUSED)
    assert store("cat", "c") == b"third" and store.etag("c") != etag
    # Who put it and lost the answer asks again, and it is his.
    store("put", "c2", "--if-absent", data=b"mine")
    if store.root.startswith("s3"):
        store("put", "c2", "--if-absent", data=b"mine")


def test_a_long_file_goes_in_parts(store):
    data = os.urandom(2 * PART_BYTES + 12_345)
    store("put", "long", "--part-bytes", str(PART_BYTES), data=data)
    assert store("cat", "long") == data
    assert store("cat", "long", "--range", f"{PART_BYTES - 2},4") == data[PART_BYTES - 2:PART_BYTES + 2]
    if store.root.startswith("s3"):
        assert store.etag("long").endswith('-3"'), "three parts"
    assert store.keys() == ["long"]

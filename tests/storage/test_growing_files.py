"""Files that grow at their end, as logs do: what was added is sent, not all of it again."""

import os
import subprocess
import time
import uuid

import pytest
import servers
from program import BINARY

STORE = BINARY.parent / "tdbg-store"
RUN = '{"format": {"major": 1, "minor": 2}, "kind": "run", "id": "%032x", "name": "x"}'
LOG = "logs/attempt-0.out"
MEGABYTE = 1 << 20


class Growing:
    """A run whose log grows, followed by an uploader."""

    def __init__(self, tdbg, proxy):
        self.directory, self.prefix, self.env = tdbg.directory / "r", uuid.uuid4().hex, {**tdbg.env, "AWS_ENDPOINT_URL": proxy.endpoint}
        (self.directory / "logs").mkdir(parents=True)
        (self.directory / "run.json").write_text(RUN % 1)
        self.log = self.directory / LOG

    def grow(self, size):
        with open(self.log, "ab") as log:
            log.write(os.urandom(size))

    def follow(self):
        return subprocess.Popen([STORE, "upload", self.directory, f"s3://bucket/{self.prefix}", "--follow"], env=self.env,
                                stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)

    def there(self):
        done = subprocess.run([STORE, "cat", f"s3://bucket/{self.prefix}/{LOG}"], env=self.env, capture_output=True, timeout=60)
        return done.stdout

    def arrives(self):
        end = time.monotonic() + 60
        while len(self.there()) != self.log.stat().st_size:
            assert time.monotonic() < end
            time.sleep(0.1)
        assert self.there() == self.log.read_bytes()


@pytest.mark.parametrize("copies", [True, False])
def test_of_a_log_that_grows_what_was_added_is_sent(tdbg, bucket, copies):
    with servers.FaultyProxy(bucket.endpoint, faults={} if copies else {"uncopied": 1.0}) as proxy:
        run = Growing(tdbg, proxy)
        run.grow(8 * MEGABYTE)
        uploader = run.follow()
        try:
            run.arrives()
            run.grow(3 * MEGABYTE)  # a quarter, so that it is due at once
            run.arrives()
            run.grow(1000)
        finally:
            uploader.stdin.close()
            assert uploader.wait(60) == 0
        run.arrives()
        size, sent = run.log.stat().st_size, proxy.bytes_up[f"{run.prefix}/{LOG}"]
        assert size <= sent < size + 10_000 if copies else sent > 2 * size


def test_a_log_that_begins_anew_is_sent_whole(tdbg, bucket):
    """In the same file, and longer than before: what is there is not its beginning."""
    with servers.FaultyProxy(bucket.endpoint) as proxy:
        run = Growing(tdbg, proxy)
        run.grow(6 * MEGABYTE)
        uploader = run.follow()
        try:
            run.arrives()
            with open(run.log, "r+b") as log:
                log.write(os.urandom(9 * MEGABYTE))
            run.arrives()
        finally:
            uploader.stdin.close()
            assert uploader.wait(60) == 0
        run.arrives()

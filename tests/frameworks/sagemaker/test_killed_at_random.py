"""The server and whoever looks after a job, killed again and again: the job goes on, and nothing of it is lost."""

import contextlib
import os
import pathlib
import random
import signal
import sys
import time

from . import service as parts

sys.path.append(str(parts.ROOT / "tests/storage"))
import servers  # noqa: E402

#: Of servers and tenders together; 100 where somebody waits for them.
KILLS = int(os.environ.get("TDBG_TEST_KILLS", "4"))


def processes(*words):
    """Of this test's service: pids whose command line has these words in a row."""
    wanted, found = b"\0".join(word.encode() for word in words), []
    for entry in pathlib.Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and wanted in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
    return found


def test_killed_at_random_instants_servers_and_tenders_lose_no_job(tmp_path):
    chance = random.Random(int(os.environ.get("TDBG_TEST_SEED", "0")))
    with servers.moto() as bucket:     # of its own: with the server's own moto the bucket would end, too
        service = parts.Service(tmp_path)
        service.flags.remove("--local-aws")
        service.environment.update(bucket.env())
        service.start()
        try:
            service.client("s3").put_object(Bucket="bucket", Key="code/sourcedir.tar.gz", Body=parts.archive({"train.py": parts.TRAINING}))
            changed = parts.request("survives", "bucket")
            steps = 60 + 25 * KILLS
            changed["HyperParameters"].update(steps=str(steps), nap="0.05")
            service.client("sagemaker").create_training_job(**changed)
            for _ in range(KILLS):
                time.sleep(chance.choice((0.1, 0.5, 1.5)) * chance.random())
                if chance.random() < 0.5:
                    service.process.kill()
                    service.process.wait(20)
                    service.process.stdout.close()
                    service.start()
                else:
                    for pid in processes("--tend", str(service.job_directory("survives"))):
                        with contextlib.suppress(ProcessLookupError):
                            os.kill(pid, signal.SIGKILL)
            job = parts.wait(service.client("sagemaker"), "survives", seconds=120 + steps)
            assert job["TrainingJobStatus"] == "Completed", job
            assert [t["Status"] for t in job["SecondaryStatusTransitions"]] == ["Starting", "Downloading", "Training", "Uploading", "Completed"]
            keys = [o["Key"] for o in service.client("s3").list_objects_v2(Bucket="bucket", Prefix="out/survives")["Contents"]]
            assert keys == ["out/survives/output/model.tar.gz"], keys
            # Whoever fills the bucket or delivers events ends soon after the job.
            end = time.monotonic() + 60
            while left := processes("--tend", str(service.job_directory("survives"))):
                assert time.monotonic() < end, left
                time.sleep(0.2)
        finally:
            service.stop()

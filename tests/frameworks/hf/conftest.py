import os
import pathlib
import sys

import pytest

os.environ["HF_HUB_OFFLINE"] = "1"            # nothing is downloaded here
os.environ["TDBG_STRICT"] = "1"               # a failure of the adaptor is a failure of the test
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

torch = pytest.importorskip("torch")
torch.set_num_threads(1)


@pytest.fixture
def watched(tmp_path):
    """watched(train, **configuration) runs train() under tdbg; returns (what it returned, the run)."""
    import tdbg

    def run(train, **configuration):
        directory = str(tmp_path / f"run{len(list(tmp_path.iterdir()))}")
        with tdbg.attach(dir=directory, config={"journal": {"size": "16MiB"}, **configuration}):
            result = train()
        return result, tdbg.open(directory)

    return run

"""A driver of no device in libcuda's place (src/cuda/testing/fake_driver.h), and host tensors that pose as a GPU's."""

import ctypes
import gc
import os
import pathlib

import torch

ROOT = pathlib.Path(__file__).resolve().parents[3]
LIBRARY = pathlib.Path(os.environ.get("TDBG_BUILD", str(ROOT / "build"))) / "libtdbg_fake_cuda.so"

# A launch runs before it returns, as the optimizer's next kernel would find it; results come late all the same.
os.environ["TDBG_CUDA_DRIVER"] = str(LIBRARY)
os.environ["TDBG_FAKE_CUDA"] = "immediate"

_driver = ctypes.CDLL(str(LIBRARY))
_driver.fake_cuda_set.argtypes = [ctypes.c_char_p]
_driver.fake_cuda_calls.restype = ctypes.c_uint64
_driver.fake_cuda_calls.argtypes = [ctypes.c_char_p]
_driver.fake_cuda_begin_capture.argtypes = [ctypes.c_uint64]
_driver.fake_cuda_end_capture.restype = ctypes.c_uint64
_driver.fake_cuda_end_capture.argtypes = [ctypes.c_uint64]
_driver.fake_cuda_replay.argtypes = [ctypes.c_uint64, ctypes.c_uint64]

drain = _driver.fake_cuda_drain


def reset():
    # Sessions are in circles: what one that is over gives back may else be counted as the next test's.
    gc.collect()
    _driver.fake_cuda_reset()


def set(*words):
    for word in words:
        assert _driver.fake_cuda_set(word.encode()), word


def calls(name=None):
    return _driver.fake_cuda_calls(name and name.encode())


class Devices:
    """In place of cuda.Devices: every host tensor is on device 0, and `current` is the stream."""

    kind = "cuda"
    current = 7

    def index(self, tensor):
        return 0

    def stream(self, device):
        return Devices.current


class Graph:
    """In place of torch.cuda.CUDAGraph: what a script captures, which here is our launches alone. `work`: what the script's own
    kernels do, with every replay."""

    def __init__(self, work=lambda: None):
        self.work = work

    def capture_begin(self):
        _driver.fake_cuda_begin_capture(Devices.current)

    def capture_end(self):
        self.graph = _driver.fake_cuda_end_capture(Devices.current)
        if not self.graph:
            raise RuntimeError("cudaErrorStreamCaptureInvalidated")

    def replay(self):
        _driver.fake_cuda_replay(self.graph, Devices.current)
        self.work()


class CurrentStream:
    def __init__(self, device=None):
        self.cuda_stream = Devices.current

    def query(self):
        return CurrentStream.idle

    idle = True


def pose(monkeypatch, cuda):
    """Host tensors are a GPU's from here on, for `watch(force_lane="cuda")`."""
    reset()
    Devices.current = 7
    CurrentStream.idle = True
    monkeypatch.setattr(cuda, "Devices", Devices)
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "current_stream", CurrentStream)

"""A source or an image that was changed alone is noticed."""

import build_cuda
import check_cuda_image
import pytest


@pytest.fixture
def copy(tmp_path, monkeypatch):
    """The tree's sources and image, to be changed."""
    room = tmp_path / "src/cuda"
    for path in [*build_cuda.sources(), build_cuda.IMAGE, build_cuda.NOTE]:
        to = room / path.relative_to(build_cuda.SOURCES)
        to.parent.mkdir(parents=True, exist_ok=True)
        to.write_bytes(path.read_bytes())
    monkeypatch.setattr(build_cuda, "ROOT", tmp_path)
    monkeypatch.setattr(build_cuda, "SOURCES", room)
    monkeypatch.setattr(build_cuda, "IMAGE", room / "image/kernels.fatbin")
    monkeypatch.setattr(build_cuda, "NOTE", room / "image/kernels.txt")
    return room


def test_the_committed_image_is_of_the_committed_sources(copy):
    assert check_cuda_image.complaints(rebuild=False) == []


@pytest.mark.parametrize("name", ["abi.h", "device/summarize.cuh", "device/kernels.cu", "image/kernels.fatbin"])
def test_a_change_of_one_file_is_noticed(copy, name):
    with open(copy / name, "ab") as file:
        file.write(b"\n")
    assert "run tools/build_cuda.py" in check_cuda_image.complaints(rebuild=False)[0]


def test_a_source_that_came_or_an_image_that_went_is_noticed(copy):
    (copy / "device/more.cuh").write_text("")
    assert check_cuda_image.complaints(rebuild=False)
    (copy / "image/kernels.fatbin").unlink()
    assert "missing" in check_cuda_image.complaints(rebuild=False)[0]

#!/usr/bin/env python3
"""Compiles the kernels of src/cuda/device for GPUs into src/cuda/image/kernels.fatbin, and writes down of what.

    tools/build_cuda.py             the image; its sources' hash beside it (tools/check_cuda_image.py compares)
    tools/build_cuda.py --report    and what each kernel needs: registers, spilled bytes, shared memory

NVRTC and the tool that packs a fat binary come from PyPI, into an environment of their own under build/. Nothing of it is needed
to build or to run tdbg: the image is committed.

CUDA 12.9 is the last that knows Turing (7.5) and the first drivers of CUDA 12 alike, and it knows Blackwell (10.0, 12.0). Machine
code runs on every later minor version of its architecture (8.6 on 8.9: the compiler gives both the same instructions; 10.0 on
10.3), the PTX on what comes after.
"""

import argparse
import ctypes
import hashlib
import pathlib
import re
import subprocess
import sys
import tempfile
import venv

ROOT = pathlib.Path(__file__).resolve().parent.parent
SOURCES = ROOT / "src/cuda"
IMAGE = SOURCES / "image/kernels.fatbin"
NOTE = SOURCES / "image/kernels.txt"
ENVIRONMENT = ROOT / "build/cuda-tools"
PACKAGES = ["nvidia-cuda-nvrtc-cu12==12.9.86", "nvidia-cuda-nvcc==13.5.37", "nvidia-cuda-cuobjdump==13.5.37"]
ARCHITECTURES = ["75", "80", "86", "90", "100", "120"]
PTX = "90"
# No contraction: a product and a sum are fused where the source says so, so that the CPU, every GPU and every compiler come
# to the same bits.
OPTIONS = ["--std=c++17", "--fmad=false", "--prec-div=true", "--prec-sqrt=true", "--ftz=false",
           "--device-as-default-execution-space", "-DNDEBUG"]
# All that the sources ask of the standard library.
CSTDINT = b"""#pragma once
typedef unsigned char uint8_t; typedef unsigned short uint16_t; typedef unsigned int uint32_t; typedef unsigned long long uint64_t;
typedef signed char int8_t; typedef short int16_t; typedef int int32_t; typedef long long int64_t;
typedef unsigned long long uintptr_t;
"""


def sources() -> list[pathlib.Path]:
    """What the image is made of, in the order of their names."""
    return sorted([SOURCES / "abi.h", *(SOURCES / "device").glob("*.cu*")])


def source_hash() -> str:
    """Of the sources and of how they are compiled."""
    h = hashlib.sha256()
    for path in sources():
        h.update(path.relative_to(ROOT).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    h.update(repr((PACKAGES, ARCHITECTURES, PTX, OPTIONS, CSTDINT)).encode())
    return h.hexdigest()


def environment() -> pathlib.Path:
    """The folder with NVIDIA's packages; installed when first asked for."""
    python = ENVIRONMENT / "bin/python"
    stamp = ENVIRONMENT / "packages.txt"
    if not stamp.exists() or stamp.read_text().split() != PACKAGES:
        venv.create(ENVIRONMENT, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", *PACKAGES],
                       check=True)
        stamp.write_text("\n".join(PACKAGES) + "\n")
    out = subprocess.run([python, "-c", "import sysconfig; print(sysconfig.get_path('platlib'))"], check=True,
                         capture_output=True, text=True)
    return pathlib.Path(out.stdout.strip()) / "nvidia"


class Compiler:
    """NVRTC: the compiler as a library, without a host compiler."""

    def __init__(self, nvidia: pathlib.Path) -> None:
        lib = nvidia / "cuda_nvrtc/lib"
        ctypes.CDLL(str(lib / "libnvrtc-builtins.so.12.9"), mode=ctypes.RTLD_GLOBAL)
        self._nvrtc = ctypes.CDLL(str(lib / "libnvrtc.so.12"))

    def _bytes(self, program: ctypes.c_void_p, what: str) -> bytes:
        size = ctypes.c_size_t()
        getattr(self._nvrtc, f"nvrtcGet{what}Size")(program, ctypes.byref(size))
        buffer = ctypes.create_string_buffer(max(1, size.value))
        getattr(self._nvrtc, f"nvrtcGet{what}")(program, buffer)
        return buffer.raw[:size.value]

    def __call__(self, architecture: str, kind: str) -> tuple[bytes, str]:
        """The image for `architecture` ("sm_90" for machine code, "compute_90" for PTX) and what the compiler said."""
        text = (SOURCES / "device/kernels.cu").read_bytes()
        program = ctypes.c_void_p()
        headers = (ctypes.c_char_p * 1)(CSTDINT)
        names = (ctypes.c_char_p * 1)(b"cstdint")
        self._check(self._nvrtc.nvrtcCreateProgram(ctypes.byref(program), text, b"kernels.cu", 1, headers, names), "create")
        options = [f"--gpu-architecture={architecture}", f"-I{ROOT / 'src'}", *OPTIONS]
        if kind == "CUBIN":
            options.append("--ptxas-options=-v")
        flags = (ctypes.c_char_p * len(options))(*(o.encode() for o in options))
        result = self._nvrtc.nvrtcCompileProgram(program, len(options), flags)
        log = self._bytes(program, "ProgramLog").rstrip(b"\0").decode()
        if result != 0:
            raise SystemExit(f"{architecture}: the kernels do not compile\n{log}")
        image = self._bytes(program, kind)
        self._nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
        return image, log

    @staticmethod
    def _check(result: int, what: str) -> None:
        if result != 0:
            raise SystemExit(f"NVRTC: {what}: error {result}")


USES = re.compile(r"Compiling entry function '(\w+)' for '\w+'.*?(\d+) bytes stack frame, (\d+) bytes spill stores, "
                  r"(\d+) bytes spill loads.*?Used (\d+) registers.*?(?:, (\d+) bytes smem|$)", re.DOTALL | re.MULTILINE)


def build(report: bool) -> bytes:
    """The fat binary's bytes."""
    nvidia = environment()
    compiler = Compiler(nvidia)
    with tempfile.TemporaryDirectory() as folder:
        images = []
        for architecture in ARCHITECTURES:
            image, log = compiler(f"sm_{architecture}", "CUBIN")
            path = pathlib.Path(folder) / f"sm_{architecture}.cubin"
            path.write_bytes(image)
            images.append(f"--image3=kind=elf,sm={architecture},file={path}")
            if report:
                print(f"sm_{architecture}: {len(image)} bytes")
                for name, stack, stores, loads, registers, shared in USES.findall(log):
                    print(f"  {name:24} {registers:>3} registers, {stores}/{loads} bytes spilled and loaded, "
                          f"stack {stack}, shared {shared or 0}")
        image, _ = compiler(f"compute_{PTX}", "PTX")
        path = pathlib.Path(folder) / f"compute_{PTX}.ptx"
        path.write_bytes(image)
        images.append(f"--image3=kind=ptx,sm={PTX},file={path}")
        out = pathlib.Path(folder) / "kernels.fatbin"
        # "speed" is the compression that every driver reads; the others came with CUDA 12.4.
        subprocess.run([nvidia / "cu13/bin/fatbinary", "-64", "--compress-all", "--compress-mode=speed",
                        f"--create={out}", *images], check=True)
        return out.read_bytes()


def note(image: bytes) -> str:
    """What kernels.txt says of an image that was made of these sources."""
    return (f"sources {source_hash()}\nimage {hashlib.sha256(image).hexdigest()} {len(image)} bytes\n"
            f"architectures {' '.join(ARCHITECTURES)}, PTX {PTX}\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--report", action="store_true", help="what each kernel needs on each architecture")
    arguments = parser.parse_args()
    image = build(arguments.report)
    IMAGE.parent.mkdir(exist_ok=True)
    IMAGE.write_bytes(image)
    NOTE.write_text(note(image))
    print(f"{IMAGE.relative_to(ROOT)}: {len(image)} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())

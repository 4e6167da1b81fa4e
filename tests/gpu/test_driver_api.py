"""The driver's interface as pyecho declares it by hand, against NVIDIA's headers."""

import importlib.util
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

CSRC = Path(__file__).parents[2] / "csrc"

VALUES = {
    "kSuccess": "CUDA_SUCCESS",
    "kInvalidValue": "CUDA_ERROR_INVALID_VALUE",
    "kOutOfMemory": "CUDA_ERROR_OUT_OF_MEMORY",
    "kNotInitialized": "CUDA_ERROR_NOT_INITIALIZED",
    "kDeinitialized": "CUDA_ERROR_DEINITIALIZED",
    "kStubLibrary": "CUDA_ERROR_STUB_LIBRARY",
    "kNoDevice": "CUDA_ERROR_NO_DEVICE",
    "kInvalidDevice": "CUDA_ERROR_INVALID_DEVICE",
    "kInvalidContext": "CUDA_ERROR_INVALID_CONTEXT",
    "kInvalidHandle": "CUDA_ERROR_INVALID_HANDLE",
    "kNotFound": "CUDA_ERROR_NOT_FOUND",
    "kNotReady": "CUDA_ERROR_NOT_READY",
    "kContextIsDestroyed": "CUDA_ERROR_CONTEXT_IS_DESTROYED",
    "kHostMemoryAlreadyRegistered": "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED",
    "kHostMemoryNotRegistered": "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED",
    "kStreamCaptureUnsupported": "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
    "kStreamCaptureInvalidated": "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
    "kStreamNonBlocking": "CU_STREAM_NON_BLOCKING",
    "kHostRegisterPortable": "CU_MEMHOSTREGISTER_PORTABLE",
    "kAttributeHostNumaId": "CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID",
    "kPointerMemoryType": "CU_POINTER_ATTRIBUTE_MEMORY_TYPE",
    "kMemoryTypeHost": "CU_MEMORYTYPE_HOST",
    "kCaptureModeRelaxed": "CU_STREAM_CAPTURE_MODE_RELAXED",
    "kCaptureStatusNone": "CU_STREAM_CAPTURE_STATUS_NONE",
    "kProcAddressLegacyStream": "CU_GET_PROC_ADDRESS_LEGACY_STREAM",
    "kSymbolFound": "CU_GET_PROC_ADDRESS_SUCCESS",
    "kSymbolNeedsNewerDriver": "CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT",
    "kEventDisableTiming": "CU_EVENT_DISABLE_TIMING",
    "kEventBlockingSync": "CU_EVENT_BLOCKING_SYNC",
    "kCapturedEvent": "CUDA_ERROR_CAPTURED_EVENT",
}
"""What cuda.h calls the constants of driver_api.hpp; more than there are does no harm."""

NOT_IN_CUDA_H = {"kLaunchDefault"}  # "must be 0"

PROGRAM = """
#include <cuda.h>
#include <cudaTypedefs.h>

#include <array>
#include <cstddef>

#include "cuda/driver_api.hpp"

using namespace pyecho::cuda;

template <class Function>
struct Shape;
template <class Answer, class... Parameters>
struct Shape<Answer (*)(Parameters...)> {
  static constexpr std::array<std::size_t, sizeof...(Parameters) + 1> kSizes{
      sizeof(Answer), sizeof(Parameters)...};
};

static_assert(sizeof(DeviceHandle) == sizeof(CUdevice));
static_assert(sizeof(DevicePointer) == sizeof(CUdeviceptr));
static_assert(Shape<GetProcAddress>::kSizes == Shape<PFN_cuGetProcAddress_v12000>::kSizes);
"""


def include_folders():
    """Where cuda.h may be: a toolkit's folders, and those of NVIDIA's Python packages."""
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if os.environ.get(variable):
            yield Path(os.environ[variable]) / "include"
    compiler = shutil.which("nvcc")
    if compiler:
        yield Path(compiler).resolve().parents[1] / "include"
    yield Path("/usr/local/cuda/include")
    spec = importlib.util.find_spec("nvidia")
    for folder in [] if spec is None else spec.submodule_search_locations or []:
        yield from sorted(path.parent for path in Path(folder).glob("*/include/cuda.h"))


@pytest.fixture
def headers():
    for folder in include_folders():
        if (folder / "cuda.h").is_file() and (folder / "cudaTypedefs.h").is_file():
            return folder
    pytest.skip("no CUDA headers: set CUDA_HOME, or pip install nvidia-cuda-runtime-cu12")


def compiled(program, headers, folder):
    """Return what a C++ compiler has to say about a program; nothing if it is right."""
    compiler = os.environ.get("CXX") or shutil.which("c++") or shutil.which("g++")
    if compiler is None:
        pytest.skip("no C++ compiler")
    path = folder / "check.cpp"
    path.write_text(program)
    command = [compiler, "-std=c++20", "-fsyntax-only", "-Wno-invalid-offsetof", str(path)]
    command += [f"-I{CSRC}", f"-isystem{headers}"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stderr


def test_values_sizes_and_versions_are_those_of_cuda_h(headers, tmp_path):
    declared = (CSRC / "cuda/driver_api.hpp").read_text()
    constants = re.findall(r"^inline constexpr [\w:]+ (k\w+) = ", declared, re.MULTILINE)
    symbols = re.findall(r'\{"(cu\w+)", (\d+), offsetof\(DriverApi, (\w+)\)\}', declared)
    assert len(constants) > 20
    assert len(symbols) > 20
    assert set(constants) <= VALUES.keys() | NOT_IN_CUDA_H, "a value that is checked nowhere"
    lines = [PROGRAM]
    for constant in constants:
        if constant not in NOT_IN_CUDA_H:
            lines.append(f"static_assert({constant} == static_cast<long>({VALUES[constant]}));")
    for name, version, member in symbols:
        # cudaTypedefs.h has a type for every version in which a function changed.
        lines.append(
            f"static_assert(Shape<decltype(DriverApi::{member})>::kSizes == "
            f"Shape<PFN_{name}_v{version}>::kSizes);"
        )
    assert compiled("\n".join(lines), headers, tmp_path) == ""


def test_a_wrong_value_would_be_noticed(headers, tmp_path):
    wrong = f"{PROGRAM}\nstatic_assert(kNotReady == CUDA_ERROR_NOT_READY + 1);"
    assert "static assertion failed" in compiled(wrong, headers, tmp_path)

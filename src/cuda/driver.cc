#include "cuda/driver.h"

#include <dlfcn.h>

#include <cstdlib>

namespace tdbg::cuda {
namespace {

std::string VersionText(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

}  // namespace

Result<Driver> Driver::Load(const char* library) {
  void* const handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr)
    return NotFound("there is no NVIDIA driver here: " + std::string(library) + " cannot be loaded");
  Driver d;
  const char* missing = nullptr;
  // Each function in the version to which cuda.h of CUDA 12 and 13 maps its name.
  const auto get = [&](auto* function, const char* symbol) {
    *reinterpret_cast<void**>(function) = dlsym(handle, symbol);
    if (*function == nullptr && missing == nullptr) missing = symbol;
  };
  get(&d.GetVersion, "cuDriverGetVersion");
  if (d.GetVersion == nullptr || d.GetVersion(&d.version) != kSuccess || d.version < kOldest) {
    return Unimplemented("the NVIDIA driver is too old: it speaks CUDA " + VersionText(d.version) + ", and " +
                         VersionText(kOldest) + " is the oldest that will do");
  }
  get(&d.GetErrorName, "cuGetErrorName");
  get(&d.GetDevice, "cuCtxGetDevice");
  get(&d.DeviceGet, "cuDeviceGet");
  get(&d.PrimaryContextState, "cuDevicePrimaryCtxGetState");
  get(&d.PrimaryContextRetain, "cuDevicePrimaryCtxRetain");
  get(&d.PushContext, "cuCtxPushCurrent_v2");
  get(&d.PopContext, "cuCtxPopCurrent_v2");
  get(&d.ModuleLoadData, "cuModuleLoadData");
  get(&d.ModuleUnload, "cuModuleUnload");
  get(&d.ModuleGetFunction, "cuModuleGetFunction");
  get(&d.LaunchKernel, "cuLaunchKernel");
  get(&d.MemGetInfo, "cuMemGetInfo_v2");
  get(&d.MemAlloc, "cuMemAlloc_v2");
  get(&d.MemFree, "cuMemFree_v2");
  get(&d.MemHostAlloc, "cuMemHostAlloc");
  get(&d.MemHostGetDevicePointer, "cuMemHostGetDevicePointer_v2");
  get(&d.MemFreeHost, "cuMemFreeHost");
  get(&d.CopyToDeviceAsync, "cuMemcpyHtoDAsync_v2");
  get(&d.CopyOnDeviceAsync, "cuMemcpyDtoDAsync_v2");
  get(&d.CopyToHostAsync, "cuMemcpyDtoHAsync_v2");
  get(&d.SetBytesAsync, "cuMemsetD8Async");
  get(&d.SetWordsAsync, "cuMemsetD32Async");
  get(&d.StreamCreate, "cuStreamCreate");
  get(&d.StreamDestroy, "cuStreamDestroy_v2");
  get(&d.StreamWaitEvent, "cuStreamWaitEvent");
  get(&d.StreamIsCapturing, "cuStreamIsCapturing");
  get(&d.ExchangeCaptureMode, "cuThreadExchangeStreamCaptureMode");
  get(&d.EventCreate, "cuEventCreate");
  get(&d.EventDestroy, "cuEventDestroy_v2");
  get(&d.EventRecord, "cuEventRecord");
  if (missing != nullptr) {
    return Unimplemented("the NVIDIA driver (CUDA " + VersionText(d.version) + ") has no " + missing);
  }
  return d;
}

const Result<Driver>& Driver::OfProcess() {
  static const Result<Driver> driver = [] {
    const char* const named = std::getenv("TDBG_CUDA_DRIVER");
    return Load(named != nullptr && *named != '\0' ? named : "libcuda.so.1");
  }();
  return driver;
}

std::string Driver::NameOf(Error error) const {
  const char* name = nullptr;
  if (GetErrorName == nullptr || GetErrorName(error, &name) != kSuccess || name == nullptr)
    name = "CUDA error";
  return std::string(name) + " (" + std::to_string(error) + ")";
}

}  // namespace tdbg::cuda

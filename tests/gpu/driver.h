// The little of libcuda that the kernels' suite needs, opened at run time. An error ends the program with its
// name.
#pragma once

#include <dlfcn.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <type_traits>

namespace tdbg::gpu {

using Handle = void*;
using Address = unsigned long long;

struct Driver {
  int (*Init)(unsigned);
  int (*DriverGetVersion)(int*);
  int (*DeviceGetCount)(int*);
  int (*DeviceGet)(int*, int);
  int (*DeviceGetName)(char*, int, int);
  int (*DeviceGetAttribute)(int*, int, int);
  int (*PrimaryRetain)(Handle*, int);
  int (*SetCurrent)(Handle);
  int (*MemGetInfo)(size_t*, size_t*);
  int (*ModuleLoadData)(Handle*, const void*);
  int (*GetFunction)(Handle*, Handle, const char*);
  int (*Launch)(Handle, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, Handle, void**,
                void**);
  int (*Alloc)(Address*, size_t);
  int (*Free)(Address);
  int (*HostAlloc)(void**, size_t, unsigned);
  int (*HostPointer)(Address*, void*, unsigned);
  int (*FreeHost)(void*);
  int (*Upload)(Address, const void*, size_t);
  int (*CopyOnDevice)(Address, Address, size_t);
  int (*Fill)(Address, unsigned char, size_t);
  int (*StreamCreate)(Handle*, unsigned);
  int (*StreamSynchronize)(Handle);
  int (*BeginCapture)(Handle, int);
  int (*EndCapture)(Handle, Handle*);
  int (*Instantiate)(Handle*, Handle, unsigned long long);
  int (*GraphLaunch)(Handle, Handle);
  int (*EventCreate)(Handle*, unsigned);
  int (*EventRecord)(Handle, Handle);
  int (*EventSynchronize)(Handle);
  int (*EventElapsed)(float*, Handle, Handle);
  int (*ErrorName)(int, const char**);

  /// Null, or why there is nothing to test on.
  const char* Open() {
    void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return "no libcuda.so.1";
    const auto find = [&](auto& function, const char* name) {
      void* const symbol = dlsym(library, name);
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(symbol);
      return symbol != nullptr;
    };
    const bool all =
        find(Init, "cuInit") && find(DriverGetVersion, "cuDriverGetVersion") &&
        find(DeviceGetCount, "cuDeviceGetCount") && find(DeviceGet, "cuDeviceGet") &&
        find(DeviceGetName, "cuDeviceGetName") && find(DeviceGetAttribute, "cuDeviceGetAttribute") &&
        find(PrimaryRetain, "cuDevicePrimaryCtxRetain") && find(SetCurrent, "cuCtxSetCurrent") &&
        find(MemGetInfo, "cuMemGetInfo_v2") && find(ModuleLoadData, "cuModuleLoadData") &&
        find(GetFunction, "cuModuleGetFunction") && find(Launch, "cuLaunchKernel") &&
        find(Alloc, "cuMemAlloc_v2") && find(Free, "cuMemFree_v2") && find(HostAlloc, "cuMemHostAlloc") &&
        find(HostPointer, "cuMemHostGetDevicePointer_v2") && find(FreeHost, "cuMemFreeHost") &&
        find(Upload, "cuMemcpyHtoD_v2") && find(CopyOnDevice, "cuMemcpyDtoD_v2") &&
        find(Fill, "cuMemsetD8_v2") && find(StreamCreate, "cuStreamCreate") &&
        find(StreamSynchronize, "cuStreamSynchronize") && find(BeginCapture, "cuStreamBeginCapture_v2") &&
        find(EndCapture, "cuStreamEndCapture") && find(Instantiate, "cuGraphInstantiateWithFlags") &&
        find(GraphLaunch, "cuGraphLaunch") && find(EventCreate, "cuEventCreate") &&
        find(EventRecord, "cuEventRecord") && find(EventSynchronize, "cuEventSynchronize") &&
        find(EventElapsed, "cuEventElapsedTime") && find(ErrorName, "cuGetErrorName");
    if (!all) return "a driver older than CUDA 12";
    int devices = 0;
    if (Init(0) != 0 || DeviceGetCount(&devices) != 0 || devices == 0) return "no GPU";
    return nullptr;
  }

  void Check(int result, const char* what) const {
    if (result == 0) return;
    const char* name = "?";
    ErrorName(result, &name);
    std::fprintf(stderr, "%s: %s\n", what, name);
    std::exit(1);
  }
};
#define TDBG_CU(driver, call) (driver).Check((driver).call, #call)

}  // namespace tdbg::gpu

// NVIDIA's driver, found at run time: no header of CUDA, nothing linked. Where there is none, or one that
// will not do, that is an answer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "tdbg/status.h"

namespace tdbg::cuda {

/// CUresult and the handles of cuda.h, whose binary interface is stable.
using Error = int;
using DevicePointer = unsigned long long;
using Handle = void*;

inline constexpr Error kSuccess = 0;
inline constexpr Error kOutOfMemory = 2;
inline constexpr Error kInvalidContext = 201;
inline constexpr Error kCaptureUnsupported = 900;
inline constexpr Error kCaptureImplicit = 906;

/// CUstreamCaptureStatus and CUstreamCaptureMode.
inline constexpr int kNoCapture = 0, kActiveCapture = 1;
inline constexpr int kCaptureModeRelaxed = 2;

/// The functions that we call, none of which waits for a device: what is not in this table nobody can call.
///
/// \threadsafety  Immutable once loaded. The calls act on the calling thread's current context.
struct Driver {
  /// The first that takes code of any CUDA 12, as the committed image is (docs/gpu.md).
  static constexpr int kOldest = 12000;

  /// \param library  a name or path for dlopen. It stays loaded.
  /// \error kNotFound       no such library: there is no driver
  /// \error kUnimplemented  too old: what it is, and what is needed
  static Result<Driver> Load(const char* library);
  /// The process's own, asked for once: libcuda.so.1 or, in tests, what TDBG_CUDA_DRIVER names.
  static const Result<Driver>& OfProcess();

  /// "CUDA_ERROR_ILLEGAL_ADDRESS (700)"
  std::string NameOf(Error error) const;

  int version = 0;  ///< 12040 for 12.4
  Error (*GetVersion)(int*) = nullptr;
  Error (*GetErrorName)(Error, const char**) = nullptr;
  Error (*GetDevice)(int* device) = nullptr;  ///< of the current context
  Error (*DeviceGet)(int* device, int ordinal) = nullptr;
  Error (*PrimaryContextState)(int device, unsigned* flags, int* active) = nullptr;
  Error (*PrimaryContextRetain)(Handle* context, int device) = nullptr;
  Error (*PushContext)(Handle context) = nullptr;
  Error (*PopContext)(Handle* context) = nullptr;
  Error (*ModuleLoadData)(Handle* module, const void* image) = nullptr;
  Error (*ModuleUnload)(Handle module) = nullptr;
  Error (*ModuleGetFunction)(Handle* function, Handle module, const char* name) = nullptr;
  Error (*LaunchKernel)(Handle function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                        unsigned block_y, unsigned block_z, unsigned shared_bytes, Handle stream,
                        void** parameters, void** extra) = nullptr;
  Error (*MemGetInfo)(size_t* free, size_t* total) = nullptr;  ///< of the current context's device
  Error (*MemAlloc)(DevicePointer*, size_t bytes) = nullptr;
  Error (*MemFree)(DevicePointer) = nullptr;
  Error (*MemHostAlloc)(void**, size_t bytes, unsigned flags) = nullptr;
  Error (*MemHostGetDevicePointer)(DevicePointer*, void* host, unsigned flags) = nullptr;
  Error (*MemFreeHost)(void*) = nullptr;
  Error (*CopyToDeviceAsync)(DevicePointer to, const void* from, size_t bytes, Handle stream) = nullptr;
  Error (*CopyOnDeviceAsync)(DevicePointer to, DevicePointer from, size_t bytes, Handle stream) = nullptr;
  Error (*CopyToHostAsync)(void* to, DevicePointer from, size_t bytes, Handle stream) = nullptr;
  Error (*SetBytesAsync)(DevicePointer to, unsigned char value, size_t count, Handle stream) = nullptr;
  Error (*SetWordsAsync)(DevicePointer to, unsigned value, size_t count, Handle stream) = nullptr;
  Error (*StreamCreate)(Handle*, unsigned flags) = nullptr;
  Error (*StreamDestroy)(Handle) = nullptr;  ///< returns at once: what is under way is carried out
  Error (*StreamWaitEvent)(Handle stream, Handle event, unsigned flags) = nullptr;
  Error (*StreamIsCapturing)(Handle stream, int* status) = nullptr;
  Error (*ExchangeCaptureMode)(int* mode) = nullptr;  ///< of the calling thread
  Error (*EventCreate)(Handle*, unsigned flags) = nullptr;
  Error (*EventDestroy)(Handle) = nullptr;  ///< returns at once, too
  Error (*EventRecord)(Handle event, Handle stream) = nullptr;
};

}  // namespace tdbg::cuda

// DLPack's structures and element types, as far as we read them.
#pragma once

#include <nanobind/ndarray.h>

#include <cstdint>

#include "tdbg/tensor.h"

namespace tdbg::python {

/// kInvalid for what has no counterpart.
DType DTypeOf(nanobind::dlpack::dtype type);

/// DLPack 1.2's table of functions that a framework's tensor type offers under __dlpack_c_exchange_api__, a
/// capsule. Only the one that we call has its type here; what the others are is DLPack's business.
struct ExchangeTable {
  static constexpr const char* kAttribute = "__dlpack_c_exchange_api__";
  static constexpr const char* kCapsule = "dlpack_exchange_api";
  static constexpr uint32_t kMajor = 1;

  uint32_t major, minor;
  void* previous;
  void* allocate;
  void* managed_from_object;
  void* managed_to_object;
  /// Fills in `out`, which borrows the tensor's memory, shape and strides. 0, or -1 with a Python exception
  /// set. May be null.
  int (*view_of_object)(void* object, nanobind::dlpack::dltensor* out);
  void* current_work_stream;
};

}  // namespace tdbg::python

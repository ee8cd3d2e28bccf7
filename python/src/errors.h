// The one place where a Status becomes a Python exception: a type of tdbg.errors for each code.
#pragma once

#include <utility>

#include "tdbg/status.h"

namespace tdbg::python {

/// \pre !status.ok(); the GIL is held
[[noreturn]] void Throw(const Status& status);

inline void ThrowIfError(const Status& status) {
  if (!status.ok()) Throw(status);
}
template <typename T>
T ValueOrThrow(Result<T> result) {
  if (!result.ok()) Throw(result.status());
  return *std::move(result);
}

}  // namespace tdbg::python

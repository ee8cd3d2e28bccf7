// Several requests at once.
#pragma once

#include <cstddef>
#include <functional>

#include "tdbg/status.h"

namespace tdbg::storage {

/// Calls f(0) ... f(count - 1), several at once. \return the first failure
Status InParallel(size_t count, int at_once, const std::function<Status(size_t)>& f);

}  // namespace tdbg::storage

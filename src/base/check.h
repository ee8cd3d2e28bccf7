// Invariants of our own. A broken one is a defect, never a user's error: those are Status.
#pragma once

namespace tdbg::base {
[[noreturn]] void CheckFailed(const char* condition, const char* file, int line);
}

#define TDBG_CHECK(condition) \
  ((condition) ? (void)0 : ::tdbg::base::CheckFailed(#condition, __FILE__, __LINE__))

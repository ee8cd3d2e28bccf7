#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace tdbg::base {

void CheckFailed(const char* condition, const char* file, int line) {
  // stdio and not fmt: a broken invariant may be a broken heap, and this must still say where.
  std::fprintf(stderr, "tdbg: defect: %s does not hold (%s:%d)\n", condition, file, line);
  std::abort();
}

}  // namespace tdbg::base

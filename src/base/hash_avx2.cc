// The same with 32 bytes at a time: a third less time for what lies in memory. Compiled with -mavx2 where
// there is such a thing (cmake/rooms.cmake).
#include "base/hash_kernel.h"

namespace tdbg::base {

const HashKernel* Avx2HashKernel() {
#ifdef __AVX2__
  static constexpr HashKernel kKernel = {&HashMany, &Update};
  return __builtin_cpu_supports("avx2") ? &kKernel : nullptr;
#else
  return nullptr;
#endif
}

}  // namespace tdbg::base

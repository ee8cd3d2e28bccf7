// Selects the kernels' instruction set: the best that this processor has, unless a test or a benchmark asks
// for another.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace tdbg::stats {

/// What this processor can run, the best first: of "avx512+slices" (ids counted by population counts: Intel
/// since 2019, AMD since 2022), "avx512", "avx2", "sse4" and "ssse3" on x86; "neon" and the like elsewhere.
std::vector<std::string> KernelVariants();

/// Makes `variant` that of every Summarizer made from now on; "": the best. For tests and benchmarks.
/// \return false: this processor has no such variant; the best is used.
/// \threadsafety None: no kernel may run meanwhile.
bool UseKernels(std::string_view variant);

/// Runs `body` once with each variant, then goes back to the best. A Summarizer belongs inside it.
void WithEachKernelVariant(const std::function<void(const std::string& variant)>& body);

}  // namespace tdbg::stats

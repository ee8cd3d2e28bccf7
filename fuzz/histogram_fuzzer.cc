// Stored histograms.
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "tdbg/summary.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tdbg;
  const auto decoded = DecodeHistogram({data, size});
  if (!decoded.ok()) return 0;
  for (size_t i = 1; i < decoded->size(); ++i) {
    if ((*decoded)[i - 1].bucket >= (*decoded)[i].bucket) std::abort();
  }
  std::vector<uint8_t> again;
  EncodeHistogram(*decoded, &again);
  const auto twice = DecodeHistogram(again);
  if (!twice.ok() || *twice != *decoded) std::abort();
  const Histogram merged = MergeHistograms(*decoded, *decoded);
  if (merged.size() != decoded->size()) std::abort();
  return 0;
}

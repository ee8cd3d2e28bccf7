#include "stats/variants.h"

#include <hwy/highway.h>
#include <hwy/targets.h>

#include <algorithm>
#include <cctype>

#include "stats/slice_counter.h"

namespace tdbg::stats {
namespace {

constexpr std::string_view kWithSlices = "+slices";

std::string NameOf(int64_t target) {
  if (target == HWY_AVX3) return "avx512";  // as everybody but Highway calls it
  std::string name = hwy::TargetName(target);
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return name;
}

struct Variant {
  int64_t target;
  bool slices;
};

std::vector<Variant> All() {
  AllowSliceCounter(true);
  hwy::DisableTargets(0);
  std::vector<Variant> all;
  const bool slices = HaveSliceCounter();
  // The better a target the lower its bit.
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    if (target == HWY_SCALAR || target == HWY_EMU128) continue;
    if (target == HWY_AVX3 && slices) all.push_back({target, true});
    all.push_back({target, false});
  }
  return all;
}

}  // namespace

std::vector<std::string> KernelVariants() {
  std::vector<std::string> names;
  for (const Variant& v : All()) names.push_back(NameOf(v.target) + std::string(v.slices ? kWithSlices : ""));
  return names;
}

bool UseKernels(std::string_view variant) {
  const std::vector<Variant> all = All();
  if (variant.empty()) return true;
  for (const Variant& v : all) {
    if (NameOf(v.target) + std::string(v.slices ? kWithSlices : "") != variant) continue;
    AllowSliceCounter(v.slices);
    hwy::DisableTargets(~v.target);
    return true;
  }
  return false;
}

void WithEachKernelVariant(const std::function<void(const std::string& variant)>& body) {
  for (const std::string& variant : KernelVariants()) {
    UseKernels(variant);
    body(variant);
  }
  UseKernels("");
}

}  // namespace tdbg::stats

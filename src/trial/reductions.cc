// Reductions of one tensor at one step: as they were saved, else from the statistics, else from the values.
#include "trial/reductions.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/text.h"
#include "tdbg/trial.h"
#include "tensor/magnitude.h"
#include "trial/elements.h"
#include "trial/impl.h"
#include "trial/value_finder.h"

namespace tdbg {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

/// E[x^2] - E[|x|]^2, without its cancellation where all elements have one sign.
double AbsVariance(const Summary& s) {
  if (s.min >= 0 || s.max <= 0) return NumpyVariance(s);
  const double n = static_cast<double>(s.count);
  const double mean_abs = NumpyMeanAbs(s), l2 = NumpyL2(s);
  return std::max(0.0, l2 / n * l2 - mean_abs * mean_abs);
}

struct FromSummary {
  std::string_view name;
  double (*of)(const Summary&);
};
constexpr auto kFromSummary = std::to_array<FromSummary>({
    {"min", &NumpyMin},
    {"max", &NumpyMax},
    {"mean", &NumpyMean},
    {"std", [](const Summary& s) { return std::sqrt(NumpyVariance(s)); }},
    {"variance", &NumpyVariance},
    {"sum",
     [](const Summary& s) { return s.count == 0 ? 0.0 : NumpyMean(s) * static_cast<double>(s.count); }},
    {"l1", &NumpyL1},
    {"l2", &NumpyL2},
    {"abs_min",
     [](const Summary& s) { return s.nan_count        ? kNaN
                                   : s.finite_count() ? s.abs_min
                                                      : HUGE_VAL; }},
    {"abs_max",
     [](const Summary& s) {
       if (s.nan_count) return kNaN;
       return s.pos_inf_count + s.neg_inf_count ? HUGE_VAL : s.abs_max;
     }},
    {"abs_mean", &NumpyMeanAbs},
    {"abs_std", [](const Summary& s) { return std::sqrt(AbsVariance(s)); }},
    {"abs_variance", &AbsVariance},
    {"abs_sum", &NumpyL1},
    {"abs_l1", &NumpyL1},
    {"abs_l2", &NumpyL2},
});
// No statistic gives a product.
constexpr std::array<std::string_view, 2> kFromValues = {"prod", "abs_prod"};

Status NoSuchReduction(std::string_view name) {
  std::vector<std::string> names;
  std::string all;
  for (const FromSummary& r : kFromSummary) names.emplace_back(r.name);
  for (const std::string_view r : kFromValues) names.emplace_back(r);
  for (const std::string& r : names) all += " " + r;
  const auto nearest = base::Nearest(name, names);
  return InvalidArgument("no reduction '" + std::string(name) + "'" +
                         (nearest ? ": did you mean '" + *nearest + "'?" : ";") + " there are:" + all);
}

double Product(const TensorValue& value, bool absolute) {
  double product = 1;
  for (int64_t i = 0; i < value.view.element_count(); ++i) {
    const double x = ElementAsDouble(value, static_cast<size_t>(i)).value_or(kNaN);
    product *= absolute ? std::fabs(x) : x;
  }
  return product;
}

/// Statistics of complex numbers are those of |x|: of x itself they say its norms, and nothing else.
bool IsOfMagnitudes(std::string_view name) {
  return (name.starts_with("abs_") && name != "abs_prod") || name == "l1" || name == "l2";
}

/// The collections' reductions that are due at this step, each once, in the order in which the plan names
/// them.
std::vector<std::string> NamesFor(const ValueFinder::Impl& impl, const TensorInfo& info,
                                  int64_t global_step) {
  std::vector<std::string> names;
  const auto at = impl.FindStep(global_step);
  if (!impl.plan || !at) return names;
  for (const plan::CollectionPlan& c : impl.plan->collections) {
    if (!ValueFinder::Impl::ReductionsDue(c, impl.StepAt(*at).info)) continue;
    if (!std::binary_search(info.collections.begin(), info.collections.end(), c.name)) continue;
    for (const std::string& configured : c.reductions) {
      std::string name = ReductionName(configured);
      if (IsComplex(info.dtype) && !IsOfMagnitudes(name)) continue;
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(std::move(name));
    }
  }
  return names;
}

}  // namespace

std::optional<double> ReductionOf(const Summary& summary, std::string_view name) {
  const auto* const r = std::find_if(kFromSummary.begin(), kFromSummary.end(),
                                     [&](const FromSummary& x) { return x.name == name; });
  if (r == kFromSummary.end()) return std::nullopt;
  return r->of(summary);
}

std::string ReductionName(std::string_view configured) {
  constexpr std::string_view kNorm = "_norm";
  if (configured.ends_with(kNorm)) configured.remove_suffix(kNorm.size());
  return std::string(configured);
}

Result<std::vector<Reduction>> Trial::saved_reductions(std::string_view name, int64_t global_step,
                                                       std::string_view worker) const {
  TDBG_ASSIGN_OR_RETURN(const ValueFinder finder, ValueFinder::Make(*impl_, name, worker));
  TDBG_ASSIGN_OR_RETURN(const std::vector<WorkerSlot*> workers, finder.WorkersAt(global_step));
  std::vector<Reduction> out;
  const std::vector<std::string> names = NamesFor(*impl_, finder.info(), global_step);
  for (const WorkerSlot* slot : workers) {
    for (const format::TensorId id : slot->IdsOf(finder.tensor())) {
      for (const auto& saved : slot->reader->ReductionsOf(id, global_step)) {
        TDBG_ASSIGN_OR_RETURN(TensorValue value, slot->ReadRaw(saved.ref));
        out.push_back({(saved.absolute ? "abs_" : "") + std::string(saved.name), std::move(value)});
      }
    }
    const auto row = finder.RowOf(*slot, global_step);
    if (row && row->Damaged() == 0) {
      const Summary summary = names.empty() ? Summary() : row->Read();
      for (const std::string& r : names) {
        if (const auto value = ReductionOf(summary, r))
          out.push_back({r, ElementValue(*value, DType::kFloat64, {})});
      }
    }
    if (!out.empty()) break;
  }
  return out;
}

Result<TensorValue> Trial::reduction(std::string_view name, int64_t global_step, std::string_view reduction,
                                     std::string_view worker) const {
  const bool product = std::find(kFromValues.begin(), kFromValues.end(), reduction) != kFromValues.end();
  if (!product && !ReductionOf(Summary(), reduction)) return NoSuchReduction(reduction);
  TDBG_ASSIGN_OR_RETURN(std::vector<Reduction> saved, saved_reductions(name, global_step, worker));
  for (Reduction& r : saved) {
    if (r.name == reduction) return std::move(r.value);
  }
  TDBG_ASSIGN_OR_RETURN(const TensorInfo info, tensor(name));
  if (IsComplex(info.dtype) && !IsOfMagnitudes(reduction)) {
    return Unimplemented("'" + info.name +
                         "' is complex, and its statistics are those of |x|: they have no " +
                         std::string(reduction));
  }
  if (product) {
    TDBG_ASSIGN_OR_RETURN(const TensorValue raw, value(name, global_step, worker));
    return ElementValue(Product(raw, reduction == "abs_prod"), DType::kFloat64, {});
  }
  TDBG_ASSIGN_OR_RETURN(const Summary of, summary(name, global_step, worker));
  return ElementValue(*ReductionOf(of, reduction), DType::kFloat64, {});
}

}  // namespace tdbg

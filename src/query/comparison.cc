#include "query/comparison.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <iterator>
#include <limits>
#include <set>

#include "trial/access.h"
#include "trial/coarse.h"
#include "trial/elements.h"

namespace tdbg::query {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

template <typename T>
std::vector<T> Without(const std::vector<T>& a, const std::vector<T>& b) {
  std::vector<T> out;
  std::set_difference(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(out));
  return out;
}

template <typename T>
std::vector<T> Common(const std::vector<T>& a, const std::vector<T>& b) {
  std::vector<T> out;
  std::set_intersection(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(out));
  return out;
}

std::string ShapeText(DType dtype, std::span<const int64_t> shape) {
  return fmt::format("{} [{}]", DTypeName(dtype), fmt::join(shape, ", "));
}

/// How far apart two values are; a number and NaN or infinity are farthest.
double Distance(double a, double b) {
  const double difference = std::fabs(a - b);
  if (!std::isfinite(difference)) return std::numeric_limits<double>::infinity();
  const double scale = std::fabs(b);
  return scale > 0 ? difference / scale : difference;
}

/// True if they differ; `*out` then says how.
bool DifferentValues(const TensorValue& a, const TensorValue& b, const Tolerance& tolerance,
                     Difference* out) {
  if (a.dtype != b.dtype || a.shape != b.shape) {
    out->shape_a = ShapeText(a.dtype, a.shape);
    out->shape_b = ShapeText(b.dtype, b.shape);
    return true;
  }
  const size_t bytes = a.view.byte_count();
  if (bytes == 0 || std::memcmp(a.data, b.data, bytes) == 0) return false;
  const int64_t n = a.view.element_count();
  out->elements = n;
  const size_t item = ItemSize(a.dtype);
  double farthest = -1;
  for (int64_t i = 0; i < n; ++i) {
    const auto at = static_cast<size_t>(i);
    const auto x = ElementAsDouble(a, at), y = ElementAsDouble(b, at);
    if (!x || !y) {  // complex, float8, text: equal bytes or not
      out->different += std::memcmp(static_cast<const std::byte*>(a.data) + at * item,
                                    static_cast<const std::byte*>(b.data) + at * item, item) != 0;
      continue;
    }
    if (tolerance.Holds(*x, *y)) continue;
    ++out->different;
    const double difference = std::fabs(*x - *y);
    if (!(difference <= out->max_abs)) out->max_abs = std::isfinite(difference) ? difference : kNaN;
    if (const double d = Distance(*x, *y); d > farthest) {
      farthest = d;
      out->a = *x;
      out->b = *y;
      out->index = i;
    }
  }
  return out->different != 0;
}

bool DifferentStatistics(const Summary& a, const Summary& b, const Tolerance& tolerance, Difference* out) {
  // A tolerance of values implies a different one for each statistic. Use the same relative bound for all, as
  // users expect, and compare counts exactly unless a tolerance was given.
  const std::pair<const char*, double Summary::*> numbers[] = {
      {"min", &Summary::min},           {"max", &Summary::max},        {"mean", &Summary::mean},
      {"variance", &Summary::variance}, {"l1", &Summary::l1},          {"l2", &Summary::l2},
      {"abs_min", &Summary::abs_min},   {"abs_max", &Summary::abs_max}};
  const std::pair<const char*, uint64_t Summary::*> counts[] = {{"count", &Summary::count},
                                                                {"nan_count", &Summary::nan_count},
                                                                {"pos_inf_count", &Summary::pos_inf_count},
                                                                {"neg_inf_count", &Summary::neg_inf_count},
                                                                {"zero_count", &Summary::zero_count}};
  double farthest = -1;
  const auto look = [&](const char* field, double x, double y) {
    if (tolerance.Holds(x, y)) return;
    if (const double d = Distance(x, y); d > farthest) {
      farthest = d;
      out->field = field;
      out->a = x;
      out->b = y;
      out->max_abs = std::isfinite(x - y) ? std::fabs(x - y) : kNaN;
    }
  };
  for (const auto& [field, member] : numbers) look(field, a.*member, b.*member);
  for (const auto& [field, member] : counts)
    look(field, static_cast<double>(a.*member), static_cast<double>(b.*member));
  return farthest >= 0;
}

/// Put together of other parts, the same elements' moments differ in their last digits.
Tolerance Loosened(Tolerance tolerance, const Summary& of) {
  constexpr double kDigits = 1e-9;
  tolerance.rtol = std::max(tolerance.rtol, kDigits);
  if (std::isfinite(of.abs_max)) tolerance.atol = std::max(tolerance.atol, kDigits * of.abs_max);
  return tolerance;
}

/// Splits what only `has` holds into what `lacks` will never have and what it may still reach.
Status FindOneSided(const Trial& has, const Trial& lacks, const std::vector<std::string>& names_has,
                    const std::vector<std::string>& names_lacks, const StepFilter& steps,
                    Comparison::Part* only, Comparison::Part* to_come) {
  const bool growing = !lacks.loaded_all_steps();
  const auto may_come = [&](int64_t step) { return lacks.step_state(step) == StepState::kNotYetAvailable; };
  for (const int64_t step : Without(has.steps(steps), lacks.steps(steps)))
    (may_come(step) ? to_come : only)->steps.push_back(step);
  for (const std::string& name : Without(names_has, names_lacks)) {
    // Tensors are defined when first kept: if a later step that both have lacks it, the other run does not
    // keep it. Its steps are looked up only where that can be: of two models they are thousands of look-ups.
    bool later = growing;
    if (growing) {
      TDBG_ASSIGN_OR_RETURN(const std::vector<int64_t> kept, has.tensor_steps(name, steps));
      later = kept.empty() || may_come(kept.front());
    }
    (later ? to_come : only)->tensors.push_back(name);
  }
  const auto workers = static_cast<int64_t>(lacks.workers().size());
  const bool complete = lacks.world_size() > 0 && workers >= lacks.world_size();
  for (const std::string& worker : Without(has.workers(), lacks.workers()))
    (growing && !complete ? to_come : only)->workers.push_back(worker);
  return OkStatus();
}

}  // namespace

bool Tolerance::Holds(double a, double b) const {
  if (a == b || (std::isnan(a) && std::isnan(b))) return true;
  return std::fabs(a - b) <= atol + rtol * std::fabs(b) && std::isfinite(a) && std::isfinite(b);
}

bool Comparison::same() const { return only_a.empty() && only_b.empty() && shapes.empty() && first.empty(); }

Result<Comparison> Compare(const Trial& a, const Trial& b, const TensorFilter& which,
                           const Tolerance& tolerance,
                           const std::function<bool(int64_t step, const Comparison& so_far)>& go_on) {
  Comparison out;
  TDBG_ASSIGN_OR_RETURN(const std::vector<std::string> names_a, a.tensor_names(which));
  TDBG_ASSIGN_OR_RETURN(const std::vector<std::string> names_b, b.tensor_names(which));
  const StepFilter steps{.begin = which.steps.begin, .end = which.steps.end};
  TDBG_RETURN_IF_ERROR(FindOneSided(a, b, names_a, names_b, steps, &out.only_a, &out.to_come_b));
  TDBG_RETURN_IF_ERROR(FindOneSided(b, a, names_b, names_a, steps, &out.only_b, &out.to_come_a));
  std::vector<std::string> workers = Common(a.workers(), b.workers());
  // The runs' workers have different names: compare the first of each.
  if (workers.empty()) workers.emplace_back();

  // Of runs with other worlds, or of which one has it whole, a worker's parts of a tensor are not the same
  // elements.
  const bool same_world = a.world_size() == b.world_size();
  std::set<std::string, std::less<>> wholes;
  const std::vector<std::string> of_all{std::string()};
  std::vector<std::string> names = Common(names_a, names_b);
  for (const std::string& name : names) {
    TDBG_ASSIGN_OR_RETURN(const TensorInfo in_a, a.tensor(name));
    TDBG_ASSIGN_OR_RETURN(const TensorInfo in_b, b.tensor(name));
    if (in_a.dtype != in_b.dtype || in_a.shape != in_b.shape)
      out.shapes.push_back({name, ShapeText(in_a.dtype, in_a.shape), ShapeText(in_b.dtype, in_b.shape)});
    if (in_a.in_parts != in_b.in_parts || (in_a.in_parts && !same_world)) wholes.insert(name);
  }
  const TrialAccess order(a), there(b);
  const CoarseRows coarse(a), coarse_there(b);
  const auto is_thinned = [](const TrialAccess& access, const CoarseRows& rows, int64_t step) {
    const auto at = access.FindStep(step);
    return at && rows.IsThinned(*at);
  };
  std::sort(names.begin(), names.end(), [&](const std::string& x, const std::string& y) {
    return order.Find(x).value_or(0) < order.Find(y).value_or(0);
  });

  for (const int64_t step : Common(a.steps(steps), b.steps(steps))) {
    if (!go_on(step, out)) {
      out.next_step = step;
      break;
    }
    ++out.steps;
    out.last_step = step;
    if (is_thinned(order, coarse, step) || is_thinned(there, coarse_there, step)) ++out.thinned;
    for (const std::string& name : names) {
      const bool whole = wholes.contains(name);
      for (const std::string& worker : whole ? of_all : workers) {
        Difference difference;
        difference.step = *a.step(step);
        difference.tensor = name;
        difference.worker = worker;
        const auto value_a = a.value(name, step, worker);
        const auto value_b = value_a.ok() ? b.value(name, step, worker) : value_a;
        bool unread = false;
        for (const auto* value : {&value_a, &value_b}) {
          if (value->ok() || value->status().code() == Code::kNotFound) continue;
          if (value->status().code() != Code::kDataLoss) return value->status();
          unread = true;
        }
        if (value_a.ok() && value_b.ok()) {
          ++out.values;
          out.elements += value_a->view.element_count();
          difference.by_values = true;
          if (DifferentValues(*value_a, *value_b, tolerance, &difference)) out.first.push_back(difference);
          continue;
        }
        const auto summary_a = a.summary(name, step, worker);
        const auto summary_b = summary_a.ok() ? b.summary(name, step, worker) : summary_a;
        for (const auto* summary : {&summary_a, &summary_b})
          unread = unread || (!summary->ok() && summary->status().code() == Code::kDataLoss);
        out.unread += unread;
        if (!summary_a.ok() || !summary_b.ok()) continue;  // one of them has nothing of it at this step
        ++out.statistics;
        if (DifferentStatistics(*summary_a, *summary_b, whole ? Loosened(tolerance, *summary_b) : tolerance,
                                &difference))
          out.first.push_back(difference);
      }
    }
    if (!out.first.empty()) break;
  }
  return out;
}

}  // namespace tdbg::query

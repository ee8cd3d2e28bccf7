#include "rules/derived_values.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"

namespace tdbg::rules {
namespace {

/// Why a tensor that was inspected has no value of its statistic.
std::string Missing(const StepContext& step, const TensorInfo& info, const Statistic& statistic) {
  const std::string id = statistic.Id();
  if (!HasStatistics(info.dtype))
    return fmt::format("{} of {}: no statistics of {}", id, info.name, DTypeName(info.dtype));
  if (statistic.per_unit() && statistic.AxisOf(info.unit_axis, info.shape.size()) < 0) {
    if (statistic.kind == Statistic::Kind::kSums)
      return fmt::format("{} of {}: it has {}", id, info.name,
                         base::Counted(info.shape.size(), "axis", "axes"));
    return fmt::format("{} of {}: the adaptor names no unit axis of it", id, info.name);
  }
  std::string kept;
  for (TensorIndex i = 0; i < step.tensor_count(); ++i) {
    if (step.tensor(i).kind != kStatisticKind) continue;
    const auto parts = ParseStatisticTensorName(step.tensor(i).name);
    if (parts && parts->tensor == info.name) kept += (kept.empty() ? "" : ", ") + std::string(parts->id);
  }
  return fmt::format("{} of {} was not kept ({}), nor was its raw value", id, info.name,
                     kept.empty() ? "no derived statistic of it was" : "kept: " + kept);
}

}  // namespace

void DerivedValues::Update(const StepContext& step) {
  inspected_.Update(step);
  for (; seen_ < step.tensor_count(); ++seen_) {
    const auto tensor = static_cast<TensorIndex>(seen_);
    if (inspected_.contains(tensor) && (!looks_at_ || looks_at_(step.tensor(tensor))))
      followed_.push_back({tensor, statistic_of_(step.tensor(tensor)), {}, 0, false});
  }
}

bool DerivedValues::Collect(const StepContext& step, Followed* followed) {
  found_.clear();
  if (!followed->statistic.ok()) return true;
  const Statistic& statistic = *followed->statistic;
  bool readable = true;
  if (!followed->recorded && followed->looked_among != step.tensor_count()) {
    followed->looked_among = step.tensor_count();
    followed->recorded = step.StatisticOf(followed->tensor, statistic.Id());
  }
  if (followed->recorded) {
    for (const StepContext::RawValue& raw : step.RawsOf(*followed->recorded)) {
      if (raw.sub.point != Point::kNone) continue;
      const Result<TensorValue> value = step.Read(raw);
      Result<StatisticValue> decoded = value.ok() ? DecodeStatistic(value->view) : value.status();
      readable &= decoded.ok();
      if (decoded.ok()) found_.push_back({raw.worker, raw.sub.sub, *std::move(decoded)});
    }
  }
  const TensorInfo& info = step.tensor(followed->tensor);
  for (const StepContext::RawValue& raw : step.RawsOf(followed->tensor)) {
    if (raw.sub.point != Point::kNone) continue;
    const bool recorded = std::any_of(found_.begin(), found_.end(), [&](const Found& f) {
      return f.worker == raw.worker && f.sub == raw.sub.sub;
    });
    if (recorded) continue;
    const Result<TensorValue> value = step.Read(raw);
    readable &= value.ok();
    if (!value.ok()) continue;
    Found found{raw.worker, raw.sub.sub, {}};
    if (compute_.Compute(statistic, value->view, info.unit_axis, &found.value).ok())
      found_.push_back(std::move(found));
  }
  followed->had_values |= !found_.empty();
  return readable;
}

Status DerivedValues::AllHadValues(const StepContext& last) const {
  std::string missing;
  size_t more = 0;
  for (const Followed& followed : followed_) {
    if (followed.had_values) continue;
    // The statistic was recorded, but not at a judged step: the verdict on those steps stands.
    if (followed.statistic.ok() && last.StatisticOf(followed.tensor, followed.statistic->Id())) continue;
    if (!missing.empty()) {
      ++more;
      continue;
    }
    const TensorInfo& info = last.tensor(followed.tensor);
    missing = followed.statistic.ok() ? Missing(last, info, *followed.statistic)
                                      : info.name + ": " + followed.statistic.status().message();
  }
  if (missing.empty()) return OkStatus();
  if (more > 0) missing += fmt::format("; and so for {} more", more);
  return FailedPrecondition("not everything that is inspected could be judged: " + missing);
}

}  // namespace tdbg::rules

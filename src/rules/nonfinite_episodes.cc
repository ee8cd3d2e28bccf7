#include "rules/nonfinite_episodes.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string_view>
#include <utility>

namespace tdbg::rules {

void NonfiniteEpisodes::Begin(int64_t global_step) {
  if (begun() && global_step >= from_) return;
  from_ = global_step;
  begins_ = {global_step};
  tensors_.clear();
  fresh_ = true;
}

void NonfiniteEpisodes::See(const StepContext& step) {
  if (!begun() || step.global_step() < from_ || step.skipped()) return;
  const bool over = tensors_.empty() && !fresh_;
  // Of a tensor's rows at one step, its micro-steps, one that is not finite decides.
  std::vector<uint64_t> finite, not_finite;
  const auto see = [&](WorkerIndex worker, TensorIndex tensor, bool is_finite) {
    const uint64_t key = uint64_t{worker} << 32 | tensor;
    if (!is_finite) {
      not_finite.push_back(key);
    } else if (!tensors_.empty()) {
      finite.push_back(key);
    }
  };
  step.ForEachRow(
      [&](const StepContext::Row& row) { see(row.worker, row.tensor, row.nonfinite_count() == 0); });
  for (const StepContext::Scalar& scalar : step.scalars())
    see(scalar.worker, scalar.tensor, std::isfinite(scalar.value));
  for (const uint64_t key : finite) tensors_.erase(key);
  tensors_.insert(not_finite.begin(), not_finite.end());
  if (over && !tensors_.empty()) begins_.push_back(step.global_step());
  fresh_ = false;
}

int64_t NonfiniteEpisodes::BeginOf(int64_t global_step) const {
  const auto behind = std::upper_bound(begins_.begin(), begins_.end(), global_step);
  return behind == begins_.begin() ? -1 : *(behind - 1);
}

void NonfiniteEpisodes::Restart(int64_t base) {
  const int64_t from = from_;
  *this = {};
  if (from >= 0 && from < base) Begin(from);
}

bool FoundAmongNonfinite(const StepContext& step, const RuleStatus& status) {
  if (status.state != RuleState::kIssuesFound || step.skipped()) return false;
  std::map<std::pair<std::string_view, std::string_view>, bool> finite;  // by tensor and worker
  std::set<std::string_view> ruined;                                     // workers
  step.ForEachRow([&](const StepContext::Row& row) {
    const TensorInfo& tensor = step.tensor(row.tensor);
    const std::string_view worker = step.worker_name(row.worker);
    const bool is_finite = row.nonfinite_count() == 0;
    bool& known = finite.try_emplace({tensor.name, worker}, true).first->second;
    known &= is_finite;
    if (!is_finite && (tensor.kind == "weight" || tensor.kind == "bias" || tensor.kind == "gradient" ||
                       tensor.kind == "loss"))
      ruined.insert(worker);
  });
  return std::all_of(status.findings.begin(), status.findings.end(), [&](const Finding& finding) {
    if (finding.global_step != step.global_step()) return false;
    const auto known = finite.find({finding.tensor, finding.worker});
    return known != finite.end() ? !known->second
                                 : !finding.tensor.empty() && ruined.contains(finding.worker);
  });
}

}  // namespace tdbg::rules

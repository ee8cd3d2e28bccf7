#include "rules/judged_run.h"

#include <utility>

#include "base/file.h"

namespace tdbg::rules {

RuleEnvironment EnvironmentOf(const std::string& run) {
  RuleEnvironment environment;
  environment.open_trial = [run](const std::string& path) {
    auto opened = Trial::Open(path);
    if (opened.ok() || opened.status().code() != Code::kNotFound || path.starts_with('/')) return opened;
    const size_t slash = run.find_last_not_of('/') == std::string::npos
                             ? std::string::npos
                             : run.rfind('/', run.find_last_not_of('/'));
    auto beside = Trial::Open(base::JoinPath(slash == std::string::npos ? "." : run.substr(0, slash), path));
    return beside.ok() ? std::move(beside) : std::move(opened);
  };
  return environment;
}

std::optional<plan::Plan> PlanOf(const std::string& run) {
  const auto text = base::LocalFileSystem().ReadFile(base::JoinPath(run, "plan.json"));
  if (!text.ok()) return std::nullopt;
  auto plan = plan::Plan::FromJson(*text);
  return plan.ok() ? std::optional(*std::move(plan)) : std::nullopt;
}

JobEnd EndOf(RunState state) { return state == RunState::kCrashed ? JobEnd::kFailed : JobEnd::kCompleted; }

}  // namespace tdbg::rules

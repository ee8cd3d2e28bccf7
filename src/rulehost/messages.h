// What is said to a rule's process and what it answers: one JSON object a line. README.md lists them.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "plan/config.h"
#include "rulehost/registry.h"
#include "rules/rule.h"
#include "rules/step_source.h"
#include "tdbg/status.h"

namespace tdbg::rulehost {

inline constexpr int kProtocol = 1;

nlohmann::json DescribeMessage(const plan::RuleConfig& config);
nlohmann::json JudgeMessage(const plan::RuleConfig& config, const rules::Parameters& parameters,
                            const std::string& run, int64_t attempt);
nlohmann::json StepMessage(const rules::StepContext& step);
nlohmann::json EndMessage();
nlohmann::json WorkerLostMessage(const rules::LostWorker& worker);  ///< has no answer

/// \error kInvalidArgument  what is missing or of the wrong kind
Result<Description> ReadDescription(const nlohmann::json& reply, const plan::RuleConfig& config);
/// The answer to a StepMessage or EndMessage. \error kUnavailable  it is none
Result<rules::Answer> ReadAnswer(const nlohmann::json& reply, int64_t global_step);

}  // namespace tdbg::rulehost

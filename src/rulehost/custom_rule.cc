#include "rulehost/custom_rule.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "rulehost/messages.h"
#include "rules/step_source.h"

namespace tdbg::rulehost {

Result<rules::Judged> CustomRule::Invoke(const rules::StepContext& step, std::vector<rules::Finding>*) {
  if (!process_) {
    process_ = std::make_unique<HostProcess>(host_, first_, answered_);
    for (const nlohmann::json& message : before_) process_->Tell(message);
  }
  process_->Ask(StepMessage(step), fmt::format("at step {}", step.global_step()));
  asked_.push_back(step.global_step());
  return rules::Judged::kPending;
}

Result<rules::Judged> CustomRule::AtEnd(const rules::StepContext& last, std::vector<rules::Finding>*) {
  if (!process_) return rules::Judged::kNotDue;
  process_->Ask(EndMessage(), "at the end of the run");
  asked_.push_back(last.global_step());
  return rules::Judged::kPending;
}

void CustomRule::OnWorkerLost(const rules::LostWorker& worker) {
  if (process_) {
    process_->Tell(WorkerLostMessage(worker));
  } else {
    before_.push_back(WorkerLostMessage(worker));
  }
}

std::optional<rules::Answer> CustomRule::TakeAnswer() {
  while (process_) {
    auto reply = process_->Take();
    if (!reply) return std::nullopt;
    if (reply->status.ok() && !ready_) {
      ready_ = true;
      continue;
    }
    rules::Answer answer;
    if (!asked_.empty()) answer.global_step = asked_.front();
    if (reply->status.ok() && !asked_.empty()) {
      asked_.pop_front();
      auto read = ReadAnswer(reply->json, answer.global_step);
      if (read.ok()) return *std::move(read);
      reply->status = read.status();
    }
    answer.judged = reply->status;
    return answer;
  }
  return std::nullopt;
}

void CustomRule::Ended() {
  if (process_) process_->End();
}

std::string CustomRule::Output() const { return process_ ? process_->Output() : std::string(); }

std::string CustomRule::WouldHaveNeeded() const {
  if (needs_.collections.empty() && needs_.tensor_regex.empty()) {
    return "it declares no needs, and judged no step; collect what it reads (--collect NAME:INTERVAL)";
  }
  return fmt::format("it would have needed a step with {} of {}{}", needs_.raw ? "values" : "statistics",
                     fmt::join(needs_.collections, ", "), fmt::join(needs_.tensor_regex, ", "));
}

}  // namespace tdbg::rulehost

#include "rulehost/custom_rule.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "rulehost/messages.h"
#include "rules/step_source.h"

namespace tdbg::rulehost {

Result<rules::Judged> CustomRule::Invoke(const rules::StepContext& step, std::vector<rules::Finding>*) {
  const Question question{step.global_step(), Asked::kStep};
  if (!process_ && !EndsHere(question)) {
    process_ = std::make_unique<HostProcess>(host_, first_, answered_);
    for (const nlohmann::json& message : before_) process_->Tell(message);
  }
  return Hand(question, StepMessage(step), fmt::format("at step {}", step.global_step()));
}

Result<rules::Judged> CustomRule::AtEnd(const rules::StepContext& last, std::vector<rules::Finding>*) {
  if (!process_) return rules::Judged::kNotDue;
  return Hand({last.global_step(), Asked::kEnd}, EndMessage(), "at the end of the run");
}

// A question whose answer never came (an event says so) is not asked again in a replay: TakeAnswer repeats
// the verdict.
rules::Judged CustomRule::Hand(const Question& question, const nlohmann::json& message, std::string about) {
  if (!EndsHere(question)) process_->Ask(message, std::move(about));
  asked_.push_back(question);
  return rules::Judged::kPending;
}

bool CustomRule::EndsHere(const Question& question) const {
  if (!declared_) return false;
  const bool at_end = question.asked == Asked::kEnd;
  return question.global_step >= declared_->global_step && (declared_->asked != Asked::kEnd || at_end);
}

void CustomRule::OnTimeLimitReached(const rules::TimeLimitReached& reached) {
  const int64_t limit = reached.asked == Asked::kStart ? host_.start_millis : host_.answer_millis;
  // A rule whose code was changed since, or that is given more time now, is asked again.
  if (reached.code == code_ && static_cast<double>(limit) / 1e3 <= reached.seconds) declared_ = reached;
}

void CustomRule::OnWorkerLost(const rules::LostWorker& worker) {
  if (process_) {
    process_->Tell(WorkerLostMessage(worker));
  } else {
    before_.push_back(WorkerLostMessage(worker));
  }
}

std::optional<rules::Answer> CustomRule::TakeAnswer() {
  while (process_ || !asked_.empty()) {
    rules::Answer answer;
    if (!asked_.empty()) answer.global_step = asked_.front().global_step;
    if (!asked_.empty() && EndsHere(asked_.front())) {
      answer.judged = Status(Code::kDeadlineExceeded, declared_->details);
      return answer;
    }
    auto reply = process_ ? process_->Take() : std::nullopt;
    if (!reply) return std::nullopt;
    if (reply->status.ok() && !ready_) {
      ready_ = true;
      continue;
    }
    if (reply->status.code() == Code::kDeadlineExceeded && !asked_.empty()) {
      rules::TimeLimitReached& reached = reached_.emplace();
      reached.code = code_;
      reached.asked = ready_ ? asked_.front().asked : Asked::kStart;
      reached.global_step = answer.global_step;
      reached.seconds = static_cast<double>(ready_ ? host_.answer_millis : host_.start_millis) / 1e3;
      reached.details = reply->status.message();
    }
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

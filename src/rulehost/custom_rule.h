// A rule whose judging happens in another process.
#pragma once

#include <deque>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "rulehost/host_process.h"
#include "rules/rule.h"

namespace tdbg::rulehost {

/// To the engine an ordinary rule; it hands on step numbers and never waits. Its process starts with the
/// first step, when the run that it opens is there.
class CustomRule : public rules::AsyncRule {
 public:
  /// \param code  tells what is run, wherever its file lies
  CustomRule(HostOptions host, nlohmann::json first, plan::Need needs, std::string code)
      : host_(std::move(host)), first_(std::move(first)), needs_(std::move(needs)), code_(std::move(code)) {}

  plan::Need Needs() const override { return needs_; }
  Result<rules::Judged> Invoke(const rules::StepContext& step,
                               std::vector<rules::Finding>* findings) override;
  Result<rules::Judged> AtEnd(const rules::StepContext& last, std::vector<rules::Finding>* findings) override;
  void OnWorkerLost(const rules::LostWorker& worker) override;
  std::optional<rules::Answer> TakeAnswer() override;
  void OnAnswer(std::function<void()> answered) override { answered_ = std::move(answered); }
  std::optional<rules::TimeLimitReached> ReachedTimeLimit() const override { return reached_; }
  void OnTimeLimitReached(const rules::TimeLimitReached& reached) override;
  void Ended() override;
  std::string Output() const override;
  std::string WouldHaveNeeded() const override;

 private:
  using Asked = rules::TimeLimitReached::Asked;
  struct Question {
    int64_t global_step;
    Asked asked;
  };

  bool EndsHere(const Question& question) const;
  rules::Judged Hand(const Question& question, const nlohmann::json& message, std::string about);

  const HostOptions host_;
  const nlohmann::json first_;
  const plan::Need needs_;
  const std::string code_;
  std::function<void()> answered_;
  std::deque<Question> asked_;                       // without an answer yet
  std::optional<rules::TimeLimitReached> reached_;   // now, by our own clock
  std::optional<rules::TimeLimitReached> declared_;  // when the run was watched
  bool ready_ = false;                  // the first question, which is nobody's step, was answered
  std::vector<nlohmann::json> before_;  // what its process must know once it is there
  std::unique_ptr<HostProcess> process_;
};

}  // namespace tdbg::rulehost

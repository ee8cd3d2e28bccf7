// One run, opened to be asked. Start here.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "query/answer.h"
#include "query/blocks.h"
#include "query/health.h"
#include "query/phases.h"
#include "query/question.h"
#include "tdbg/mode.h"
#include "tdbg/status.h"
#include "tdbg/trial.h"
#include "trial/access.h"

namespace tdbg::query {

/// Number and mode of each complete step. Takes in each once, for lines of a million.
struct StepModes {
  uint64_t overlay_generation = 0;
  std::vector<int64_t> steps;  ///< ascending
  std::vector<ModeKey> modes;
  void Update(const TrialAccess& access);
};

/// Answers questions about one run. Never writes to it.
/// \threadsafety One thread at a time.
class Run {
 public:
  /// \error Trial::Open's
  static Result<std::unique_ptr<Run>> Open(const std::string& path);

  /// Reads what is new. True if there was anything, in the run or in its events.
  Result<bool> Refresh();
  /// Raised by every Refresh that found something; within one generation answers do not change.
  uint64_t generation() const { return generation_; }
  bool over() const { return trial_->loaded_all_steps(); }
  Trial& trial() { return *trial_; }
  /// From here on these are the run's verdicts, and not what its events say: of a run that nobody watched.
  void Judge(std::vector<rules::RuleStatus> statuses) { judged_ = std::move(statuses); }
  /// {"generation", "steps", "last_step", "over"}: what a page that follows the run is told.
  Json News() const;

  /// Answers the questions of docs/http.md except `runs`, `compare` and `ratio`, which concern several runs.
  /// \error kInvalidArgument  no such question or parameter; kNotFound  names what is not there
  Result<Answer> Ask(const Question& question);

  /// The statistic of all tensors over all steps, up to date. Valid until the next call for another one.
  StatisticBlocks& BlocksOf(const StatisticSpec& spec);

 private:
  explicit Run(std::unique_ptr<Trial> trial) : trial_(std::move(trial)) {}

  Result<Answer> Overview(const Question& question);
  Result<Answer> Tensors(const Question& question);
  Result<Answer> Matrix(const Question& question);
  Result<Answer> Line(const Question& question);
  Result<Answer> Histograms(const Question& question);
  Result<Answer> HistogramAt(const Question& question);
  Result<Answer> Values(const Question& question);
  Result<Answer> Step(const Question& question);
  Result<Answer> Workers(const Question& question);

  std::unique_ptr<Trial> trial_;
  uint64_t generation_ = 1;
  uint64_t events_bytes_ = 0;
  Health health_;
  StepModes modes_;
  Phases phases_;
  std::optional<std::vector<rules::RuleStatus>> judged_;
  /// Of the statistics asked for last, the latest at the end. A few: each may be StatisticBlocks' most_bytes.
  std::vector<std::unique_ptr<StatisticBlocks>> blocks_;
};

/// Another text as soon as something was added to a run that is over: an attempt, an event. Looks at two
/// files' dates and sizes.
std::string StampOf(const std::string& path);

/// One entry of the list of runs: name, state, steps, what was found, a sparkline of the loss.
/// \param name  the run's name in questions
Json RunEntry(Run& run, const std::string& name);

}  // namespace tdbg::query

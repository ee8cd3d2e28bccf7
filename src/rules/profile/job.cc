// The health of the job: its pace, its ranks, a standstill. By the times that were recorded with the steps.
// None of them says why: a machine that has other work to do looks like a loader that waits for a disk.
#include "rules/profile/job.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "rules/profile/detector.h"
#include "rules/profile/history.h"
#include "rules/worker_fates.h"

namespace tdbg::rules::profile {
namespace {

constexpr double kSilent = 1800, kTimesLongest = 20;  // seconds; of the longest pause so far
constexpr double kSlow = 3, kSlowSeconds = 300;
constexpr int kSlowSteps = 100;
constexpr size_t kPastSteps = 100;
constexpr int64_t kGoneSteps = 10;  // that the others made since

double Seconds(int64_t nanos) { return static_cast<double>(nanos) / 1e9; }

std::string Time(double seconds) {
  if (seconds < 0.995) return fmt::format("{:.3g} ms", 1000 * seconds);
  if (seconds < 120) return fmt::format("{:.3g} s", seconds);
  return seconds < 7200 ? fmt::format("{:.0f} minutes", seconds / 60)
                        : fmt::format("{:.1f} hours", seconds / 3600);
}

std::vector<WorkerFate> WorkersOf(const StepContext& step) {
  const auto* const sees = dynamic_cast<const SeesWorkers*>(&step);
  return sees == nullptr ? std::vector<WorkerFate>() : sees->workers();
}

// An exception of a rank that waited for another one, by what says it: torch's backends and stores, MPI. One
// that raised anything else failed by itself, and its launcher then killed those that did not.
bool FailedItself(const std::string& error) {
  if (error.empty()) return false;
  for (const char* const part : {"onnection", "NCCL", "gloo", "Gloo", "ProcessGroup", "DistBackendError",
                                 "DistNetworkError", "DistStoreError", "MPI", "imed out", "imeout"}) {
    if (error.find(part) != std::string::npos) return false;
  }
  return true;
}

// The time from one training step to the next, where nothing is between them.
class StepTimes : public Detector {
 public:
  void Judge(const Digest& step, std::vector<Finding>* findings) final {
    const StepInfo& now = step.step().info();
    const bool follows = step.train() && last_ && last_->mode == ModeKey::kTrain &&
                         last_->global_step + 1 == now.global_step && attempt_ == step.step().attempt() &&
                         now.wall_nanos > last_->wall_nanos;
    const double seconds = follows ? Seconds(now.wall_nanos - last_->wall_nanos) : 0;
    last_ = now;
    attempt_ = step.step().attempt();
    // It is recorded where it changes.
    if (const auto elements = step.series("batch_elements")) elements_ = *elements;
    if (follows && !told_) Judge(step, seconds, findings);
  }

 protected:
  virtual void Judge(const Digest& step, double seconds, std::vector<Finding>* findings) = 0;

  // What the model is given at the step: larger batches and longer texts take longer, and are no slowness. Of
  // an adaptor that does not say it samples.
  double Given(const Digest& step) const {
    const double samples = step.series("batch_size").value_or(0);
    return std::max(elements_, samples) * std::max(step.series("micro_steps").value_or(1), 1.0);
  }
  // Once in a run.
  void Tell(const Digest& step, std::string_view id, double seconds, double threshold, std::string text,
            std::vector<Finding>* findings) {
    told_ = true;
    findings->push_back(
        MakeFinding(step, id, {}, Measured("seconds a step", seconds, ">", threshold), std::move(text)));
  }

 private:
  std::optional<StepInfo> last_;
  int64_t attempt_ = 0;
  double elements_ = 0;
  bool told_ = false;
};

class SlowSteps : public StepTimes {
 private:
  void Judge(const Digest& step, double seconds, std::vector<Finding>* findings) override {
    const double given = Given(step);
    const double grown = usual_given_ > 0 ? std::max(given / usual_given_, 1.0) : 1;
    const bool slow = usual_ > 0 && seconds > kSlow * grown * usual_;
    if (!slow) {
      steps_ = 0;
      sum_ = 0;
      times_.Add(seconds);
      given_.Add(given);
      if (times_.seen() >= kPastSteps && times_.seen() % (kPastSteps / 2) == 0) {
        usual_ = times_.Median();
        usual_given_ = given_.Median();
      }
      return;
    }
    ++steps_;
    sum_ += seconds;
    if (steps_ < kSlowSteps || sum_ < kSlowSeconds) return;
    const double average = sum_ / steps_;
    Tell(step, "slow_steps", average, kSlow * usual_,
         fmt::format("each of the last {} steps took more than {:.0f} times as long as was usual before: {} "
                     "on average, {} before, for {} by now",
                     steps_, kSlow, Time(average), Time(usual_), Time(sum_)),
         findings);
  }

  History times_{kPastSteps}, given_{kPastSteps};
  double usual_ = 0, usual_given_ = 0, sum_ = 0;
  int steps_ = 0;
};

// Steps that take longer and longer: each block of them longer than the one before, at whatever scale. A
// history that grows, a file that is read from its beginning each time, a graph that is kept. By chance eight
// blocks in a row are in that order once in forty thousand times.
class Slowing : public StepTimes {
 private:
  void Judge(const Digest& step, double seconds, std::vector<Finding>* findings) override {
    steps_.push_back(seconds);
    given_.push_back(Given(step));
    if (steps_.size() < kBlock * size_) return;
    blocks_.push_back({Median(&steps_), Median(&given_)});
    steps_.clear();
    given_.clear();
    if (LongerEachTime()) return Tell(step, findings);
    if (blocks_.size() < 2 * kBlocks) return;
    if (size_ == kMostSize) {
      blocks_.erase(blocks_.begin());
      return;
    }
    const auto mean = [](double a, double b) { return (a + b) / 2; };
    for (size_t i = 0; i < kBlocks; ++i) {
      const Block &first = blocks_[2 * i], &second = blocks_[2 * i + 1];
      blocks_[i] = {mean(first.seconds, second.seconds), mean(first.given, second.given)};
    }
    blocks_.resize(kBlocks);
    size_ *= 2;
    if (LongerEachTime()) Tell(step, findings);
  }

  struct Block {
    double seconds = 0, given = 0;  // medians
  };

  static double Median(std::vector<double>* values) {
    const auto middle = values->begin() + static_cast<ptrdiff_t>(values->size() / 2);
    std::ranges::nth_element(*values, middle);
    return *middle;
  }

  // Blocks that were given more than the first of them took longer for that.
  bool LongerEachTime() const {
    if (blocks_.size() < kBlocks) return false;
    const size_t first = blocks_.size() - kBlocks;
    for (size_t i = first + 1; i < blocks_.size(); ++i) {
      if (blocks_[i].seconds <= 1.01 * blocks_[i - 1].seconds) return false;
      if (blocks_[i].given > kAsMuch * blocks_[first].given) return false;
    }
    return blocks_.back().seconds >= kLonger * blocks_[first].seconds;
  }

  void Tell(const Digest& step, std::vector<Finding>* findings) {
    const Block &before = blocks_[blocks_.size() - kBlocks], &now = blocks_.back();
    StepTimes::Tell(step, "slowing_down", now.seconds, kLonger * before.seconds,
                    fmt::format("steps take longer and longer: {} steps ago {} each, now {}, and longer in "
                                "each of the {} parts between (medians)",
                                kBlocks * kBlock * size_, Time(before.seconds), Time(now.seconds), kBlocks),
                    findings);
  }

  static constexpr size_t kBlock = 24, kBlocks = 8, kMostSize = 1 << 9;
  static constexpr double kLonger = 1.5, kAsMuch = 1.05;
  std::vector<double> steps_, given_;  // of the block at hand
  std::vector<Block> blocks_;          // of kBlock * size_ steps each
  size_t size_ = 1;
};

// A worker whose process ended without a word. Where the others go on that is seen some steps later; where
// they wait for it and end with an error of their own, once all is over, or the job was started again. If all
// of them died, it is the job that did, and its launcher says so. Where somebody asked the job to stop, those
// without a handler of SIGTERM were killed by it.
class RankDied : public Detector {
 public:
  void Judge(const Digest& step, std::vector<Finding>* findings) override {
    const std::vector<WorkerFate> workers = WorkersOf(step.step());
    if (workers.size() < 2 || told_) return;
    const int64_t now = step.global_step(), attempt = step.step().attempt();
    for (const WorkerFate& worker : workers) {
      if (worker.state != WorkerFate::kDied || worker.last_step < 0) continue;
      // Told as of the first step at which the steps alone say so: a watcher may learn of it later.
      if (worker.attempt == attempt && worker.last_step + kGoneSteps <= now)
        return Tell(worker, worker.last_step + kGoneSteps, "the others went on", findings);
      if (worker.attempt < attempt && !worker.stopped && Outlived(workers, worker, nullptr))
        return Tell(worker, now, "the others ended, and the job was started again", findings);
    }
  }

  void AtEnd(const StepContext& last, std::vector<Finding>* findings) override {
    const auto* const sees = dynamic_cast<const SeesWorkers*>(&last);
    if (told_ || sees == nullptr) return;
    const std::vector<WorkerFate> workers = sees->workers();
    int64_t attempt = 0;
    for (const WorkerFate& worker : workers) attempt = std::max(attempt, worker.attempt);
    for (const WorkerFate& worker : workers) {
      if (worker.state != WorkerFate::kDied || worker.last_step < 0 || worker.stopped) continue;
      if (!Outlived(workers, worker, worker.attempt == attempt ? sees : nullptr)) continue;
      return Tell(worker, last.global_step(), "the others ended", findings);
    }
  }

 private:
  // `sees`: says what the others raised; null: nobody knows that any more.
  static bool Outlived(const std::vector<WorkerFate>& workers, const WorkerFate& dead,
                       const SeesWorkers* sees) {
    bool outlived = false;
    for (const WorkerFate& other : workers) {
      if (other.attempt != dead.attempt || other.state != WorkerFate::kEnded) continue;
      if (sees != nullptr && FailedItself(sees->ErrorOf(other.name))) return false;
      outlived |= other.last_step >= dead.last_step;
    }
    return outlived;
  }

  static Finding Of(const WorkerFate& worker, int64_t now, const char* others) {
    Finding finding;
    finding.detector = "rank_died";
    finding.global_step = worker.last_step;
    finding.worker = worker.name;
    finding.measure = "last step of the rank";
    finding.value = static_cast<double>(worker.last_step);
    finding.comparison = "<";
    finding.threshold = static_cast<double>(now);
    finding.text = fmt::format("{} wrote its last step, {}, and its process was gone without an end; {}",
                               worker.name, worker.last_step, others);
    return finding;
  }

  void Tell(const WorkerFate& worker, int64_t now, const char* others, std::vector<Finding>* findings) {
    told_ = true;
    findings->push_back(Of(worker, now, others));
  }

  bool told_ = false;
};

}  // namespace

void Silence::See(const Digest& step) {
  const StepInfo& now = step.step().info();
  // What a breakpoint held is no pause of the job's own: ten minutes of it would allow for hours.
  const std::string* const hold = step.topic("hold");
  const bool held = hold != nullptr && *hold != hold_;
  if (held) hold_ = *hold;
  if (last_nanos_ > 0 && !held && attempt_ == step.step().attempt() && now.wall_nanos > last_nanos_)
    longest_ = std::max(longest_, Seconds(now.wall_nanos - last_nanos_));
  last_nanos_ = now.wall_nanos;
  attempt_ = step.step().attempt();
}

// Before the first step a job may load and compile for as long as it takes.
std::optional<double> Silence::Threshold() const {
  if (told_ || last_nanos_ == 0) return std::nullopt;
  return std::max(kSilent, kTimesLongest * longest_);
}

std::optional<Finding> Silence::Judge(const Stall& stall) {
  const auto threshold = Threshold();
  if (!threshold || stall.seconds < *threshold) return std::nullopt;
  told_ = true;
  Finding finding;
  finding.detector = "stalled";
  finding.global_step = std::max<int64_t>(stall.after_step, 0);
  finding.measure = "seconds without a step";
  finding.value = stall.seconds;
  finding.comparison = ">=";
  finding.threshold = *threshold;
  finding.text = fmt::format("no step was made for {} after step {}; the longest pause before was {}",
                             Time(stall.seconds), stall.after_step, Time(longest_));
  return finding;
}

void AddJob(Detectors* to) {
  to->push_back(std::make_unique<SlowSteps>());
  to->push_back(std::make_unique<Slowing>());
  to->push_back(std::make_unique<RankDied>());
}

}  // namespace tdbg::rules::profile

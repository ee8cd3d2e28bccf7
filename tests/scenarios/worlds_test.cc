// Worlds of several workers, watched while they come, write, die or stay away. Whatever the order, what the
// watcher says is what a replay of the run says afterwards.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <chrono>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <thread>

#include "base/clock.h"
#include "base/file.h"
#include "base/testing.h"
#include "format/run_files.h"
#include "store/writer/worker_writer.h"
#include "tdbg/summary.h"
#include "verdict_text.h"
#include "watch/replay.h"
#include "watch/watcher.h"

namespace tdbg::scenarios {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

enum class Fate { kTrains, kDies, kLate, kAbsent };
enum class Layout { kParts, kReplicas, kBoth };
/// Who says how large the world is. kReplaced: as 0.1.0 did, the launcher says 1 and a worker corrects it.
enum class Says { kWorkers, kAttempt, kReplaced };

struct Start {
  int64_t world = 1;
  int64_t first_step = 0, end_step = 0;
  std::vector<Fate> fates;  ///< by rank
  std::vector<int64_t> dies_at;
};

struct Plan {
  std::vector<Start> starts;
  Layout layout = Layout::kBoth;
  Says says = Says::kWorkers;
  bool launched = false, watcher_first = false;
  int64_t lost_after_millis = 60'000;
  int64_t bad_rank = -1, bad_step = -1, bad_start = -1;  ///< whose loss is infinite, and when

  std::string Text() const {
    std::string text = "layout " + std::to_string(static_cast<int>(layout)) + " says " +
                       std::to_string(static_cast<int>(says)) + (launched ? " launched" : " bare") +
                       (watcher_first ? " watcher first" : " workers first") + " lost after " +
                       std::to_string(lost_after_millis) + " bad " + std::to_string(bad_start) + "/" +
                       std::to_string(bad_rank) + "@" + std::to_string(bad_step);
    for (const Start& start : starts) {
      text += "; " + std::to_string(start.world) + " from " + std::to_string(start.first_step) + " to " +
              std::to_string(start.end_step) + " fates";
      for (const Fate fate : start.fates) text += " " + std::to_string(static_cast<int>(fate));
    }
    return text;
  }
};

Plan MakePlan(std::mt19937& random) {
  const auto pick = [&random](uint32_t below) { return static_cast<int64_t>(random() % below); };
  Plan plan;
  plan.layout = static_cast<Layout>(pick(3));
  plan.says = static_cast<Says>(pick(3));
  plan.launched = pick(3) != 0;
  plan.watcher_first = pick(2) == 0;
  if (pick(3) == 0) plan.lost_after_millis = 10 + pick(60);
  // What one writes whom nobody launched is a run of one start: its watcher goes home when they are gone.
  const int64_t starts = plan.launched ? 1 + pick(3) : 1;
  int64_t first = 0;
  for (int64_t n = 0; n < starts; ++n) {
    Start start;
    start.world = int64_t{1} << pick(4);
    start.first_step = first;
    start.end_step = first + 5 + pick(30);
    for (int64_t rank = 0; rank < start.world; ++rank) {
      // A rank that trains there is in every world; of the others most do.
      const int64_t fate = rank == 0 ? 0 : pick(8);
      start.fates.push_back(fate < 5 ? Fate::kTrains : static_cast<Fate>(fate - 4));
      start.dies_at.push_back(first + pick(static_cast<uint32_t>(start.end_step - first)));
    }
    // From the start, from a checkpoint, or from where it ended.
    const int64_t length = start.end_step - first;
    first += pick(3) == 0 ? 0 : pick(2) == 0 ? length / 2 : length;
    plan.starts.push_back(std::move(start));
  }
  if (pick(3) != 0) {
    plan.bad_start = pick(static_cast<uint32_t>(starts));
    const Start& start = plan.starts[static_cast<size_t>(plan.bad_start)];
    plan.bad_rank = pick(static_cast<uint32_t>(start.world));
    plan.bad_step = start.first_step + pick(static_cast<uint32_t>(start.end_step - start.first_step));
  }
  return plan;
}

/// One worker's files: its loss, a gradient that all have, and its part of another one.
class Worker {
 public:
  Worker(const std::string& attempt_directory, const Plan& plan, const Start& start, int64_t rank)
      : rank_(rank) {
    store::WriterOptions options;
    options.worker.worker = "worker_" + std::to_string(rank);
    options.worker.rank = rank;
    if (plan.says == Says::kWorkers) {
      options.worker.world_size = start.world;
      options.worker.step_base = start.first_step;
    }
    options.worker_directory = base::JoinPath(attempt_directory, options.worker.worker);
    options.journal_path = base::JoinPath(options.worker_directory, "journal");
    options.run_id = "0123456789abcdef0123456789abcdef";
    options.journal_bytes = 1 << 20;
    options.durable = false;
    options.when_full = store::WhenFull::kBlock;
    TDBG_EXPECT_OK(base::LocalFileSystem().CreateDirectories(options.worker_directory));
    auto opened = store::WorkerWriter::Open(std::move(options));
    TDBG_EXPECT_OK(opened);
    writer_ = *std::move(opened);
    Define("loss", "losses", {});
    if (plan.layout != Layout::kParts) Define("gradient/replica", "gradients", {});
    if (plan.layout != Layout::kReplicas) Define("gradient/part", "gradients", {4 * start.world});
  }

  void Write(int64_t step, bool bad) {
    const double loss = bad ? kInfinity : 4 - 0.01 * static_cast<double>(step);
    std::vector<format::SummaryRow> rows;
    for (const format::TensorDef& def : defs_) {
      const bool is_loss = def.name == "loss";
      const std::vector<double> values(4, is_loss ? loss : 1 + static_cast<double>(rank_));
      const int64_t shape[] = {is_loss ? 1 : 4};
      Summary summary;
      TDBG_EXPECT_OK(summarizer_.Summarize({values.data(), DType::kFloat64, shape, {}}, &summary, nullptr));
      rows.push_back(format::ToRow(def.id, {}, summary));
    }
    writer_->AppendSummaries(step, rows, {});
    format::Commit commit;
    commit.global_step = commit.mode_step = step;
    commit.mode = static_cast<uint16_t>(format::Mode::kTrain);
    commit.wall_nanos = 1'700'000'000'000'000'000 + step;
    writer_->Commit(commit);
  }
  void End() { writer_->End(R"({"reason":"completed"})", 10'000'000'000); }

 private:
  void Define(const std::string& name, const std::string& collection, const std::vector<int64_t>& whole) {
    format::TensorDef def;
    def.id = static_cast<format::TensorId>(defs_.size());
    def.name = name;
    def.collections = {collection};
    def.dtype = DType::kFloat64;
    def.shape = {name == "loss" ? 1 : 4};
    def.whole_shape = whole;
    if (!whole.empty()) def.part_begin = {4 * rank_};
    writer_->AppendTensorDef(def);
    defs_.push_back(def);
  }

  const int64_t rank_;
  std::unique_ptr<store::WorkerWriter> writer_;
  std::vector<format::TensorDef> defs_;
  Summarizer summarizer_;
};

class WorldsTest : public testing::TestWithParam<unsigned> {
 protected:
  void Attempt(const Plan& plan, size_t number, std::optional<int64_t> world_size) {
    const std::string directory = base::JoinPath(run_, std::to_string(number));
    TDBG_ASSERT_OK(files_.CreateDirectories(directory));
    format::AttemptInfo attempt;
    attempt.attempt = static_cast<int64_t>(number);
    attempt.world_size = world_size;
    if (world_size) attempt.step_base = *world_size == 1 ? 0 : plan.starts[number].first_step;
    if (plan.says == Says::kAttempt) attempt.step_base = plan.starts[number].first_step;
    TDBG_ASSERT_OK(files_.WriteFileAtomic(base::JoinPath(directory, "attempt.json"), attempt.ToJson()));
  }
  void Event(const std::string& kind, const std::string& fields) {
    TDBG_EXPECT_OK(
        files_.AppendLine(base::JoinPath(run_, "events.jsonl"), watch::EventLine(kind, 1, fields)));
  }

  /// All of one start of the job, from its attempt's file to the last of its workers.
  void Train(const Plan& plan, size_t number, unsigned seed) {
    const Start& start = plan.starts[number];
    const std::string directory = base::JoinPath(run_, std::to_string(number));
    // A launcher makes the attempt and knows nothing; without one its first worker does, and knows all.
    const std::optional<int64_t> known =
        plan.says == Says::kAttempt ? std::optional(start.world) : std::nullopt;
    Attempt(plan, number, plan.says == Says::kReplaced ? std::optional<int64_t>(1) : known);
    std::mt19937 pauses(seed);
    if (pauses() % 2 == 0) Sleep(pauses() % 8000);
    if (plan.says == Says::kReplaced) {
      Attempt(plan, number, start.world);
      // Of a world of one it still has to say where it begins.
      if (start.world == 1) {
        format::AttemptInfo attempt;
        attempt.attempt = static_cast<int64_t>(number);
        attempt.world_size = 1;
        attempt.step_base = start.first_step;
        TDBG_ASSERT_OK(files_.WriteFileAtomic(base::JoinPath(directory, "attempt.json"), attempt.ToJson()));
      }
    }
    int64_t come = 0;
    for (const Fate fate : start.fates) come += fate != Fate::kAbsent;
    // Nobody tells a watcher of a bare run that somebody is to come, so there all have come before one goes.
    std::barrier all_there(come);
    std::vector<std::thread> workers;
    for (int64_t rank = 0; rank < start.world; ++rank) {
      const auto r = static_cast<size_t>(rank);
      if (start.fates[r] == Fate::kAbsent) continue;
      workers.emplace_back([&, rank, r] {
        std::mt19937 own(seed * 1000 + static_cast<unsigned>(number * 10 + r));
        Sleep(own() % 4000);
        const bool late = start.fates[r] == Fate::kLate;
        if (late && plan.launched) Sleep(20'000 + own() % 100'000);
        auto worker = std::make_unique<Worker>(directory, plan, start, rank);
        if (!plan.launched) all_there.arrive_and_wait();
        if (late && !plan.launched) Sleep(own() % 60'000);
        const bool can_be_bad = static_cast<int64_t>(number) == plan.bad_start && rank == plan.bad_rank;
        for (int64_t step = start.first_step; step < start.end_step; ++step) {
          if (start.fates[r] == Fate::kDies && step == start.dies_at[r]) return;  // its lock is free, no word
          worker->Write(step, can_be_bad && step == plan.bad_step);
          if (own() % 3 == 0) Sleep(own() % 2000);
        }
        worker->End();
      });
    }
    for (std::thread& worker : workers) worker.join();
  }

  static void Sleep(uint32_t micros) { std::this_thread::sleep_for(std::chrono::microseconds(micros)); }

  base::FileSystem& files_ = base::LocalFileSystem();
  base::ScratchDirectory scratch_;
  const std::string run_ = scratch_ / "run";
};

std::vector<plan::RuleConfig> Rules() {
  const auto rule = [](const std::string& name, std::map<std::string, std::string> parameters) {
    plan::RuleConfig config;
    config.rule = name;
    config.parameters = std::move(parameters);
    return config;
  };
  return {rule("ExplodingTensor", {}), rule("VanishingGradient", {{"threshold", "1.2"}}),
          rule("LossNotDecreasing", {{"interval", "5"}, {"num_steps", "5"}}),
          rule("UnchangedTensor", {{"collection_names", "gradients"}, {"interval", "10"}})};
}

TEST_P(WorldsTest, LiveEqualsReplay) {
  const unsigned seed = GetParam();
  std::mt19937 random(seed);
  const Plan plan = MakePlan(random);
  SCOPED_TRACE(plan.Text());
  TDBG_ASSERT_OK(files_.CreateDirectories(run_));
  std::unique_ptr<base::FileLock> launcher;
  if (plan.launched) {
    auto lock = files_.Lock(base::JoinPath(run_, "launcher.lock"));
    TDBG_ASSERT_OK(lock);
    launcher = *std::move(lock);
  }
  watch::WatchOptions options;
  options.run = run_;
  options.rules = Rules();
  options.lost_after_millis = plan.lost_after_millis;
  if (plan.launched) options.stop = [](const std::string&) { return OkStatus(); };
  auto watcher = watch::Watcher::Create(options);
  TDBG_ASSERT_OK(watcher);
  Status followed;
  std::thread watching;
  const auto watch = [&] { watching = std::thread([&] { followed = (*watcher)->Follow(); }); };
  if (plan.watcher_first) watch();
  format::RunInfo info;
  info.id = "0123456789abcdef0123456789abcdef";
  const auto job = [&] {
    for (size_t i = 0; i < plan.starts.size(); ++i) {
      if (plan.launched) Event("job_started", R"({"attempt":)" + std::to_string(i) + "}");
      Train(plan, i, seed * 10 + static_cast<unsigned>(i));
      if (plan.launched) {
        Event("job_ended", R"({"attempt":)" + std::to_string(i) + R"(,"exit_code":0,"stop":"none"})");
      }
    }
  };
  std::thread training([&] {
    TDBG_EXPECT_OK(files_.WriteFileAtomic(base::JoinPath(run_, "run.json"), info.ToJson()));
    job();
  });
  if (!plan.watcher_first) {
    // Of a bare run somebody must be there still, or it is one that has ended: as good, and no watching.
    Sleep(random() % 30'000);
    watch();
  }
  training.join();
  if (plan.launched) (*watcher)->JobEnded(rules::JobEnd::kCompleted);
  watching.join();
  launcher.reset();
  TDBG_EXPECT_OK(followed);

  auto trial = Trial::Open(run_);
  TDBG_ASSERT_OK(trial);
  auto replayed = watch::Replay(**trial, Rules(), 1);
  TDBG_ASSERT_OK(replayed);
  const std::string live = VerdictText((*watcher)->statuses());
  EXPECT_EQ(live, VerdictText(*replayed)) << base::Slurp(run_ + "/events.jsonl");
  auto read_back = watch::ReadStatuses(run_);
  TDBG_ASSERT_OK(read_back);
  EXPECT_EQ(live, VerdictText(*read_back)) << "events carry everything";
  EXPECT_EQ((*trial)->world_size(), plan.starts.back().world);
}

INSTANTIATE_TEST_SUITE_P(Seeds, WorldsTest, testing::Range(1u, 41u));

}  // namespace
}  // namespace tdbg::scenarios

// The promise of the commit protocol: a step whose end has returned survives SIGKILL at any instant, first in
// the journal, then in the segments that its successor seals, also when the sealing itself is killed.
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <map>
#include <random>
#include <sstream>
#include <thread>

#include "base/file.h"
#include "base/hash.h"
#include "base/testing.h"
#include "store/reader/worker_reader.h"
#include "store/writer/worker_writer.h"

namespace tdbg {
extern const char* const kKillChild;  // of this clone (tdbg_path in cmake/rooms.cmake)

namespace {

constexpr uint32_t kTensors = 3;

pid_t Spawn(std::vector<std::string> args, int stdout_fd) {
  std::vector<char*> argv;
  for (std::string& arg : args) argv.push_back(arg.data());
  argv.push_back(nullptr);
  const pid_t pid = ::fork();
  if (pid == 0) {
    if (stdout_fd >= 0) ::dup2(stdout_fd, STDOUT_FILENO);
    ::execv(argv[0], argv.data());
    ::_exit(127);
  }
  return pid;
}

int Reap(pid_t pid) {
  int status = 0;
  ::waitpid(pid, &status, 0);
  return status;
}

using Reported = std::map<int64_t, std::vector<std::string>>;

// Runs a training and kills it `micros` after its first step; what it had reported until then.
Reported TrainAndKill(const std::string& directory, uint32_t seed, int stall_millis, int64_t micros) {
  int ends[2];
  EXPECT_EQ(::pipe(ends), 0);
  const pid_t pid =
      Spawn({kKillChild, "write", directory, std::to_string(seed), std::to_string(stall_millis)}, ends[1]);
  ::close(ends[1]);
  std::string text;
  std::vector<char> buffer(1 << 16);
  std::thread killer;
  bool dead_on_arrival = true;
  for (ssize_t n; (n = ::read(ends[0], buffer.data(), buffer.size())) > 0;) {
    text.append(buffer.data(), static_cast<size_t>(n));
    if (!killer.joinable()) {
      dead_on_arrival = false;
      killer = std::thread([pid, micros] {
        std::this_thread::sleep_for(std::chrono::microseconds(micros));
        ::kill(pid, SIGKILL);
      });
    }
  }
  ::close(ends[0]);
  if (killer.joinable()) killer.join();
  const int status = Reap(pid);
  EXPECT_FALSE(dead_on_arrival);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << status;
  Reported reported;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    int64_t step = -1;
    words >> step;
    for (std::string hash; words >> hash;) reported[step].push_back(hash);
  }
  return reported;
}

// Everything reported is there, equal, and nothing is damaged.
void ExpectAllThere(const std::string& directory, const Reported& reported, const std::string& when) {
  auto opened = store::WorkerReader::Open(directory);
  ASSERT_TRUE(opened.ok()) << when << ": " << opened.status().ToString();
  store::WorkerReader& reader = **opened;
  const auto news = reader.Refresh();
  ASSERT_TRUE(news.ok()) << when << ": " << news.status().ToString();
  for (const store::Damage& damage : reader.damage())
    ADD_FAILURE() << when << ": " << damage.file << ": " << damage.what;
  EXPECT_FALSE(reader.alive()) << when;

  std::map<int64_t, int> commits;
  for (const format::Commit& commit : reader.commits()) ++commits[commit.global_step];
  ASSERT_EQ(reader.tensors().size(), kTensors) << when;
  std::map<int64_t, std::vector<std::string>> read;
  for (uint32_t t = 0; t < kTensors; ++t) {
    for (const store::RawRef& ref : reader.RawsOf(t)) {
      const auto value = reader.ReadRaw(ref);
      ASSERT_TRUE(value.ok()) << when << ": step " << ref.global_step << ": " << value.status().ToString();
      read[ref.global_step].push_back(base::Hex64(base::Hash64(value->bytes)));
    }
  }
  for (const auto& [step, hashes] : reported) {
    ASSERT_EQ(commits[step], 1) << when << ": step " << step << " of " << reported.size();
    ASSERT_EQ(read[step], hashes) << when << ": step " << step << " of " << reported.size();
  }
  EXPECT_LE(commits.size(), reported.size() + 1) << when;  // the last may have died between commit and report
}

void KillAndReadBack(int rounds, int stall_millis, int64_t longest_micros, bool kill_the_sealing,
                     uint32_t seed) {
  std::mt19937 random(seed);
  size_t steps = 0;
  for (int round = 0; round < rounds; ++round) {
    const base::ScratchDirectory scratch;
    const std::string when = "round " + std::to_string(round);
    const Reported reported =
        TrainAndKill(scratch.path(), seed * 1000 + static_cast<uint32_t>(round), stall_millis,
                     static_cast<int64_t>(random() % static_cast<uint64_t>(longest_micros)));
    steps += reported.size();
    ExpectAllThere(scratch.path(), reported, when + ", killed");
    if (testing::Test::HasFatalFailure()) return;
    for (int again = 0; kill_the_sealing && again < 3; ++again) {
      const pid_t sealer = Spawn({kKillChild, "seal", scratch.path(), "1"}, -1);
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 12'000));
      ::kill(sealer, SIGKILL);
      Reap(sealer);
      ExpectAllThere(scratch.path(), reported, when + ", sealing killed");
      if (testing::Test::HasFatalFailure()) return;
    }
    for (int again = 0; again < 2; ++again) {
      const Status sealed = store::SealLeftovers(base::LocalFileSystem(), scratch.path());
      ASSERT_TRUE(sealed.ok()) << when << ": " << sealed.ToString();
      ExpectAllThere(scratch.path(), reported, when + ", sealed");
      if (testing::Test::HasFatalFailure()) return;
      const auto entries = base::LocalFileSystem().List(scratch / "segments");
      ASSERT_TRUE(entries.ok()) << when;
      for (const base::DirEntry& entry : *entries) {
        EXPECT_THAT(entry.name, testing::Not(testing::StartsWith("."))) << when;
      }
    }
  }
  EXPECT_GT(steps, static_cast<size_t>(rounds));
}

TEST(Kill, AtAnyInstantLosesNoReportedStep) { KillAndReadBack(70, 0, 60'000, false, 1); }
TEST(Kill, WhileASegmentIsBeingWrittenLosesNoReportedStep) { KillAndReadBack(20, 2, 60'000, false, 2); }
TEST(Kill, OfTheSealingItselfLosesNoReportedStep) { KillAndReadBack(10, 0, 30'000, true, 3); }

}  // namespace
}  // namespace tdbg

// Somebody else's hands on what a living training writes: whatever they do to its journal and its
// descriptors, the training ends as it would have, what is read back is right, and what is missing is
// counted.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <functional>
#include <random>
#include <set>
#include <thread>

#include "base/file.h"
#include "base/posix.h"
#include "base/testing.h"
#include "store/reader/worker_reader.h"
#include "store/writer/testing_options.h"

namespace tdbg {
namespace {

using namespace std::chrono_literals;

constexpr int64_t kBefore = 50;  // steps before the deed
constexpr int64_t kBusy = 20;    // among which it is done where it is done in the middle

store::WriterOptions Options(const std::string& directory) {
  store::WriterOptions options = store::TestOptions(directory);
  options.durable = false;
  return options;
}

std::vector<uint32_t> Values(int64_t step) {
  std::mt19937 random(static_cast<uint32_t>(step));
  std::vector<uint32_t> values(500);
  for (uint32_t& value : values) value = random();
  return values;
}

void Step(store::WorkerWriter& writer, int64_t step) {
  const std::vector<uint32_t> values = Values(step);
  const int64_t shape[] = {static_cast<int64_t>(values.size())};
  writer.AppendRaw(step, 0, {}, {values.data(), DType::kUInt32, shape, {}});
  format::SummaryRow row;
  row.count = static_cast<uint64_t>(step) * 7 + 1;
  writer.AppendSummaries(step, {&row, 1}, {});
  format::Commit commit;
  commit.global_step = commit.mode_step = step;
  commit.mode = 1;
  writer.Commit(commit);
}

void Define(store::WorkerWriter& writer) {
  format::TensorDef def;
  def.name = "t";
  def.dtype = DType::kUInt32;
  def.shape = {500};
  writer.AppendTensorDef(def);
  writer.AppendContext({0, "optimizer", R"({"lr":1})"});
}

void Overwrite(const std::string& path, off_t offset, const std::string& bytes) {
  const int fd = ::open(path.c_str(), O_WRONLY);
  if (fd < 0 || ::pwrite(fd, bytes.data(), bytes.size(), offset) != static_cast<ssize_t>(bytes.size()))
    ::_exit(90);
  ::close(fd);
}

std::string Noise(size_t bytes) {
  std::mt19937 random(7);
  std::string noise(bytes, '\0');
  for (char& c : noise) c = static_cast<char>(random());
  return noise;
}

struct Deed {
  const char* name;
  std::function<void(const std::string& journal)> act;
  bool keeps_all = false;  ///< nothing that was committed has to be lost
  bool unnoticed = false;  ///< where it hits nothing that is still needed, nobody has to hear of it
};

std::vector<Deed> Deeds() {
  return {
      {"Nothing", [](const std::string&) {}, true, true},
      {"CutToNothing", [](const std::string& path) { (void)!::truncate(path.c_str(), 0); }},
      {"CutInTheMiddle", [](const std::string& path) { (void)!::truncate(path.c_str(), 40'000); }},
      {"CutAndGrown",
       [](const std::string& path) {
         (void)!::truncate(path.c_str(), 0), (void)!::truncate(path.c_str(), 1 << 20);
       }},
      {"NoiseAllOver", [](const std::string& path) { Overwrite(path, 0, Noise(1 << 20)); }},
      {"NoiseOverTheRecords", [](const std::string& path) { Overwrite(path, 4096, Noise((1 << 20) - 4096)); },
       false, true},
      {"ZerosOverTheHeader", [](const std::string& path) { Overwrite(path, 0, std::string(4096, '\0')); }},
      {"HugePositions", [](const std::string& path) { Overwrite(path, 64, std::string(128, '\x7f')); }},
      {"SealedBehindTheEnd",
       [](const std::string& path) { Overwrite(path, 128, std::string("\0\0\0\0\1\0\0\0", 8)); }},
      {"AnotherRunsCopiedOver",
       [](const std::string& path) {
         Overwrite(path, 0, base::Slurp(path.substr(0, path.rfind('/')) + "-other/journal"));
       }},
      {"Removed", [](const std::string& path) { ::unlink(path.c_str()); }, true},
      {"ReplacedByAnother",
       [](const std::string& path) {
         const std::string other = path + "-new";
         base::Spill(other, base::Slurp(path.substr(0, path.rfind('/')) + "-other/journal"));
         ::rename(other.c_str(), path.c_str());
       },
       true},
  };
}

/// A training in a process of its own, which ends in good order whatever is done. \return its wait status
int Train(const std::function<void()>& body) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::alarm(240);  // far more than a busy machine takes: who is killed hung
    body();
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  return status;
}

void MakeAnother(const std::string& directory) {
  ::mkdir(directory.c_str(), 0777);
  store::WriterOptions options = Options(directory);
  auto writer = store::WorkerWriter::Open(options);
  if (!writer.ok()) ::_exit(91);
  Define(**writer);
  for (int64_t step = 0; step < kBefore + 500; ++step) Step(**writer, 100'000 + step);
  // As it is while it lives: its end would give the ring back.
  base::Spill(directory + "/copy", base::Slurp(directory + "/journal"));
  writer->reset();
  ::rename((directory + "/copy").c_str(), (directory + "/journal").c_str());
}

/// Steps until one of those that were begun last is found by a reader. Where none ever is, the alarm ends it.
int64_t GoOn(store::WorkerWriter& writer, const std::string& directory, int64_t step) {
  for (int round = 0;; ++round) {
    std::this_thread::sleep_for(20ms);
    const int64_t first = step;
    for (int i = 0; i < 3; ++i) Step(writer, step++);
    auto reader = store::WorkerReader::Open(directory);
    if (!reader.ok() || !(*reader)->Refresh().ok()) continue;
    const store::CommitList commits = (*reader)->commits();
    if (round >= 5 && commits.size() != 0 && commits[commits.size() - 1].global_step >= first) return step;
  }
}

/// The same, and the end in good order; the number of steps goes into the file `directory`-steps.
void GoOnToTheEnd(std::unique_ptr<store::WorkerWriter> writer, const std::string& directory, int64_t step) {
  step = GoOn(*writer, directory, step);
  writer->End(R"({"reason":"completed"})", 200'000'000'000);
  base::Spill(directory + "-steps", std::to_string(step));
  writer->Close();
}

struct Outcome {
  std::set<int64_t> kept;
  size_t with_value = 0;
  uint64_t lost_steps = 0, lost = 0;
  bool damaged = false;
};

/// What a training of so many steps has left: whatever was done to it, what is there is right, and a step
/// that is not there is counted, once.
void ReadBack(const std::string& directory, int64_t steps, Outcome* out) {
  auto opened = store::WorkerReader::Open(directory);
  ASSERT_TRUE(opened.ok()) << opened.status().ToString();
  store::WorkerReader& reader = **opened;
  ASSERT_TRUE(reader.Refresh().ok());
  EXPECT_TRUE(reader.ended());
  EXPECT_FALSE(reader.alive());
  for (const format::Commit& commit : reader.commits()) {
    if ((commit.flags & format::kCommitOutside) != 0) continue;
    EXPECT_TRUE(out->kept.insert(commit.global_step).second) << "twice: " << commit.global_step;
    EXPECT_GE(commit.global_step, 0);
    EXPECT_LT(commit.global_step, steps) << "somebody else's step";
  }
  ASSERT_EQ(reader.tensors().size(), 1u) << "definitions are never lost";
  EXPECT_EQ(reader.tensors()[0].name, "t");
  EXPECT_EQ(reader.context().size(), 1u) << "nor is context, which is written once";
  std::set<int64_t> with_value;
  for (const store::RawRef& ref : reader.RawsOf(0)) {
    const auto value = reader.ReadRaw(ref);
    if (!value.ok()) continue;  // told as damage
    with_value.insert(ref.global_step);
    const std::vector<uint32_t> expected = Values(ref.global_step);
    ASSERT_EQ(value->bytes.size(), expected.size() * 4);
    EXPECT_EQ(std::memcmp(value->bytes.data(), expected.data(), value->bytes.size()), 0) << ref.global_step;
  }
  for (const auto& ref : reader.RowsOf(0)) {
    const Summary summary = reader.summaries()[ref.batch].at(ref.row);
    EXPECT_EQ(summary.count, static_cast<uint64_t>(ref.global_step) * 7 + 1);
  }
  EXPECT_TRUE(out->kept.contains(steps - 1)) << "recording went on";
  for (const format::Drop& drop : reader.dropped()) {
    out->lost += drop.count;
    if (drop.kind == static_cast<uint8_t>(format::DropKind::kStep)) out->lost_steps += drop.count;
  }
  EXPECT_EQ(out->kept.size() + out->lost_steps, static_cast<uint64_t>(steps));
  out->with_value = with_value.size();
  out->damaged = !reader.damage().empty();
}

class MeddledJournal : public testing::TestWithParam<std::tuple<size_t, bool>> {};

TEST_P(MeddledJournal, HarmsNoTrainingAndIsCounted) {
  const Deed deed = Deeds()[std::get<0>(GetParam())];
  const bool in_the_middle = std::get<1>(GetParam());
  const base::ScratchDirectory scratch;
  const std::string directory = scratch / "worker";
  ::mkdir(directory.c_str(), 0777);
  ASSERT_EQ(Train([&] { MakeAnother(directory + "-other"); }), 0);
  const int status = Train([&] {
    auto writer = store::WorkerWriter::Open(Options(directory));
    if (!writer.ok()) ::_exit(93);
    Define(**writer);
    int64_t step = 0;
    while (step < kBefore) Step(**writer, step++);
    if (in_the_middle) {
      std::thread doer([&] { deed.act(directory + "/journal"); });
      for (int i = 0; i < kBusy; ++i) {
        Step(**writer, step++);
        std::this_thread::sleep_for(200us);
      }
      doer.join();
    } else {
      std::this_thread::sleep_for(100ms);
      deed.act(directory + "/journal");
    }
    GoOnToTheEnd(std::move(*writer), directory, step);
  });
  ASSERT_TRUE(WIFEXITED(status)) << "killed by " << WTERMSIG(status);
  ASSERT_EQ(WEXITSTATUS(status), 0);
  const int64_t steps = std::stoll(base::Slurp(directory + "-steps"));

  Outcome outcome;
  ReadBack(directory, steps, &outcome);
  if (deed.keeps_all) {
    EXPECT_EQ(outcome.kept.size(), static_cast<size_t>(steps));
    EXPECT_EQ(outcome.with_value, static_cast<size_t>(steps));
    EXPECT_EQ(outcome.lost, 0u);
    EXPECT_FALSE(outcome.damaged);
  } else if (!deed.unnoticed) {
    EXPECT_GT(outcome.lost_steps, 0u);
  }
}

std::string NameOf(const testing::TestParamInfo<std::tuple<size_t, bool>>& deed) {
  return std::string(Deeds()[std::get<0>(deed.param)].name) +
         (std::get<1>(deed.param) ? "WhileItWrites" : "WhileItRests");
}
INSTANTIATE_TEST_SUITE_P(Deeds, MeddledJournal,
                         testing::Combine(testing::Range(size_t{0}, Deeds().size()), testing::Bool()),
                         NameOf);

// Where the journal is written to at this moment, whatever the training does: records before and after they
// are committed, one or many, at the end of what is sealed and in the middle of it.
class MeddledSteps : public testing::TestWithParam<unsigned> {};

TEST_P(MeddledSteps, AreEachKeptOrCountedOnce) {
  const base::ScratchDirectory scratch;
  const std::string directory = scratch / "worker", journal = directory + "/journal";
  ::mkdir(directory.c_str(), 0777);
  const int status = Train([&] {
    store::WriterOptions options = Options(directory);
    options.segment_bytes = 64 << 10;
    auto writer = store::WorkerWriter::Open(options);
    if (!writer.ok()) ::_exit(93);
    Define(**writer);
    std::atomic<bool> done = false;
    std::atomic<int64_t> steps = 0;
    const auto lost_a_step = [&] {
      return std::ranges::any_of((*writer)->dropped(), [](const format::Drop& drop) {
        return drop.kind == static_cast<uint8_t>(format::DropKind::kStep);
      });
    };
    std::thread doer([&] {
      std::mt19937 random(GetParam());
      const std::string noise = Noise(20'000);
      // On a busy machine all of it could be done before there are steps that it hits.
      for (int i = 0; i < 60 || !lost_a_step(); ++i) {
        for (const int64_t before = steps; steps == before;) std::this_thread::sleep_for(50us);
        const base::UniqueFd fd(::open(journal.c_str(), O_RDONLY | O_CLOEXEC));
        uint64_t ring_bytes = 0, committed = 0;
        (void)!::pread(fd.get(), &ring_bytes, 8, offsetof(format::JournalHeader, ring_bytes));
        (void)!::pread(fd.get(), &committed, 8, offsetof(format::JournalHeader, committed_pos));
        const uint64_t at = (committed + ring_bytes - random() % (80u << 10)) % ring_bytes;
        const uint64_t bytes = std::min<uint64_t>(1 + random() % noise.size(), ring_bytes - at);
        Overwrite(journal, static_cast<off_t>(format::kJournalHeaderBytes + at), noise.substr(0, bytes));
        std::this_thread::sleep_for(std::chrono::microseconds(random() % 2000));
      }
      done = true;
    });
    int64_t step = 0;
    while (!done) {
      Step(**writer, step++);
      steps = step;
      std::this_thread::sleep_for(50us);
    }
    doer.join();
    GoOnToTheEnd(std::move(*writer), directory, step);
  });
  ASSERT_TRUE(WIFEXITED(status)) << "killed by " << WTERMSIG(status);
  ASSERT_EQ(WEXITSTATUS(status), 0);
  Outcome outcome;
  ReadBack(directory, std::stoll(base::Slurp(directory + "-steps")), &outcome);
  EXPECT_GT(outcome.lost_steps, 0u);
}
INSTANTIATE_TEST_SUITE_P(Seeds, MeddledSteps, testing::Range(1u, 7u));

// Numbers of descriptors in use, but for the standard streams and the one that lists them.
std::vector<int> Descriptors() {
  std::vector<int> open;
  for (int fd = 3; fd < 4096; ++fd) {
    if (::fcntl(fd, F_GETFD) >= 0) open.push_back(fd);
  }
  return open;
}

// Whether all other threads of this process sleep. One that was preempted between a look at its descriptor
// and a write to it does not: whoever puts a file of his own there just then gets the write, and no check of
// ours can see that.
bool OthersSleep() {
  const std::string self = std::to_string(::syscall(SYS_gettid));
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    if (task.path().filename() == self) continue;
    const std::string stat = base::Slurp((task.path() / "stat").string());
    const size_t name_end = stat.rfind(')');
    if (name_end == std::string::npos || name_end + 2 >= stat.size() || stat[name_end + 2] != 'S')
      return false;
  }
  return true;
}

// Those that last: what is open for microseconds, to be synced or looked at, is gone before a listing is
// over, and then a script that closes by number closes whatever has the number by then, at anybody's risk.
std::vector<int> LastingDescriptors() {
  std::vector<int> seen = Descriptors();
  while (true) {
    std::this_thread::sleep_for(2ms);
    std::vector<int> again = Descriptors();
    if (again == seen) return seen;
    seen = std::move(again);
  }
}

// As the script's own calls, past ThreadSanitizer, to which closing what another thread uses is the race that
// it is.
int CloseUnseen(int fd) { return static_cast<int>(::syscall(SYS_close, fd)); }
int ReplaceUnseen(int own, int fd) { return static_cast<int>(::syscall(SYS_dup3, own, fd, 0)); }

// A script that closes what is not its own and has its own file wherever something of ours was.
TEST(Meddling, ClosedDescriptorsCostNothingAndTheScriptsFilesAreItsOwn) {
  const base::ScratchDirectory scratch;
  const std::string directory = scratch / "worker", mine = scratch / "mine";
  ::mkdir(directory.c_str(), 0777);
  base::Spill(mine, "mine");
  const int status = Train([&] {
    // Forked while there is one thread: ThreadSanitizer knows no child that starts threads of its own
    // otherwise.
    int now[2];
    if (::pipe(now) != 0) ::_exit(99);
    const pid_t other = ::fork();
    if (other == 0) {
      char word;
      if (::read(now[0], &word, 1) != 1) ::_exit(2);
      ::_exit(store::WorkerWriter::Open(Options(directory)).ok() ? 1 : 0);
    }
    const std::vector<int> before = Descriptors();
    auto writer = store::WorkerWriter::Open(Options(directory));
    if (!writer.ok()) ::_exit(93);
    Define(**writer);
    int64_t step = 0;
    std::vector<int> taken;
    for (int round = 0; round < 30; ++round) {
      for (int i = 0; i < 5; ++i) Step(**writer, step++);
      for (const int fd : LastingDescriptors()) {
        if (std::find(before.begin(), before.end(), fd) != before.end()) continue;
        if (std::find(taken.begin(), taken.end(), fd) != taken.end()) continue;
        while (!OthersSleep()) std::this_thread::sleep_for(1ms);
        CloseUnseen(fd);
        const int own = ::open(mine.c_str(), O_RDWR);
        if (own != fd && (ReplaceUnseen(own, fd) != fd || ::close(own) != 0)) ::_exit(94);
        taken.push_back(fd);
      }
      std::this_thread::sleep_for(3ms);
    }
    if (taken.empty()) ::_exit(95);
    // The lock may have been the last of them.
    while (!base::LocalFileSystem().IsLocked(base::JoinPath(directory, format::kLockFile)))
      std::this_thread::sleep_for(1ms);
    // Nobody else gets the place, and readers see who lives.
    int refused = 0;
    if (::write(now[1], "!", 1) != 1 || ::waitpid(other, &refused, 0) != other || refused != 0) ::_exit(96);
    auto reader = store::WorkerReader::Open(directory);
    if (!reader.ok() || !(*reader)->Refresh().ok() || !(*reader)->alive()) ::_exit(97);
    GoOnToTheEnd(std::move(*writer), directory, step);
    for (const int fd : taken) {
      struct stat info{}, there{};
      if (::fstat(fd, &info) != 0 || ::stat(mine.c_str(), &there) != 0 || info.st_ino != there.st_ino)
        ::_exit(98);
    }
  });
  ASSERT_TRUE(WIFEXITED(status)) << "killed by " << WTERMSIG(status);
  ASSERT_EQ(WEXITSTATUS(status), 0);
  EXPECT_EQ(base::Slurp(mine), "mine");
  auto reader = store::WorkerReader::Open(directory);
  ASSERT_TRUE(reader.ok() && (*reader)->Refresh().ok());
  EXPECT_TRUE((*reader)->ended());
  EXPECT_TRUE((*reader)->damage().empty());
  EXPECT_TRUE((*reader)->dropped().empty());
  EXPECT_EQ((*reader)->RawsOf(0).size(), std::stoull(base::Slurp(directory + "-steps")));
}

TEST(Meddling, StandardStreamsThatAreClosedAtTheStartAreNotTaken) {
  const base::ScratchDirectory scratch;
  const std::string directory = scratch / "worker";
  ::mkdir(directory.c_str(), 0777);
  const int status = Train([&] {
    for (int fd = 0; fd < 3; ++fd) ::close(fd);
    auto writer = store::WorkerWriter::Open(Options(directory));
    if (!writer.ok()) ::_exit(93);
    Define(**writer);
    for (int64_t step = 0; step < 20; ++step) Step(**writer, step);
    std::this_thread::sleep_for(50ms);
    for (int fd = 0; fd < 3; ++fd) {
      if (::fcntl(fd, F_GETFD) >= 0) ::_exit(94 + fd);
    }
  });
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace tdbg

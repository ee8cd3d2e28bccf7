#include "base/file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/magic.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <functional>
#include <thread>

#include "base/bus_guard.h"
#include "base/posix.h"
#include "base/testing.h"

namespace tdbg::base {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::span<const std::byte> Bytes(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

class FileTest : public testing::Test {
 protected:
  std::vector<std::string> Names() {
    std::vector<std::string> names;
    const auto entries = files_.List(scratch_.path());
    EXPECT_TRUE(entries.ok());
    for (const DirEntry& entry : *entries) names.push_back(entry.name);
    return names;
  }
  // In a child whose files may not grow beyond `bytes` and whose SIGXFSZ kills, as it does by default.
  // True if the child lived and `body` was true there.
  static bool UnderFileSizeLimit(rlim_t bytes, const std::function<bool()>& body) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::signal(SIGXFSZ, SIG_DFL);
      const rlimit limit{bytes, bytes};
      ::setrlimit(RLIMIT_FSIZE, &limit);
      ::_exit(body() ? 0 : 1);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    EXPECT_FALSE(WIFSIGNALED(status)) << "killed by signal " << WTERMSIG(status);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
  }

  FileSystem& files_ = LocalFileSystem();
  ScratchDirectory scratch_;
};

TEST_F(FileTest, ListingIsSortedAndKnowsSizesAndDirectories) {
  TDBG_ASSERT_OK(files_.CreateDirectories(scratch_ / "b/deep"));
  Spill(scratch_ / "c", "123");
  Spill(scratch_ / "a", "");
  const auto entries = files_.List(scratch_.path());
  TDBG_ASSERT_OK(entries);
  ASSERT_EQ(entries->size(), 3u);
  EXPECT_EQ((*entries)[0].name, "a");
  EXPECT_TRUE((*entries)[1].is_directory);
  EXPECT_EQ((*entries)[2].size, 3u);
}

TEST_F(FileTest, MissingThingsAreNotFoundAndThePathComesLast) {
  const std::string path = scratch_ / "nowhere";
  EXPECT_EQ(files_.List(path).status().code(), Code::kNotFound);
  EXPECT_EQ(files_.ReadFile(path).status().code(), Code::kNotFound);
  EXPECT_EQ(files_.OpenReadable(path).status().code(), Code::kNotFound);
  EXPECT_EQ(files_.Remove(path).code(), Code::kNotFound);
  EXPECT_EQ(ReadOnlyMapping::Open(path).status().code(), Code::kNotFound);
  EXPECT_FALSE(files_.Exists(path));
  EXPECT_THAT(files_.ReadFile(path).status().message(), testing::EndsWith(path));
}

TEST_F(FileTest, CreatingDirectoriesTwiceIsFineButNotThroughAFile) {
  TDBG_EXPECT_OK(files_.CreateDirectories(scratch_ / "x/y"));
  TDBG_EXPECT_OK(files_.CreateDirectories(scratch_ / "x/y"));
  Spill(scratch_ / "file", "");
  EXPECT_FALSE(files_.CreateDirectories(scratch_ / "file/y").ok());
}

TEST_F(FileTest, ReadingRefusesMoreThanItsLimitButNotExactlyIt) {
  Spill(scratch_ / "f", std::string(20000, 'x'));
  EXPECT_EQ(files_.ReadFile(scratch_ / "f", 20000)->size(), 20000u);
  EXPECT_EQ(files_.ReadFile(scratch_ / "f", 19999).status().code(), Code::kResourceExhausted);
}

TEST_F(FileTest, AtomicWriteReplacesWholeAndLeavesNoTemporaries) {
  TDBG_EXPECT_OK(files_.WriteFileAtomic(scratch_ / "plan.json", "old and longer"));
  TDBG_EXPECT_OK(files_.WriteFileAtomic(scratch_ / "plan.json", "new"));
  EXPECT_EQ(Slurp(scratch_ / "plan.json"), "new");
  EXPECT_THAT(Names(), ElementsAre("plan.json"));
}

TEST_F(FileTest, FailedAtomicWriteLeavesTheOldBytes) {
  TDBG_EXPECT_OK(files_.WriteFileAtomic(scratch_ / "f", "old"));
  EXPECT_TRUE(UnderFileSizeLimit(100, [&] {
    return files_.WriteFileAtomic(scratch_ / "f", std::string(200, 'n')).code() == Code::kResourceExhausted;
  }));
  EXPECT_EQ(Slurp(scratch_ / "f"), "old");
  EXPECT_THAT(Names(), ElementsAre("f"));
}

TEST_F(FileTest, LinesOfConcurrentWritersDoNotMix) {
  std::vector<std::thread> writers;
  for (const char letter : {'a', 'b', 'c', 'd'}) {
    writers.emplace_back([&, letter] {
      for (int i = 0; i < 100; ++i)
        TDBG_EXPECT_OK(files_.AppendLine(scratch_ / "events", std::string(300, letter)));
    });
  }
  for (auto& writer : writers) writer.join();
  std::ifstream lines(scratch_ / "events");
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) EXPECT_EQ(line, std::string(300, line.at(0)));
  EXPECT_EQ(count, 400);
}

TEST_F(FileTest, LineThatDoesNotFitIsTakenBackWhole) {
  TDBG_EXPECT_OK(files_.AppendLine(scratch_ / "events", "first"));
  EXPECT_TRUE(UnderFileSizeLimit(10, [&] {
    return files_.AppendLine(scratch_ / "events", "much too long").code() == Code::kResourceExhausted;
  }));
  TDBG_EXPECT_OK(files_.AppendLine(scratch_ / "events", "last\n"));
  EXPECT_EQ(Slurp(scratch_ / "events"), "first\nlast\n");
}

TEST_F(FileTest, ReadingBehindTheEndIsShortAndNoError) {
  Spill(scratch_ / "f", "0123456789");
  const auto file = files_.OpenReadable(scratch_ / "f");
  TDBG_ASSERT_OK(file);
  std::byte buffer[8];
  EXPECT_EQ(*(*file)->ReadAt(6, buffer), 4u);
  EXPECT_EQ(std::memcmp(buffer, "6789", 4), 0);
  EXPECT_EQ(*(*file)->ReadAt(10, buffer), 0u);
  EXPECT_EQ(*(*file)->ReadAt(UINT64_MAX, buffer), 0u);
  EXPECT_EQ(*(*file)->Size(), 10u);
  ASSERT_EQ(::truncate((scratch_ / "f").c_str(), 2), 0);
  EXPECT_EQ(*(*file)->ReadAt(0, buffer), 2u);
}

TEST_F(FileTest, PipeWhereASegmentShouldBeIsRefusedAndNotWaitedFor) {
  ASSERT_EQ(::mkfifo((scratch_ / "pipe").c_str(), 0600), 0);
  EXPECT_EQ(files_.OpenReadable(scratch_ / "pipe").status().code(), Code::kInvalidArgument);
  EXPECT_EQ(ReadOnlyMapping::Open(scratch_ / "pipe").status().code(), Code::kInvalidArgument);
  EXPECT_EQ(files_.OpenReadable(scratch_.path()).status().code(), Code::kInvalidArgument);
}

TEST_F(FileTest, PendingFileAppearsOnPublishAndVanishesOtherwise) {
  {
    auto file = files_.CreatePending(scratch_ / "seg.tmp");
    TDBG_ASSERT_OK(file);
    TDBG_EXPECT_OK((*file)->Write(Bytes("dropped")));
  }
  EXPECT_THAT(Names(), ElementsAre());
  Spill(scratch_ / "seg", "older");
  for (const bool durable : {false, true}) {
    auto file = files_.CreatePending(scratch_ / "seg.tmp");
    TDBG_ASSERT_OK(file);
    TDBG_EXPECT_OK((*file)->Write(Bytes("one ")));
    TDBG_EXPECT_OK((*file)->Write(Bytes("two")));
    TDBG_EXPECT_OK((*file)->Publish(scratch_ / "seg", durable));
    EXPECT_EQ((*file)->Publish(scratch_ / "seg", durable).code(), Code::kFailedPrecondition);
    EXPECT_EQ((*file)->Write(Bytes("late")).code(), Code::kFailedPrecondition);
  }
  EXPECT_EQ(Slurp(scratch_ / "seg"), "one two");
  EXPECT_THAT(Names(), ElementsAre("seg"));
}

TEST_F(FileTest, WhatAKilledWriterLeftUnderTheTemporaryNameIsReplaced) {
  Spill(scratch_ / "seg.tmp", "leftover of another length");
  auto file = files_.CreatePending(scratch_ / "seg.tmp");
  TDBG_ASSERT_OK(file);
  TDBG_EXPECT_OK((*file)->Write(Bytes("new")));
  TDBG_EXPECT_OK((*file)->Publish(scratch_ / "seg", false));
  EXPECT_EQ(Slurp(scratch_ / "seg"), "new");
}

TEST_F(FileTest, PublishingIntoAMissingDirectoryFailsAndCleansUp) {
  {
    auto file = files_.CreatePending(scratch_ / "seg.tmp");
    TDBG_ASSERT_OK(file);
    EXPECT_EQ((*file)->Publish(scratch_ / "no/seg", false).code(), Code::kNotFound);
  }
  EXPECT_THAT(Names(), ElementsAre());
}

TEST_F(FileTest, MappedBytesStartAsZerosAndReachTheFile) {
  auto mapped = files_.CreateMapped(scratch_ / "journal", 100'000);
  TDBG_ASSERT_OK(mapped);
  const auto bytes = (*mapped)->bytes();
  ASSERT_EQ(bytes.size(), 100'000u);
  EXPECT_EQ(bytes[99'999], std::byte{0});
  std::memcpy(bytes.data() + 99'996, "tail", 4);
  EXPECT_EQ(Slurp(scratch_ / "journal").substr(99'996), "tail");
  struct stat info;
  ASSERT_EQ(::stat((scratch_ / "journal").c_str(), &info), 0);
  EXPECT_GE(info.st_blocks * 512, 100'000) << "holes: a write into one can be SIGBUS";
}

// Two pages, the second of which is gone when it is looked at.
void ReadATornMapping(const std::string& path) {
  const size_t page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  Spill(path, std::string(2 * page, 'x'));
  const auto mapping = ReadOnlyMapping::Open(path);
  if (!mapping.ok()) ::_exit(1);
  const auto bytes = (*mapping)->bytes();
  if (::truncate(path.c_str(), static_cast<off_t>(page)) != 0) ::_exit(2);
  const volatile std::byte* const last = &bytes.back();
  if (*last != std::byte{0}) ::_exit(3);
  if (bytes[page - 1] != std::byte{'x'}) ::_exit(4);
}

TEST_F(FileTest, AMappingWhoseFileIsCutShortReadsAsZerosAndSaysSo) {
  const std::string path = scratch_ / "segment";
  EXPECT_EXIT(
      {
        SurviveTornMappings();
        Spill(path + "0", "whole");
        const auto whole = ReadOnlyMapping::Open(path + "0");
        if (TornMapping()) ::_exit(5);
        ReadATornMapping(path);
        ReadATornMapping(path + "2");
        std::fputs(TornMapping().value_or("nothing").c_str(), stderr);
        ::_exit(0);
      },
      testing::ExitedWithCode(0), "cut short, or out of reach, while it was read: .*/segment$");
}

// By the signal; under AddressSanitizer, which takes it, by an exit that is no success.
bool DiedByBusError(int status) {
  return WIFSIGNALED(status) ? WTERMSIG(status) == SIGBUS : WEXITSTATUS(status) != 0;
}

TEST_F(FileTest, ABusErrorThatIsNobodysMappingStillKills) {
  EXPECT_EXIT(
      {
        SurviveTornMappings();
        SurviveTornMappings();
        const std::string path = scratch_ / "other";
        Spill(path, "x");
        const int fd = ::open(path.c_str(), O_RDONLY);
        const auto* const other =
            static_cast<const volatile char*>(::mmap(nullptr, 1, PROT_READ, MAP_SHARED, fd, 0));
        if (::truncate(path.c_str(), 0) == 0) (void)*other;
        ::_exit(0);
      },
      DiedByBusError, "");
}

// Whether the page at `offset` is in memory.
bool IsThere(const MappedFile& mapped, uint64_t offset) {
  unsigned char there = 0;
  std::byte* const page = const_cast<MappedFile&>(mapped).bytes().data() + offset;
  return ::mincore(page, 1, &there) == 0 && (there & 1) != 0;
}

TEST_F(FileTest, OnlyTheBeginningOfAMappedFileIsTouchedWhenItIsMade) {
  struct statfs info;
  ASSERT_EQ(::statfs(scratch_.path().c_str(), &info), 0);
  if (info.f_type == TMPFS_MAGIC) GTEST_SKIP() << "a file in memory is there when it is allocated";
  const auto mapped = LocalFileSystem().CreateMapped(scratch_ / "large", 4 * kTouchedAtCreation);
  ASSERT_TRUE(mapped.ok()) << mapped.status().message();
  EXPECT_TRUE(IsThere(**mapped, 0));
  EXPECT_TRUE(IsThere(**mapped, kTouchedAtCreation - 4096));
  EXPECT_FALSE(IsThere(**mapped, 3 * kTouchedAtCreation));
  struct stat allocated;
  ASSERT_EQ(::stat((scratch_ / "large").c_str(), &allocated), 0);
  EXPECT_GE(static_cast<uint64_t>(allocated.st_blocks) * 512, 4 * kTouchedAtCreation)
      << "a full disk is to be found here, and not by a store into the mapping";
}

// A mapping for writing, and a store behind the end that its file has by now.
void WriteToATornMapping(const std::string& path) {
  const auto mapped = LocalFileSystem().CreateMapped(path, 1 << 16);
  if (!mapped.ok() || !(*mapped)->intact()) ::_exit(1);
  if (::truncate(path.c_str(), 4096) != 0) ::_exit(2);
  if ((*mapped)->intact()) ::_exit(3);  // before anybody touched it
  volatile std::byte* const bytes = (*mapped)->bytes().data();
  bytes[40'000] = std::byte{1};
  bytes[50'000] = std::byte{2};
  bytes[0] = std::byte{3};
  if (bytes[40'000] != std::byte{1} || bytes[50'000] != std::byte{2} || (*mapped)->intact()) ::_exit(4);
  if (Slurp(path) != '\3' + std::string(4095, '\0')) ::_exit(5);
}

TEST_F(FileTest, WritingToAMappingWhoseFileIsCutShortIsSurvived) {
  EXPECT_EXIT(
      {
        WriteToATornMapping(scratch_ / "a");
        WriteToATornMapping(scratch_ / "b");
        ::_exit(0);
      },
      testing::ExitedWithCode(0), "");
}

TEST_F(FileTest, ItIsKnownWhatOfAMappingCanBeRead) {
  const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  const std::string path = scratch_ / "a";
  base::Spill(path, std::string(4 * page, 'x'));
  const base::UniqueFd file = base::OpenFd(path.c_str(), O_RDWR, 0);
  auto* const data =
      static_cast<std::byte*>(::mmap(nullptr, 4 * page, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0));
  ASSERT_NE(static_cast<void*>(data), MAP_FAILED);
  EXPECT_TRUE(IsReadable(data, 4 * page));
  EXPECT_TRUE(IsReadable(data + page - 1, 2));
  EXPECT_TRUE(IsReadable(data, 0));
  ASSERT_EQ(::mprotect(data + page, page, PROT_NONE), 0);
  EXPECT_FALSE(IsReadable(data + page - 1, 2));
  EXPECT_FALSE(IsReadable(data, 4 * page));
  EXPECT_TRUE(IsReadable(data + 2 * page, 2 * page));
  ASSERT_EQ(::ftruncate(file.get(), static_cast<off_t>(3 * page)), 0);
  EXPECT_FALSE(IsReadable(data + 2 * page, 2 * page));
  EXPECT_FALSE(IsReadable(data + 4 * page - 1, 1));
  EXPECT_TRUE(IsReadable(data + 2 * page, page));
  ::munmap(data, 4 * page);
  EXPECT_FALSE(IsReadable(data, 1));
}

struct sigaction before_theirs;
// As Python's faulthandler: puts back who was there, says its piece, and passes the signal on by raising it.
void SpeakAndPassOn(int number) {
  ::sigaction(number, &before_theirs, nullptr);
  (void)!::write(STDERR_FILENO, "theirs ", 7);
  ::raise(number);
}
void PutTheirsOnTop() {
  struct sigaction theirs = {};
  theirs.sa_handler = SpeakAndPassOn;
  theirs.sa_flags = SA_NODEFER;
  ::sigaction(SIGBUS, &theirs, &before_theirs);
}
void ReadSomebodysTornMapping(const std::string& path) {
  Spill(path, "x");
  const int fd = ::open(path.c_str(), O_RDONLY);
  const auto* const other =
      static_cast<const volatile char*>(::mmap(nullptr, 1, PROT_READ, MAP_SHARED, fd, 0));
  if (::truncate(path.c_str(), 0) == 0) (void)*other;
}

TEST_F(FileTest, AHandlerOnTopOfOursIsHeardAndSurvived) {
  EXPECT_EXIT(
      {
        const auto mapped = LocalFileSystem().CreateMapped(scratch_ / "a", 1 << 16);
        PutTheirsOnTop();
        (void)!::truncate((scratch_ / "a").c_str(), 0);
        (*mapped)->bytes()[40'000] = std::byte{1};
        ::_exit(0);
      },
      testing::ExitedWithCode(0), "^theirs $");
}

TEST_F(FileTest, WhateverTheOrderABusErrorThatIsNotOursKillsAndIsSaidOnce) {
  for (const bool again : {false, true}) {
    EXPECT_EXIT(
        {
          ::alarm(10);
          if (!again) PutTheirsOnTop();
          const auto mapped = LocalFileSystem().CreateMapped(scratch_ / (again ? "a" : "b"), 1 << 16);
          if (again) {
            PutTheirsOnTop();
            ArmBusGuard();  // on top of them, who will put us back
          }
          ReadSomebodysTornMapping(scratch_ / "other");
          ::_exit(0);
        },
        DiedByBusError, "^theirs ");
  }
}

TEST_F(FileTest, ABusErrorThatSomebodySendsStillKills) {
  EXPECT_EXIT(
      {
        const auto mapped = LocalFileSystem().CreateMapped(scratch_ / "a", 1 << 16);
        ::kill(::getpid(), SIGBUS);
        ::_exit(0);
      },
      DiedByBusError, "");
}

TEST_F(FileTest, WhatIsOpenedForAMomentIsNoStandardStream) {
  const pid_t child = ::fork();
  if (child == 0) {
    for (int fd = 0; fd < 3; ++fd) ::close(fd);
    const UniqueFd a = OpenFd("/", O_RDONLY | O_DIRECTORY), b = OpenFd("/dev/null", O_WRONLY);
    const bool above = a.get() > 2 && b.get() > 2 && (::fcntl(b.get(), F_GETFD) & FD_CLOEXEC) != 0;
    const bool free = ::fcntl(0, F_GETFD) < 0 && ::fcntl(1, F_GETFD) < 0 && ::fcntl(2, F_GETFD) < 0;
    const bool refused = !OpenFd("/not/there", O_RDONLY).ok() && errno == ENOENT;
    ::_exit(above && free && refused ? 0 : 1);
  }
  int status = 1;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST_F(FileTest, ADescriptorThatIsSomebodyElsesByNowIsNeitherUsedNorClosed) {
  LastingFd ours = LastingFd::Open((scratch_ / "ours").c_str(), O_RDWR | O_CREAT);
  ASSERT_TRUE(ours.Mine());
  EXPECT_GT(ours.Get(), 255) << "scripts close 3 to 255";
  const int number = ours.Get();
  const UniqueFd theirs(::open((scratch_ / "theirs").c_str(), O_RDWR | O_CREAT, 0666));
  ASSERT_EQ(::dup2(theirs.get(), number), number);
  EXPECT_EQ(ours.Get(), -1);
  EXPECT_EQ(ours.Close(), EBADF);
  EXPECT_GE(::fcntl(number, F_GETFD), 0) << "it is theirs to close";
  ::close(number);
}

TEST_F(FileTest, MappingNeverTouchesAFileThatIsAlreadyThere) {
  Spill(scratch_ / "journal", "somebody's");
  EXPECT_EQ(files_.CreateMapped(scratch_ / "journal", 4096).status().code(), Code::kAlreadyExists);
  EXPECT_EQ(Slurp(scratch_ / "journal"), "somebody's");
}

TEST_F(FileTest, MappingThatFindsNoRoomLeavesNoFile) {
  EXPECT_TRUE(UnderFileSizeLimit(1 << 20, [&] {
    return files_.CreateMapped(scratch_ / "journal", 2 << 20).status().code() == Code::kResourceExhausted;
  }));
  EXPECT_EQ(files_.CreateMapped(scratch_ / "huge", uint64_t{1} << 60).status().code(),
            Code::kResourceExhausted);
  EXPECT_EQ(files_.CreateMapped(scratch_ / "huge", UINT64_MAX).status().code(), Code::kResourceExhausted);
  EXPECT_EQ(files_.CreateMapped(scratch_ / "nothing", 0).status().code(), Code::kInvalidArgument);
  EXPECT_THAT(Names(), ElementsAre());
}

TEST_F(FileTest, PendingWriteBeyondTheFileSizeLimitIsAStatusAndNotASignal) {
  EXPECT_TRUE(UnderFileSizeLimit(1000, [&] {
    auto file = files_.CreatePending(scratch_ / "seg.tmp");
    return file.ok() && (*file)->Write(Bytes(std::string(5000, 'x'))).code() == Code::kResourceExhausted;
  }));
  EXPECT_THAT(Names(), ElementsAre());
}

TEST_F(FileTest, WriteToAPipeNobodyReadsIsAnErrorAndNotASignal) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  ::close(ends[0]);
  EXPECT_EQ(WriteFully(ends[1], Bytes("x")), EPIPE);
  ::close(ends[1]);
}

TEST_F(FileTest, SignalPendingBeforeTheShieldIsDeliveredAfterIt) {
  static volatile sig_atomic_t delivered;
  delivered = 0;
  const auto previous = ::signal(SIGXFSZ, [](int) { delivered = 1; });
  sigset_t set, before;
  sigemptyset(&set);
  sigaddset(&set, SIGXFSZ);
  pthread_sigmask(SIG_BLOCK, &set, &before);
  ::raise(SIGXFSZ);
  {
    const ScopedSignalShield shield;
  }
  EXPECT_EQ(delivered, 0);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  EXPECT_EQ(delivered, 1);
  ::signal(SIGXFSZ, previous);
}

TEST_F(FileTest, MappingShowsTheBytesAndOutlivesTheName) {
  Spill(scratch_ / "seg", "payload");
  const auto mapping = ReadOnlyMapping::Open(scratch_ / "seg");
  TDBG_ASSERT_OK(mapping);
  TDBG_EXPECT_OK(files_.Remove(scratch_ / "seg"));
  const auto bytes = (*mapping)->bytes();
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()), "payload");
  Spill(scratch_ / "empty", "");
  EXPECT_TRUE((*ReadOnlyMapping::Open(scratch_ / "empty"))->bytes().empty());
}

TEST_F(FileTest, FreeSpaceIsPlausible) { EXPECT_GT(*files_.FreeBytes(scratch_.path()), 0u); }

TEST(PathTest, JoinedAndCutAtSlashes) {
  EXPECT_EQ(JoinPath("a", "b"), "a/b");
  EXPECT_EQ(JoinPath("a/", "b"), "a/b");
  EXPECT_EQ(JoinPath("", "b"), "b");
  EXPECT_EQ(JoinPath("a", "/b"), "/b");
  EXPECT_EQ(BaseName("a/b"), "b");
  EXPECT_EQ(BaseName("a/b/"), "b");
  EXPECT_EQ(BaseName("b"), "b");
  EXPECT_EQ(BaseName("/"), "/");
  EXPECT_EQ(BaseName(""), "");
}

}  // namespace
}  // namespace tdbg::base

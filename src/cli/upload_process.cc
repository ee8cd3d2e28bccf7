#include "cli/upload_process.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/companion.h"
#include "base/file.h"
#include "base/text.h"
#include "cli/output.h"
#include "cli/run_path.h"
#include "cli/spool.h"

namespace tdbg::cli {
namespace {

constexpr const char* kProgram = "tdbg-store";
// Longer than six tries of a store that does not answer; this limit is for a name resolver that hangs.
constexpr int kCheckMillis = 120'000;
// How long an uploader that its launcher has left may take to send what there is.
constexpr int64_t kBesideNanos = 40'000'000'000;
constexpr useconds_t kPauseBesideMicros = 2'000'000;
// Between a kill and the next start. It doubles while kills go on: what needs memory that is not there should
// not ask for it all the time.
constexpr int64_t kFirstPauseMillis = 1'000, kLongestPauseMillis = 30'000;
// One that lived as long was not killed for being started.
constexpr int64_t kSettledNanos = 60'000'000'000;
// Once the job is over, somebody waits.
constexpr int kTriesAtTheEnd = 3;

// Its standard error is a pipe, too, where `error` is one.
Result<base::Child> Spawn(std::vector<std::string> arguments, int input, int output, int error) {
  base::SpawnOptions spawn;
  spawn.argv = {base::FindCompanion(kProgram)};
  spawn.argv.insert(spawn.argv.end(), arguments.begin(), arguments.end());
  spawn.input_fd = input;
  spawn.output_fd = output;
  spawn.error_fd = error;
  return base::Child::Spawn(spawn);
}

Code CodeOfExit(int exit_code) {
  switch (exit_code) {
    case 2:
      return Code::kInvalidArgument;
    case 4:
      return Code::kNotFound;
    case 5:
      return Code::kDataLoss;
    default:
      return Code::kFailedPrecondition;
  }
}

}  // namespace

Result<Destination> DestinationOf(const std::string& directory, const std::string& upload) {
  if (!directory.starts_with("s3://")) return Destination{directory, NormalUrl(upload), false};
  if (!upload.empty())
    return InvalidArgument("--dir " + directory + " and --upload: one place is enough; leave one out");
  TDBG_ASSIGN_OR_RETURN(const std::string spool, SpoolOf(directory));
  return Destination{spool, NormalUrl(directory), true};
}

void LetGoOfSpool(const Destination& destination) {
  if (destination.spool) RemoveSpool(destination.directory);
}

Status CheckUpload(const std::string& url, const std::string& run_id) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return ErrnoStatus(errno, "cannot start tdbg-store");
  base::UniqueFd ours(ends[0]), theirs(ends[1]);
  const base::UniqueFd nothing = base::OpenFd("/dev/null", O_RDONLY);
  std::vector<std::string> arguments = {"check", url};
  if (!run_id.empty()) arguments.insert(arguments.end(), {"--run", run_id});
  TDBG_ASSIGN_OR_RETURN(base::Child child, Spawn(arguments, nothing.get(), theirs.get(), theirs.get()));
  theirs.reset();
  const auto ended = child.Wait(kCheckMillis);
  if (!ended) {
    child.SignalGroup(SIGKILL);
    (void)child.Wait(1'000);
    return Unavailable("--upload " + url + ": the store did not answer within two minutes");
  }
  if (ended->shell_code() == 0) return OkStatus();
  std::string said(base::Trim(base::ReadToEnd(ours.get())));
  if (said.starts_with("tdbg: ")) said.erase(0, 6);
  return Status(CodeOfExit(ended->shell_code()), said.empty() ? "tdbg-store failed" : said);
}

UploadProcess::~UploadProcess() { (void)Finish(); }

Status UploadProcess::Claim() {
  base::UniqueFd said;
  if (!log_.empty()) {
    TDBG_RETURN_IF_ERROR(base::LocalFileSystem().CreateDirectories(log_.substr(0, log_.rfind('/'))));
    said = base::OpenPlainFile(log_.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
    if (!said.ok()) return base::PathError(errno, "cannot open", log_);
  }
  int alive[2], answers[2];
  if (::pipe2(alive, O_CLOEXEC) != 0) return ErrnoStatus(errno, "cannot start tdbg-store");
  const base::UniqueFd theirs_in(alive[0]);
  {
    base::UniqueFd ours(alive[1]);
    const std::lock_guard guard(mutex_);
    if (!over_) job_is_alive_ = std::move(ours);  // else it is closed: what is started now sends the rest
  }
  if (::pipe2(answers, O_CLOEXEC) != 0) return ErrnoStatus(errno, "cannot start tdbg-store");
  base::UniqueFd ours(answers[0]);
  base::UniqueFd theirs_out(answers[1]);
  std::vector<std::string> arguments = {"upload", run_directory_, url_, "--follow"};
  if (!uploader_.empty()) arguments.insert(arguments.end(), {"--uploader", uploader_});
  TDBG_ASSIGN_OR_RETURN(base::Child child, Spawn(arguments, theirs_in.get(), theirs_out.get(),
                                                 said.ok() ? said.get() : STDERR_FILENO));
  theirs_out.reset();
  process_ = std::move(child);
  // One line now, and another one at its end: read bytewise, so as not to wait for a process that stays.
  std::string line;
  char c = 0;
  for (ssize_t got = 1; c != '\n' && got > 0;) {
    got = ::read(ours.get(), &c, 1);
    if (got < 0 && errno == EINTR)
      got = 1;
    else if (got == 1 && c != '\n')
      line += c;
  }
  const auto answer = base::ParseAnswer(line);
  if (answer && answer->ok()) {
    uploader_ = **answer;
    answers_ = std::move(ours);
    return OkStatus();
  }
  {
    const std::lock_guard guard(mutex_);
    job_is_alive_.reset();
  }
  const auto ended = process_->Wait(5'000);
  process_.reset();
  if (!answer) return Unavailable("tdbg-store ended before it began");
  return Status(answer->status().code() == Code::kAlreadyExists ? Code::kAlreadyExists
                                                                : CodeOfExit(ended ? ended->shell_code() : 6),
                answer->status().message());
}

Status UploadProcess::Start(const std::string& run_directory, const std::string& url, const std::string& log,
                            bool beside) {
  run_directory_ = run_directory;
  url_ = url;
  log_ = log;
  const int64_t until = base::SystemClock().MonotonicNanos() + kBesideNanos;
  Status started = Claim();
  while (!started.ok() && beside && base::SystemClock().MonotonicNanos() < until) {
    ::usleep(kPauseBesideMicros);
    started = Claim();
  }
  if (started.ok()) {
    keeper_ = std::thread([this] { Keep(); });
    return started;
  }
  if (!beside) return started;
  given_up_ = true;
  Note(fmt::format("nothing is uploaded: {}; tdbg upload {} {} sends it once the job has ended",
                   started.message(), ShellWord(run_directory), ShellWord(url)));
  return OkStatus();
}

bool UploadProcess::Pause(int64_t millis) {
  std::unique_lock lock(mutex_);
  return !job_is_over_.wait_for(lock, std::chrono::milliseconds(millis), [this] { return over_; });
}

void UploadProcess::Keep() {
  int64_t pause_millis = kFirstPauseMillis;
  int tries_at_the_end = 0;
  bool said = false;
  while (true) {
    const int64_t began = base::SystemClock().MonotonicNanos();
    if (process_) ended_ = process_->Wait(-1);
    process_.reset();
    if (!ended_ || !ended_->signaled) return;  // it has said why
    if (base::SystemClock().MonotonicNanos() - began > kSettledNanos) pause_millis = kFirstPauseMillis;
    if (!std::exchange(said, true))
      Note(fmt::format("tdbg-store was ended by signal {}, and is started again", ended_->code));
    if (!Pause(pause_millis) && ++tries_at_the_end > kTriesAtTheEnd) return;
    pause_millis = std::min(2 * pause_millis, kLongestPauseMillis);
    const Status claimed = Claim();
    if (claimed.code() == Code::kAlreadyExists) {
      // Somebody else sends this run by now.
      Note(fmt::format("nothing more is uploaded: {}", claimed.message()));
      ended_ = base::ExitState{false, 6};
      return;
    }
    // Anything else may pass: a store that does not answer, a machine that starts nothing just now.
  }
}

bool UploadProcess::Finish() {
  if (!keeper_.joinable()) return !given_up_;
  {
    const std::lock_guard guard(mutex_);
    over_ = true;
    job_is_alive_.reset();
  }
  job_is_over_.notify_all();
  keeper_.join();
  const std::vector<std::string> said = base::SplitList(base::Trim(base::ReadToEnd(answers_.get())), ' ');
  if (said.size() == 3 && said[0] == "there") {
    const auto files = base::ParseInt(said[1]), bytes = base::ParseInt(said[2]);
    if (files && bytes)
      there_ = fmt::format("{}, {}", base::Counted(static_cast<uint64_t>(*files), "file"),
                           base::FormatBytes(static_cast<uint64_t>(*bytes)));
  }
  if (ended_ && ended_->signaled) {
    Note(fmt::format(
        "tdbg-store was ended by signal {} whenever it was started, so not all of the run is in {}; "
        "tdbg upload {} {} sends the rest",
        ended_->code, url_, ShellWord(run_directory_), ShellWord(url_)));
  }
  return ended_ && ended_->shell_code() == 0;
}

}  // namespace tdbg::cli

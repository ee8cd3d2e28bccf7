#include "rulehost/host_process.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>

#include "base/clock.h"
#include "base/process.h"
#include "base/text.h"

namespace tdbg::rulehost {
namespace {

constexpr size_t kOutputKept = 16 << 10;
constexpr size_t kOutputShown = 4 << 10;
constexpr size_t kLastWords = 700;  // of a StatusDetails, which holds 1024 characters in all
constexpr size_t kLongestLine = 8u << 20;
constexpr int kWithoutPidfdMillis = 100;
constexpr int kLastWordsMillis = 1000;
constexpr int kGoodbyeMillis = 200;
constexpr size_t kSendAtOnce = 256 << 10;
constexpr int kReadsAtOnce = 64;  // 256 KiB: more than a pipe holds, unless somebody goes on writing

int64_t Now() { return base::SystemClock().MonotonicNanos(); }

std::string SignalText(int number) {
  const char* const name = ::sigabbrev_np(number);
  return fmt::format("signal {}{}{}", number, name ? " SIG" : "", name ? name : "");
}

}  // namespace

HostProcess::HostProcess(HostOptions options, const nlohmann::json& first, std::function<void()> answered)
    : options_(std::move(options)),
      answered_(std::move(answered)),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  to_send_ = first.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  waiting_.push_back({"while it started", "limit_start_seconds", options_.start_millis});
  deadline_nanos_ = Now() + options_.start_millis * 1'000'000;
  thread_ = std::thread([this] { Run(); });
}

HostProcess::~HostProcess() { End(); }

void HostProcess::End() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  const uint64_t one = 1;
  (void)!::write(wake_.get(), &one, sizeof(one));
  if (thread_.joinable()) thread_.join();
}

void HostProcess::Tell(const nlohmann::json& message) {
  const std::lock_guard lock(mutex_);  // sent with the next question, before which it means nothing
  to_send_ += message.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

void HostProcess::Ask(const nlohmann::json& question, std::string about) {
  {
    const std::lock_guard lock(mutex_);
    if (broken_) return;
    if (waiting_.empty()) deadline_nanos_ = Now() + options_.answer_millis * 1'000'000;
    waiting_.push_back({std::move(about), "limit_seconds", options_.answer_millis});
    to_send_ += question.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  }
  const uint64_t one = 1;
  (void)!::write(wake_.get(), &one, sizeof(one));
}

std::optional<HostProcess::Reply> HostProcess::Take() {
  const std::lock_guard lock(mutex_);
  if (replies_.empty()) return std::nullopt;
  Reply reply = std::move(replies_.front());
  replies_.pop_front();
  return reply;
}

HostProcess::Reply HostProcess::Wait() {
  std::unique_lock lock(mutex_);
  news_.wait(lock, [&] { return !replies_.empty(); });
  Reply reply = std::move(replies_.front());
  replies_.pop_front();
  return reply;
}

std::string HostProcess::Output() const {
  const std::lock_guard lock(mutex_);
  const size_t from = output_.size() > kOutputShown ? output_.size() - kOutputShown : 0;
  return base::ToValidUtf8(std::string_view(output_).substr(from));
}

void HostProcess::Deliver(Reply reply) {
  {
    const std::lock_guard lock(mutex_);
    if (broken_ || ending_) return;
    if (!reply.status.ok()) broken_ = true;
    if (!waiting_.empty()) waiting_.pop_front();
    if (!waiting_.empty()) deadline_nanos_ = Now() + waiting_.front().limit_millis * 1'000'000;
    replies_.push_back(std::move(reply));
  }
  news_.notify_all();
  if (answered_) answered_();
}

// False once the child may not be talked to any more.
bool HostProcess::TakeLines() {
  char buffer[16384];
  ssize_t got;
  while ((got = ::read(socket_.get(), buffer, sizeof(buffer))) > 0)
    received_.append(buffer, static_cast<size_t>(got));
  const bool closed = got == 0;
  DrainOutput();  // what it printed before it answered belongs to the answer
  size_t begin = 0;
  for (size_t end; (end = received_.find('\n', begin)) != std::string::npos; begin = end + 1) {
    Reply reply;
    reply.json = nlohmann::json::parse(received_.begin() + static_cast<ptrdiff_t>(begin),
                                       received_.begin() + static_cast<ptrdiff_t>(end), nullptr, false);
    if (!reply.json.is_object()) {
      Deliver({Unavailable("its process answered what is no answer"), {}});
      return false;
    }
    const auto error = reply.json.find("error");
    if (error != reply.json.end())
      reply.status = Unavailable(error->is_string() ? error->get<std::string>() : "");
    const bool failed = !reply.status.ok();
    Deliver(std::move(reply));
    if (failed) return false;
  }
  received_.erase(0, begin);
  if (received_.size() > kLongestLine) {
    Deliver({Unavailable("its process answered more than a line may hold"), {}});
    return false;
  }
  return !closed;
}

// Not until nothing is left: a rule that prints as fast as we read would keep us beyond its time limit.
void HostProcess::DrainOutput() {
  char buffer[4096];
  for (int reads = 0; reads < kReadsAtOnce; ++reads) {
    const ssize_t got = ::read(output_end_.get(), buffer, sizeof(buffer));
    if (got <= 0) return;
    const std::lock_guard lock(mutex_);
    output_.append(buffer, static_cast<size_t>(got));
    if (output_.size() > 2 * kOutputKept) output_.erase(0, output_.size() - kOutputKept);
  }
}

// Where it was, as Python's faulthandler and the C++ host write it: the lines that are the same each time.
// The numbers around them (threads, addresses) would make the verdict of a replay another one.
std::string HostProcess::LastWords() {
  const std::lock_guard lock(mutex_);
  std::string text;
  size_t begin = 0;
  while (begin < output_.size()) {
    const size_t end = std::min(output_.find('\n', begin), output_.size());
    const std::string_view line = std::string_view(output_).substr(begin, end - begin);
    begin = end + 1;
    if (!line.starts_with("  File \"") && !line.starts_with("  at ")) continue;
    if (text.size() + line.size() + 1 > kLastWords) break;
    text += "\n" + std::string(line);
  }
  return base::ToValidUtf8(text);
}

std::optional<base::Child> HostProcess::Start() {
  const auto refused = [this](Status why) {
    Deliver({std::move(why), {}});
    return std::nullopt;
  };
  int pair[2], pipe[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
    return refused(ErrnoStatus(errno, "its process cannot be started"));
  base::UniqueFd theirs(pair[1]);
  socket_.reset(pair[0]);
  if (::pipe2(pipe, O_CLOEXEC) != 0) return refused(ErrnoStatus(errno, "its process cannot be started"));
  output_end_.reset(pipe[0]);
  base::UniqueFd output(pipe[1]);
  ::fcntl(socket_.get(), F_SETFL, O_NONBLOCK);
  ::fcntl(output_end_.get(), F_SETFL, O_NONBLOCK);

  base::SpawnOptions spawn;
  spawn.argv = options_.command;
  spawn.set_env = options_.environment;
  spawn.input_fd = theirs.get();
  spawn.output_fd = output.get();
  spawn.own_group = true;
  spawn.die_with_thread = true;
  spawn.memory_bytes = options_.memory_bytes;
  auto child = base::Child::Spawn(spawn);
  if (!child.ok()) return refused(child.status().Annotate("its process cannot be started"));
  return *std::move(child);
}

std::optional<HostProcess::Turn> HostProcess::NextTurn() {
  const std::lock_guard lock(mutex_);
  if (ending_) return std::nullopt;
  // A copy, and a replay asks about all of a run's steps at once.
  return Turn{to_send_.substr(0, kSendAtOnce), !waiting_.empty() && !broken_ ? deadline_nanos_ : -1};
}

void HostProcess::Exchange(const base::Child& child, const Turn& turn) {
  int timeout =
      turn.deadline_nanos < 0
          ? -1
          : static_cast<int>(std::clamp<int64_t>((turn.deadline_nanos - Now()) / 1'000'000 + 1, 0, 1 << 30));
  if (child.poll_fd() < 0)
    timeout = timeout < 0 ? kWithoutPidfdMillis : std::min(timeout, kWithoutPidfdMillis);
  const short wanted = static_cast<short>(POLLIN | (turn.sending.empty() ? 0 : POLLOUT));
  pollfd sources[] = {{wake_.get(), POLLIN, 0},
                      {talking_ ? socket_.get() : -1, wanted, 0},
                      {output_end_.get(), POLLIN, 0},
                      {child.poll_fd(), POLLIN, 0}};
  (void)::poll(sources, std::size(sources), timeout);
  uint64_t count;
  (void)!::read(wake_.get(), &count, sizeof(count));
  if (!turn.sending.empty() && (sources[1].revents & POLLOUT)) {
    const ssize_t sent =
        ::send(socket_.get(), turn.sending.data(), turn.sending.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    const std::lock_guard lock(mutex_);
    if (sent > 0) to_send_.erase(0, static_cast<size_t>(sent));
    if (sent < 0 && errno != EAGAIN) to_send_.clear();  // it has gone, which is found out below
  }
  DrainOutput();
  if ((sources[2].revents & POLLHUP) != 0 && (sources[2].revents & POLLIN) == 0) output_end_.reset();
  if (talking_) talking_ = TakeLines();
}

bool HostProcess::HasExited(base::Child* child) {
  const auto exit = child->Wait(0);
  if (!exit) return false;
  if (talking_) talking_ = TakeLines();  // its last answer may have come behind our look
  DrainOutput();
  std::string about;
  {
    const std::lock_guard lock(mutex_);
    if (broken_ || ending_) return true;
    about = waiting_.empty() ? "with nothing to do" : waiting_.front().about;
  }
  const std::string how = exit->signaled ? "was ended by " + SignalText(exit->code)
                                         : fmt::format("exited with code {}", exit->code);
  Deliver({Unavailable(fmt::format("its process {} {}{}", how, about, LastWords())), {}});
  return true;
}

bool HostProcess::EndedForBeingLate(base::Child* child) {
  Asked asked;
  {
    const std::lock_guard lock(mutex_);
    if (waiting_.empty() || Now() < deadline_nanos_) return false;
    asked = waiting_.front();
  }
  // faulthandler and the C++ host say where they are when they get this one.
  child->SignalGroup(SIGABRT);
  (void)child->Wait(kLastWordsMillis);
  DrainOutput();
  Deliver({Status(Code::kDeadlineExceeded,
                  fmt::format("it was still busy after {} s ({}) {}, and was ended{}",
                              asked.limit_millis / 1000.0, asked.limit_key, asked.about, LastWords())),
           {}});
  return true;
}

void HostProcess::LetGo(base::Child* child) {
  // Its input's end lets a host that is idle leave by itself; everything it started goes, too.
  socket_.reset();
  bool idle = talking_;
  {
    const std::lock_guard lock(mutex_);
    idle = idle && waiting_.empty();
  }
  if (!child->Wait(idle ? kGoodbyeMillis : 0)) child->SignalGroup(SIGKILL);
  (void)child->Wait(-1);
  DrainOutput();
  child->SignalGroup(SIGKILL);
}

bool HostProcess::IsBroken() const {
  const std::lock_guard lock(mutex_);
  return broken_;
}

void HostProcess::Run() {
  std::optional<base::Child> child = Start();
  if (!child) return;
  while (const std::optional<Turn> turn = NextTurn()) {
    Exchange(*child, *turn);
    if (HasExited(&*child) || IsBroken()) break;
    if (turn->deadline_nanos >= 0 && Now() >= turn->deadline_nanos && EndedForBeingLate(&*child)) break;
  }
  LetGo(&*child);
}

}  // namespace tdbg::rulehost

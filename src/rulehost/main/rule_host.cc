// tdbg-rule-host: judges one run with one rule of a shared library. A program of its own, since the library's
// code is not ours: what it does to its process it does to nobody else.
//
//   standard input: a socket; questions come and answers go as JSON objects, one a line
//   (src/rulehost/README.md)
#include <dlfcn.h>
#include <execinfo.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/posix.h"
#include "rulehost/library.h"
#include "rulehost/messages.h"
#include "rules/trial_source.h"

namespace {

using nlohmann::json;
using tdbg::Result;
using tdbg::Status;

// Where it was. Best effort in a process that is lost anyway: dladdr is not async-signal-safe, and an alarm
// ends us if it hangs.
void SayWhere(int number) {
  ::alarm(1);
  void* frames[24];
  const int count = ::backtrace(frames, std::size(frames));
  for (int i = 2; i < count; ++i) {  // this function and the kernel's trampoline say nothing
    Dl_info info = {};
    if (!::dladdr(frames[i], &info) || !info.dli_fname) continue;
    const char* const slash = std::strrchr(info.dli_fname, '/');
    const auto offset = static_cast<size_t>(
        static_cast<char*>(frames[i]) - static_cast<char*>(info.dli_sname ? info.dli_saddr : info.dli_fbase));
    std::fprintf(stderr, "  at %s+0x%zx (%s)\n", info.dli_sname ? info.dli_sname : "?", offset,
                 slash ? slash + 1 : info.dli_fname);
  }
  ::signal(number, SIG_DFL);
  ::raise(number);
}

class Host {
 public:
  explicit Host(int fd) : fd_(fd) {}

  int Run() {
    std::string line;
    while (ReadLine(&line)) {
      const json message = json::parse(line, nullptr, false);
      if (!message.is_object()) return 2;
      Result<json> reply = Answer(message);
      if (reply.ok() && reply->is_null()) continue;  // a message without an answer
      if (!Send(reply.ok() ? *reply : json{{"error", reply.status().message()}}) || !reply.ok()) return 1;
      if (!reply->value("findings", json::array()).empty()) return 0;  // its first hit ends a rule
    }
    return 0;
  }

 private:
  bool ReadLine(std::string* line) {
    while (true) {
      if (const size_t end = received_.find('\n', begin_); end != std::string::npos) {
        line->assign(received_, begin_, end - begin_);
        begin_ = end + 1;
        return true;
      }
      received_.erase(0, begin_);
      begin_ = 0;
      char buffer[65536];
      const ssize_t got = ::read(fd_, buffer, sizeof(buffer));
      if (got <= 0) return false;
      received_.append(buffer, static_cast<size_t>(got));
    }
  }

  bool Send(const json& reply) {
    const std::string line = reply.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
    return tdbg::base::WriteFully(fd_, std::as_bytes(std::span(line))) == 0;
  }

  Result<json> Answer(const json& message) {
    const std::string op = message.value("op", "");
    if (op == "describe" || op == "judge") return Begin(message, op == "judge");
    if (op == "worker_lost") {
      lost_.push_back({message.value("attempt", int64_t{0}), message.value("worker", ""),
                       message.value("from_step", int64_t{0})});
      return json();
    }
    if (!rule_) return tdbg::Internal("asked to judge before it was told what");
    if (op == "step") {
      last_step_ = message.value("step", int64_t{-1});
      ShowAttempt(message.value("attempt", int64_t{-1}));
    }
    if (op != "step" && op != "end") return tdbg::Internal("asked for '" + op + "'");
    TDBG_ASSIGN_OR_RETURN(const size_t position, Find(last_step_));
    auto answer = rule_->Invoke(source_->At(position, lost_), op == "end");
    if (answer.ok()) return answer;
    return answer.status().Annotate(op == "end" ? "at the end of the run"
                                                : fmt::format("at step {}", last_step_));
  }

  Result<json> Begin(const json& message, bool judge) {
    TDBG_ASSIGN_OR_RETURN(
        const tdbg::rulehost::Library library,
        tdbg::rulehost::Library::Load(message.value("file", ""), message.value("class", "")));
    if (!judge) return library.Describe();
    TDBG_ASSIGN_OR_RETURN(rule_, tdbg::rulehost::LibraryRule::Make(
                                     library.rule_class(), message.value("parameters", json::object())));
    tdbg::TrialOptions options;
    options.attempt = message.value("attempt", int64_t{-1});
    TDBG_ASSIGN_OR_RETURN(trial_, tdbg::Trial::Open(message.value("run", ""), options));
    TDBG_RETURN_IF_ERROR(Refresh());
    return json{{"ready", true}};
  }

  // A step of this attempt is judged: what later ones have made of the run is not to be seen yet.
  void ShowAttempt(int64_t attempt) {
    if (attempt < 0 || std::exchange(attempt_, attempt) == attempt) return;
    tdbg::TrialAccess(*trial_).ShowUpTo(attempt);
    source_ = std::make_unique<tdbg::rules::TrialSource>(*trial_);
  }

  Status Refresh() {
    auto news = trial_->Refresh();
    if (!news.ok()) return news.status();
    source_ = std::make_unique<tdbg::rules::TrialSource>(*trial_);
    return tdbg::OkStatus();
  }

  // The step is on disk: whoever asks has seen all of it that will be judged.
  Result<size_t> Find(int64_t step) {
    for (int look = 0; look < 2; ++look) {
      const auto found = tdbg::TrialAccess(*trial_).FindStep(step);
      if (found && (*found < source_->complete_count() || look == 1)) return *found;
      if (look == 0) TDBG_RETURN_IF_ERROR(Refresh());
    }
    return tdbg::DataLoss(fmt::format("step {} cannot be found in {}", step, trial_->path()));
  }

  const int fd_;
  std::string received_;
  size_t begin_ = 0;
  int64_t last_step_ = -1, attempt_ = -1;
  std::unique_ptr<tdbg::Trial> trial_;
  std::unique_ptr<tdbg::rules::TrialSource> source_;
  std::vector<tdbg::rules::LostWorker> lost_;
  std::unique_ptr<tdbg::rulehost::LibraryRule> rule_;
};

}  // namespace

int main() {
  // The rule must neither read our questions nor write among our answers.
  const int fd = ::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 64);
  const int null = ::open("/dev/null", O_RDWR);
  if (fd < 0 || null < 0 || ::dup2(null, STDIN_FILENO) < 0) {
    std::fprintf(stderr, "tdbg-rule-host: judges for tdbg, which starts it; use tdbg check --rule-file\n");
    return 2;
  }
  ::setvbuf(stdout, nullptr, _IOLBF, 0);
  void* warm[1];
  (void)::backtrace(warm, 1);  // loads libgcc now, and not in a handler
  for (const int number : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) ::signal(number, SayWhere);
  return Host(fd).Run();
}

#include <stdlib.h>

#include <optional>

#include "actions/command.h"
#include "base/companion.h"
#include "base/durations.h"
#include "base/file.h"
#include "base/text.h"
#include "events/target.h"
#include "rulehost/host_command.h"
#include "rulehost/host_process.h"

namespace tdbg::events {
namespace {

constexpr int64_t kCheckMillis = 10'000;
// Printed before each event; the output behind the last mark is the current event's.
constexpr std::string_view kMark = "\x1e\n";

std::string HostFile() {
  const std::string home = base::FindPythonHome();
  return home.empty() ? "" : base::JoinPath(home, "tdbg/handlers/host.py");
}

class PythonProcess final : public Target {
 public:
  PythonProcess(const Handler& handler, const std::string& run) : handler_(handler.name) {
    const PythonTarget python = SplitTarget(handler.target);
    first_ = {{"op", "load"},
              {"name", handler.name},
              {"file", python.file},
              {"function", python.function},
              {"limit_seconds", handler.limit_seconds},
              {"limit_memory", handler.limit_memory}};
    options_.command = {rulehost::PythonInterpreter(), "-u", HostFile()};
    options_.environment = handler.environment;
    options_.environment["TDBG_RUN"] = run;
    options_.environment["PYTHONFAULTHANDLER"] = "1";
    options_.start_millis = base::MillisOfSeconds(handler.limit_start_seconds);
    options_.answer_millis = base::MillisOfSeconds(handler.limit_seconds);
    options_.memory_bytes = handler.limit_memory;
#ifdef __SANITIZE_ADDRESS__
    options_.memory_bytes = 0;  // the sanitizer reserves terabytes of private memory
#endif
  }

  void Prepare() override {
    if (host_) return;
    loaded_ = false;
    host_.emplace(options_, first_, nullptr);
  }

  Outcome Deliver(const Event& event) override {
    // If the process died while it handled nothing, no event has failed.
    if (host_ && loaded_ && host_->Take()) host_.reset();
    Prepare();
    if (!loaded_) {
      const Outcome started = Take("cannot be imported: ");
      if (!started.status.ok()) return started;
      loaded_ = true;
    }
    host_->Ask({{"op", "handle"}, {"event", event.json}}, "with event " + event.id);
    return Take("");
  }

 private:
  // Reads the next answer. After a failure the process is given up, and the next event starts a new one.
  Outcome Take(const char* what) {
    const rulehost::HostProcess::Reply reply = host_->Wait();
    Outcome outcome;
    outcome.output = host_->Output();
    if (const size_t mark = outcome.output.rfind(kMark); mark != std::string::npos)
      outcome.output.erase(0, mark + kMark.size());
    outcome.status = reply.status;
    outcome.process_gone = reply.status.code() == Code::kUnavailable;
    bool let_go = !reply.status.ok();
    if (const auto failed = reply.json.find("failed"); failed != reply.json.end()) {
      outcome.status = Unavailable(what + (failed->is_string() ? failed->get<std::string>() : ""));
      let_go = let_go || !loaded_;
    }
    if (let_go) host_.reset();
    return outcome;
  }

  const std::string handler_;
  nlohmann::json first_;
  rulehost::HostOptions options_;
  std::optional<rulehost::HostProcess> host_;
  bool loaded_ = false;
};

}  // namespace

std::unique_ptr<Target> MakePythonTarget(const Handler& handler, const std::string& run) {
  return std::make_unique<PythonProcess>(handler, run);
}

Status CheckPython(const Handler& handler) {
  if (HostFile().empty()) {
    return InvalidArgument(handler.where +
                           ": a handler in Python needs tdbg's Python package, which cannot be found; set "
                           "TDBG_HOME to the directory that holds it, or install the wheel");
  }
  const PythonTarget python = SplitTarget(handler.target);
  base::SpawnOptions spawn;
  spawn.argv = {rulehost::PythonInterpreter(), "-I", "-S", HostFile(), "check", python.file, python.function};
  const auto said = actions::RunCommand(spawn, kCheckMillis);
  if (!said.ok()) return InvalidArgument(handler.where + ": " + said.status().message());
  // It was killed from outside, which says nothing about the file.
  if (said->exit.signaled || said->exit.code == 0) return OkStatus();
  return InvalidArgument(handler.where + ": python: " + std::string(base::Trim(said->output)));
}

}  // namespace tdbg::events

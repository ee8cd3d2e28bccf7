#include "service/invocations.h"

#include <fmt/format.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>

#include "base/companion.h"
#include "base/durations.h"
#include "base/file.h"
#include "rulehost/host_command.h"
#include "rulehost/host_process.h"

namespace tdbg::service {
namespace {

constexpr size_t kMostCalls = 16;
// Printed in front of a call; what is behind the last one is this call's.
constexpr std::string_view kMark = "\x1e\n";

rulehost::HostOptions OptionsFor(const events::Handler& function) {
  rulehost::HostOptions options;
  options.command = {rulehost::PythonInterpreter(), "-u",
                     base::JoinPath(base::FindPythonHome(), "tdbg/handlers/host.py")};
  options.environment = function.environment;
  options.start_millis = base::MillisOfSeconds(function.limit_start_seconds);
  options.answer_millis = base::MillisOfSeconds(function.limit_seconds);
  options.memory_bytes = function.limit_memory;
#ifdef __SANITIZE_ADDRESS__
  options.memory_bytes = 0;  // the sanitizer reserves terabytes of private memory
#endif
  return options;
}

nlohmann::json FirstFor(const events::Handler& function) {
  const events::PythonTarget python = events::SplitTarget(function.target);
  return {{"op", "load"},
          {"name", function.name},
          {"file", python.file},
          {"function", python.function},
          {"limit_seconds", function.limit_seconds},
          {"limit_memory", function.limit_memory}};
}

}  // namespace

struct Invocations::Call {
  Call(events::Handler given, const Json& asked, std::string id, std::function<void(const Invoked&)> told)
      : function(std::move(given)),
        payload(nlohmann::json::parse(asked.dump())),
        request_id(std::move(id)),
        done(std::move(told)),
        host(OptionsFor(function), FirstFor(function), [this] { Wake(); }),
        thread([this] { Run(); }) {}
  ~Call() {
    given_up = true;
    Wake();
    thread.join();
  }

  void Wake() {
    const std::lock_guard lock(mutex);
    news.notify_all();
  }

  // The process's next answer; an empty one where nobody wants to know any more.
  rulehost::HostProcess::Reply Next() {
    std::optional<rulehost::HostProcess::Reply> reply;
    std::unique_lock lock(mutex);
    news.wait(lock, [&] { return given_up || (reply = host.Take()); });
    return reply ? *std::move(reply) : rulehost::HostProcess::Reply{Unavailable("given up"), {}};
  }

  std::string Output() const {
    std::string output = host.Output();
    if (const size_t mark = output.rfind(kMark); mark != std::string::npos)
      output.erase(0, mark + kMark.size());
    return output;
  }

  // Nothing: it went well, and `json` is what the process answered.
  std::optional<Invoked> Failure(const rulehost::HostProcess::Reply& reply) const {
    if (!reply.status.ok()) {
      const bool late = reply.status.code() == Code::kDeadlineExceeded;
      return Invoked{{{"errorType", late ? "Sandbox.Timedout" : "Runtime.ExitError"},
                      {"errorMessage", reply.status.message()},
                      {"requestId", request_id}},
                     true,
                     Output()};
    }
    if (!reply.json.contains("failed")) return std::nullopt;
    Json raised = reply.json.contains("raised") ? Json::parse(reply.json["raised"].dump()) : Json::object();
    raised["requestId"] = request_id;
    return Invoked{raised, true, Output()};
  }

  Invoked Answer() {
    if (const auto failure = Failure(Next())) return *failure;
    host.Ask({{"op", "invoke"}, {"payload", payload}, {"request_id", request_id}}, "in this call");
    const rulehost::HostProcess::Reply reply = Next();
    if (const auto failure = Failure(reply)) return *failure;
    const auto returned = reply.json.find("returned");
    return {returned == reply.json.end() ? Json() : Json::parse(returned->dump()), false, Output()};
  }

  void Run() {
    const Invoked invoked = Answer();
    if (!given_up) done(invoked);
    over = true;
  }

  const events::Handler function;
  const nlohmann::json payload;
  const std::string request_id;
  const std::function<void(const Invoked&)> done;
  std::atomic<bool> given_up = false, over = false;
  std::mutex mutex;
  std::condition_variable news;
  rulehost::HostProcess host;
  std::thread thread;  // last: it uses all the above
};

Invocations::Invocations() = default;
Invocations::~Invocations() = default;

bool Invocations::Start(events::Handler function, const Json& payload, const std::string& request_id,
                        std::function<void(const Invoked&)> done) {
  std::erase_if(calls_, [](const auto& call) { return call->over.load(); });
  if (calls_.size() >= kMostCalls) return false;
  calls_.push_back(std::make_unique<Call>(std::move(function), payload, request_id, std::move(done)));
  return true;
}

}  // namespace tdbg::service

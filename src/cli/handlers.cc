// tdbg handlers: manages the handlers of jobs' events, and is the process that calls them.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <optional>
#include <thread>

#include "base/background.h"
#include "base/file.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/event_handlers.h"
#include "cli/exit_codes.h"
#include "cli/flags.h"
#include "cli/json_output.h"
#include "cli/output.h"
#include "cli/run_path.h"
#include "cli/terminal.h"
#include "events/delivery.h"
#include "events/target.h"
#include "jobs/run_directory.h"

namespace tdbg::cli {
namespace {

const std::vector<std::string> kVerbs = {"list", "add", "remove", "deliver"};

class HandlersCommand : public Command {
 public:
  std::string name() const override { return "handlers"; }
  std::string help() const override { return "who is told of a job's events: list, add, remove, deliver"; }
  void Define(Flags& flags) override {
    flags.AddOption("WORDS", words_, "list | add NAME | remove NAME | deliver RUN")
        .TypeName("[list] | add NAME | remove NAME | deliver RUN")
        .Words(0, 2);
    flags.AddOption("--python", python_, "add: call this function with each event, as AWS Lambda does")
        .TypeName("FILE:FUNCTION");
    flags.AddOption("--exec", exec_, "add: a command, the event on its standard input").TypeName("COMMAND");
    flags.AddOption("--webhook", webhook_, "add: post the event there").TypeName("URL");
    flags.AddOption("--log", log_, "add: append the event to this file").TypeName("FILE");
    flags.AddFlag("--slack", slack_, "add: the webhook is one of Slack's, and takes a message");
    flags
        .AddOption("--pattern", pattern_, "add: only events that match this EventBridge pattern; default all")
        .TypeName("JSON");
    flags.AddOption("--limit-seconds", limit_seconds_, "add: how long one call may take; default 60")
        .TypeName("N")
        .Check(IntegerFrom(1));
    flags.AddOption("--retries", retries_, "add: further tries after one that failed; default 0")
        .TypeName("N")
        .Check(IntegerFrom(0));
    flags
        .AddOption("--on-event", on_event_,
                   "deliver, list: the handlers of this file, instead of registered ones")
        .TypeName("FILE|FILE.py:FUNCTION")
        .Repeatable();
    flags.AddFlag("--json", json_, "one JSON document on stdout");
    // For `tdbg run`, which keeps standard input open for as long as the job lives.
    flags.AddFlag("--launched", launched_, "").Hidden();
    flags.AddOption("--after", after_, "").Hidden();
    flags.Footer(
        "\nRegistered handlers hear of every job of yours that `tdbg run` starts (docs/events.md).\n"
        "example: tdbg handlers add stop --python handler.py:lambda_handler");
  }

  Result<int> Run() override {
    const std::string verb = words_.empty() ? "list" : words_[0];
    const bool listing = verb == "list";
    if (std::find(kVerbs.begin(), kVerbs.end(), verb) == kVerbs.end() ||
        (listing ? words_.size() > 1 : words_.size() != 2)) {
      return InvalidArgument(
          "handlers: accepted: list, add NAME --python|--exec|--webhook|--log ..., remove NAME, "
          "deliver RUN");
    }
    if (listing) return List();
    if (verb == "add") return Add(words_[1]);
    if (verb == "remove") return Remove(words_[1]);
    return Deliver(words_[1]);
  }

 private:
  Result<int> List() const;
  Result<int> Add(const std::string& name);
  Result<int> Remove(const std::string& name);
  Result<int> Deliver(const std::string& run);

  // The registered ones as they are written, and as they are changed. Not looked at more closely: one whose
  // file is gone must not be in the way of taking it out.
  static Result<nlohmann::json> Registered() {
    const std::string path = RegisteredHandlersPath();
    if (path.empty())
      return FailedPrecondition("handlers: no home directory to keep them in; set XDG_STATE_HOME");
    nlohmann::json none = {{"handlers", nlohmann::json::array()}};
    if (!base::LocalFileSystem().Exists(path)) return none;
    TDBG_ASSIGN_OR_RETURN(Document document, ReadDocument(path));
    const nlohmann::json& list = document.value.is_object() && document.value.contains("handlers")
                                     ? document.value["handlers"]
                                     : document.value;
    const auto is_object = [](const nlohmann::json& handler) { return handler.is_object(); };
    if (!list.is_array() || !std::all_of(list.begin(), list.end(), is_object))
      return InvalidArgument(path + " holds no list of handlers; mend it, or remove it and add them again");
    return document.value;
  }
  static std::string NameOf(const nlohmann::json& handler) {
    const auto name = handler.find("name");
    return name != handler.end() && name->is_string() ? name->get<std::string>() : std::string();
  }
  static Status Register(const nlohmann::json& document) {
    const std::string path = RegisteredHandlersPath();
    const std::string folder = std::filesystem::path(path).parent_path();
    TDBG_RETURN_IF_ERROR(base::LocalFileSystem().CreateDirectories(folder));
    TDBG_RETURN_IF_ERROR(base::LocalFileSystem().WriteFileAtomic(path, document.dump(2) + "\n"));
    std::error_code ignored;  // URLs of webhooks are secrets
    std::filesystem::permissions(
        path, std::filesystem::perms::owner_read | std::filesystem::perms::owner_write, ignored);
    return OkStatus();
  }

  std::vector<std::string> words_, on_event_;
  std::string python_, exec_, webhook_, log_, pattern_;
  bool slack_ = false, json_ = false, launched_ = false;
  std::optional<int64_t> limit_seconds_, retries_;
  int64_t after_ = 0;
};

Result<int> HandlersCommand::List() const {
  TDBG_ASSIGN_OR_RETURN(const HandlerFiles files, FindHandlers(on_event_, on_event_.empty()));
  if (json_) {
    Json list = Json::array();
    for (const events::Handler& handler : files.handlers)
      list.push_back(
          {{"name", handler.name}, {"target", events::Describe(handler)}, {"where", handler.where}});
    PrintJson({{"handlers", list}});
    return kExitOk;
  }
  Table table({"NAME", "TARGET", "WHERE"});
  for (const events::Handler& handler : files.handlers)
    table.Add({Printable(handler.name), Printable(events::Describe(handler)), Printable(handler.where)});
  if (!table.empty()) Print("{}", table.Format(Terminal::Of(STDOUT_FILENO)));
  if (table.empty()) Tell("tdbg: no handlers; tdbg handlers add NAME --python FILE:FUNCTION registers one\n");
  return kExitOk;
}

Result<int> HandlersCommand::Add(const std::string& name) {
  TDBG_ASSIGN_OR_RETURN(nlohmann::json document, Registered());
  nlohmann::json handler = {{"name", name}};
  if (!python_.empty()) {
    const events::PythonTarget python = events::SplitTarget(python_);
    handler["python"] = jobs::AbsolutePath(python.file) + ":" + python.function;
  }
  if (!exec_.empty()) handler["exec"] = exec_;
  if (!webhook_.empty()) handler["webhook"] = webhook_;
  if (!log_.empty()) handler["log"] = jobs::AbsolutePath(log_);
  if (slack_) handler["format"] = "slack";
  if (limit_seconds_) handler["limit_seconds"] = *limit_seconds_;
  if (retries_) handler["retries"] = *retries_;
  if (!pattern_.empty()) {
    TDBG_ASSIGN_OR_RETURN(const Document pattern, ParseJson(pattern_, "--pattern"));
    TDBG_RETURN_IF_ERROR(events::Pattern::Parse(pattern.value, pattern.source()).status());
    handler["pattern"] = pattern.value;
  }
  plan::Source source;
  source.name = "handlers add";
  TDBG_ASSIGN_OR_RETURN(const auto parsed,
                        events::ParseHandlers(nlohmann::json::array({handler}), source, "/"));
  if (parsed[0].kind == events::HandlerKind::kPython) TDBG_RETURN_IF_ERROR(events::CheckPython(parsed[0]));
  nlohmann::json& list = document.is_array() ? document : document["handlers"];
  for (const nlohmann::json& other : list) {
    if (NameOf(other) == name)
      return InvalidArgument(fmt::format("handlers: there is a handler {}; tdbg handlers remove {} first",
                                         Printable(name), ShellWord(name)));
  }
  list.push_back(handler);
  TDBG_RETURN_IF_ERROR(Register(document));
  if (json_) PrintJson({{"name", name}, {"target", events::Describe(parsed[0])}});
  return kExitOk;
}

Result<int> HandlersCommand::Remove(const std::string& name) {
  TDBG_ASSIGN_OR_RETURN(nlohmann::json document, Registered());
  nlohmann::json& list = document.is_array() ? document : document["handlers"];
  std::vector<std::string> names;
  for (size_t i = 0; i < list.size(); ++i) {
    names.push_back(NameOf(list[i]));
    if (names.back() != name) continue;
    list.erase(i);
    TDBG_RETURN_IF_ERROR(Register(document));
    if (json_) PrintJson({{"removed", name}});
    return kExitOk;
  }
  return InvalidArgument(
      fmt::format("handlers: no handler {}; there {}", Printable(name),
                  names.empty() ? "are none" : fmt::format("are {}", fmt::join(names, ", "))));
}

Result<int> HandlersCommand::Deliver(const std::string& run) {
  TDBG_ASSIGN_OR_RETURN(HandlerFiles files, FindHandlers(on_event_, on_event_.empty()));
  events::DeliveryOptions options;
  if (launched_) {
    options.run = run;
  } else {
    TDBG_ASSIGN_OR_RETURN(options.run, ResolveRun(run));
  }
  if (files.handlers.empty())
    return InvalidArgument("handlers: none are registered; name a file with --on-event, or add one");
  options.handlers = std::move(files.handlers);
  options.after = static_cast<uint64_t>(std::max<int64_t>(0, after_));
  options.log = [](const std::string& line) { Tell("tdbg: {}\n", Printable(line)); };
  base::StayInBackground();
  ::signal(SIGPIPE, SIG_IGN);
  events::Deliverer deliverer(std::move(options));
  std::thread waiting;
  if (launched_) {
    ::signal(SIGINT, SIG_IGN);  // the terminal's ctrl-C is the training's
    waiting = std::thread([&deliverer] {
      char byte;
      while (::read(STDIN_FILENO, &byte, 1) > 0) {
      }
      deliverer.JobEnded();
    });
  } else {
    deliverer.JobEnded();
  }
  const Status status = deliverer.Follow();
  if (waiting.joinable()) waiting.join();
  if (!status.ok()) return status;
  return kExitOk;
}

}  // namespace

std::unique_ptr<Command> MakeHandlersCommand() { return std::make_unique<HandlersCommand>(); }

}  // namespace tdbg::cli

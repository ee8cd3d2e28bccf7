// tdbg doctor: will it work here, and if not, what is missing?
#include <fmt/format.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/companion.h"
#include "base/file.h"
#include "base/text.h"
#include "base/wrapped.h"
#include "cli/command.h"
#include "cli/exit_codes.h"
#include "cli/flags.h"
#include "cli/output.h"
#include "cli/probe.h"
#include "cli/terminal.h"
#include "cli/version.h"
#include "jobs/run_directory.h"

namespace tdbg::cli {
namespace {

// A journal of the default size and the segments of a short run.
constexpr uint64_t kLittleRoom = 1u << 30;

enum class Verdict { kGood, kWarning, kBad };

struct Finding {
  std::string what;
  Verdict verdict = Verdict::kGood;
  std::string answer;
};

class DoctorCommand : public Command {
 public:
  std::string name() const override { return "doctor"; }
  std::string help() const override { return "check this machine: Python, frameworks, extension, disk, CPU"; }
  void Define(Flags& flags) override {
    flags.AddOption("--python", python_, "the Python that will train; default: python, then python3, in PATH")
        .TypeName("COMMAND");
    flags.AddOption("--dir", directory_, "where runs will lie; default: ./tdbg-runs, or here")
        .TypeName("DIR");
    flags.AddFlag("--json", json_, "one JSON document on stdout");
    flags.Footer("\nexit code: 0, or 6 if something is missing");
  }

  Result<int> Run() override {
    LookAtProgram();
    LookAtPython();
    LookAtDisk();
    LookAtMachine();
    bool bad = false;
    for (const Finding& finding : findings_) bad = bad || finding.verdict == Verdict::kBad;
    if (json_)
      PrintAsText();
    else
      PrintText();
    return bad ? kExitRefused : kExitOk;
  }

 private:
  void Add(std::string what, Verdict verdict, std::string answer) {
    findings_.push_back({std::move(what), verdict, std::move(answer)});
  }
  void LookAtProgram();
  void LookAtPython();
  void LookAtDisk();
  void LookAtMachine();
  void PrintAsText() const;
  void PrintText() const;

  std::string python_, directory_;
  bool json_ = false;
  std::vector<Finding> findings_;
};

void DoctorCommand::LookAtProgram() {
  Add("tdbg", Verdict::kGood, kVersion);
  const std::string home = base::FindPythonHome();
  if (home.empty()) {
    Add("python part", Verdict::kBad,
        "not found; install the wheel, or set TDBG_HOME to the directory that holds it");
    return;
  }
  const std::string boot =
      base::JoinPath(base::JoinPath(base::JoinPath(home, "tdbg"), "boot"), "sitecustomize.py");
  const bool there = base::LocalFileSystem().Exists(boot);
  Add("python part", there ? Verdict::kGood : Verdict::kBad,
      there ? home : home + " holds no tdbg/boot/sitecustomize.py; install the wheel again");
}

void DoctorCommand::LookAtPython() {
  std::vector<std::string> candidates = {python_};
  // The order in which a user types them: tdbg run -- python train.py.
  if (python_.empty()) candidates = {"python", "python3"};
  Result<Json> probed = Status(Code::kNotFound, "no Python was asked");
  for (const std::string& candidate : candidates) {
    probed = ProbePython(candidate, base::FindPythonHome());
    if (probed.ok()) break;
  }
  if (!probed.ok()) {
    Add("python", Verdict::kBad, probed.status().message() + "; name one with --python");
    return;
  }
  const Json& answer = *probed;
  const auto text = [&](const char* key) {
    return answer.contains(key) && answer[key].is_string() ? answer[key].get<std::string>() : std::string();
  };
  Add("python", Verdict::kGood, text("version") + ", " + text("executable"));
  std::string frameworks;
  if (const auto found = answer.find("frameworks"); found != answer.end() && found->is_object()) {
    for (const auto& [framework, version] : found->items()) {
      if (!version.is_string()) continue;
      frameworks += (frameworks.empty() ? "" : ", ") + framework + " " + version.get<std::string>();
    }
  }
  Add("frameworks", frameworks.empty() ? Verdict::kWarning : Verdict::kGood,
      frameworks.empty()
          ? "none that tdbg knows is installed for this Python; training with another one? Name "
            "it with --python"
          : frameworks);
  for (const char* module : {"_capture", "_trial"}) {
    const std::string state = text(module);
    const bool loads = state == "loads";
    Add(fmt::format("tdbg.{}", module), loads ? Verdict::kGood : Verdict::kBad,
        loads ? state : state + "; install the wheel built for this Python");
  }
}

void DoctorCommand::LookAtDisk() {
  base::FileSystem& files = base::LocalFileSystem();
  std::string directory = directory_;
  if (directory.empty()) directory = files.Exists(jobs::kRunsRoot) ? jobs::kRunsRoot : ".";
  directory = jobs::AbsolutePath(directory);
  if (!files.Exists(directory)) {
    Add("runs", Verdict::kBad, "no such directory; make it: " + directory);
    return;
  }
  const std::string type = FileSystemType(directory);
  const bool local = IsLocalFileSystem(type);
  Add("file system", local ? Verdict::kGood : Verdict::kWarning,
      fmt::format("{}{} at {}", type,
                  local ? "" : ", not of this machine: set journal.directory to a local disk", directory));
  const Status mapping = ProbeMapping(directory);
  Add("map and pre-allocate", mapping.ok() ? Verdict::kGood : Verdict::kBad,
      mapping.ok() ? "works" : mapping.message() + "; choose another --dir, or journal.directory");
  if (const auto free_bytes = files.FreeBytes(directory); free_bytes.ok()) {
    const bool little = *free_bytes < kLittleRoom;
    Add("free room", little ? Verdict::kWarning : Verdict::kGood,
        base::FormatBytes(*free_bytes) +
            (little ? ", little for raw tensors; see --budget and --journal" : ""));
  }
}

void DoctorCommand::LookAtMachine() {
  Add("page size", Verdict::kGood, fmt::format("{} bytes", ::sysconf(_SC_PAGESIZE)));
  Add("processors", Verdict::kGood,
      fmt::format("{}, {}", ::sysconf(_SC_NPROCESSORS_ONLN), VectorInstructions()));
  const int64_t watches = InotifyWatches();
  Add("inotify", watches > 0 ? Verdict::kGood : Verdict::kWarning,
      watches > 0 ? fmt::format("{} watches", watches) : "not to be had: watchers will poll slowly");
  if (const char* environment = ::getenv("TDBG_CONFIG"); environment && *environment) {
    Add("TDBG_CONFIG", Verdict::kGood, environment);
  }
}

void DoctorCommand::PrintAsText() const {
  Json list = Json::array();
  for (const Finding& finding : findings_) {
    list.push_back({{"what", finding.what},
                    {"verdict", finding.verdict == Verdict::kGood      ? "good"
                                : finding.verdict == Verdict::kWarning ? "warning"
                                                                       : "bad"},
                    {"answer", finding.answer}});
  }
  PrintJson(list);
}

void DoctorCommand::PrintText() const {
  const Terminal terminal = Terminal::Of(STDOUT_FILENO);
  size_t columns = 0;
  for (const Finding& finding : findings_) columns = std::max(columns, finding.what.size());
  for (const Finding& finding : findings_) {
    const auto [mark, colour] = finding.verdict == Verdict::kGood      ? std::pair("ok  ", Colour::kGreen)
                                : finding.verdict == Verdict::kWarning ? std::pair("note", Colour::kYellow)
                                                                       : std::pair("BAD ", Colour::kRed);
    Print("{}  {:<{}}  {}\n", Paint(terminal, colour, mark), finding.what, columns,
          base::Wrapped(Printable(finding.answer), static_cast<int>(8 + columns)));
  }
}

}  // namespace

std::unique_ptr<Command> MakeDoctorCommand() { return std::make_unique<DoctorCommand>(); }

}  // namespace tdbg::cli

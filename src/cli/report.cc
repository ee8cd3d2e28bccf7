// tdbg report: a run's page as one file to keep or to send.
#include "page/report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/clock.h"
#include "base/file.h"
#include "base/text.h"
#include "cli/black_boxes.h"
#include "cli/command.h"
#include "cli/exit_codes.h"
#include "cli/flags.h"
#include "cli/json_output.h"
#include "cli/output.h"
#include "cli/run_path.h"
#include "cli/terminal.h"
#include "cli/verdicts.h"
#include "cli/version.h"
#include "format/run_files.h"
#include "format/version.h"
#include "query/health.h"
#include "rules/incidents.h"

namespace tdbg::cli {
namespace {

constexpr int64_t kStepsBefore = 10, kStepsAfter = 5;

// What the reader of a report can type on the machine that has the run.
std::vector<page::ReportCommand> CommandsFor(const std::string& path,
                                             const std::vector<rules::Incident>& incidents) {
  const std::string run = ShellWord(path);
  std::vector<page::ReportCommand> commands;
  commands.push_back({"the page, with every step", "tdbg view " + run});
  commands.push_back({"what happened, as a story", "tdbg explain " + run});
  for (const rules::Incident& incident : incidents) {
    if (incident.tensor.empty() || incident.muted()) continue;
    commands.push_back({"the tensor that it shows in, near that step",
                        fmt::format("tdbg show {} {} --steps {}:{}", run, ShellWord(incident.tensor),
                                    std::max<int64_t>(0, incident.first_step - kStepsBefore),
                                    incident.first_step + kStepsAfter)});
    break;
  }
  if (!BlackBoxesOf(path).empty())
    commands.push_back({"the step that was kept whole, under a debugger", "tdbg replay " + run});
  commands.push_back({"to judge it again", "tdbg check " + run});
  const auto text = base::LocalFileSystem().ReadFile(base::JoinPath(path, format::kRunFile));
  if (!text.ok()) return commands;
  const auto info = format::RunInfo::FromJson(*text);
  if (!info.ok() || info->command.empty()) return commands;
  std::string words;
  for (const std::string& word : info->command) words += " " + ShellWord(word);
  commands.push_back({"the training itself, watched again", "tdbg run --" + words});
  return commands;
}

// "train-20261124.html": what the run's directory is called, of characters that every system takes.
std::string FileNameFor(std::string_view run) {
  std::string name;
  for (const char c : run.substr(0, 100)) {
    const bool plain = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
                       c == '_' || c == '-' || (c == '.' && !name.empty());
    name += plain ? c : '_';
  }
  return "tdbg-report-" + name + ".html";
}

class ReportCommand : public Command {
 public:
  std::string name() const override { return "report"; }
  std::string help() const override { return "a run's page as one file, to keep or to send"; }
  void Define(Flags& flags) override {
    flags.AddOption("RUN", run_, "a path, a name under ./tdbg-runs, or last").Required();
    flags.AddOption("-o,--output", output_, "the file; default ./tdbg-report-NAME.html").TypeName("FILE");
    flags.AddOption("--budget", budget_, "at most so many bytes; default 5MB").TypeName("SIZE");
    flags.AddFlag("--json", json_, "file, size and what was left out as one JSON document on stdout");
    flags.Footer("\nOpens in any browser from the disk, asks no network. Says what was left out.");
  }

  Result<int> Run() override {
    page::ReportOptions options;
    const auto budget = base::ParseBytes(budget_);
    if (!budget)
      return InvalidArgument(fmt::format("--budget {}: no size such as 5MB or 800 kB", Printable(budget_)));
    options.most_bytes = *budget;
    options.by = std::string("tdbg ") + kVersion;
    char now[32];
    options.made = base::FormatUtc(base::SystemClock().WallNanos(), now);
    TDBG_ASSIGN_OR_RETURN(const std::string path, ResolveRunToRead(run_));
    TDBG_ASSIGN_OR_RETURN(const std::unique_ptr<query::Run> run, query::Run::Open(path));
    std::vector<rules::RuleStatus> statuses = query::StatusesOf(run->trial());
    if (statuses.empty()) {
      TDBG_ASSIGN_OR_RETURN(statuses, JudgeByProfile(run->trial()));
      run->Judge(statuses);
    }
    options.commands = CommandsFor(run->trial().path(), rules::IncidentsOf(statuses));
    auto report = page::MakeReport(*run, options);
    if (!report.ok()) return report.status().Annotate("--budget " + budget_);
    const std::string file = output_.empty() ? FileNameFor(run->trial().name()) : output_;
    TDBG_RETURN_IF_ERROR(base::LocalFileSystem().WriteFileAtomic(file, report->html));
    if (json_) {
      PrintJson({{"report", file}, {"bytes", report->html.size()}, {"left_out", report->left_out}});
    } else {
      Print("{}\n", Printable(file));
      Note(fmt::format("{}; open it in a browser, or send it: it needs no network",
                       base::FormatBytes(report->html.size())));
      Note(fmt::format("left out for --budget {}: {}", budget_, fmt::join(report->left_out, "; ")));
    }
    TDBG_RETURN_IF_ERROR(CouldNotRead(run->trial().damage()));
    return kExitOk;
  }

 private:
  std::string run_, output_, budget_ = "5MB";
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> MakeReportCommand() { return std::make_unique<ReportCommand>(); }

}  // namespace tdbg::cli

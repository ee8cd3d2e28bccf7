// tdbg ls: the runs below a directory, newest last, so that the newest stands above the prompt.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>

#include "base/file.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/exit_codes.h"
#include "cli/output.h"
#include "cli/report.h"
#include "cli/run_path.h"
#include "jobs/run_directory.h"

namespace tdbg::cli {
namespace {

std::string Findings(const Report& report) {
  if (!report.why_nothing.empty()) return "nothing captured";
  std::string text;
  for (const rules::RuleStatus& rule : report.rules) {
    if (rule.state != rules::RuleState::kIssuesFound && rule.state != rules::RuleState::kError) continue;
    if (!text.empty()) text += ", ";
    text += Printable(rule.name);
    if (rule.state == rules::RuleState::kError)
      text += " (error)";
    else if (!rule.findings.empty())
      text += fmt::format(" at {}", rule.findings.front().global_step);
  }
  if (!text.empty()) return text;
  return report.rules.empty() ? "not judged" : "none";
}

class LsCommand : public Command {
 public:
  std::string name() const override { return "ls"; }
  std::string help() const override { return "list runs: name, state, steps, size, findings"; }
  void Define(CLI::App& app) override {
    app.add_option("ROOT", root_,
                   "where runs lie; default ./tdbg-runs, and what was started here with --dir");
    app.add_flag("--json", json_, "one JSON document on stdout");
  }

  Result<int> Run() override {
    const bool of_here = root_ == jobs::kRunsRoot;
    std::vector<NamedRun> runs;
    if (of_here) {
      runs = RunsOfHere();
    } else {
      for (const std::string& path : ListRuns(root_)) runs.push_back({path, RunName(path, root_)});
    }
    if (runs.empty() && !base::LocalFileSystem().Exists(root_)) {
      if (!of_here) return NotFound("no such directory '" + root_ + "'; give the one that holds the runs");
      if (json_)
        PrintJson(Json::array());
      else
        Tell("tdbg: no run yet under ./tdbg-runs; start one with tdbg run -- COMMAND\n");
      return kExitOk;
    }
    const Terminal terminal = Terminal::Of(STDOUT_FILENO);
    Table table({"RUN", "STATE", "ATTEMPTS", "STEPS", "SIZE", "FINDINGS"});
    for (const size_t column : {2, 3, 4}) table.AlignRight(column);
    Json list = Json::array();
    std::vector<std::string> damage;
    Status unreadable;  // for another reason than damage
    for (const auto& [path, name] : runs) {
      // A run that cannot be read is listed as such: one bad directory must not hide the others.
      const auto report = [&]() -> Result<Report> {
        TDBG_ASSIGN_OR_RETURN(const std::unique_ptr<Trial> trial, Trial::Open(path));
        TDBG_ASSIGN_OR_RETURN(const bool news, trial->Refresh());
        (void)news;
        return MakeReport(*trial, {});
      }();
      if (!report.ok()) {
        if (report.status().code() == Code::kDataLoss)
          damage.push_back(name + ": " + report.status().message());
        else if (unreadable.ok())
          unreadable = Status(report.status()).Annotate(Printable(name));
        list.push_back({{"run", jobs::AbsolutePath(path)}, {"error", report.status().message()}});
        table.Add({Printable(name), "unreadable", "", "", "", Printable(report.status().message())});
        continue;
      }
      for (const std::string& place : report->damage) damage.push_back(name + ": " + place);
      list.push_back(ReportToJson(*report));
      table.Add({Printable(name), StateWords(*report), std::to_string(report->attempts.size()),
                 std::to_string(report->steps), base::FormatBytes(report->bytes), Findings(*report)});
    }
    if (json_) {
      PrintJson(list);
    } else if (table.empty()) {
      Tell("tdbg: no run in {}; runs are the directories that hold a run.json, or that smdebug wrote\n",
           root_);
    } else {
      Print("{}", table.Format(terminal));
    }
    TDBG_RETURN_IF_ERROR(CouldNotRead(damage, "runs"));
    TDBG_RETURN_IF_ERROR(unreadable);
    return kExitOk;
  }

 private:
  std::string root_ = jobs::kRunsRoot;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> MakeLsCommand() { return std::make_unique<LsCommand>(); }

}  // namespace tdbg::cli

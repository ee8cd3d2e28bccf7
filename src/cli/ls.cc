// tdbg ls: the runs below a directory, newest last, so that the newest stands above the prompt.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/file.h"
#include "base/stable_sort.h"
#include "base/text.h"
#include "cli/bucket_runs.h"
#include "cli/command.h"
#include "cli/exit_codes.h"
#include "cli/flags.h"
#include "cli/output.h"
#include "cli/run_path.h"
#include "cli/run_summary.h"
#include "jobs/run_directory.h"
#include "jobs/run_removal.h"
#include "rules/details.h"

namespace tdbg::cli {
namespace {

std::string Findings(const RunSummary& report) {
  if (!report.why_nothing.empty()) return "nothing captured";
  std::string text;
  for (const rules::RuleStatus& rule : report.rules) {
    if (rule.state != rules::RuleState::kIssuesFound && rule.state != rules::RuleState::kError) continue;
    if (!text.empty()) text += ", ";
    if (!rule.findings.empty() && !rule.findings.front().detector.empty()) {
      bool first = true;
      for (const rules::Incident& incident : report.incidents) {
        if (incident.rule != rule.name || incident.muted()) continue;
        text += fmt::format("{}{} at {}", std::exchange(first, false) ? "" : ", ", incident.title,
                            report.names.Of(incident.first_step));
      }
      continue;
    }
    text += Printable(rule.name);
    if (rule.state == rules::RuleState::kError)
      text += rules::HadTooLittle(rule) ? " (not judged)" : " (error)";
    else if (!rule.findings.empty())
      text += " at " + report.names.Of(rule.findings.front().global_step);
  }
  if (!text.empty()) return text;
  const rules::Judging judging = rules::JudgingOf(report.rules);
  const auto count =
      std::ranges::count_if(report.incidents, [](const rules::Incident& one) { return one.muted(); });
  const std::string muted = count > 0 ? fmt::format(", {} muted", count) : "";
  if (IsAlive(report)) return report.rules.empty() ? "not judged" : "none so far" + muted;
  return judging.judged == 0 ? "not judged" : "none" + judging.ByHowMany() + muted;
}

class LsCommand : public Command {
 public:
  std::string name() const override { return "ls"; }
  std::string help() const override { return "list runs: name, state, steps, size, findings"; }
  void Define(Flags& flags) override {
    flags.AddOption(
        "ROOT", root_,
        "where runs lie, also s3://BUCKET/PREFIX; default ./tdbg-runs, and what was started here with "
        "--dir");
    flags.AddFlag("--size", by_size_,
                  "by what each occupies on disk, logs and black boxes included, the largest last; a total");
    flags
        .AddOption("--where", where_,
                   "only the directory of this one run, or the URL of one that is in a bucket only: a path, "
                   "a name, a job, or last")
        .TypeName("RUN");
    flags.AddFlag("--json", json_, "one JSON document on stdout");
  }

  Result<int> Run() override {
    if (!where_.empty()) {
      TDBG_ASSIGN_OR_RETURN(const RunPlace place, PlaceOfRun(where_));
      const std::string& path = place.directory.empty() ? place.url : place.directory;
      if (json_)
        PrintJson({{"run", path}});
      else
        Print("{}\n", path);
      return kExitOk;
    }
    if (root_.starts_with("s3://") || root_.starts_with("file://")) {
      TDBG_RETURN_IF_ERROR(PrintBucketRuns(root_, by_size_, json_));
      return kExitOk;
    }
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
    std::vector<uint64_t> on_disk;
    if (by_size_) {
      std::vector<std::pair<uint64_t, NamedRun>> sized;
      for (NamedRun& run : runs) {
        const uint64_t bytes = jobs::DiskUseOf(run.path).bytes;
        sized.emplace_back(bytes, std::move(run));
      }
      base::StableSort(&sized, [](const auto& a, const auto& b) { return a.first < b.first; });
      for (size_t i = 0; i < runs.size(); ++i) {
        on_disk.push_back(sized[i].first);
        runs[i] = std::move(sized[i].second);
      }
    }
    Table table({"RUN", "STATE", "ATTEMPTS", "STEPS", by_size_ ? "ON DISK" : "SIZE", "FINDINGS"});
    for (const size_t column : {2, 3, 4}) table.AlignRight(column);
    Json list = Json::array();
    std::vector<std::string> damage;
    Status unreadable;  // a run that cannot be read for another reason than damage
    for (size_t i = 0; i < runs.size(); ++i) {
      const auto& [path, name] = runs[i];
      // A run that cannot be read is listed as such: one bad directory must not hide the others.
      const auto report = [&]() -> Result<RunSummary> {
        TDBG_ASSIGN_OR_RETURN(const std::unique_ptr<Trial> trial, Trial::Open(path));
        TDBG_ASSIGN_OR_RETURN(const bool news, trial->Refresh());
        (void)news;
        return SummariseRun(*trial, {});
      }();
      if (!report.ok()) {
        if (report.status().code() == Code::kDataLoss)
          damage.push_back(name + ": " + report.status().message());
        else if (unreadable.ok())
          unreadable = Status(report.status()).Annotate(Printable(name));
        list.push_back({{"run", jobs::AbsolutePath(path)}, {"error", report.status().message()}});
        if (by_size_) list.back()["disk_bytes"] = on_disk[i];
        table.Add({Printable(name), "unreadable", "", "", by_size_ ? base::FormatBytes(on_disk[i]) : "",
                   Printable(report.status().message())});
        continue;
      }
      for (const std::string& place : report->damage) damage.push_back(name + ": " + place);
      list.push_back(SummaryToJson(*report));
      if (by_size_) list.back()["disk_bytes"] = on_disk[i];
      table.Add({Printable(name), StateWords(*report), std::to_string(report->attempts.size()),
                 std::to_string(report->steps), base::FormatBytes(by_size_ ? on_disk[i] : report->bytes),
                 Findings(*report)});
    }
    if (by_size_ && !table.empty()) {
      table.Add({base::Counted(runs.size(), "run"), "", "", "",
                 base::FormatBytes(std::accumulate(on_disk.begin(), on_disk.end(), uint64_t{0})), ""});
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
  std::string root_ = jobs::kRunsRoot, where_;
  bool by_size_ = false, json_ = false;
};

}  // namespace

std::unique_ptr<Command> MakeLsCommand() { return std::make_unique<LsCommand>(); }

}  // namespace tdbg::cli

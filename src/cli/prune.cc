// Which runs of a directory are old, and, if told so, their end.
#include "cli/prune.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <string_view>

#include "base/below.h"
#include "base/clock.h"
#include "base/durations.h"
#include "base/file.h"
#include "base/text.h"
#include "cli/exit_codes.h"
#include "cli/flags.h"
#include "cli/json_output.h"
#include "cli/output.h"
#include "cli/run_path.h"
#include "cli/run_summary.h"
#include "cli/terminal.h"
#include "jobs/run_directory.h"
#include "jobs/run_removal.h"

namespace tdbg::cli {
namespace {

// "30d", "12h", "90m", "2w".
std::optional<int64_t> NanosOf(std::string_view text) {
  if (text.size() < 2) return std::nullopt;
  const char unit = text.back();
  const int64_t seconds = unit == 'w'   ? 604'800
                          : unit == 'd' ? 86'400
                          : unit == 'h' ? 3600
                          : unit == 'm' ? 60
                                        : 0;
  const auto count = base::ParseInt(text.substr(0, text.size() - 1));
  if (seconds == 0 || !count || *count < 0 || *count > base::kLongestSeconds / seconds) return std::nullopt;
  return *count * seconds * 1'000'000'000;
}

std::string Day(int64_t wall_nanos) {
  const time_t seconds = static_cast<time_t>(wall_nanos / 1'000'000'000);
  struct tm local;
  char text[32] = "";
  if (::localtime_r(&seconds, &local)) ::strftime(text, sizeof(text), "%Y-%m-%d %H:%M", &local);
  return text;
}

struct Candidate {
  std::string path, name, state;
  jobs::DiskUse use;
  std::string kept;  ///< why; empty: it goes
  bool removed = false;
};

class PruneCommand : public Command {
 public:
  std::string name() const override { return "prune"; }
  std::string help() const override { return "remove old runs of a directory; says which, until --yes"; }
  void Define(Flags& flags) override {
    flags.AddOption("ROOT", root_, "where runs lie; default ./tdbg-runs");
    flags
        .AddOption("--older-than", older_than_,
                   "runs into which nothing was written for so long: 30d, 12h, 90m, 2w")
        .TypeName("TIME")
        .Required();
    flags.AddFlag("--keep-failed", keep_failed_,
                  "keep runs that failed, crashed, were stopped, or in which a rule found something");
    const Flag dry = flags.AddFlag("--dry-run", dry_run_, "remove nothing: the default");
    flags.AddFlag("--yes", yes_, "remove them").Excludes(dry);
    flags.AddFlag("--json", json_, "one JSON document on stdout");
  }

  Result<int> Run() override {
    const auto age = NanosOf(older_than_);
    if (!age)
      return InvalidArgument("--older-than: found '" + older_than_ + "'; accepted: 30d, 12h, 90m, 2w");
    while (root_.size() > 1 && root_.back() == '/') root_.pop_back();
    TDBG_RETURN_IF_ERROR(CheckRoot());
    if (yes_) TDBG_RETURN_IF_ERROR(jobs::FinishRemovals(root_).status());

    const int64_t now = base::SystemClock().WallNanos();
    const std::vector<std::string> runs = jobs::ListRuns(root_);
    std::vector<Candidate> old;
    for (const std::string& path : runs) {
      Candidate candidate;
      candidate.path = path;
      candidate.name = RunName(path, root_);
      candidate.use = jobs::DiskUseOf(path);
      if (candidate.use.newest_wall_nanos > now - *age) continue;
      Judge(&candidate);
      old.push_back(std::move(candidate));
    }
    std::ranges::sort(old, {}, [](const Candidate& c) { return c.use.newest_wall_nanos; });
    Status failed;
    if (yes_) {
      for (Candidate& candidate : old) {
        if (!candidate.kept.empty()) continue;
        const Status gone = jobs::RemoveRun(root_, candidate.path);
        candidate.removed = gone.ok();
        if (gone.ok()) continue;
        candidate.kept = gone.message();
        if (failed.ok()) failed = Status(gone).Annotate(Printable(candidate.name));
      }
    }
    if (json_)
      PrintAsJson(old, runs.size());
    else
      PrintAsText(old, runs.size());
    TDBG_RETURN_IF_ERROR(failed);
    return kExitOk;
  }

 private:
  Status CheckRoot() const {
    struct stat info;
    if (::lstat(root_.c_str(), &info) != 0) {
      if (root_ == jobs::kRunsRoot)
        return NotFound("no run yet under ./tdbg-runs; give the directory that holds the runs");
      return NotFound("no such directory '" + root_ + "'; give the one that holds the runs");
    }
    if (S_ISLNK(info.st_mode))
      return InvalidArgument("'" + root_ +
                             "' is a symbolic link, and nothing is removed behind one; give the directory");
    if (!S_ISDIR(info.st_mode))
      return InvalidArgument("'" + root_ + "' is no directory; give the one that holds the runs");
    if (jobs::IsRunDirectory(root_))
      return InvalidArgument("'" + root_ + "' is a run itself; give the directory that holds it");
    return OkStatus();
  }

  /// Sets why an old run is kept all the same.
  void Judge(Candidate* candidate) const {
    if (!base::CheckBelow(root_, base::JoinPath(candidate->path, "run.json")).ok()) {
      candidate->state = "a link";
      candidate->kept = "it lies behind a symbolic link";
      return;
    }
    const auto summary = [&]() -> Result<RunSummary> {
      TDBG_ASSIGN_OR_RETURN(const std::unique_ptr<Trial> trial, Trial::Open(candidate->path));
      TDBG_ASSIGN_OR_RETURN(const bool news, trial->Refresh());
      (void)news;
      return SummariseRun(*trial, {});
    }();
    // Of a newer format, or not ours to read: whether it lives cannot be told.
    if (!summary.ok()) {
      candidate->state = "unreadable";
      candidate->kept = "it cannot be read: " + summary.status().message();
      return;
    }
    candidate->state = StateWords(*summary);
    if (jobs::RunId(candidate->path).empty()) {
      candidate->kept = "its run.json is none that tdbg wrote";
      return;
    }
    const std::vector<std::string> foreign = jobs::ForeignEntries(candidate->path);
    const bool found = std::ranges::any_of(summary->rules, [](const rules::RuleStatus& rule) {
      return rule.state == rules::RuleState::kIssuesFound;
    });
    if (IsAlive(*summary))
      candidate->kept = "it lives";
    else if (!foreign.empty())
      candidate->kept = fmt::format("it also holds {}, which tdbg did not write", fmt::join(foreign, ", "));
    else if (keep_failed_ && candidate->state != "completed")
      candidate->kept = "--keep-failed";
    else if (keep_failed_ && found)
      candidate->kept = "--keep-failed: a rule found something";
  }

  void PrintAsJson(const std::vector<Candidate>& old, size_t runs) const {
    Json list = Json::array();
    uint64_t bytes = 0;
    for (const Candidate& c : old) {
      if (c.kept.empty()) bytes += c.use.bytes;
      Json run = {{"run", jobs::AbsolutePath(c.path)},
                  {"state", c.state},
                  {"bytes", c.use.bytes},
                  {"last_written", JsonTime(c.use.newest_wall_nanos)},
                  {"removed", c.removed}};
      run["kept_because"] = c.kept.empty() ? Json() : Json(c.kept);
      list.push_back(std::move(run));
    }
    PrintJson({{"root", jobs::AbsolutePath(root_)},
               {"dry_run", !yes_},
               {"runs", runs},
               {"old", list},
               {"bytes", bytes}});
  }

  void PrintAsText(const std::vector<Candidate>& old, size_t runs) const {
    Table table({"RUN", "STATE", "LAST WRITTEN", "SIZE", yes_ ? "WHAT HAPPENED" : "WHAT WOULD HAPPEN"});
    table.AlignRight(3);
    table.WrapLast();
    uint64_t bytes = 0;
    size_t going = 0;
    for (const Candidate& c : old) {
      if (c.kept.empty()) {
        bytes += c.use.bytes;
        ++going;
      }
      table.Add({Printable(c.name), Printable(c.state), Day(c.use.newest_wall_nanos),
                 base::FormatBytes(c.use.bytes), c.kept.empty() ? "removed" : "kept: " + Printable(c.kept)});
    }
    if (!table.empty()) Print("{}", table.Format(Terminal::Of(STDOUT_FILENO)));
    const std::string of = fmt::format("{} of {}", going, base::Counted(runs, "run"));
    if (old.empty())
      Note(fmt::format("each run in {} was written to within {}: nothing to remove", Printable(root_),
                       older_than_));
    else if (going == 0)
      Note(fmt::format("none of {} may go", base::Counted(old.size(), "old run")));
    else if (yes_)
      Note(fmt::format("removed {}: {}; tdbg jobs --prune forgets their jobs", of, base::FormatBytes(bytes)));
    else
      Note(fmt::format("nothing was removed; --yes removes {}: {}", of, base::FormatBytes(bytes)));
  }

  std::string root_ = jobs::kRunsRoot, older_than_;
  bool keep_failed_ = false, dry_run_ = false, yes_ = false, json_ = false;
};

}  // namespace

std::unique_ptr<Command> MakePruneCommand() { return std::make_unique<PruneCommand>(); }

}  // namespace tdbg::cli

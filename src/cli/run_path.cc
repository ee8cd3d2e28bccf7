#include "cli/run_path.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <utility>

#include "base/file.h"
#include "base/text.h"
#include "cli/spool.h"
#include "cli/terminal.h"
#include "format/run_files.h"
#include "jobs/recent_runs.h"
#include "jobs/registry.h"
#include "jobs/run_directory.h"
#include "trial/remote_run.h"
#include "trial/run_kind.h"

namespace tdbg::cli {
namespace {

int64_t CreatedWallNanos(const std::string& run_directory) {
  const auto text = base::LocalFileSystem().ReadFile(base::JoinPath(run_directory, format::kRunFile));
  if (!text.ok()) return 0;
  const auto info = format::RunInfo::FromJson(*text);
  return info.ok() ? info->created_wall_nanos : 0;
}

RunPlace PlaceOf(const jobs::RecentRun& run) {
  return {run.here ? run.run_directory : std::string(), run.url};
}

/// `runs`: those under ./tdbg-runs, the newest last.
Result<RunPlace> LastRun(const std::vector<std::string>& runs) {
  const std::string here = jobs::AbsolutePath(".");
  const std::vector<jobs::RecentRun> recent = jobs::RecentRuns();
  const auto started_here = std::ranges::find_if(
      recent.rbegin(), recent.rend(), [&](const jobs::RecentRun& r) { return r.working_directory == here; });
  if (started_here != recent.rend() &&
      (runs.empty() || started_here->started_wall_nanos >= CreatedWallNanos(runs.back())))
    return PlaceOf(*started_here);
  if (!runs.empty()) return RunPlace{jobs::AbsolutePath(runs.back()), ""};
  std::string message = "no run was started here, and there is none under ./tdbg-runs; ";
  if (recent.empty()) return NotFound(message + "start one with tdbg run -- COMMAND");
  const RunPlace latest = PlaceOf(recent.back());
  return NotFound(message + "your latest is " +
                  ShellWord(latest.url.empty() ? latest.directory : latest.url));
}

/// Where the run of a job is, or was uploaded to; nothing: nowhere that the registry knows.
std::optional<RunPlace> PlaceOf(const Result<jobs::JobRecord>& job) {
  if (!job.ok()) return std::nullopt;
  const bool here = jobs::RunId(job->run_directory) == job->run_id;
  if (!here && job->url.empty()) return std::nullopt;
  return RunPlace{here ? job->run_directory : std::string(), job->url};
}

/// \pre PlaceOf knows none
Status RunIsGone(const jobs::JobRecord& job) {
  const bool taken = jobs::IsRunDirectory(job.run_directory);
  return NotFound(fmt::format(
      "the run of job '{}' is gone: it was in {}{}; tdbg jobs {} says what is known of it", job.name,
      job.run_directory, taken ? ", where another one is now" : "", ShellWord(job.name)));
}

/// What is uploaded to the URL from this machine may still be here.
RunPlace PlaceOfUrl(const std::string& text) {
  const std::string url = NormalUrl(text);
  if (const auto spool = SpoolOf(url); spool.ok() && jobs::IsRunDirectory(*spool)) return {*spool, url};
  if (const auto registry = jobs::Registry::OpenExisting(); registry.ok()) {
    if (auto place = PlaceOf(registry->FindUrl(url))) return *std::move(place);
  }
  return {"", url};
}

}  // namespace

Result<RunPlace> PlaceOfRun(const std::string& text) {
  if (text.empty()) return InvalidArgument("an empty name is no run; `tdbg ls` lists the runs");
  if (text.starts_with("s3://")) return PlaceOfUrl(text);
  const auto here = [](const std::string& path) { return RunPlace{jobs::AbsolutePath(path), ""}; };
  if (jobs::IsRunDirectory(text)) return here(text);
  const std::string root = jobs::kRunsRoot;
  const std::vector<std::string> runs = jobs::ListRuns(root);
  if (text == "last") return LastRun(runs);
  const std::string below_root = base::JoinPath(root, text);
  if (jobs::IsRunDirectory(below_root)) return here(below_root);
  // The path exists but is no run: opening it gives an error that says what it is.
  if (base::LocalFileSystem().Exists(text)) return here(text);
  std::vector<std::string> names;
  // A job's name, or the path that its run had. If the registry cannot be read, there are no jobs.
  if (const auto registry = jobs::Registry::OpenExisting(); registry.ok()) {
    const auto named = registry->Find(text), there = registry->FindDirectory(jobs::AbsolutePath(text));
    if (auto place = PlaceOf(named)) return *std::move(place);
    if (auto place = PlaceOf(there)) return *std::move(place);
    if (named.ok()) return RunIsGone(*named);
    if (there.ok()) return RunIsGone(*there);
    if (const auto known = registry->Names(); known.ok()) names = *known;
  }
  for (const std::string& run : runs) names.push_back(RunName(run, root));
  const auto nearest = base::Nearest(text, names);
  return NotFound(fmt::format("no run '{}' here or under ./tdbg-runs; {}", text,
                              nearest ? "did you mean '" + *nearest + "'?" : "`tdbg ls` lists the runs"));
}

Result<std::string> ResolveRun(const std::string& text) {
  TDBG_ASSIGN_OR_RETURN(const RunPlace place, PlaceOfRun(text));
  if (!place.directory.empty()) return place.directory;
  return Unimplemented(fmt::format(
      "the run is in {} and not on this machine, where this command needs it; those that only read "
      "(status, show, check, tensors, logs, export ...) take a bucket, and tdbg resume {} goes on with it",
      place.url, ShellWord(text)));
}

Result<std::string> ResolveRunOfJob(const std::string& text) {
  TDBG_ASSIGN_OR_RETURN(const std::string directory, ResolveRun(text));
  const std::string id = jobs::RunId(directory);
  if (id.empty() || text.find('/') != std::string::npos) return directory;
  const auto registry = jobs::Registry::OpenExisting();
  if (!registry.ok()) return directory;
  const auto other = registry->Find(text);
  if (!other.ok() || other->run_id == id || jobs::RunId(other->run_directory) != other->run_id)
    return directory;
  std::string here = DisplayPath(directory);
  if (here.find('/') == std::string::npos) here = "./" + here;
  return InvalidArgument(fmt::format("'{}' is a run here and the name of another job; write {} or {}", text,
                                     ShellWord(here), ShellWord(other->run_directory)));
}

Result<std::string> ResolveRunToRead(const std::string& text) {
  std::string url = text;
  if (!RemoteRun::IsRemote(text)) {
    TDBG_ASSIGN_OR_RETURN(const RunPlace place, PlaceOfRun(text));
    if (!place.directory.empty()) return place.directory;
    url = place.url;
  }
  TDBG_ASSIGN_OR_RETURN(const std::shared_ptr<RemoteRun> run, RemoteRun::Open(url));
  // The destructor of a static object ends the process that fills the cache when the program ends.
  static std::vector<std::shared_ptr<RemoteRun>> opened;
  opened.push_back(run);
  return run->directory();
}

Result<std::unique_ptr<Trial>> OpenRun(const std::string& text, int64_t attempt) {
  TDBG_ASSIGN_OR_RETURN(const std::string path, ResolveRunToRead(text));
  TrialOptions options;
  options.attempt = attempt;
  TDBG_ASSIGN_OR_RETURN(std::unique_ptr<Trial> trial, Trial::Open(path, options));
  TDBG_ASSIGN_OR_RETURN(const bool news, trial->Refresh());
  (void)news;
  return trial;
}

std::vector<std::string> ListRuns(const std::string& root) {
  if (RunKindAt(root) == RunKind::kSmdebug) return {root};
  std::vector<std::string> runs = jobs::ListRuns(root);
  const auto entries = base::LocalFileSystem().List(root);
  for (const base::DirEntry& entry : entries.ok() ? *entries : std::vector<base::DirEntry>()) {
    const std::string path = base::JoinPath(root, entry.name);
    if (entry.is_directory && RunKindAt(path) == RunKind::kSmdebug) runs.push_back(path);
  }
  return runs;
}

std::vector<NamedRun> RunsOfHere() {
  const std::string here = jobs::AbsolutePath("."), root = jobs::kRunsRoot;
  const std::string below_root = jobs::AbsolutePath(root) + "/";
  std::vector<NamedRun> runs;
  for (const std::string& path : ListRuns(root)) runs.push_back({path, RunName(path, root)});
  for (const jobs::RecentRun& run : jobs::RecentRuns()) {
    if (!run.here || run.working_directory != here || run.run_directory.starts_with(below_root)) continue;
    const int64_t created = CreatedWallNanos(run.run_directory);
    const auto later = std::ranges::find_if(runs, [&](const NamedRun& other) {
      return RunKindAt(other.path) == RunKind::kSmdebug || CreatedWallNanos(other.path) > created;
    });
    runs.insert(later, {run.run_directory, DisplayPath(run.run_directory)});
  }
  return runs;
}

Status CouldNotRead(const std::vector<std::string>& damage, std::string_view of) {
  constexpr size_t kMaxNamed = 3;
  if (damage.empty()) return OkStatus();
  std::string text = fmt::format("{} of the {} could not be read", base::Counted(damage.size(), "place"), of);
  for (size_t i = 0; i < std::min(damage.size(), kMaxNamed); ++i)
    text += (i == 0 ? ": " : "; ") + Printable(damage[i]);
  if (damage.size() > kMaxNamed) text += fmt::format("; and {} more", damage.size() - kMaxNamed);
  return DataLoss(std::move(text));
}

std::string RunName(const std::string& path, const std::string& root) {
  return path == root ? base::BaseName(path) : std::filesystem::path(path).lexically_relative(root).string();
}

std::string LastingPlace(const std::string& path) {
  // A copy of a bucket's is nobody's to name; its cache is nobody's to open.
  if (const auto remote = RemoteRun::Of(path)) return remote->url();
  // And a spool is gone once all of it is in the bucket.
  const std::string url = UrlOfSpool(path);
  return url.empty() ? path : url;
}

std::string DisplayPath(const std::string& path) {
  if (std::string lasting = LastingPlace(path); lasting != path) return lasting;
  std::error_code error;
  const std::filesystem::path relative =
      std::filesystem::path(path).lexically_relative(std::filesystem::current_path(error));
  if (error || relative.empty() || relative.string().starts_with("..")) return path;
  return relative.string();
}

std::string SingleQuoted(std::string_view word) {
  std::string quoted = "'";
  for (const char c : word) {
    if (c == '\'') {
      quoted += "'\\''";
    } else {
      quoted += c;
    }
  }
  return quoted + "'";
}

std::string ShellWord(std::string_view word) {
  const bool plain =
      !word.empty() &&
      word.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@%+=:,./-") ==
          std::string_view::npos;
  if (plain) return std::string(word);
  // Control characters would act on the terminal or deceive the reader, so they are written as bash's
  // escapes.
  if (Printable(word) != base::ToValidUtf8(word)) {
    std::string escaped;
    for (const char c : word) {
      if (c == '\'' || c == '\\') escaped += '\\';
      escaped += c;
    }
    return "$'" + Printable(escaped) + "'";
  }
  return SingleQuoted(word);
}

}  // namespace tdbg::cli

#include "cli/muted_scripts.h"

#include <errno.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "base/redact.h"
#include "base/text.h"
#include "cli/output.h"
#include "cli/terminal.h"
#include "format/version.h"
#include "jobs/registry.h"
#include "jobs/run_directory.h"
#include "jobs/state_directory.h"
#include "watch/muted.h"

namespace tdbg::cli {
namespace {

constexpr int64_t kPatienceMillis = 5000;  // of several that change it at once each waits for the others
constexpr size_t kMostNamed = 3;

// What is muted is not told, so that nobody else may have a say in it.
Status CheckOwner(const std::string& path) {
  struct stat info;
  if (::stat(path.c_str(), &info) != 0) return errno == ENOENT ? OkStatus() : ErrnoStatus(errno, path);
  if (info.st_uid == ::geteuid() && (info.st_mode & (S_IWGRP | S_IWOTH)) == 0) return OkStatus();
  return InvalidArgument(path + ": others may write to it, so nothing is muted by it; chmod go-w it");
}

}  // namespace

bool Overlap(const std::vector<rules::Fingerprint>& a, const std::vector<rules::Fingerprint>& b) {
  return std::ranges::find_first_of(a, b) != a.end();
}

std::string ScriptOfRun(const std::string& run_directory) {
  const auto registry = jobs::Registry::OpenExisting();
  const std::string id = jobs::RunId(run_directory);
  if (!registry.ok() || id.empty()) return {};
  const auto job = registry->FindRun(id);
  return job.ok() ? jobs::ScriptOf(job->command, job->working_directory) : std::string();
}

Result<UsersMutes> UsersMutes::Open(bool make) {
  UsersMutes mutes;
  const std::string directory = jobs::StateDirectory();
  if (directory.empty()) return FailedPrecondition("no home directory to keep it in; set XDG_STATE_HOME");
  mutes.path_ = base::JoinPath(directory, std::string(format::kMutedFile));
  if (!make && !base::LocalFileSystem().Exists(mutes.path_)) return mutes;
  TDBG_RETURN_IF_ERROR(base::LocalFileSystem().CreateDirectories(directory));
  TDBG_ASSIGN_OR_RETURN(mutes.lock_,
                        base::WaitForLock(base::LocalFileSystem(), mutes.path_ + ".lock", kPatienceMillis));
  TDBG_RETURN_IF_ERROR(CheckOwner(mutes.path_));
  TDBG_ASSIGN_OR_RETURN(mutes.mutes_, watch::ReadMutes(directory));
  return mutes;
}

std::vector<rules::Mute> UsersMutes::Of(const std::string& script) const {
  std::vector<rules::Mute> of;
  std::ranges::copy_if(mutes_, std::back_inserter(of),
                       [&](const rules::Mute& mute) { return mute.script == script; });
  return of;
}

void UsersMutes::Add(rules::Mute mute) {
  Remove(mute.script, mute.what);
  mutes_.push_back(std::move(mute));
  // The oldest make room: a list that its reader refuses would mute nothing any more.
  if (mutes_.size() > watch::kMostMutes) mutes_.erase(mutes_.begin());
}

bool UsersMutes::Remove(const std::string& script, const std::vector<rules::Fingerprint>& what) {
  return std::erase_if(mutes_, [&](const rules::Mute& mute) {
           return mute.script == script && Overlap(mute.what, what);
         }) > 0;
}

Status UsersMutes::Save() const {
  TDBG_RETURN_IF_ERROR(watch::WriteMutes(std::filesystem::path(path_).parent_path(), mutes_));
  std::error_code ignored;  // where the directory lets others write, the file does not
  std::filesystem::permissions(
      path_, std::filesystem::perms::owner_read | std::filesystem::perms::owner_write, ignored);
  return OkStatus();
}

std::string BeginMuted(const std::string& run_directory, const std::vector<std::string>& command) {
  const auto users = UsersMutes::Open(/*make=*/false);
  const auto failed = [](const Status& status) { return "nothing is muted: " + status.message(); };
  if (!users.ok()) return failed(users.status());
  // As the registry has it.
  const std::string script = jobs::ScriptOf(base::RedactCommand(command), jobs::AbsolutePath("."));
  std::vector<rules::Mute> of = users->Of(script);
  if (of.empty()) return {};
  auto mutes = watch::ReadMutes(run_directory);  // of a run that gets its next attempt
  if (!mutes.ok()) return failed(mutes.status());
  std::string named;
  for (size_t i = 0; i < of.size(); ++i) {
    if (i < kMostNamed)
      named += fmt::format("{}{} ({}), because {}", i == 0 ? "" : "; ", of[i].title, of[i].what.front().place,
                           of[i].because);
    std::erase_if(*mutes, [&](const rules::Mute& mute) { return Overlap(mute.what, of[i].what); });
    of[i].script.clear();
    mutes->push_back(std::move(of[i]));
  }
  if (of.size() > kMostNamed) named += fmt::format("; and {} more", of.size() - kMostNamed);
  if (mutes->size() > watch::kMostMutes) mutes->erase(mutes->begin(), mutes->end() - watch::kMostMutes);
  if (const Status written = watch::WriteMutes(run_directory, *mutes); !written.ok()) return failed(written);
  return fmt::format("{} muted for this script: {}", base::Counted(of.size(), "incident is", "incidents are"),
                     named);
}

std::string MutedLine(const rules::Incident& incident, const StepNames& names) {
  const std::string place = rules::FingerprintOf(incident.evidence.front()).place;
  return Printable(fmt::format("{} at {} ({}{}{}), because {}", incident.title, names.Of(incident.first_step),
                               incident.id, place.empty() ? "" : ", ", place, incident.muted_because));
}

void NoteUnusableMutes(const std::string& run_directory) {
  const auto mutes = watch::ReadMutes(run_directory);
  if (!mutes.ok()) Tell("tdbg: {}\n", Printable(mutes.status().message()));
}

}  // namespace tdbg::cli

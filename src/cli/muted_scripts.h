// What a user has muted, from run to run of a script (docs/incidents.md, "Mute one").
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/file.h"
#include "rules/incidents.h"
#include "rules/mutes.h"
#include "tdbg/status.h"
#include "trial/step_name.h"

namespace tdbg::cli {

/// Of a job that this user started here, by the user's own registry: the run's files are not asked what they
/// are of. Empty: it is none, or nobody knows.
std::string ScriptOfRun(const std::string& run_directory);

/// muted.json in the user's state directory, while nobody else changes it.
class UsersMutes {
 public:
  /// \param make  make the directory where it is missing
  /// \error kFailedPrecondition  there is no home to keep it in; kInvalidArgument  others may write to it;
  /// kDataLoss
  static Result<UsersMutes> Open(bool make);
  const std::vector<rules::Mute>& all() const { return mutes_; }
  std::vector<rules::Mute> Of(const std::string& script) const;
  /// In place of what the script has of the same findings.
  void Add(rules::Mute mute);
  /// Takes out what the script has of these findings. \return  there was something
  bool Remove(const std::string& script, const std::vector<rules::Fingerprint>& what);
  Status Save() const;

 private:
  std::string path_;
  std::unique_ptr<base::FileLock> lock_;
  std::vector<rules::Mute> mutes_;
};

/// Do two mutes have a finding in common?
bool Overlap(const std::vector<rules::Fingerprint>& a, const std::vector<rules::Fingerprint>& b);

/// At a job's start: what its script has muted is muted in its run, too. \return  what is, in one line for
/// its user; empty: nothing A failure mutes nothing, and is that line.
std::string BeginMuted(const std::string& run_directory, const std::vector<std::string>& command);

/// "parameters get no gradient at TRAIN step 9 (no_gradient, Net_l1): because ..."
std::string MutedLine(const rules::Incident& incident, const StepNames& names);
/// Says so where the run's muted.json cannot be used.
void NoteUnusableMutes(const std::string& run_directory);

}  // namespace tdbg::cli

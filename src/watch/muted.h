// muted.json: what the user has muted, of one run (docs/format.md), and of all runs of a script in the user's
// own list. Both have the same form.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "rules/engine.h"
#include "rules/mutes.h"
#include "tdbg/status.h"

namespace tdbg::watch {

/// A file of more is none of ours: readers go through all of it.
inline constexpr size_t kMostMutes = 1000, kMostFingerprints = 256, kMostReason = 400;

std::string MutesToJson(const std::vector<rules::Mute>& mutes);
/// \error kDataLoss  not of that form: none of it is used; kUnimplemented  of a newer version
Result<std::vector<rules::Mute>> MutesFromJson(std::string_view text);

/// The run's; none where it has no such file. \error as MutesFromJson
Result<std::vector<rules::Mute>> ReadMutes(const std::string& run_path);
/// Replaces the run's file; through no link in the run.
Status WriteMutes(const std::string& run_path, const std::vector<rules::Mute>& mutes);

/// As rules::ApplyMutes, by the run's mutes; those of a damaged file are none.
void ApplyMutesOf(const std::string& run_path, bool goes_on, std::vector<rules::RuleStatus>* statuses);

/// A run's mutes while somebody may change them.
class FollowedMutes {
 public:
  explicit FollowedMutes(std::string run_path) : run_path_(std::move(run_path)) {}
  /// Reads them if their file is another one than before; one system call where it is not.
  /// \return  they are others now
  bool Refresh();
  const std::vector<rules::Mute>& mutes() const { return mutes_; }
  /// Of the latest reading: why there are none.
  const Status& trouble() const { return trouble_; }
  /// rules::ApplyMutes
  std::vector<rules::RuleStatus> Shown(std::vector<rules::RuleStatus> statuses, bool goes_on) const;
  /// As it is recorded: what is muted is marked, and the status stays what it is.
  rules::RuleStatus Marked(rules::RuleStatus status) const;
  /// Appends the indexes of those of which something might be muted.
  static void AddConcerned(const std::vector<rules::RuleStatus>& statuses, std::vector<size_t>* indexes);
  /// Is some mute of a NaN or infinity?
  bool any_nonfinite() const;

 private:
  const std::string run_path_;
  std::string stamp_;
  std::vector<rules::Mute> mutes_;
  Status trouble_;
};

}  // namespace tdbg::watch

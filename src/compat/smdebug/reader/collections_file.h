// The collections file of one worker, and which collections a tensor is in.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/regex.h"
#include "tdbg/status.h"

namespace tdbg::compat::smdebug {

struct CollectionsFile {
  struct Schedule {
    int64_t save_interval = 500, start_step = 0, end_step = -1;  ///< -1: none
    std::vector<int64_t> save_steps;
  };
  struct Collection {
    std::string name;
    std::vector<std::string> include_regex, tensor_names;
    /// As written: "mean", "l1_norm", "abs_l2_norm".
    std::vector<std::string> reductions;
    bool save_raw = true, save_shape = false, save_histogram = true;
    std::map<std::string, Schedule> save;  ///< by mode, "TRAIN"
  };
  std::vector<Collection> collections;
  int64_t num_workers = 1;
};

/// Unknown keys are ignored at every level (smdebug refuses a run with one at the top).
/// \error kDataLoss  not JSON, or not what a collections file holds
Result<CollectionsFile> DecodeCollectionsFile(std::string_view text);

/// The collections of all workers' files together.
class Collections {
 public:
  /// Adds up: names and patterns of a collection that is known already join it. Returns patterns that are no
  /// regular expressions, with the reason; they match nothing.
  std::vector<std::string> Add(const CollectionsFile& file);

  /// Sorted names of the collections that list the tensor or have a pattern that is found in its name. The
  /// file stops listing names after the first saved step, so the patterns are what finds later ones.
  std::vector<std::string> Of(std::string_view tensor) const;

  /// As first seen, with the patterns of all files; by name.
  std::vector<const CollectionsFile::Collection*> all() const;

 private:
  struct Collection {
    CollectionsFile::Collection told;
    std::vector<base::Regex> regexes;
  };
  std::vector<Collection> collections_;  // by name
  std::unordered_map<std::string, std::vector<std::string>> listed_;
};

}  // namespace tdbg::compat::smdebug

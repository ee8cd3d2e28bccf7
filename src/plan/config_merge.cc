#include <algorithm>

#include "plan/config.h"

namespace tdbg::plan {
namespace {

template <typename T>
void Override(std::optional<T>* earlier, const std::optional<T>& later) {
  if (later) *earlier = later;
}
void Override(std::string* earlier, const std::string& later) {
  if (!later.empty()) *earlier = later;
}
template <typename T>
void Append(std::vector<T>* earlier, const std::vector<T>& later) {
  earlier->insert(earlier->end(), later.begin(), later.end());
}

void MergeCollection(CollectionConfig* earlier, const CollectionConfig& later) {
  Append(&earlier->include_regex, later.include_regex);
  Append(&earlier->tensor_names, later.tensor_names);
  if (!later.reductions.empty()) earlier->reductions = later.reductions;
  Append(&earlier->statistics, later.statistics);
  for (const auto& [key, value] : later.save) earlier->save[key] = value;
  Override(&earlier->raw, later.raw);
  Override(&earlier->summaries, later.summaries);
  Override(&earlier->histogram, later.histogram);
  Override(&earlier->where, later.where);
}

}  // namespace

Config MergeConfigs(Config earlier, const Config& later) {
  Override(&earlier.dir, later.dir);
  Override(&earlier.upload, later.upload);
  Override(&earlier.shared, later.shared);
  if (later.hook) earlier.hook = later.hook;
  Append(&earlier.warnings, later.warnings);
  Override(&earlier.summaries_every, later.summaries_every);
  Override(&earlier.histograms_every, later.histograms_every);
  Override(&earlier.context, later.context);
  Override(&earlier.record_end, later.record_end);
  Override(&earlier.step_by, later.step_by);
  Override(&earlier.when_full, later.when_full);
  Override(&earlier.journal_directory, later.journal_directory);
  Override(&earlier.journal_bytes, later.journal_bytes);
  Override(&earlier.budget_bytes, later.budget_bytes);
  Override(&earlier.black_box_bytes, later.black_box_bytes);
  Override(&earlier.shap_rows, later.shap_rows);
  Override(&earlier.overhead, later.overhead);
  Override(&earlier.verify_every, later.verify_every);
  Override(&earlier.flight, later.flight);
  Override(&earlier.stop_grace_seconds, later.stop_grace_seconds);
  Override(&earlier.action_cooldown_seconds, later.action_cooldown_seconds);
  Override(&earlier.tensorboard_directory, later.tensorboard_directory);
  Override(&earlier.tensorboard_every, later.tensorboard_every);
  Override(&earlier.smdebug_directory, later.smdebug_directory);
  Append(&earlier.rules, later.rules);
  earlier.rules_said |= later.rules_said;
  Append(&earlier.on_issue, later.on_issue);
  for (const CollectionConfig& c : later.collections) {
    const auto same = std::find_if(earlier.collections.begin(), earlier.collections.end(),
                                   [&](const CollectionConfig& e) { return e.name == c.name; });
    if (same == earlier.collections.end()) {
      earlier.collections.push_back(c);
    } else {
      MergeCollection(&*same, c);
    }
  }
  return earlier;
}

}  // namespace tdbg::plan

// What lists say of each job, kept in memory and true to the folders at every look: a list of a hundred out
// of ten thousand jobs reads none of their files, and a server that nobody asks looks at none of those that
// have ended.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "service/job_files.h"
#include "service/reply.h"

namespace tdbg::service {

/// An item of a list, and what lists are filtered and ordered by.
struct Summary {
  std::string name, status;
  double created = 0, modified = 0;  ///< seconds
  Json document;
};

struct IndexedRule {
  RuleJob rule;
  Summary summary;  ///< of the processing job that stands for it
};

struct IndexedJob {
  bool readable = false;  ///< false: its document is damaged, and nothing below is set
  bool ended = false;
  int64_t created_wall_nanos = 0;
  std::string phase;  ///< SecondaryStatus of its last event; empty: it has none yet
  Summary training;
  std::vector<IndexedRule> rules;
};

/// One thread.
class JobIndex {
 public:
  /// \param jobs  outlives this
  explicit JobIndex(const JobDirectory& jobs) : jobs_(&jobs) {}

  /// All jobs, by name, as their folders are now. Costs a stat of the jobs' directory and one of each job
  /// that has not ended, and reads those of which something has happened. Once a job has come or gone it is a
  /// stat of every job, and the first time every job is read. Valid until the next call.
  const std::map<std::string, IndexedJob>& Look();
  /// Those that have not ended, as of the last look; a damaged one is among them.
  const std::set<std::string>& unfinished() const { return unfinished_; }
  /// The next look reads this job anew, whatever its files' times say.
  void Forget(const std::string& name) { jobs_read_.erase(name); }

 private:
  /// Of a file: another one, or one that was written to since, has another.
  struct Stamp {
    uint64_t inode = 0;
    int64_t bytes = -1, nanos = 0;
    bool operator==(const Stamp&) const = default;
  };
  static Stamp StampOf(const std::string& path);
  bool List();  ///< false: it cannot be listed now
  void Read(const std::string& name);

  const JobDirectory* jobs_;
  std::map<std::string, IndexedJob> index_;
  // Of their own: ten thousand entries that no cache holds take longer to pass over than to leave alone.
  std::set<std::string> unfinished_;
  std::map<std::string, Stamp> jobs_read_;  ///< of events.jsonl, before it was read
  std::optional<Stamp> listed_;             ///< of the jobs' directory, before it was listed
};

}  // namespace tdbg::service

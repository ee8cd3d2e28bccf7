// The runs that a server may be asked about, and which of them are open.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "query/run.h"
#include "tdbg/status.h"

namespace tdbg::server {

struct NamedRun {
  std::string name;  ///< its name in requests
  std::string path;
};
/// Called again and again, since runs come and go. Only runs of this list are opened.
using RunLister = std::function<std::vector<NamedRun>()>;

class Runs {
 public:
  explicit Runs(RunLister lister) : lister_(std::move(lister)) {}

  /// The run, opened if it was not, and refreshed. Valid until the next call but one.
  /// \param name  empty: the only run, if there is only one
  /// \error kNotFound  no such run; others of query::Run::Open
  Result<query::Run*> Get(std::string_view name);
  /// {"runs": [...]}, the newest first. A run that cannot be read is listed with that.
  query::Answer List(size_t offset, size_t limit);
  Result<query::Answer> Ask(const query::Question& question);

 private:
  struct Open {
    std::string path;
    std::unique_ptr<query::Run> run;
    uint64_t used = 0;
  };
  /// As of a moment ago; `anew`: as of now. Valid until the next call.
  const std::vector<NamedRun>& Listed(bool anew);
  /// The run of that name in Listed(anew), or null.
  const NamedRun* Find(std::string_view name, bool anew);

  RunLister lister_;
  std::vector<NamedRun> listed_;
  int64_t list_again_nanos_ = 0;  // of the monotonic clock
  std::map<std::string, Open, std::less<>> open_;
  struct Ended {
    std::string stamp;  ///< of the run when the entry was made: a job may be requeued, a run judged later
    query::Json entry;
  };
  std::map<std::string, Ended, std::less<>> ended_;  // of runs that are over, by path
  uint64_t clock_ = 0;
};

}  // namespace tdbg::server

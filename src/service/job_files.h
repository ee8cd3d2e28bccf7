// The service's jobs on the disk: a directory for each, which outlives the server and whoever looks after the
// job.
//
//   JOBS/NAME/job.json        what was asked for, once and for all (atomic)
//             events.jsonl    each change of a status, as an event (docs/events.md); the last is the state
//             started         its turn has come: who looks after it is started, again where that one is gone
//             stop            somebody has asked for the job to be stopped
//             stop-rules      names of rules that somebody has asked to be stopped
//             tender.lock     held by the process that looks after the job
//             ml/             its private /opt/ml
//             runs/NAME/      its run
//             lost            what of its output could not be uploaded, and why: the last line of its log
//             debug-output/   smdebug's layout of the run, on its way to the bucket
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "service/reply.h"
#include "tdbg/status.h"

namespace tdbg::service {

struct JobPaths {
  explicit JobPaths(std::string job_directory);
  std::string directory, job, events, started, stop, stop_rules, lock, log, ml, container, run, debug_output,
      lost;
};

/// A rule of a job, and the processing job that stands for it.
struct RuleJob {
  std::string rule;        ///< RuleConfigurationName
  std::string processing;  ///< ProcessingJobName
  bool profiler = false;
};

/// job.json.
struct JobDocument {
  Json request;  ///< CreateTrainingJob's, checked
  std::string region, account;
  int64_t created_wall_nanos = 0;
  std::vector<RuleJob> rules;
  std::string python;     ///< the environment that the image stands for; empty: none
  std::string no_python;  ///< FailureReason, then
  std::string endpoint;   ///< of the service, for the training's own calls

  std::string name() const { return request.at("TrainingJobName").get<std::string>(); }
  std::string arn() const;
  std::string processing_arn(const RuleJob& rule) const;
  Json ToJson() const;
};
Result<JobDocument> ReadJob(const std::string& job_directory);

/// `detail` of the newest event, or an object without members where there is none yet.
Json LastDetail(const JobPaths& paths);

class JobDirectory {
 public:
  explicit JobDirectory(std::string root) : root_(std::move(root)) {}
  const std::string& root() const { return root_; }
  /// \pre IsJobName(name)
  JobPaths Paths(const std::string& name) const;
  /// Paths(name).events alone, for who wants those of ten thousand.
  std::string EventsPath(const std::string& name) const;
  /// Whole or not at all. \error kAlreadyExists
  Status Create(const JobDocument& job) const;
  /// Gone for everybody at once, and from the disk after that. \pre it has ended
  Status Delete(const std::string& name) const;
  /// In order. \error  the jobs' directory cannot be listed now
  Result<std::vector<std::string>> Names() const;
  bool Exists(const std::string& name) const;
  /// Tags live beside the request, which is never written again.
  Json Tags(const std::string& name) const;
  Status SetTags(const std::string& name, const Json& tags) const;

 private:
  std::string root_;
};

}  // namespace tdbg::service

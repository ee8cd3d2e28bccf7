// What the service answers: an operation and a request in, a document or an error out. Knows no transport.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "service/event_rules.h"
#include "service/images.h"
#include "service/job_files.h"
#include "service/job_index.h"
#include "service/reply.h"

namespace tdbg::service {

struct ServiceOptions {
  std::string directory;  ///< its jobs are in `jobs` below it, its rules of events beside that
  std::string region = "us-east-1", account = "123456789012";
  std::string endpoint;  ///< of this service, for what a job calls
  Images images;
  /// How many jobs train at the same time; more wait, in the order of their creation.
  size_t max_jobs = SIZE_MAX;
  /// Starts the process that looks after a job, and returns. \param job_directory
  std::function<Status(const std::string& job_directory)> tend;
};

/// What it knows of a job is in the job's directory, so a server that was killed and started again answers as
/// before; what lists need is kept in memory besides, and looked after at each request (JobIndex). One
/// thread.
class Service {
 public:
  explicit Service(ServiceOptions options)
      : options_(std::move(options)),
        jobs_(options_.directory + "/jobs"),
        index_(jobs_),
        events_(options_.directory, options_.region, options_.account) {}

  /// \param target  "SageMaker.CreateTrainingJob"; the document may be an empty object
  Answer<Json> Handle(const std::string& target, std::string_view body);
  /// Of Lambda, whose interface is REST. \param done  as Functions::Handle
  void HandleLambda(const FunctionCall& call, std::function<void(const Answer<Response>&)> done) {
    events_.functions().Handle(call, std::move(done));
  }
  /// Jobs that have not ended and that nobody looks after, killed with their process: starts it again. Then
  /// those that wait and whose turn has come.
  void TendOrphans();

 private:
  struct Waiting {
    int64_t created_wall_nanos;
    std::string name;
    bool told;  ///< that it waits
    auto operator<=>(const Waiting&) const = default;
  };
  struct Unfinished {
    std::vector<std::string> started;  ///< names
    std::vector<Waiting> waiting;      ///< in the order of their creation
  };
  Unfinished UnfinishedJobs();
  void StartWaiting(const Unfinished& jobs);
  void TellItWaits(const JobPaths& paths);
  Answer<Json> Create(const Json& request);
  Answer<Json> List(const Json& request);
  Answer<Json> ListProcessing(const Json& request);
  Answer<Json> Stop(const JobPaths& paths);
  Answer<Json> Delete(const JobPaths& paths);
  Answer<Json> Processing(const Json& request, bool stop);
  Answer<Json> StopRule(const JobDocument& job, const RuleJob& rule, const JobPaths& paths, const Json& told);
  Answer<Json> Update(const Json& request) const;
  Answer<Json> Tags(const std::string& operation, const Json& request) const;

  ServiceOptions options_;
  JobDirectory jobs_;
  JobIndex index_;  // of jobs_
  EventRules events_;
};

}  // namespace tdbg::service

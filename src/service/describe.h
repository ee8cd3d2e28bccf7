// A job as the API tells of it.
#pragma once

#include <string>

#include "service/job_files.h"
#include "service/reply.h"

namespace tdbg::service {

/// \param detail  LastDetail  \param metrics  ReadMetrics
Json DescribeTrainingJob(const JobDocument& job, const Json& detail, const Json& metrics);
/// An item of ListTrainingJobs.
Json SummarizeTrainingJob(const JobDocument& job, const Json& detail);

/// A rule of a job, as the processing job that AWS would run for it. \param summary  as ListProcessingJobs
/// has it
Json DescribeProcessingJob(const JobDocument& job, const RuleJob& rule, const Json& detail, bool summary);

/// Completed, Failed, Stopped.
bool HasEnded(const Json& detail);

/// Where the model is, or will be: model.tar.gz, or a prefix that ends in "/" where it is not packed.
std::string ModelUri(const JobDocument& job);
/// Unless the request's CompressionType is NONE.
bool IsModelPacked(const JobDocument& job);
/// Where what a rule writes (a report) goes.
std::string RuleOutputUri(const JobDocument& job, const RuleJob& rule);

/// "s3://b/p" and "x" -> "s3://b/p/x", whether or not there is a slash at the end.
std::string UriBelow(const std::string& uri, const std::string& below);

}  // namespace tdbg::service

// FinalMetricDataList: what a training's log says of the metrics that its request defines.
#pragma once

#include <string>

#include "service/job_files.h"

namespace tdbg::service {

/// The first metric whose pattern is none, for a refusal that names it; empty: all can be searched for.
std::string BadMetricDefinition(const Json& request);

/// The last value of each metric that the log of this run has: [{MetricName, Value, Timestamp}], in the order
/// of their definitions, times in milliseconds. The built-in algorithm's are its evaluation metrics
/// ("validation:rmse"), as its image defines them.
Json FinalMetrics(const Json& request, const std::string& run_directory);

/// FinalMetrics as it is kept beside the job, and as the API tells it: empty until the training has ended.
Status WriteMetrics(const JobPaths& paths, const Json& metrics);
Json ReadMetrics(const JobPaths& paths);

}  // namespace tdbg::service

// The read side of CloudWatch Logs: what jobs printed, and what became of their rules, as log streams.
#pragma once

#include <string>

#include "service/job_files.h"
#include "service/reply.h"

namespace tdbg::service {

/// DescribeLogGroups, DescribeLogStreams, GetLogEvents. \pre the request has the operation's shape
Answer<Json> AnswerLogs(const JobDirectory& jobs, const std::string& operation, const Json& request);

}  // namespace tdbg::service

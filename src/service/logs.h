// The read side of CloudWatch Logs: what jobs printed, and what became of their rules, as log streams.
#pragma once

#include <map>
#include <string>

#include "service/job_files.h"
#include "service/job_index.h"
#include "service/reply.h"

namespace tdbg::service {

/// DescribeLogGroups, DescribeLogStreams, GetLogEvents. \param index  of these jobs, as they are now
/// \pre the request has the operation's shape
Answer<Json> AnswerLogs(const JobDirectory& jobs, const std::map<std::string, IndexedJob>& index,
                        const std::string& operation, const Json& request);

}  // namespace tdbg::service

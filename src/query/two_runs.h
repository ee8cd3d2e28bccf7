// Questions about two runs: where they part, and the layer map of their ratio.
#pragma once

#include <string_view>

#include "query/answer.h"
#include "query/question.h"
#include "query/run.h"
#include "tdbg/status.h"

namespace tdbg::query {

/// Is it one of them? They name the second run by the parameter `other`.
bool ConcernsTwoRuns(std::string_view question);

/// Answers `compare` and `ratio` of docs/http.md. `other` may be the same run.
/// \param question  without `run` and `other`
/// \error kInvalidArgument  no such parameter or value
Result<Answer> AskOfTwo(Run& run, Run& other, const Question& question);

}  // namespace tdbg::query

// A run's page as one file that needs nothing else: the page, and answers to the questions that it will ask.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "query/run.h"
#include "tdbg/status.h"

namespace tdbg::page {

struct ReportCommand {
  std::string what;     ///< "the story of its incidents"
  std::string command;  ///< for a shell
};

struct ReportOptions {
  size_t most_bytes = 5'000'000;
  std::string made;  ///< when, as text
  std::string by;    ///< "tdbg 0.1.0"
  std::vector<ReportCommand> commands;
};

struct Report {
  std::string html;
  std::vector<std::string> left_out;  ///< sentences; the page has them, too
};

/// All of the run in coarse buckets, single steps near what was found. What matters most goes in first: the
/// verdicts, losses, the layer map, the tensors that findings name; then the others, until `most_bytes` are
/// reached. Nothing that a run holds becomes markup.
/// \error kInvalidArgument  not even the verdicts fit; says how much is needed
Result<Report> MakeReport(query::Run& run, const ReportOptions& options);

}  // namespace tdbg::page

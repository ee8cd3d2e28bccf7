#include "cli/bucket_runs.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "base/companion.h"
#include "base/stable_sort.h"
#include "base/text.h"
#include "cli/json_output.h"
#include "cli/output.h"
#include "cli/store_program.h"
#include "cli/terminal.h"

namespace tdbg::cli {
namespace {

struct BucketRun {
  std::string name, state, host;
  uint64_t bytes = 0;
  int64_t age_seconds = 0;
};

// All that it prints; it says on standard output, too, why it prints nothing else.
Result<std::string> AnswerOf(const std::vector<std::string>& words) {
  TDBG_ASSIGN_OR_RETURN(const std::string text, AskStore(words, /*quiet=*/false));
  const auto answer = base::ParseAnswer(base::Trim(text));
  if (answer && !answer->ok()) return answer->status();
  return text;
}

std::string AgeWords(int64_t seconds) {
  if (seconds < 120) return fmt::format("{} s ago", seconds);
  if (seconds < 2 * 3600) return fmt::format("{} min ago", seconds / 60);
  if (seconds < 2 * 86'400) return fmt::format("{} h ago", seconds / 3600);
  return fmt::format("{} d ago", seconds / 86'400);
}

std::string StateWords(const BucketRun& run) {
  if (run.state == "left") return "running when sent";
  if (run.state == "late" || run.state == "gone")
    return fmt::format("{}, on {}", run.state, Printable(run.host));
  return run.state;
}

}  // namespace

Status PrintBucketRuns(const std::string& url, bool by_size, bool json) {
  TDBG_ASSIGN_OR_RETURN(const std::string text, AnswerOf({"runs", url}));
  const Json answer = Json::parse(text, nullptr, false);
  if (!answer.is_object() || !answer.contains("runs"))
    return Unavailable("tdbg-store ended before it answered");
  const std::string root = url.substr(0, url.find_last_not_of('/') + 1);
  std::vector<BucketRun> runs;
  for (const Json& run : answer["runs"])
    runs.push_back({run.value("name", ""), run.value("state", ""), run.value("host", ""),
                    run.value("bytes", uint64_t{0}), run.value("age_seconds", int64_t{0})});
  if (by_size) base::StableSort(&runs, [](const auto& a, const auto& b) { return a.bytes < b.bytes; });
  Table table({"RUN", "STATE", "LAST HEARD", "SIZE"});
  table.AlignRight(3);
  Json list = Json::array();
  uint64_t bytes = 0;
  for (const BucketRun& run : runs) {
    list.push_back({{"run", run.name.empty() ? root : root + "/" + run.name},
                    {"state", run.state},
                    {"host", run.host},
                    {"bytes", run.bytes},
                    {"age_seconds", run.age_seconds}});
    table.Add({Printable(run.name.empty() ? root : run.name), StateWords(run), AgeWords(run.age_seconds),
               base::FormatBytes(run.bytes)});
    bytes += run.bytes;
  }
  if (by_size && !runs.empty())
    table.Add({base::Counted(runs.size(), "run"), "", "", base::FormatBytes(bytes)});
  if (json)
    PrintJson(list);
  else if (runs.empty())
    Tell("tdbg: no run in {}\n", Printable(root));
  else
    Print("{}", table.Format(Terminal::Of(STDOUT_FILENO)));
  if (answer.value("more", false))
    Tell("tdbg: there is more below {} than was looked at; name a longer prefix\n", Printable(root));
  return OkStatus();
}

}  // namespace tdbg::cli

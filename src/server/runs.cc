#include "server/runs.h"

#include <algorithm>
#include <limits>

#include "base/clock.h"
#include "base/text.h"
#include "query/two_runs.h"

namespace tdbg::server {
namespace {

// Each may hold some 200 MB of cached answers. At least two: they are compared.
constexpr size_t kMostOpen = 8;
// A page that follows a run asks ten times a second, and a list reads a file of each run: of a thousand, or
// on a file server, that would be all that this process does. At most a tenth of the time is spent on it.
constexpr int64_t kListForNanos = 2'000'000'000, kListForTimes = 10;

}  // namespace

const std::vector<NamedRun>& Runs::Listed(bool anew) {
  const int64_t now = base::SystemClock().MonotonicNanos();
  if (!anew && now < list_again_nanos_) return listed_;
  listed_ = lister_();
  const int64_t then = base::SystemClock().MonotonicNanos();
  list_again_nanos_ = then + std::max(kListForNanos, kListForTimes * (then - now));
  return listed_;
}

const NamedRun* Runs::Find(std::string_view name, bool anew) {
  const std::vector<NamedRun>& runs = Listed(anew);
  if (name.empty()) return runs.size() == 1 ? &runs.front() : nullptr;
  const auto at = std::ranges::find(runs, name, &NamedRun::name);
  return at == runs.end() ? nullptr : &*at;
}

Result<query::Run*> Runs::Get(std::string_view name) {
  const NamedRun* named = Find(name, /*anew=*/false);
  if (named == nullptr) named = Find(name, /*anew=*/true);
  if (named == nullptr) {
    open_.erase(std::string(name));
    return NotFound(name.empty()
                        ? "run: name one of those that `runs` lists"
                        : "no run '" + std::string(name.substr(0, 80)) + "' here; `runs` lists them");
  }
  auto open = open_.find(named->name);
  if (open == open_.end() || open->second.path != named->path) {
    TDBG_ASSIGN_OR_RETURN(std::unique_ptr<query::Run> run, query::Run::Open(named->path));
    if (open_.size() >= kMostOpen) {
      open_.erase(std::ranges::min_element(open_, {}, [](const auto& o) { return o.second.used; }));
    }
    open = open_.insert_or_assign(named->name, Open{named->path, std::move(run)}).first;
  }
  open->second.used = ++clock_;
  if (const auto news = open->second.run->Refresh(); !news.ok()) {
    list_again_nanos_ = 0;  // it may be gone
    return news.status();
  }
  return open->second.run.get();
}

query::Answer Runs::List(size_t offset, size_t limit) {
  std::vector<NamedRun> runs = Listed(/*anew=*/offset == 0);
  std::ranges::reverse(runs);
  query::Json list = query::Json::array();
  for (size_t i = offset; i < runs.size() && i < offset + limit; ++i) {
    // Taken before the run is read: what comes meanwhile is news the next time.
    const std::string stamp = query::StampOf(runs[i].path);
    if (const auto known = ended_.find(runs[i].path); known != ended_.end() && known->second.stamp == stamp) {
      list.push_back(known->second.entry);
      continue;
    }
    const auto run = query::Run::Open(runs[i].path);
    if (!run.ok()) {
      list.push_back({{"name", runs[i].name}, {"state", "unreadable"}, {"error", run.status().message()}});
      continue;
    }
    query::Json entry = query::RunEntry(**run, runs[i].name);
    if ((*run)->over() && !entry["running"].get<bool>()) ended_[runs[i].path] = {stamp, entry};
    list.push_back(std::move(entry));
  }
  return query::JsonAnswer({{"runs", std::move(list)}, {"total", runs.size()}});
}

Result<query::Answer> Runs::Ask(const query::Question& question) {
  if (question.name == "runs") {
    TDBG_RETURN_IF_ERROR(question.CheckKeys({"offset", "limit"}));
    TDBG_ASSIGN_OR_RETURN(const int64_t offset,
                          question.Integer("offset", 0, 0, std::numeric_limits<int32_t>::max()));
    TDBG_ASSIGN_OR_RETURN(const int64_t limit, question.Integer("limit", 50, 1, 1000));
    return List(static_cast<size_t>(offset), static_cast<size_t>(limit));
  }
  query::Question of_run = question;
  of_run.parameters.erase("run");
  TDBG_ASSIGN_OR_RETURN(query::Run* const run, Get(question.Text("run")));
  if (!query::ConcernsTwoRuns(question.name)) return run->Ask(of_run);
  if (question.Text("other").empty())
    return InvalidArgument(question.name + ": other: name the second run, one of those that `runs` lists");
  of_run.parameters.erase("other");
  // Asked for again by the same name, the first might be another one by now, and gone.
  query::Run* other = run;
  if (question.Text("other") != question.Text("run")) {
    TDBG_ASSIGN_OR_RETURN(other, Get(question.Text("other")));
  }
  return query::AskOfTwo(*run, *other, of_run);
}

}  // namespace tdbg::server

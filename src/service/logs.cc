#include "service/logs.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <vector>

#include "base/file.h"
#include "base/text.h"
#include "events/change.h"
#include "jobs/training_output.h"

namespace tdbg::service {
namespace {

constexpr const char* kTraining = "/aws/sagemaker/TrainingJobs";
constexpr const char* kProcessing = "/aws/sagemaker/ProcessingJobs";
constexpr size_t kDefaultEvents = 10'000;
// Of one answer; AWS has the same bound.
constexpr size_t kMostBytes = 1 << 20;

struct LogEvent {
  int64_t millis;
  std::string message;
};

struct Stream {
  std::string name;
  std::string job;
  std::string rule;  ///< of a processing job
  int64_t created_millis;
};

std::string StreamName(const std::string& job, int64_t created_wall_nanos) {
  return fmt::format("{}/algo-1-{}", job, created_wall_nanos / 1'000'000'000);
}

/// Those whose names begin so, in order; of training jobs also those that have printed nothing yet.
std::vector<Stream> StreamsOf(const std::map<std::string, IndexedJob>& index, bool processing,
                              const std::string& prefix) {
  std::vector<Stream> streams;
  const auto add = [&](const std::string& of, const std::string& job, const std::string& rule,
                       int64_t created) {
    // Before a name is put together: most are not asked for.
    if (prefix.compare(0, of.size(), of, 0, prefix.size()) != 0) return;
    std::string name = StreamName(of, created);
    if (name.starts_with(prefix)) streams.push_back({std::move(name), job, rule, created / 1'000'000});
  };
  if (processing) {
    for (const auto& [name, job] : index) {
      for (const IndexedRule& one : job.rules)
        add(one.rule.processing, name, one.rule.rule, job.created_wall_nanos);
    }
  } else {
    const std::string of = prefix.substr(0, prefix.find('/'));
    for (auto at = index.lower_bound(of); at != index.end() && at->first.starts_with(of); ++at) {
      if (at->second.readable) add(at->first, at->first, "", at->second.created_wall_nanos);
    }
  }
  std::ranges::sort(streams, {}, &Stream::name);
  return streams;
}

/// What a training prints is there from its first moment on; of a rule there is always something to say.
bool HasPrinted(const Stream& stream, const JobPaths& paths) {
  return !stream.rule.empty() || base::LocalFileSystem().Exists(base::JoinPath(paths.run, "logs"));
}

std::vector<LogEvent> RunEvents(const JobPaths& paths) {
  std::vector<LogEvent> events;
  for (int64_t attempt = 0;; ++attempt) {
    jobs::OutputReader reader(paths.run, attempt);
    if (!reader.Exists()) return events;
    const bool ended =
        base::LocalFileSystem().Exists(base::JoinPath(paths.run, std::to_string(attempt + 1))) ||
        !base::LocalFileSystem().IsLocked(base::JoinPath(paths.run, "launcher.lock"));
    for (;;) {
      const auto lines = reader.Next(ended);
      if (lines.empty()) break;
      for (const jobs::OutputLine& line : lines)
        events.push_back({line.wall_nanos / 1'000'000, base::ToValidUtf8(line.text)});
    }
  }
}

std::vector<LogEvent> TrainingEvents(const JobPaths& paths) {
  std::vector<LogEvent> events = RunEvents(paths);
  // Written once the training has said its last.
  struct stat info;
  const auto lost = base::LocalFileSystem().ReadFile(paths.lost);
  if (lost.ok() && ::stat(paths.lost.c_str(), &info) == 0)
    events.push_back({info.st_mtim.tv_sec * 1000 + info.st_mtim.tv_nsec / 1'000'000,
                      "tdbg serve: " + base::ToValidUtf8(base::Trim(*lost))});
  return events;
}

std::vector<LogEvent> RuleEvents(const Stream& stream, const JobPaths& paths) {
  std::vector<LogEvent> events = {{stream.created_millis, "evaluating the rule " + stream.rule}};
  const auto text = base::LocalFileSystem().ReadFile(paths.events);
  if (!text.ok()) return events;
  for (const std::string& line : base::SplitList(*text, '\n')) {
    const Json event = Json::parse(line, nullptr, false);
    if (!event.is_object() || !event.contains("event")) continue;
    const Json ours = event["event"].value("/detail/tdbg"_json_pointer, Json::object());
    if (ours.value("change", "") != "rule" || ours.value("name", "") != stream.rule) continue;
    events.push_back({event.value("wall_nanos", int64_t{0}) / 1'000'000,
                      fmt::format("{}: {}", ours.value("status", ""), ours.value("details", ""))});
  }
  return events;
}

Refusal NoSuch(const char* what) {
  return {"ResourceNotFoundException", fmt::format("The specified log {} does not exist.", what)};
}

Answer<Json> Events(const std::vector<LogEvent>& events, const Json& request) {
  const size_t limit = std::min<size_t>(request.value("limit", kDefaultEvents), kDefaultEvents);
  const int64_t from = request.value("startTime", int64_t{0}), until = request.value("endTime", INT64_MAX);
  size_t at = 0;
  bool back = false;
  if (const std::string token = request.value("nextToken", ""); !token.empty()) {
    const auto number = base::ParseInt(token.substr(std::min<size_t>(2, token.size())));
    if ((!token.starts_with("f/") && !token.starts_with("b/")) || !number || *number < 0)
      return Refusal{"InvalidParameterException", "The specified nextToken is invalid."};
    at = std::min(static_cast<size_t>(*number), events.size());
    back = token.starts_with("b/");
  } else if (!request.value("startFromHead", false) && events.size() > limit) {
    at = events.size() - limit;
  }
  const size_t end = back ? at : events.size();
  if (back) at = at > limit ? at - limit : 0;
  const size_t first = at;
  Json list = Json::array();
  for (size_t bytes = 0; at < end && list.size() < limit && bytes < kMostBytes; ++at) {
    if (events[at].millis < from || events[at].millis >= until) continue;
    bytes += events[at].message.size() + 64;
    list.push_back({{"timestamp", events[at].millis},
                    {"message", events[at].message},
                    {"ingestionTime", events[at].millis}});
  }
  return Json{{"events", list},
              {"nextForwardToken", fmt::format("f/{}", back ? end : at)},
              {"nextBackwardToken", fmt::format("b/{}", first)}};
}

}  // namespace

Answer<Json> AnswerLogs(const JobDirectory& jobs, const std::map<std::string, IndexedJob>& index,
                        const std::string& operation, const Json& request) {
  if (operation == "DescribeLogGroups") {
    Json groups = Json::array();
    for (const char* const group : {kProcessing, kTraining}) {
      if (std::string_view(group).starts_with(request.value("logGroupNamePrefix", "")))
        groups.push_back({{"logGroupName", group}});
    }
    return Json{{"logGroups", groups}};
  }
  const std::string group = request["logGroupName"];
  if (group != kTraining && group != kProcessing) return NoSuch("group");
  if (operation == "DescribeLogStreams") {
    std::vector<Stream> streams =
        StreamsOf(index, group == kProcessing, request.value("logStreamNamePrefix", ""));
    if (request.value("descending", false)) std::ranges::reverse(streams);
    const size_t limit = request.value("limit", size_t{50});
    Json list = Json::array();
    // All in one answer and no nextToken: the SageMaker SDK asks again for as long as there is one, for the
    // same page.
    for (const Stream& stream : streams) {
      if (list.size() == limit) break;
      if (HasPrinted(stream, jobs.Paths(stream.job)))
        list.push_back({{"logStreamName", stream.name}, {"creationTime", stream.created_millis}});
    }
    return Json{{"logStreams", list}};
  }
  const std::string name = request["logStreamName"];
  for (const Stream& stream : StreamsOf(index, group == kProcessing, name)) {
    const JobPaths paths = jobs.Paths(stream.job);
    if (stream.name == name && HasPrinted(stream, paths))
      return Events(stream.rule.empty() ? TrainingEvents(paths) : RuleEvents(stream, paths), request);
  }
  return NoSuch("stream");
}

}  // namespace tdbg::service

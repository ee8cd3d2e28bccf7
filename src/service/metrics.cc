#include "service/metrics.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/first_group.h"
#include "base/text.h"
#include "jobs/training_output.h"
#include "service/container.h"

namespace tdbg::service {
namespace {

constexpr const char* kFile = "metrics.json";

struct Metric {
  std::string name;
  base::FirstGroup pattern;
};

std::vector<Metric> Defined(const Json& request) {
  std::vector<Metric> metrics;
  for (const Json& one : request["AlgorithmSpecification"].value("MetricDefinitions", Json::array())) {
    auto pattern = base::FirstGroup::Compile(one.at("Regex").get<std::string>());
    if (pattern.ok()) metrics.push_back({one.at("Name"), *pattern});
  }
  return metrics;
}

// A log on its way to CloudWatch has its tabs written as "#011", and so have the patterns that people wrote
// for it.
std::string WithTabsAsInCloudWatch(const std::string& line) {
  std::string out;
  for (const char c : line) {
    if (c == '\t')
      out += "#011";
    else
      out += c;
  }
  return out;
}

class Values {
 public:
  void Set(const std::string& name, const std::string& text, int64_t wall_nanos) {
    const auto value = base::ParseDouble(base::Trim(text));
    if (!value || !std::isfinite(*value)) return;  // JSON has no word for it
    const Json item = {{"MetricName", name}, {"Value", *value}, {"Timestamp", wall_nanos / 1'000'000}};
    const auto known =
        std::ranges::find_if(list_, [&](const Json& other) { return other["MetricName"] == name; });
    if (known != list_.end())
      *known = item;
    else
      list_.push_back(item);
  }
  const Json& list() const { return list_; }

 private:
  Json list_ = Json::array();
};

// "[12]\ttrain-rmse:1.5\tvalidation-rmse:1.7"
void ReadRound(const jobs::OutputLine& line, Values* values) {
  if (!line.text.starts_with('[')) return;
  for (const std::string& word : base::SplitList(line.text, '\t')) {
    const size_t colon = word.rfind(':'), dash = word.find('-');
    if (colon == std::string::npos || dash == std::string::npos || dash > colon) continue;
    values->Set(word.substr(0, dash) + ":" + word.substr(dash + 1, colon - dash - 1), word.substr(colon + 1),
                line.wall_nanos);
  }
}

}  // namespace

std::string BadMetricDefinition(const Json& request) {
  for (const Json& one : request["AlgorithmSpecification"].value("MetricDefinitions", Json::array())) {
    const auto pattern = base::FirstGroup::Compile(one.at("Regex").get<std::string>());
    if (!pattern.ok()) return "'" + one.at("Name").get<std::string>() + "': " + pattern.status().message();
  }
  return {};
}

Json FinalMetrics(const Json& request, const std::string& run_directory) {
  const std::vector<Metric> metrics = Defined(request);
  const bool rounds = !AlgorithmOf(request).empty();
  Values values;
  if (metrics.empty() && !rounds) return values.list();
  for (int64_t attempt = 0;; ++attempt) {
    jobs::OutputReader reader(run_directory, attempt);
    if (!reader.Exists()) break;
    for (auto lines = reader.Next(true); !lines.empty(); lines = reader.Next(true)) {
      for (const jobs::OutputLine& line : lines) {
        if (rounds) ReadRound(line, &values);
        if (metrics.empty()) continue;
        const bool tabs = line.text.find('\t') != std::string::npos;
        const std::string there = tabs ? WithTabsAsInCloudWatch(line.text) : std::string();
        for (const Metric& metric : metrics) {
          auto found = metric.pattern.Find(line.text);
          if (!found && tabs) found = metric.pattern.Find(there);
          if (found) values.Set(metric.name, *found, line.wall_nanos);
        }
      }
    }
  }
  return values.list();
}

Status WriteMetrics(const JobPaths& paths, const Json& metrics) {
  if (metrics.empty()) return OkStatus();
  return base::LocalFileSystem().WriteFileAtomic(
      base::JoinPath(paths.directory, kFile), metrics.dump(-1, ' ', false, Json::error_handler_t::replace));
}

Json ReadMetrics(const JobPaths& paths) {
  const auto text = base::LocalFileSystem().ReadFile(base::JoinPath(paths.directory, kFile));
  const Json metrics = text.ok() ? Json::parse(*text, nullptr, false) : Json();
  return metrics.is_array() ? metrics : Json::array();
}

}  // namespace tdbg::service

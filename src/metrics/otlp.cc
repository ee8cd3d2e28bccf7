#include <cmath>
#include <nlohmann/json.hpp>

#include "metrics/metrics.h"

namespace tdbg::metrics {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kCumulative = 2;  // AggregationTemporality, which OTLP's JSON writes as a number

Json Attributes(const Labels& labels) {
  Json list = Json::array();
  for (const auto& [name, value] : labels)
    list.push_back({{"key", name}, {"value", {{"stringValue", value}}}});
  return list;
}

// As protocol buffers' JSON mapping has it.
Json Number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  return value;
}

}  // namespace

std::string OtlpJson(const std::vector<Metric>& metrics, const Labels& resource, int64_t start_wall_nanos,
                     int64_t wall_nanos) {
  Json list = Json::array();
  for (const Metric& metric : metrics) {
    Json points = Json::array();
    for (const Sample& sample : metric.samples) {
      Json point = {{"attributes", Attributes(sample.labels)},
                    {"timeUnixNano", std::to_string(wall_nanos)},
                    {"asDouble", Number(sample.value)}};
      if (metric.counter) point["startTimeUnixNano"] = std::to_string(start_wall_nanos);
      points.push_back(std::move(point));
    }
    Json item = {{"name", metric.name}, {"description", metric.help}};
    if (metric.counter) {
      item["sum"] = {{"dataPoints", points}, {"aggregationTemporality", kCumulative}, {"isMonotonic", true}};
    } else {
      item["gauge"] = {{"dataPoints", points}};
    }
    list.push_back(std::move(item));
  }
  const Json scope = {{"scope", {{"name", "tdbg"}}}, {"metrics", list}};
  const Json request = {
      {"resourceMetrics", Json::array({{{"resource", {{"attributes", Attributes(resource)}}},
                                        {"scopeMetrics", Json::array({scope})}}})}};
  return request.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace tdbg::metrics

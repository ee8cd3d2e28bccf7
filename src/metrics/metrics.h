// The few numbers of a run that dashboards and alerts need.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "rules/engine.h"
#include "tdbg/trial.h"

namespace tdbg::metrics {

using Labels = std::vector<std::pair<std::string, std::string>>;

struct Sample {
  Labels labels;
  double value = 0;
};

struct Metric {
  std::string name;  ///< Prometheus' conventions: "tdbg_rule_status", units in it, "_total" of counters
  std::string help;
  bool counter = false;  ///< it only grows; otherwise a gauge
  std::vector<Sample> samples;
};

/// What docs/monitoring.md lists, each sample with the label `run`.
/// \param statuses  of the run's rules; none where nobody watched it
/// \pre trial was refreshed. Cost: reads the last 64 steps of each series; there are at most 1000 series.
std::vector<Metric> MetricsOf(const Trial& trial, const std::vector<rules::RuleStatus>& statuses);

/// Prometheus' text exposition format 0.0.4, content type `text/plain; version=0.0.4`.
/// \pre each name occurs once: join several runs' metrics first (Join)
std::string PrometheusText(const std::vector<Metric>& metrics);

/// Metrics of several runs as one list: samples of the same metric are put together.
std::vector<Metric> Join(std::vector<std::vector<Metric>> runs);

/// An ExportMetricsServiceRequest in OTLP's JSON encoding, for POST to .../v1/metrics. Counters are
/// cumulative sums. \param start_wall_nanos  since when counters count
std::string OtlpJson(const std::vector<Metric>& metrics, const Labels& resource, int64_t start_wall_nanos,
                     int64_t wall_nanos);

}  // namespace tdbg::metrics

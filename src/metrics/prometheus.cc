#include <fmt/format.h>

#include <cmath>

#include "base/text.h"
#include "metrics/metrics.h"

namespace tdbg::metrics {
namespace {

// The format's own escapes; quotes stand in values of labels only.
std::string Escaped(std::string_view text, bool quoted) {
  std::string escaped;
  for (const char c : base::ToValidUtf8(text)) {
    if (c == '\\') {
      escaped += "\\\\";
    } else if (c == '\n') {
      escaped += "\\n";
    } else if (c == '"' && quoted) {
      escaped += "\\\"";
    } else {
      escaped += c;
    }
  }
  return escaped;
}

std::string Number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  return fmt::format("{}", value);
}

}  // namespace

std::string PrometheusText(const std::vector<Metric>& metrics) {
  std::string text;
  for (const Metric& metric : metrics) {
    text += fmt::format("# HELP {} {}\n# TYPE {} {}\n", metric.name, Escaped(metric.help, false), metric.name,
                        metric.counter ? "counter" : "gauge");
    for (const Sample& sample : metric.samples) {
      text += metric.name;
      char before = '{';
      for (const auto& [name, value] : sample.labels) {
        text += fmt::format("{}{}=\"{}\"", before, name, Escaped(value, true));
        before = ',';
      }
      if (before == ',') text += '}';
      text += " " + Number(sample.value) + "\n";
    }
  }
  return text;
}

}  // namespace tdbg::metrics

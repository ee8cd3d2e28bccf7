// The two formats, from metrics of our own; real parsers read real runs in tests/frameworks/trackers.
#include "metrics/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

namespace tdbg::metrics {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

TEST(PrometheusTest, EscapesWhatStrangersNamedAndWritesNumbersThatAreNotFinite) {
  const std::vector<Metric> metrics = {{"tdbg_value",
                                        "a \"help\"\nof two lines \\",
                                        false,
                                        {{{{"run", "a\"b\\c\nd"}, {"name", "\xff"}}, 0.1},
                                         {{}, std::nan("")},
                                         {{}, kInfinity},
                                         {{}, -kInfinity}}},
                                       {"tdbg_total", "counts", true, {{{}, 1e21}}}};
  EXPECT_EQ(PrometheusText(metrics),
            "# HELP tdbg_value a \"help\"\\nof two lines \\\\\n# TYPE tdbg_value gauge\n"
            "tdbg_value{run=\"a\\\"b\\\\c\\nd\",name=\"\xEF\xBF\xBD\"} 0.1\n"
            "tdbg_value NaN\ntdbg_value +Inf\ntdbg_value -Inf\n"
            "# HELP tdbg_total counts\n# TYPE tdbg_total counter\ntdbg_total 1e+21\n");
}

TEST(PrometheusTest, ANameStandsOnceHoweverManyRunsThereAre) {
  const Metric one = {"a", "h", false, {{{{"run", "x"}}, 1}}},
               other = {"a", "h", false, {{{{"run", "y"}}, 2}}},
               more = {"b", "h", false, {{{{"run", "y"}}, 3}}};
  const auto joined = Join({{one}, {other, more}});
  EXPECT_EQ(PrometheusText(joined),
            "# HELP a h\n# TYPE a gauge\na{run=\"x\"} 1\na{run=\"y\"} 2\n# HELP b h\n# TYPE b "
            "gauge\nb{run=\"y\"} 3\n");
}

TEST(OtlpTest, CountersAreCumulativeSumsAndTheRestGauges) {
  const auto request = nlohmann::json::parse(
      OtlpJson({{"g", "help", false, {{{{"run", "\xff"}}, std::nan("")}}}, {"c_total", "", true, {{{}, 3}}}},
               {{"service.name", "tdbg"}}, 5, 7));
  const auto& metrics = request["resourceMetrics"][0]["scopeMetrics"][0]["metrics"];
  const auto& gauge = metrics[0]["gauge"]["dataPoints"][0];
  EXPECT_EQ(gauge["asDouble"], "NaN");
  EXPECT_EQ(gauge["timeUnixNano"], "7");
  EXPECT_EQ(gauge["attributes"][0]["value"]["stringValue"], "\xEF\xBF\xBD");
  EXPECT_FALSE(gauge.contains("startTimeUnixNano"));
  EXPECT_EQ(metrics[1]["sum"]["isMonotonic"], true);
  EXPECT_EQ(metrics[1]["sum"]["aggregationTemporality"], 2);
  EXPECT_EQ(metrics[1]["sum"]["dataPoints"][0]["startTimeUnixNano"], "5");
}

}  // namespace
}  // namespace tdbg::metrics

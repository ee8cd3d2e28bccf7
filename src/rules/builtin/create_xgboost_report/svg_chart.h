// Pictures of the report: SVG for an HTML page, coloured by the page's style (--ink, --grid, --c0 ... --c7).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tdbg::rules::svg {

/// &, <, >, " as entities; for text and attributes.
std::string Escaped(std::string_view text);
/// A number as an axis or a cell shows it, four digits.
std::string Number(double value);

struct Line {
  std::string name;
  std::vector<std::pair<double, double>> points;  ///< x ascending; a y that is not finite breaks the line
};
/// Empty where no line has a finite point. More than 2,000 points of a line are thinned by stretch (mean).
std::string LineChart(const std::vector<Line>& lines, std::string_view x_label, std::string_view y_label);

struct Bar {
  std::string name;
  double value = 0;
};
/// Upright, names below; for distributions.
std::string BarChart(const std::vector<Bar>& bars, std::string_view x_label, std::string_view y_label);
/// Lying, names in front; for rankings.
std::string Ranking(const std::vector<Bar>& bars);

/// rows x rows counts, coloured by their share of their row. `totals` are the rows' (what no column shows
/// counts, too).
std::string HeatMap(const std::vector<std::vector<int64_t>>& rows, const std::vector<int64_t>& totals,
                    std::string_view x_label, std::string_view y_label);

}  // namespace tdbg::rules::svg

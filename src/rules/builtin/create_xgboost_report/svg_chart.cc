#include "rules/builtin/create_xgboost_report/svg_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace tdbg::rules::svg {
namespace {

constexpr double kWidth = 640, kHeight = 300, kLeft = 64, kRight = 16, kTop = 30, kBottom = 46;
constexpr size_t kMaxPoints = 2000;
constexpr int kColours = 8;

// Ticks at 1, 2 or 5 times a power of ten, about `wanted` of them.
std::vector<double> Ticks(double low, double high, int wanted) {
  const double raw = (high - low) / wanted;
  const double power = std::pow(10, std::floor(std::log10(raw)));
  const double step = power * (raw / power < 1.5 ? 1 : raw / power < 3.5 ? 2 : raw / power < 7.5 ? 5 : 10);
  std::vector<double> ticks;
  for (double at = std::ceil(low / step) * step; at <= high + step * 1e-9 && ticks.size() < 50; at += step)
    ticks.push_back(std::abs(at) < step * 1e-9 ? 0 : at);
  return ticks;
}

struct Range {
  double low = std::numeric_limits<double>::infinity(), high = -std::numeric_limits<double>::infinity();
  void Take(double value) {
    if (!std::isfinite(value)) return;
    low = std::min(low, value);
    high = std::max(high, value);
  }
  bool empty() const { return low > high; }
  // A flat line lies in the middle.
  void Widen() {
    if (high - low > std::abs(high) * 1e-12) return;
    const double half = low == 0 ? 1 : std::abs(low) * 0.1;
    low -= half;
    high += half;
  }
};

struct Axes {
  Range x, y;
  double X(double value) const {
    return kLeft + (value - x.low) / (x.high - x.low) * (kWidth - kLeft - kRight);
  }
  double Y(double value) const {
    return kHeight - kBottom - (value - y.low) / (y.high - y.low) * (kHeight - kTop - kBottom);
  }
};

std::string Begin(double width, double height) {
  return fmt::format(
      R"(<svg viewBox="0 0 {:g} {:g}" width="{:g}" role="img" xmlns="http://www.w3.org/2000/svg">)"
      "\n",
      width, height, width);
}

std::string Text(double x, double y, std::string_view anchor, std::string_view text,
                 std::string_view more = "") {
  return fmt::format(R"(<text x="{:.1f}" y="{:.1f}" text-anchor="{}"{}>{}</text>)"
                     "\n",
                     x, y, anchor, more, Escaped(text));
}

std::string Labels(std::string_view x_label, std::string_view y_label) {
  return Text((kLeft + kWidth - kRight) / 2, kHeight - 8, "middle", x_label) +
         Text(14, (kTop + kHeight - kBottom) / 2, "middle", y_label,
              fmt::format(R"svg( transform="rotate(-90 14 {:g})")svg", (kTop + kHeight - kBottom) / 2));
}

std::string GridY(const Axes& axes) {
  std::string out;
  for (const double tick : Ticks(axes.y.low, axes.y.high, 5)) {
    out += fmt::format(R"(<path class="grid" d="M{:g} {:.1f}H{:g}"/>)"
                       "\n",
                       kLeft, axes.Y(tick), kWidth - kRight);
    out += Text(kLeft - 6, axes.Y(tick) + 4, "end", Number(tick));
  }
  return out;
}

std::vector<std::pair<double, double>> Thinned(const std::vector<std::pair<double, double>>& points) {
  if (points.size() <= kMaxPoints) return points;
  std::vector<std::pair<double, double>> thin;
  for (size_t i = 0; i < kMaxPoints; ++i) {
    const size_t begin = i * points.size() / kMaxPoints, end = (i + 1) * points.size() / kMaxPoints;
    double sum = 0;
    for (size_t j = begin; j < end; ++j) sum += points[j].second;
    thin.emplace_back(points[begin].first, sum / static_cast<double>(end - begin));
  }
  return thin;
}

}  // namespace

std::string Escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string Number(double value) { return fmt::format("{:.4g}", value); }

std::string LineChart(const std::vector<Line>& lines, std::string_view x_label, std::string_view y_label) {
  Axes axes;
  for (const Line& line : lines) {
    for (const auto& [x, y] : line.points) {
      if (!std::isfinite(y)) continue;
      axes.x.Take(x);
      axes.y.Take(y);
    }
  }
  if (axes.x.empty()) return "";
  axes.x.Widen();
  axes.y.Widen();
  std::string out = Begin(kWidth, kHeight) + GridY(axes);
  for (const double tick : Ticks(axes.x.low, axes.x.high, 8))
    out += Text(axes.X(tick), kHeight - kBottom + 18, "middle", Number(tick));
  double legend = kLeft;
  for (size_t i = 0; i < lines.size(); ++i) {
    const std::string colour = fmt::format("c{}", i % kColours);
    std::string path;
    bool pen_down = false;
    for (const auto& [x, y] : Thinned(lines[i].points)) {
      if (std::isfinite(y))
        path += fmt::format("{}{:.1f} {:.1f}", pen_down ? "L" : "M", axes.X(x), axes.Y(y));
      pen_down = std::isfinite(y);
    }
    out += fmt::format(R"(<path class="line {}" d="{}"/>)"
                       "\n",
                       colour, path);
    if (lines[i].points.size() == 1) {
      const auto& [x, y] = lines[i].points[0];
      out += fmt::format(R"(<circle class="mark {}" cx="{:.1f}" cy="{:.1f}" r="3"/>)"
                         "\n",
                         colour, axes.X(x), axes.Y(y));
    }
    // Room for eight or so; more lines have their colours and the table below.
    const double width = 24 + 7 * static_cast<double>(lines[i].name.size());
    if (lines[i].name.empty() || legend + width > kWidth) continue;
    out += fmt::format(R"(<path class="line {}" d="M{:g} 14h14"/>)"
                       "\n",
                       colour, legend);
    out += Text(legend + 19, 18, "start", lines[i].name);
    legend += width;
  }
  return out + Labels(x_label, y_label) + "</svg>\n";
}

std::string BarChart(const std::vector<Bar>& bars, std::string_view x_label, std::string_view y_label) {
  if (bars.empty()) return "";
  Axes axes;
  axes.x = {0, static_cast<double>(bars.size())};
  axes.y.Take(0);
  for (const Bar& bar : bars) axes.y.Take(bar.value);
  axes.y.Widen();
  axes.y.low = 0;
  std::string out = Begin(kWidth, kHeight) + GridY(axes);
  // About fifteen names fit.
  const size_t every = (bars.size() + 14) / 15;
  for (size_t i = 0; i < bars.size(); ++i) {
    const double left = axes.X(static_cast<double>(i) + 0.1), right = axes.X(static_cast<double>(i) + 0.9);
    const double top = axes.Y(std::max(bars[i].value, 0.0));
    out += fmt::format(
        R"(<rect class="mark c0" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}"><title>{}: {}</title></rect>)"
        "\n",
        left, top, right - left, axes.Y(0) - top, Escaped(bars[i].name), Number(bars[i].value));
    if (i % every == 0) out += Text((left + right) / 2, kHeight - kBottom + 18, "middle", bars[i].name);
  }
  return out + Labels(x_label, y_label) + "</svg>\n";
}

std::string Ranking(const std::vector<Bar>& bars) {
  if (bars.empty()) return "";
  constexpr double kRow = 22, kNames = 150, kValues = 60;
  double largest = 0;
  for (const Bar& bar : bars) largest = std::max(largest, bar.value);
  std::string out = Begin(kWidth, kRow * static_cast<double>(bars.size()) + 4);
  for (size_t i = 0; i < bars.size(); ++i) {
    const double y = kRow * static_cast<double>(i);
    const double width =
        largest > 0 ? std::max(bars[i].value, 0.0) / largest * (kWidth - kNames - kValues) : 0;
    std::string name = bars[i].name;
    if (name.size() > 22) name = name.substr(0, 20) + "..";
    out += Text(kNames - 8, y + 15, "end", name);
    out += fmt::format(R"(<rect class="mark c0" x="{:g}" y="{:.1f}" width="{:.1f}" height="16"/>)"
                       "\n",
                       kNames, y + 3, width);
    out += Text(kNames + width + 6, y + 15, "start", Number(bars[i].value));
  }
  return out + "</svg>\n";
}

std::string HeatMap(const std::vector<std::vector<int64_t>>& rows, const std::vector<int64_t>& totals,
                    std::string_view x_label, std::string_view y_label) {
  if (rows.empty()) return "";
  constexpr double kEdge = 60;
  const auto count = static_cast<double>(rows.size());
  const double cell = std::clamp(420 / count, 6.0, 60.0), side = kEdge + cell * count;
  std::string out = Begin(side + 20, side + 30);
  const size_t every = std::max<size_t>(1, static_cast<size_t>(std::ceil(18 / cell)));
  for (size_t r = 0; r < rows.size(); ++r) {
    const double y = kEdge + cell * static_cast<double>(r);
    if (r % every == 0) {
      out += Text(kEdge - 6, y + cell / 2 + 4, "end", std::to_string(r));
      out += Text(y + cell / 2, kEdge - 6, "middle", std::to_string(r));
    }
    for (size_t c = 0; c < rows.size(); ++c) {
      const double share =
          totals[r] > 0 ? static_cast<double>(rows[r][c]) / static_cast<double>(totals[r]) : 0;
      const double x = kEdge + cell * static_cast<double>(c);
      out += fmt::format(R"(<rect class="{}" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}" )"
                         R"(fill-opacity="{:.3f}"><title>{} as {}: {} of {}</title></rect>)"
                         "\n",
                         r == c ? "mark c0" : "mark c1", x, y, cell - 1, cell - 1, share, r, c, rows[r][c],
                         totals[r]);
      if (cell >= 26 && rows[r][c] > 0)
        out += Text(x + cell / 2, y + cell / 2 + 4, "middle", std::to_string(rows[r][c]));
    }
  }
  out += Text((kEdge + side) / 2, 16, "middle", x_label);
  out += Text(14, (kEdge + side) / 2, "middle", y_label,
              fmt::format(R"svg( transform="rotate(-90 14 {:g})")svg", (kEdge + side) / 2));
  return out + "</svg>\n";
}

}  // namespace tdbg::rules::svg

#include "watch/condition.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>
#include <vector>

#include "base/text.h"

namespace tdbg::watch {
namespace {

using Comparison = Condition::Comparison;

constexpr std::string_view kAccepted =
    "accepted: PATTERN.STATISTIC > NUMBER, as in 'gradient/*.l2 > 100' or '*loss*.value > 3 x median' (of "
    "its "
    "own earlier values); comparisons are > >= < <= == !=";

// Longer ones first: ">=" is not ">" and a number that begins with "=".
constexpr std::array<std::pair<std::string_view, Comparison>, 6> kComparisons = {{
    {">=", Comparison::kGreaterEqual},
    {"<=", Comparison::kLessEqual},
    {"==", Comparison::kEqual},
    {"!=", Comparison::kNotEqual},
    {">", Comparison::kGreater},
    {"<", Comparison::kLess},
}};

Status Wrong(std::string_view text, const std::string& what) {
  return InvalidArgument(fmt::format("condition '{}': {}; {}", text, what, kAccepted));
}

}  // namespace

Result<Condition> Condition::Parse(std::string_view text) {
  Condition condition;
  const size_t at = text.find_first_of("<>=!");
  if (at == std::string_view::npos) return Wrong(text, "there is no comparison");
  std::string_view rest = text.substr(at);
  const auto* const found = std::find_if(kComparisons.begin(), kComparisons.end(),
                                         [&](const auto& known) { return rest.starts_with(known.first); });
  if (found == kComparisons.end())
    return Wrong(text, fmt::format("'{}' is no comparison", rest.substr(0, 1)));
  condition.comparison = found->second;
  rest = base::Trim(rest.substr(found->first.size()));

  const std::string_view left = base::Trim(text.substr(0, at));
  const size_t dot = left.rfind('.');
  if (dot == std::string_view::npos || dot == 0 || dot + 1 == left.size())
    return Wrong(text, fmt::format("'{}' has no statistic behind a tensor's name", left));
  condition.pattern = left.substr(0, dot);
  condition.statistic = left.substr(dot + 1);
  if (!base::IsValidName(condition.pattern)) return Wrong(text, "the pattern is no text in UTF-8");

  constexpr std::string_view kMedian = "median";
  if (rest.ends_with(kMedian)) {
    rest = base::Trim(rest.substr(0, rest.size() - kMedian.size()));
    condition.times_median = true;
    if (rest.empty()) {
      condition.number = 1;
      return condition;
    }
    if (rest.back() != 'x' && rest.back() != '*')
      return Wrong(text, fmt::format("'{}' is not a number and an x in front of median", rest));
    rest = base::Trim(rest.substr(0, rest.size() - 1));
  }
  const auto number = base::ParseDouble(rest);
  if (!number || std::isnan(*number)) return Wrong(text, fmt::format("'{}' is no number", rest));
  condition.number = *number;
  return condition;
}

std::string Condition::text() const {
  const auto* const spelling = std::find_if(kComparisons.begin(), kComparisons.end(),
                                            [&](const auto& known) { return known.second == comparison; });
  return fmt::format("{}.{} {} {}{}", pattern, statistic, spelling->first, number,
                     times_median ? " x median" : "");
}

// Iterative, with one place to go back to: no pattern takes more than the product of both lengths.
bool Condition::Matches(std::string_view name) const {
  size_t p = 0, n = 0, star = std::string::npos, resume = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      resume = n;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == name[n])) {
      ++p;
      ++n;
    } else if (star != std::string::npos) {
      p = star + 1;
      n = ++resume;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

bool Condition::Holds(double value, double bound) const {
  switch (comparison) {
    case Comparison::kGreater:
      return value > bound;
    case Comparison::kGreaterEqual:
      return value >= bound;
    case Comparison::kLess:
      return value < bound;
    case Comparison::kLessEqual:
      return value <= bound;
    case Comparison::kEqual:
      return value == bound;
    case Comparison::kNotEqual:
      return value != bound;
  }
  return false;
}

void History::Add(double value) {
  if (!std::isfinite(value)) return;
  values_.push_back(value);
  if (values_.size() > kMost) values_.pop_front();
}

double History::Median() const {
  std::vector<double> sorted(values_.begin(), values_.end());
  const auto middle = sorted.begin() + static_cast<ptrdiff_t>(sorted.size() / 2);
  std::nth_element(sorted.begin(), middle, sorted.end());
  if (sorted.size() % 2) return *middle;
  return (*std::max_element(sorted.begin(), middle) + *middle) / 2;
}

}  // namespace tdbg::watch

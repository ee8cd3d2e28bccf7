// The condition of a breakpoint: "gradient/*.l2 > 100", "*loss*.value > 3 x median".
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <string_view>

#include "tdbg/status.h"

namespace tdbg::watch {

/// PATTERN.STATISTIC COMPARISON NUMBER, where NUMBER may be followed by "x median": of the tensor's own
/// earlier values. In a pattern * stands for any text and ? for any character.
struct Condition {
  enum class Comparison : uint8_t { kGreater, kGreaterEqual, kLess, kLessEqual, kEqual, kNotEqual };

  std::string pattern;
  std::string statistic;  ///< a field of Trial::series
  Comparison comparison = Comparison::kGreater;
  double number = 0;
  bool times_median = false;

  /// \error kInvalidArgument  names the part that is wrong, and what is accepted there
  static Result<Condition> Parse(std::string_view text);
  std::string text() const;  ///< as Parse takes it
  bool Matches(std::string_view name) const;
  /// Does `value` meet it? A value that is no number meets "!=" alone.
  bool Holds(double value, double bound) const;
};

/// The last finite values of one tensor's statistic.
class History {
 public:
  static constexpr size_t kLeast = 10;  ///< values, before there is a median that says anything
  static constexpr size_t kMost = 200;

  void Add(double value);
  bool has_median() const { return values_.size() >= kLeast; }
  double Median() const;

 private:
  std::deque<double> values_;
};

}  // namespace tdbg::watch

// One tensor step by step: statistics, plain numbers or smdebug's reductions, as a table and as JSON.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/json_output.h"
#include "cli/terminal.h"
#include "tdbg/trial.h"

namespace tdbg::cli {

class StepStatistics {
 public:
  /// \param worker  empty: the lowest rank's
  /// \param steps   how many Add() will be called with: on a terminal the middle of many is left out
  StepStatistics(const Trial& trial, const TensorInfo& info, const std::string& worker,
                 const Terminal& terminal, size_t steps);

  /// \error the trial's, except that nothing is kept at a step
  Status Add(int64_t step, bool has_histogram);
  /// Adds the values of the run's end, behind the steps.
  void AddEnd(const Summary& summary);

  /// A list with an entry per step, and the end's (null without AddEnd).
  const Json& steps() const { return list_; }
  const Json& end() const { return end_; }
  /// Numbers to draw, a step each: values of scalars, mean_abs of all else.
  const std::vector<double>& picture() const { return picture_; }
  std::string_view picture_of() const { return as_scalar_ ? "value" : "mean_abs"; }
  bool only_reductions() const { return picture_.empty() && !reductions_.empty(); }
  std::string Format() const;
  size_t left_out() const { return left_out_; }

 private:
  bool AddValue(int64_t step, const std::string& mode, bool shown, Json* entry);
  Status AddReductions(int64_t step, const std::string& mode, bool shown, Json* entry);
  bool IsShown();

  const Trial& trial_;
  const TensorInfo& info_;
  const std::string& worker_;
  const Terminal& terminal_;
  const size_t count_;
  const bool numbered_;  // each mode counts by itself
  Table summaries_, scalars_, reductions_;
  Json list_ = Json::array(), end_;
  std::vector<double> picture_;
  bool as_scalar_ = false;
  size_t row_ = 0, left_out_ = 0;
};

}  // namespace tdbg::cli

// Parameters that several rules have.
#pragma once

#include <string>
#include <utility>

#include "rules/interval_means.h"
#include "rules/rule.h"

namespace tdbg::rules {

/// Text, taken as it is; an empty default is none.
inline ParameterSpec TextParameter(std::string name, std::string default_value, std::string help,
                                   std::string unit = "") {
  ParameterSpec spec;
  spec.name = std::move(name);
  spec.type = "string";
  spec.default_value = std::move(default_value);
  spec.unit = std::move(unit);
  spec.help = std::move(help);
  return spec;
}

inline ParameterSpec BoolParameter(std::string name, std::string default_value, std::string help) {
  ParameterSpec spec = TextParameter(std::move(name), std::move(default_value), std::move(help));
  spec.type = "bool";
  return spec;
}

/// `type` is "int" or "float"; an empty default is none.
inline ParameterSpec NumberParameter(std::string name, std::string type, std::string default_value,
                                     double minimum, std::string unit, std::string help) {
  ParameterSpec spec =
      TextParameter(std::move(name), std::move(default_value), std::move(help), std::move(unit));
  spec.type = std::move(type);
  spec.minimum = minimum;
  return spec;
}

/// For rules that judge a trend or a change. It has no default here, because values that are kept sparsely
/// are compared differently where an interval was given.
inline ParameterSpec IntervalParameter(std::string help) {
  return NumberParameter("interval", "int", "", 1, "steps", std::move(help));
}

inline Interval IntervalOf(const Parameters& parameters) {
  Interval interval;
  interval.given = parameters.Has("interval");
  if (interval.given) interval.steps = parameters.Int("interval");
  return interval;
}

}  // namespace tdbg::rules

// What a pattern's first group finds in a text: the number in a line of a log.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "tdbg/status.h"

namespace tdbg::base {

struct CompiledPattern;  // regex.cc

/// Beside Regex, which answers yes or no and so needs no room for what a pattern captures.
class FirstGroup {
 public:
  /// \error kInvalidArgument  as of Regex::Compile
  static Result<FirstGroup> Compile(std::string_view pattern);

  /// Searched, not anchored. Nothing where the pattern is not there, has no group, or exceeds its match
  /// limit. \threadsafety const calls may run concurrently.
  std::optional<std::string> Find(std::string_view text) const;

 private:
  explicit FirstGroup(std::shared_ptr<const CompiledPattern> pattern) : pattern_(std::move(pattern)) {}
  std::shared_ptr<const CompiledPattern> pattern_;
};

}  // namespace tdbg::base

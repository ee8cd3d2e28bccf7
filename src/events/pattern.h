// Which events a handler gets: EventBridge's patterns, as docs/events.md lists them.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>

#include "plan/config_reader.h"
#include "tdbg/status.h"

namespace tdbg::events {

/// A pattern, checked when it is made. An object matches if all of its keys do, a list if one of its values
/// does.
/// Where the event has a list, any element may match; where it has a list of objects, one of them has to
/// match all that the pattern says about it.
///
/// Comparisons respect type and case. Numbers compare by value: 1 and 1.0 are equal. Only {"exists": false}
/// matches a value that is missing; an empty list and an object count as missing. Matching costs at most the
/// pattern's size times the event's size, times the length of a text for wildcards.
class Pattern {
 public:
  Pattern();  ///< matches everything
  ~Pattern();
  Pattern(Pattern&&) noexcept;
  Pattern& operator=(Pattern&&) noexcept;

  /// From a part of a document. The error says where the mistake is, what was found and what is accepted.
  static Pattern Parse(const plan::ConfigNode& node);
  /// \error kInvalidArgument
  static Result<Pattern> Parse(const nlohmann::json& pattern, const plan::Source& source);

  /// \threadsafety Any thread.
  bool Matches(const nlohmann::json& event) const;

  struct Node;

 private:
  std::unique_ptr<const Node> root_;
};

}  // namespace tdbg::events

// What was dropped, in the words of who dropped it. The counters in a journal's header have room for a cause
// and no more; the words lie in context records of topic kTopic (docs/format.md, "What was dropped").
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "format/records.h"

namespace tdbg::format {

/// The first few details of each cause and kind. \threadsafety None.
class DropDetails {
 public:
  static constexpr std::string_view kTopic = "dropped";
  static constexpr size_t kMost = 4;  ///< details of one cause and kind
  static constexpr size_t kMaxDetailBytes = 300;

  /// One line, what looks like a secret taken out, cut to kMaxDetailBytes. \return false: known, or one too
  /// many
  bool Add(DropCause cause, DropKind kind, std::string_view detail);
  /// What ToJson gave. What is damaged in it is left out.
  void AddJson(std::string_view json);
  /// {"unsupported": {"summary": ["...", ...]}, ...}
  std::string ToJson() const;
  /// One sentence: what happened, and to what where that is known. Else DropCauseText.
  std::string Sentence(DropCause cause, DropKind kind) const;

 private:
  std::map<std::pair<std::string, std::string>, std::vector<std::string>>
      details_;  // by names of cause and kind
};

}  // namespace tdbg::format

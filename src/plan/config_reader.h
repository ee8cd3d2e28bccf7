// Strict reading of a configuration document: every refusal names file, line where known, key, what was found
// and what is accepted.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "plan/config.h"
#include "tdbg/status.h"

namespace tdbg::plan {

/// One place in a document. Borrows document and source.
///
/// The first error sticks: later calls change nothing and the status says what was wrong first.
class ConfigNode {
 public:
  ConfigNode(const nlohmann::json& value, const Source& source, Status* status)
      : value_(&value), source_(&source), status_(status) {}

  const nlohmann::json& value() const { return *value_; }
  bool is_null() const { return value_->is_null(); }
  /// "debug.yaml:12", for messages that are made later.
  std::string Where() const;

  /// Refuses keys that are not `accepted`, and values that are no objects. False if refused.
  bool CheckKeys(std::span<const std::string> accepted) const;
  /// Calls `visit(node)` for the key if it is there and not null.
  template <typename Visit>
  void At(const char* key, Visit visit) const {
    if (!value_->is_object()) return;
    const auto it = value_->find(key);
    if (it != value_->end() && !it->is_null())
      visit(Child(*it, path_.empty() ? key : path_ + "." + key, key));
  }
  ConfigNode Key(const std::string& key) const;  ///< \pre an object that has it
  ConfigNode Item(size_t index) const;           ///< \pre an array of more items

  // Numbers and truth values may come as text: flags and environment variables know nothing else.
  int64_t Int(int64_t at_least, const char* expected = nullptr) const;
  bool Bool() const;
  std::optional<bool> IfBool() const;  ///< nothing where it is no truth value
  uint64_t Bytes() const;
  std::string Text() const;
  std::string Choice(std::span<const std::string> accepted) const;
  /// A list of strings, or one string with commas.
  std::vector<std::string> Texts() const;
  /// A list of strings, or one string taken as it is: a regex may hold a comma.
  std::vector<std::string> Regexes() const;
  /// A scalar as the text it would have on a command line.
  std::string ScalarText() const;

  void Fail(const std::string& message) const;
  bool ok() const { return status_->ok(); }

 private:
  ConfigNode Child(const nlohmann::json& value, std::string path, const std::string& pointer_step) const;
  void FailExpected(const std::string& expected) const;

  const nlohmann::json* value_;
  const Source* source_;
  Status* status_;
  std::string path_;     // "rules[0].parameters"
  std::string pointer_;  // "/rules/0/parameters"
};

/// "a, b, c"
std::string JoinNames(std::span<const std::string> names);
/// ` unknown WHAT "NAME"; did you mean "NEAREST"? Accepted: ...`
std::string UnknownName(std::string_view what, std::string_view name, std::span<const std::string> accepted);

/// The save keys, without mode prefix; smdebug's modes in lower case.
const std::vector<std::string>& SaveKeys();
const std::vector<std::string>& SaveModes();  ///< indexed by mode - 1
/// smdebug's reductions.
const std::vector<std::string>& Reductions();
/// Empty if `text` is a value that save key `key` (with or without mode prefix) accepts, else what it
/// accepts.
std::string CheckSaveValue(std::string_view key, const std::string& text);

}  // namespace tdbg::plan

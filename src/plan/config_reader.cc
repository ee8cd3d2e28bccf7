#include "plan/config_reader.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"

namespace tdbg::plan {
namespace {

using nlohmann::json;

/// Short enough for a line of a terminal.
std::string Found(const json& value) {
  std::string text = value.dump(-1, ' ', false, json::error_handler_t::replace);
  if (text.size() > 60) text = base::ToValidUtf8(text.substr(0, 57)) + "...";
  return text;
}

}  // namespace

std::string JoinNames(std::span<const std::string> names) {
  return fmt::format("{}", fmt::join(names, ", "));
}

std::string UnknownName(std::string_view what, std::string_view name, std::span<const std::string> accepted) {
  std::string message = fmt::format("unknown {} \"{}\"", what, name);
  if (const auto nearest = base::Nearest(name, accepted))
    message += fmt::format("; did you mean \"{}\"?", *nearest);
  else
    message += ".";
  return message + fmt::format(" Accepted: {}", JoinNames(accepted));
}

const std::vector<std::string>& SaveKeys() {
  static const std::vector<std::string> keys = {"save_interval", "start_step", "end_step", "save_steps"};
  return keys;
}

const std::vector<std::string>& SaveModes() {
  static const std::vector<std::string> modes = {"train", "eval", "predict", "global"};
  return modes;
}

const std::vector<std::string>& Reductions() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const char* prefix : {"", "abs_"}) {
      for (const char* name :
           {"min", "max", "mean", "std", "variance", "sum", "prod", "l1_norm", "l2_norm"}) {
        all.push_back(std::string(prefix) + name);
      }
    }
    return all;
  }();
  return names;
}

std::string CheckSaveValue(std::string_view key, const std::string& text) {
  if (key.ends_with("save_steps")) {
    for (const std::string& item : base::SplitList(text)) {
      const auto step = base::ParseInt(item);
      if (!step || *step < 0) return "a list of steps such as 0,10,500";
    }
    return base::SplitList(text).empty() ? "a list of steps such as 0,10,500" : "";
  }
  const auto number = base::ParseInt(text);
  if (key.ends_with("save_interval")) return number && *number >= 1 ? "" : "an integer of at least 1 (steps)";
  return number && *number >= 0 ? "" : "an integer of at least 0 (steps)";
}

std::string ConfigNode::Where() const {
  const int line = source_->line_of ? source_->line_of(pointer_) : 0;
  return line > 0 ? fmt::format("{}:{}", source_->name, line) : source_->name;
}

void ConfigNode::Fail(const std::string& message) const {
  if (!status_->ok()) return;
  *status_ = InvalidArgument(fmt::format("{}: {}{}{}", Where(), path_, path_.empty() ? "" : ": ", message));
}

void ConfigNode::FailExpected(const std::string& expected) const {
  Fail(fmt::format("found {}, expected {}", Found(*value_), expected));
}

ConfigNode ConfigNode::Child(const json& value, std::string path, const std::string& pointer_step) const {
  ConfigNode child(value, *source_, status_);
  child.path_ = std::move(path);
  child.pointer_ = pointer_ + base::JsonPointerStep(pointer_step);
  return child;
}

ConfigNode ConfigNode::Key(const std::string& key) const {
  return Child(value_->at(key), path_.empty() ? key : path_ + "." + key, key);
}

ConfigNode ConfigNode::Item(size_t index) const {
  return Child(value_->at(index), fmt::format("{}[{}]", path_, index), std::to_string(index));
}

bool ConfigNode::CheckKeys(std::span<const std::string> accepted) const {
  if (!value_->is_object()) {
    FailExpected("an object with the keys " + JoinNames(accepted));
    return false;
  }
  for (const auto& [key, unused] : value_->items()) {
    if (std::find(accepted.begin(), accepted.end(), key) != accepted.end()) continue;
    if (!status_->ok()) return false;
    // The line of the key itself, under the path of the object that must not hold it.
    *status_ = InvalidArgument(fmt::format("{}: {}{}{}", Key(key).Where(), path_, path_.empty() ? "" : ": ",
                                           UnknownName("key", key, accepted)));
    return false;
  }
  return true;
}

int64_t ConfigNode::Int(int64_t at_least, const char* expected) const {
  std::optional<int64_t> number;
  if (value_->is_number_integer()) number = value_->get<int64_t>();
  if (value_->is_string()) number = base::ParseInt(value_->get<std::string>());
  if (!number || *number < at_least) {
    FailExpected(expected != nullptr ? expected : fmt::format("an integer of at least {}", at_least));
    return at_least;
  }
  return *number;
}

std::optional<bool> ConfigNode::IfBool() const {
  if (value_->is_boolean()) return value_->get<bool>();
  return value_->is_string() ? base::ParseBool(value_->get<std::string>()) : std::nullopt;
}

bool ConfigNode::Bool() const {
  const std::optional<bool> truth = IfBool();
  if (!truth) FailExpected("true or false");
  return truth.value_or(false);
}

uint64_t ConfigNode::Bytes() const {
  if (value_->is_number_unsigned()) return value_->get<uint64_t>();
  std::optional<uint64_t> bytes;
  if (value_->is_string()) bytes = base::ParseBytes(value_->get<std::string>());
  if (!bytes) FailExpected("a size such as \"256MiB\" or a number of bytes");
  return bytes.value_or(0);
}

std::string ConfigNode::Text() const {
  if (value_->is_string()) return value_->get<std::string>();
  FailExpected("a string");
  return {};
}

std::string ConfigNode::Choice(std::span<const std::string> accepted) const {
  if (value_->is_string()) {
    const std::string text = value_->get<std::string>();
    if (std::find(accepted.begin(), accepted.end(), text) != accepted.end()) return text;
    Fail(UnknownName("value", text, accepted));
  } else {
    FailExpected("one of " + JoinNames(accepted));
  }
  return {};
}

std::vector<std::string> ConfigNode::Texts() const {
  if (value_->is_string()) return base::SplitList(value_->get<std::string>());
  return Regexes();
}

std::vector<std::string> ConfigNode::Regexes() const {
  if (value_->is_string()) return {value_->get<std::string>()};
  std::vector<std::string> texts;
  if (!value_->is_array()) {
    FailExpected("a list of strings");
    return texts;
  }
  for (size_t i = 0; i < value_->size(); ++i) texts.push_back(Item(i).Text());
  return texts;
}

std::string ConfigNode::ScalarText() const {
  if (value_->is_string()) return value_->get<std::string>();
  if (value_->is_boolean()) return value_->get<bool>() ? "True" : "False";
  if (value_->is_number_float()) return base::JsonNumber(value_->get<double>());
  if (value_->is_number()) return value_->dump();
  if (value_->is_array()) {  // what a command line would write as a comma list
    std::vector<std::string> items;
    for (size_t i = 0; i < value_->size(); ++i) items.push_back(Item(i).ScalarText());
    return fmt::format("{}", fmt::join(items, ","));
  }
  FailExpected("a string, a number, true or false, or a list of them");
  return {};
}

}  // namespace tdbg::plan

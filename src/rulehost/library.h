// A shared library of rules, loaded.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "rules/step_context.h"
#include "tdbg/rule.h"
#include "tdbg/status.h"

namespace tdbg::rulehost {

/// Loads code that is not ours: for `tdbg-rule-host`, a process of its own, and for nobody else.
class Library {
 public:
  /// \error kInvalidArgument  it cannot be loaded, exports no rules, was built for another major version, or
  /// holds no such class (names those that it holds)
  static Result<Library> Load(const std::string& file, const std::string& class_name);

  /// The reply to a describe message.
  nlohmann::json Describe() const;
  const tdbg_rule_class& rule_class() const { return *class_; }

 private:
  const tdbg_rule_class* class_ = nullptr;
};

/// A rule of a library, judging a step at a time.
class LibraryRule {
 public:
  /// \error kInvalidArgument  the rule refuses its parameters
  static Result<std::unique_ptr<LibraryRule>> Make(const tdbg_rule_class& rule_class,
                                                   const nlohmann::json& parameters);
  ~LibraryRule();
  /// The answer to a step or an end message. \error kUnavailable  in the rule's words
  Result<nlohmann::json> Invoke(const rules::StepContext& step, bool at_end);

 private:
  struct Tensor;
  struct View;
  LibraryRule(const tdbg_rule_class& rule_class, void* rule);

  const tdbg_rule_class& class_;
  void* rule_;
  std::vector<std::unique_ptr<Tensor>> tensors_;  // their strings live as long as the rule
  std::vector<tdbg_statistics> statistics_;
  std::vector<tdbg_scalar> scalars_;
};

}  // namespace tdbg::rulehost

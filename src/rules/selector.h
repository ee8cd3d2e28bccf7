// The tensors a rule inspects: the union of `collection_names` and `tensor_regex`, resolved once per new
// tensor.
#pragma once

#include <string>
#include <vector>

#include "base/regex.h"
#include "plan/config.h"
#include "rules/rule.h"
#include "rules/step_context.h"
#include "tdbg/status.h"

namespace tdbg::rules {

/// A parameter of Selector::MakeDocumented.
ParameterSpec DocumentedRegexParameter(std::string name, std::string_view documented, std::string help);
/// The two parameters every rule with a selector has.
ParameterSpec CollectionNamesParameter(std::string help);
ParameterSpec TensorRegexParameter(std::string help);

class Selector {
 public:
  /// Nothing is inspected.
  Selector() = default;
  /// \error kInvalidArgument  a regex
  static Result<Selector> Make(std::vector<std::string> collections, const std::vector<std::string>& regexes);
  /// A regex list for which Amazon documents a default. With the default, the tensors of `collections`, which
  /// adaptors fill, are inspected, and the regexes apply only to tensors of which the module's kind is not
  /// known. A list that the user gave applies alone.
  static Result<Selector> MakeDocumented(const Parameters& parameters, const std::string& parameter,
                                         std::string_view documented, std::vector<std::string> collections);

  /// Takes in tensors that are new since the last call; costs one comparison if there are none.
  void Update(const StepContext& step) {
    if (step.tensor_count() != mask_.size()) Extend(step);
  }
  bool contains(TensorIndex tensor) const { return mask_[tensor] != 0; }
  /// contains() as bytes, 0 or 1, indexed by TensorIndex: for loops over columns.
  const uint8_t* mask() const { return mask_.data(); }
  bool found_any() const { return found_any_; }

  plan::Need Need() const;
  /// "the collections gradients, or a tensor that matches 'fc'"
  std::string Describe() const;

 private:
  void Extend(const StepContext& step);

  std::vector<std::string> collections_;
  std::vector<base::Regex> regexes_;
  bool regexes_for_unknown_kinds_ = false;
  std::vector<uint8_t> mask_;
  bool found_any_ = false;
};

/// For rules without default tensors to look at. \error kInvalidArgument  neither parameter is given
Result<Selector> RequiredSelector(const Parameters& parameters);

}  // namespace tdbg::rules

#include "rules/frozen_parameters.h"

#include <nlohmann/json.hpp>

namespace tdbg::rules {

void FrozenParameters::Update(const StepContext& step) {
  const std::string* const text = step.Context("parameters");
  if (text == nullptr || *text == text_) return;
  text_ = *text;
  names_.clear();
  const auto json = nlohmann::json::parse(text_, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("frozen")) return;
  for (const auto& name : json["frozen"]) {
    if (name.is_string()) names_.insert(name.get<std::string>());
  }
}

}  // namespace tdbg::rules

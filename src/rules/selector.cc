#include "rules/selector.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace tdbg::rules {

ParameterSpec CollectionNamesParameter(std::string help) {
  ParameterSpec spec;
  spec.name = "collection_names";
  spec.type = "collection list";
  spec.help = std::move(help);
  return spec;
}

ParameterSpec TensorRegexParameter(std::string help) {
  ParameterSpec spec;
  spec.name = "tensor_regex";
  spec.type = "regex list";
  spec.help = std::move(help);
  return spec;
}

ParameterSpec DocumentedRegexParameter(std::string name, std::string_view documented, std::string help) {
  ParameterSpec spec = TensorRegexParameter(std::move(help));
  spec.name = std::move(name);
  spec.default_value = documented;
  return spec;
}

Result<Selector> Selector::MakeDocumented(const Parameters& parameters, const std::string& parameter,
                                          std::string_view documented, std::vector<std::string> collections) {
  const bool is_default = parameters.Text(parameter) == documented;
  if (!is_default) collections.clear();
  TDBG_ASSIGN_OR_RETURN(Selector selector, Make(std::move(collections), parameters.List(parameter)));
  selector.regexes_for_unknown_kinds_ = is_default;
  return selector;
}

Result<Selector> Selector::Make(std::vector<std::string> collections,
                                const std::vector<std::string>& regexes) {
  Selector selector;
  selector.collections_ = std::move(collections);
  for (const std::string& pattern : regexes) {
    auto regex = base::Regex::Compile(pattern);
    if (!regex.ok()) return regex.status().Annotate("tensor_regex");
    selector.regexes_.push_back(*std::move(regex));
  }
  return selector;
}

void Selector::Extend(const StepContext& step) {
  const size_t count = step.tensor_count();
  const auto first = static_cast<TensorIndex>(mask_.size() < count ? mask_.size() : 0);
  mask_.resize(count);
  for (TensorIndex i = first; i < count; ++i) {
    const TensorInfo& info = step.tensor(i);
    if (info.kind == kStatisticKind) continue;  // named after a tensor, not one
    const bool named = std::any_of(collections_.begin(), collections_.end(), [&](const std::string& name) {
      return name == "all" ||
             std::find(info.collections.begin(), info.collections.end(), name) != info.collections.end();
    });
    const bool by_name = !regexes_for_unknown_kinds_ || info.module_kind.empty();
    mask_[i] =
        named || (by_name && std::any_of(regexes_.begin(), regexes_.end(),
                                         [&](const base::Regex& regex) { return regex.Search(info.name); }));
    found_any_ |= mask_[i] != 0;
  }
}

plan::Need Selector::Need() const {
  plan::Need need;
  need.collections = collections_;
  if (regexes_for_unknown_kinds_) return need;  // its collections go by these regexes themselves
  for (const base::Regex& regex : regexes_) need.tensor_regex.push_back(regex.pattern());
  return need;
}

std::string Selector::Describe() const {
  std::vector<std::string> parts;
  if (!collections_.empty()) {
    parts.push_back(fmt::format("of the collection{} {}", collections_.size() > 1 ? "s" : "",
                                fmt::join(collections_, ", ")));
  }
  for (const base::Regex& regex : regexes_) parts.push_back(fmt::format("matching '{}'", regex.pattern()));
  return fmt::format("{}", fmt::join(parts, " or "));
}

Result<Selector> RequiredSelector(const Parameters& parameters) {
  std::vector<std::string> collections = parameters.List("collection_names");
  const std::vector<std::string> regexes = parameters.List("tensor_regex");
  if (collections.empty() && regexes.empty())
    return InvalidArgument("collection_names or tensor_regex must say what to inspect");
  return Selector::Make(std::move(collections), regexes);
}

}  // namespace tdbg::rules

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
    mask_[i] = named || std::any_of(regexes_.begin(), regexes_.end(),
                                    [&](const base::Regex& regex) { return regex.Search(info.name); });
    found_any_ |= mask_[i] != 0;
  }
}

plan::Need Selector::Need() const {
  plan::Need need;
  need.collections = collections_;
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

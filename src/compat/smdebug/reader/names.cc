#include "compat/smdebug/reader/names.h"

#include <fmt/format.h>

#include "base/text.h"

namespace tdbg::compat::smdebug {

std::optional<StepFileName> ParseStepFileName(std::string_view name, std::string_view suffix) {
  if (!name.ends_with(suffix)) return std::nullopt;
  name.remove_suffix(suffix.size());
  const size_t underscore = name.find('_');
  if (underscore == std::string_view::npos || underscore + 1 == name.size()) return std::nullopt;
  const auto step = base::ParseInt(name.substr(0, underscore));
  if (!step || name[0] == '+' || name[0] == ' ') return std::nullopt;
  return StepFileName{*step, name.substr(underscore + 1)};
}

std::optional<std::string_view> ParseCollectionsFileName(std::string_view name) {
  constexpr std::string_view kSuffix = "collections.json";
  if (!name.ends_with(kSuffix)) return std::nullopt;
  name.remove_suffix(kSuffix.size());
  if (name.ends_with('_')) name.remove_suffix(1);
  return name;
}

std::string DecodeWorker(std::string_view in_name) {
  std::string worker(in_name);
  if (!worker.starts_with('_')) return worker;
  for (char& c : worker) {
    if (c == '_') c = '/';
    if (c == '-') c = ':';
  }
  return worker;
}

std::string EventFileName(int64_t step, std::string_view worker_in_name) {
  return fmt::format("{}/{:012d}/{:012d}_{}.tfevents", kEventsDir, step, step, worker_in_name);
}

bool IsEventFileName(std::string_view path) {
  size_t components = 0;
  for (size_t begin = 0; begin <= path.size(); ++components) {
    const size_t end = std::min(path.find('/', begin), path.size());
    const std::string_view component = path.substr(begin, end - begin);
    if (component.empty() || component == "." || component == "..") return false;
    if (component.find('\0') != std::string_view::npos) return false;
    if (components == 0 && component != kEventsDir) return false;
    begin = end + 1;
  }
  return components == 3;
}

std::optional<ReductionName> ParseReductionName(std::string_view name) {
  constexpr std::string_view kPrefix = "smdebug/reductions/";
  const size_t at = name.find(kPrefix);
  if (at == std::string_view::npos) return std::nullopt;
  name.remove_prefix(at + kPrefix.size());
  const size_t slash = name.find('/');
  if (slash == std::string_view::npos || slash == 0 || slash + 1 == name.size()) return std::nullopt;
  ReductionName reduction;
  reduction.operation = name.substr(0, slash);
  reduction.tensor = name.substr(slash + 1);
  constexpr std::string_view kAbsolute = "abs_";
  if (const size_t absolute = reduction.operation.find(kAbsolute); absolute != std::string_view::npos) {
    reduction.absolute = true;
    reduction.operation.remove_prefix(absolute + kAbsolute.size());
  }
  if (reduction.operation.empty()) return std::nullopt;
  return reduction;
}

}  // namespace tdbg::compat::smdebug

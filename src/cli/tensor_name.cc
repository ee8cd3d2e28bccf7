#include "cli/tensor_name.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/output.h"
#include "cli/terminal.h"
#include "tdbg/statistic.h"

namespace tdbg::cli {
namespace {

constexpr size_t kMostNamed = 8;

bool HoldsIgnoringCase(std::string_view text, std::string_view part) {
  const auto same = [](unsigned char a, unsigned char b) { return std::tolower(a) == std::tolower(b); };
  return std::search(text.begin(), text.end(), part.begin(), part.end(), same) != text.end();
}

bool IsOfContextOnly(const TensorInfo& info) {
  return !info.collections.empty() &&
         std::ranges::all_of(info.collections, [](const std::string& name) { return name == "context"; });
}

}  // namespace

Result<TensorInfo> ResolveTensor(const Trial& trial, const std::string& text) {
  auto found = trial.tensor(text);
  if (found.ok() || found.status().code() != Code::kNotFound || text.empty()) return found;
  const auto names = trial.tensor_names();
  if (!names.ok()) return found;
  std::vector<TensorInfo> holding, of_context;
  for (const std::string& name : *names) {
    if (!HoldsIgnoringCase(name, text)) continue;
    auto info = trial.tensor(name);
    if (!info.ok() || info->kind == kStatisticKind) continue;
    std::vector<TensorInfo>& list = IsOfContextOnly(*info) ? of_context : holding;
    list.push_back(*std::move(info));
  }
  if (holding.empty()) holding = std::move(of_context);
  if (holding.empty()) return found;
  if (holding.size() == 1) {
    Tell("tdbg: {}\n", Printable(fmt::format("'{}' is {} here", text, holding.front().name)));
    return std::move(holding.front());
  }
  std::string list;
  for (size_t i = 0; i < std::min(holding.size(), kMostNamed); ++i)
    list += (i == 0 ? "" : ", ") + holding[i].name;
  if (holding.size() > kMostNamed) list += fmt::format(" and {} more", holding.size() - kMostNamed);
  return NotFound(
      fmt::format("no tensor '{}'; it is part of the names of {}: {}", text, holding.size(), list));
}

}  // namespace tdbg::cli

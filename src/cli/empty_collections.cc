#include "cli/empty_collections.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <set>
#include <string_view>
#include <utility>

#include "base/printable.h"
#include "plan/plan.h"
#include "rules/judged_run.h"

namespace tdbg::cli {
namespace {

constexpr size_t kNearby = 2;
constexpr size_t kLeastInCommon = 3;  // letters; less is chance

// Filled by what a framework or a script reports, if anything does: nobody misspelled them.
const std::set<std::string, std::less<>> kMayBeEmpty = {"losses",  "metrics", "sm_metrics",
                                                        "scalars", "all",     "buffers"};

bool IsAskedFor(const plan::CollectionPlan& c, const plan::Plan& usual) {
  if (!c.keep || c.name.starts_with("rule:")) return false;
  const auto known = std::ranges::find(usual.collections, c.name, &plan::CollectionPlan::name);
  if (known == usual.collections.end()) return true;
  const bool patterns = c.include_regex != known->include_regex || c.tensor_names != known->tensor_names;
  return patterns || (!known->keep && !kMayBeEmpty.contains(c.name));
}

/// Stretches of a pattern that are letters of names.
std::vector<std::string> Words(const std::string& pattern) {
  std::vector<std::string> words(1);
  for (const char c : pattern) {
    if (std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '/') {
      words.back() += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    } else if (!words.back().empty()) {
      words.emplace_back();
    }
  }
  return words;
}

size_t LongestInCommon(std::string_view word, std::string_view name) {
  size_t longest = 0;
  std::vector<size_t> ends(name.size() + 1), before(name.size() + 1);
  for (const char letter : word) {
    std::swap(ends, before);
    for (size_t i = 0; i < name.size(); ++i) {
      const bool same = letter == std::tolower(static_cast<unsigned char>(name[i]));
      ends[i + 1] = same ? before[i] + 1 : 0;
      longest = std::max(longest, ends[i + 1]);
    }
  }
  return longest;
}

std::vector<std::string> Nearby(const std::vector<std::string>& patterns,
                                const std::vector<std::string>& names) {
  std::vector<std::pair<size_t, std::string>> found;
  for (const std::string& name : names) {
    size_t most = 0;
    for (const std::string& pattern : patterns) {
      for (const std::string& word : Words(pattern)) most = std::max(most, LongestInCommon(word, name));
    }
    if (most >= kLeastInCommon) found.emplace_back(most, name);
  }
  std::ranges::sort(found, [](const auto& a, const auto& b) {
    return a.first != b.first ? a.first > b.first : a.second < b.second;
  });
  std::vector<std::string> out;
  for (size_t i = 0; i < std::min(kNearby, found.size()); ++i) out.push_back(found[i].second);
  return out;
}

std::string Joined(const std::vector<std::string>& texts) {
  return fmt::format("{}", fmt::join(texts, ", "));
}

}  // namespace

std::vector<EmptyCollection> EmptyCollections(const Trial& trial, const std::string& run) {
  std::vector<EmptyCollection> out;
  const auto plan = rules::PlanOf(run);
  if (!plan) return out;
  auto names = trial.tensor_names();
  if (!names.ok()) return out;
  std::erase_if(*names, [](const std::string& name) { return name.starts_with("context/"); });
  if (names->empty()) return out;
  std::set<std::string> filled;
  for (const CollectionInfo& collection : trial.collections()) {
    if (!collection.tensor_names.empty()) filled.insert(collection.name);
  }
  const plan::Plan usual = plan::Plan::Default();
  for (const plan::CollectionPlan& c : plan->collections) {
    if (filled.contains(c.name) || !IsAskedFor(c, usual)) continue;
    EmptyCollection empty{c.name, c.include_regex, {}};
    empty.patterns.insert(empty.patterns.end(), c.tensor_names.begin(), c.tensor_names.end());
    empty.nearby = Nearby(empty.patterns.empty() ? std::vector<std::string>{c.name} : empty.patterns, *names);
    out.push_back(std::move(empty));
  }
  return out;
}

std::string EmptyCollectionLine(const EmptyCollection& collection, bool ended) {
  std::string line = "collection " + collection.name;
  if (!collection.patterns.empty()) line += " (" + Joined(collection.patterns) + ")";
  line += ended ? " matched nothing" : " has matched nothing yet";
  if (collection.name == "relu_output" || collection.name == "relu_input" ||
      collection.name == "tanh_input" || collection.name == "sigmoid_input") {
    line +=
        ": it holds tensors of modules of that kind; a function such as torch.nn.functional.relu is no "
        "module";
  }
  if (!collection.nearby.empty()) line += "; names that are recorded: " + Joined(collection.nearby);
  return base::Printable(line);
}

}  // namespace tdbg::cli

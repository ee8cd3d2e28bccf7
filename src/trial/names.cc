#include "trial/names.h"

#include <algorithm>
#include <cctype>

#include "base/text.h"

namespace tdbg {
namespace {

void MergeSorted(const std::vector<std::string>& from, std::vector<std::string>* into) {
  for (const std::string& name : from) {
    const auto at = std::lower_bound(into->begin(), into->end(), name);
    if (at == into->end() || *at != name) into->insert(at, name);
  }
}

bool HoldsIgnoringCase(std::string_view text, std::string_view part) {
  const auto same = [](char a, char b) {
    return std::tolower(static_cast<unsigned char>(a)) == std::tolower(static_cast<unsigned char>(b));
  };
  return std::search(text.begin(), text.end(), part.begin(), part.end(), same) != text.end();
}

/// " 'CrossEntropyLoss_output_0' 'backward_loss'" for "loss"; three at most.
std::string NamesHolding(std::string_view part, const std::deque<TensorInfo>& infos) {
  constexpr int kMaxNamed = 3;
  std::string text;
  int named = 0;
  for (const TensorInfo& info : infos) {
    if (part.empty() || info.kind == kStatisticKind || !HoldsIgnoringCase(info.name, part)) continue;
    if (named++ < kMaxNamed) text += " '" + info.name + "'";
  }
  if (named > kMaxNamed) text += " and " + std::to_string(named - kMaxNamed) + " more";
  return text;
}

}  // namespace

uint32_t TensorTable::Add(const format::TensorDef& def) {
  const auto [it, is_new] = by_name_.try_emplace(def.name, static_cast<uint32_t>(infos_.size()));
  if (is_new) {
    infos_.emplace_back();
    infos_.back().name = def.name;
    infos_.back().order = it->second;
  }
  const uint32_t index = it->second;
  TensorInfo& info = infos_[index];
  if (!def.short_name.empty()) info.short_name = def.short_name;
  if (!def.kind.empty()) info.kind = def.kind;
  if (!def.module_kind.empty()) info.module_kind = def.module_kind;
  info.dtype = def.dtype;
  info.in_parts = !def.whole_shape.empty();
  info.shape = info.in_parts ? def.whole_shape : def.shape;
  if (def.unit_axis >= 0) info.unit_axis = def.unit_axis;
  MergeSorted(def.collections, &info.collections);
  MergeSorted(def.aliases, &info.aliases);
  for (const std::string& alias : def.aliases) by_alias_.try_emplace(alias, index);
  if (!def.short_name.empty() && def.short_name != def.name) {
    std::vector<uint32_t>& owners = by_short_name_[def.short_name];
    if (std::find(owners.begin(), owners.end(), index) == owners.end()) owners.push_back(index);
  }
  return index;
}

std::optional<uint32_t> TensorTable::Find(std::string_view name) const {
  const std::string key(name);
  if (const auto it = by_name_.find(key); it != by_name_.end()) return it->second;
  if (const auto it = by_alias_.find(key); it != by_alias_.end()) return it->second;
  return std::nullopt;
}

Result<uint32_t> TensorTable::Resolve(std::string_view name) const {
  if (const auto found = Find(name)) return *found;
  const auto it = by_short_name_.find(std::string(name));
  if (it != by_short_name_.end()) {
    if (it->second.size() == 1) return it->second.front();
    std::vector<std::string> owners;
    for (const uint32_t index : it->second) owners.push_back(infos_[index].name);
    std::sort(owners.begin(), owners.end());
    std::string message = "'" + std::string(name) + "' is short for several tensors:";
    for (const std::string& owner : owners) message += " " + owner;
    return InvalidArgument(std::move(message));
  }
  if (infos_.empty()) return NotFound("no tensor '" + std::string(name) + "': the run has none yet");
  std::vector<std::string> candidates;
  candidates.reserve(infos_.size());
  size_t tensors = 0;
  for (const TensorInfo& info : infos_) {
    if (info.kind == kStatisticKind) continue;
    ++tensors;
    candidates.push_back(info.name);
    if (!info.short_name.empty()) candidates.push_back(info.short_name);
  }
  std::string message = "no tensor '" + std::string(name) + "'";
  if (const auto nearest = base::Nearest(name, candidates)) {
    message += ": did you mean '" + *nearest + "'?";
    return NotFound(std::move(message));
  }
  message += " among " + std::to_string(tensors);
  if (const std::string holding = NamesHolding(name, infos_); !holding.empty()) {
    message += "; it is part of" + holding;
  } else {
    message += "; `tdbg tensors` and Trial.tensor_names() list them";
  }
  return NotFound(std::move(message));
}

}  // namespace tdbg

#include "store/writer/tensor_table.h"

namespace tdbg::store {
namespace {
// Ids are dense; a larger one is damage, and must not make us allocate for it.
constexpr format::TensorId kMaxTensors = 1 << 24;
}  // namespace

bool TensorTable::Add(std::string_view def_json) {
  auto def = format::TensorDef::FromJson(def_json);
  if (!def.ok() || def->id >= kMaxTensors) return false;
  if (def->id >= defs_.size()) defs_.resize(def->id + 1);
  Def& slot = defs_[def->id];
  if (slot.json.empty()) slot = {std::move(def->name), std::string(def_json)};
  return true;
}

std::string TensorTable::NameOf(format::TensorId id) const {
  if (id < defs_.size() && !defs_[id].json.empty()) return defs_[id].name;
  return "tensor_" + std::to_string(id);
}

std::string TensorTable::JoinedJson() const {
  std::string out;
  for (const Def& def : defs_) {
    if (def.json.empty()) continue;
    if (!out.empty()) out.push_back(',');
    out.append(def.json);
  }
  return out;
}

}  // namespace tdbg::store

// One table of tensors over all workers and attempts, and the names by which people ask for them.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "format/records.h"
#include "tdbg/status.h"
#include "tdbg/trial.h"

namespace tdbg {

class TensorTable {
 public:
  /// The index of the definition's name, new or not. A later definition's dtype and shape replace earlier
  /// ones; collections and aliases add up.
  uint32_t Add(const format::TensorDef& def);

  size_t size() const { return infos_.size(); }
  const TensorInfo& at(uint32_t tensor) const { return infos_[tensor]; }
  std::optional<uint32_t> Find(std::string_view name) const;
  /// \error kNotFound  names the nearest; kInvalidArgument  the short name is ambiguous
  Result<uint32_t> Resolve(std::string_view name) const;

 private:
  std::deque<TensorInfo> infos_;  // references stay good while it grows
  std::unordered_map<std::string, uint32_t> by_name_, by_alias_;
  std::unordered_map<std::string, std::vector<uint32_t>> by_short_name_;
};

}  // namespace tdbg

// The definitions that every segment repeats, as the drain thread knows them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "format/records.h"

namespace tdbg::store {

/// \threadsafety One thread.
class TensorTable {
 public:
  /// Takes in TensorDef::ToJson's text. Again under the same id: the first stays. False if it is damaged.
  bool Add(std::string_view def_json);
  /// "tensor_<id>" for an id whose definition was damaged.
  std::string NameOf(format::TensorId id) const;
  /// "{...},{...}", ascending by id.
  std::string JoinedJson() const;
  /// The text of a definition; empty where it is not known.
  std::string_view JsonOf(format::TensorId id) const {
    return id < defs_.size() ? std::string_view(defs_[id].json) : std::string_view();
  }
  /// One more than the highest id.
  format::TensorId size() const { return static_cast<format::TensorId>(defs_.size()); }

 private:
  struct Def {
    std::string name;
    std::string json;  // empty: not known
  };
  std::vector<Def> defs_;
};

}  // namespace tdbg::store

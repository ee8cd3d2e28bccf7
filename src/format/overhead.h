// Since when a worker looks less often than its plan says, so as to take no more than a share of the
// training's time (docs/format.md, "What the budget of time left out"). It lies in context records of topic
// kOverhead.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tdbg::format {

inline constexpr std::string_view kOverhead = "overhead";

struct Overhead {
  /// A tensor that is not looked at whenever it is due.
  struct Tensor {
    std::string name;
    int64_t every = 1;        ///< steps of a mode from one look to the next
    double milliseconds = 0;  ///< that a look takes
  };
  static constexpr size_t kMostTensors = 16;  ///< that are named

  int64_t from_step = 0;             ///< global step
  double share = 0;                  ///< of the training's time
  int64_t every = 1;                 ///< steps of a mode from one with statistics to the next
  uint64_t rare = 0;                 ///< tensors that are looked at less often than that
  std::vector<Tensor> tensors = {};  ///< the dearest of them, the dearest first

  /// Does it leave anything out?
  bool holds() const { return every > 1 || rare > 0; }
  std::string ToJson() const;
  /// What ToJson gave; of what is damaged the defaults.
  static Overhead FromJson(std::string_view json);
  /// "statistics at one step in 16; Embedding_weight at one in 4096, since a look takes 26 ms: more would
  /// take ...".
  std::string Words() const;
};

}  // namespace tdbg::format

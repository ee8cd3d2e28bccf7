// The latest values of each tensor that a finding may be about: what it looked like before.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "rules/profile/digest.h"
#include "rules/rule.h"

namespace tdbg::rules::profile {

/// Of losses and of numbers that are recorded with a step their values, of each rank; of weights and
/// gradients their norms, of the lowest rank that has them. Memory: 200 bytes for each. Of 10,000 tensors a
/// step takes 0.1 ms.
class Recent {
 public:
  /// \pre steps come in order
  void Take(const Digest& step);
  /// The finding's tensor on the finding's worker, up to the last step that was taken; nothing where only
  /// another worker's is kept.
  void Tell(const Digest& step, Finding* finding) const;

 private:
  using History = std::vector<std::pair<int64_t, double>>;

  class Values {
   public:
    void Add(int64_t global_step, double value);
    History InOrder() const;

   private:
    History ring_;
    size_t next_ = 0;
  };

  // Of many numbers that mostly come at the same steps: those of one step lie side by side, as they are
  // written.
  class Table {
   public:
    void Grow(size_t numbers);
    void Add(size_t number, int64_t global_step, double value) {
      rows_[seen_[number]++ % kMostHistory][number] = {global_step, value};
    }
    History InOrder(size_t number) const;

   private:
    std::array<History, kMostHistory> rows_;
    std::vector<uint32_t> seen_;
  };

  Table norms_;  // two of each of the digest's parameters: its weight's, its gradient's
  std::map<std::tuple<TensorIndex, bool, WorkerIndex>, Values> losses_;  // whether of an evaluation
  std::map<std::pair<std::string, WorkerIndex>, Values> series_;         // without "context/"
};

}  // namespace tdbg::rules::profile

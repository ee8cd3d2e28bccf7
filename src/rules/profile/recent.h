// The latest values of each tensor that a finding may be about: what it looked like before.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "rules/profile/digest.h"
#include "rules/rule.h"

namespace tdbg::rules::profile {

/// Of losses and of numbers that are recorded with a step their values, of weights and gradients their norms.
/// Memory: 200 bytes for each.
class Recent {
 public:
  /// \pre steps come in order
  void Take(const Digest& step);
  /// The finding's tensor, up to the last step that was taken.
  void Tell(const Digest& step, Finding* finding) const;

 private:
  class Values {
   public:
    void Add(int64_t global_step, double value);
    std::vector<std::pair<int64_t, double>> InOrder() const;

   private:
    std::vector<std::pair<int64_t, double>> ring_;
    size_t next_ = 0;
  };

  std::map<TensorIndex, Values> norms_;
  std::map<std::pair<std::string, bool>, Values> losses_;  // by name, and whether they are an evaluation's
  std::map<std::string, Values> series_;                   // without "context/"
};

}  // namespace tdbg::rules::profile

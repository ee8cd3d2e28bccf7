// How much of its allowance a worker has used, and what that means for what is still kept.
#pragma once

#include <cstdint>

namespace tdbg::store {

/// What is shed; each level includes those before it. The order of docs/semantics.md, "When room runs short".
enum class BudgetLevel : uint8_t { kAll = 0, kNoRaw = 1, kNoHistograms = 2, kNoRows = 3 };

/// Raw stops at 80 % so that statistics, which are what rules live on, have the last fifth for themselves: at
/// 152 bytes a row that is usually the rest of the training.
class Budget {
 public:
  explicit Budget(uint64_t bytes) : bytes_(bytes) {}
  /// \param used_bytes  sealed segments and what is waiting in the journal
  BudgetLevel LevelAt(uint64_t used_bytes) const {
    if (bytes_ == 0) return BudgetLevel::kAll;
    if (used_bytes >= bytes_) return BudgetLevel::kNoRows;
    if (used_bytes >= bytes_ / 10 * 9) return BudgetLevel::kNoHistograms;
    if (used_bytes >= bytes_ / 10 * 8) return BudgetLevel::kNoRaw;
    return BudgetLevel::kAll;
  }
  uint64_t bytes() const { return bytes_; }

 private:
  uint64_t bytes_;
};

}  // namespace tdbg::store

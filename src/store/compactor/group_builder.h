// Rows of several steps become one. docs/format.md, "Levels".
#pragma once

#include <array>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "format/level.h"
#include "format/records.h"
#include "store/reader/level_reader.h"
#include "tdbg/summary.h"

namespace tdbg::store {

/// One group of steps, as it is gathered, in ascending order of steps.
class GroupBuilder {
 public:
  /// Whose row it is. Rows of another mode (or place) of a tensor are another series.
  struct Key {
    format::TensorId tensor = 0;
    uint16_t sub = 0, point = 0, mode = 0;
    bool operator==(const Key&) const = default;
  };

  void AddStep(const format::Commit& commit);
  /// A row of a single step.
  void AddRow(const Key& key, int64_t step, const Summary& summary, uint32_t flags);
  /// A histogram of a row that was added, of any of its steps.
  void AddHistogram(const Key& key, const Histogram& histogram);
  /// A group of the level below.
  void AddGroup(const format::LevelGroup& group);
  void AddCoarseRow(const LevelRows& rows, size_t row, format::TensorId tensor);

  uint64_t steps() const { return group_.steps; }
  /// Appends the group to a file's rows, and starts over.
  void Finish(uint32_t level, format::LevelContent* content);

 private:
  struct Drawn {
    double least = 0, greatest = 0, first = 0, last = 0;
    int64_t least_at = -1, greatest_at = -1;  // steps; -1: no finite value yet
  };
  struct Row {
    Key key;
    int64_t step_first = 0, step_last = 0;
    uint32_t flags = 0;
    Summary summary;
    uint32_t rows = 0, nan_rows = 0, infinite_rows = 0, zero_rows = 0;
    // Steps; -1: none.
    int64_t nan_at = -1, pos_inf_at = -1, neg_inf_at = -1, none_finite_at = -1, first_finite_at = -1,
            last_finite_at = -1;
    std::array<Drawn, format::kDrawnStatistics> drawn;
    Histogram histogram;
  };
  struct KeyHash {
    size_t operator()(const Key& key) const {
      return std::hash<uint64_t>()(uint64_t{key.tensor} << 32 | uint64_t{key.sub} << 16 |
                                   uint64_t{key.point} << 4 | key.mode);
    }
  };
  Row& RowOf(const Key& key, bool* is_new);
  static void Offer(double least, int64_t least_at, double greatest, int64_t greatest_at, Drawn* drawn);

  format::LevelGroup group_;
  std::vector<Row> rows_;
  std::unordered_map<Key, size_t, KeyHash> row_of_;
  size_t expected_ = 0;  // steps mostly have their rows in the order of the one before
};

}  // namespace tdbg::store

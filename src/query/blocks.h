// A statistic of every tensor over the whole run, in blocks of steps, so that a picture of a long run needs
// no second look at every row.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "query/statistics.h"
#include "trial/access.h"
#include "trial/coarse.h"

namespace tdbg::query {

/// A cell's flags. Sent in answers (docs/http.md): never renumber.
enum CellFlag : uint8_t {
  kCellNan = 1,
  kCellInfinity = 2,
  kCellAllZero = 4,
  kCellKept = 8,  ///< there is a row; without this flag the tensor is missing in these steps
};

/// One tensor (or several) over one or more steps: the smallest and largest finite value, and flags, which
/// merging must never lose. Floats: a colour, or a pixel's height, has no more digits.
struct Cell {
  float low = kNone, high = -kNone;  ///< low > high: no finite value
  uint8_t flags = 0;

  static constexpr float kNone = std::numeric_limits<float>::infinity();
  void Merge(const Cell& other) {
    if (other.low < low) low = other.low;
    if (other.high > high) high = other.high;
    flags |= other.flags;
  }
};

/// Finds a few tensors among a step's many rows. A step's rows are mostly in the order of the step before;
/// then their places are known already and no other row is looked at.
class TensorPlaces {
 public:
  /// \param tensors  each once
  TensorPlaces(std::vector<TensorIndex> tensors, size_t tensor_count);

  std::span<const TensorIndex> tensors() const { return tensors_; }
  /// Where the tensor is in tensors(); nothing: it is not wanted.
  std::optional<uint32_t> PlaceOf(TensorIndex tensor) const;
  struct Place {
    uint32_t offset;  ///< of the row, from the span's beginning
    uint32_t at;      ///< in tensors()
  };
  /// Valid until the next call for a span that has the same position in its step.
  std::span<const Place> Of(const TrialAccess::RowSpan& span, size_t position_of_span);

 private:
  struct Known {
    const TensorIndex* tensor_of = nullptr;
    std::vector<uint32_t> ids;  // the span's column of tensors at the last call
    std::vector<Place> places;
  };
  static constexpr uint32_t kNotWanted = ~0u;
  std::vector<TensorIndex> tensors_;
  std::vector<uint32_t> place_of_;  // by TensorIndex
  std::vector<Known> known_;        // by the span's position
};

/// A cell for every tensor and every block of 2^k step positions. Takes in only complete steps, each once.
class StatisticBlocks {
 public:
  /// \param most_bytes  beyond this, blocks become larger
  explicit StatisticBlocks(const StatisticSpec& spec, size_t most_bytes = size_t{48} << 20)
      : spec_(&spec), most_bytes_(most_bytes) {}

  const StatisticSpec& spec() const { return *spec_; }
  /// Takes in new steps; starts over if a later attempt replaced steps.
  void Update(const TrialAccess& access);
  /// Merges the cells of step positions [begin, end) into `cells`, one for each of `tensors`, in their order.
  void Merge(const TrialAccess& access, size_t begin, size_t end, TensorPlaces* tensors,
             std::vector<Cell>* cells) const;
  size_t block_steps() const { return size_t{1} << shift_; }

 private:
  void Coarsen();
  /// Adds the rows of a step, and of those behind it that one group of coarse rows tells of, up to `end`.
  /// \return how many steps it took in
  size_t AddFrom(const TrialAccess& access, size_t step, size_t end, std::vector<Cell>* cells);

  const StatisticSpec* spec_;
  size_t most_bytes_;
  static constexpr unsigned kCoarseShift = 4;  // of the shortest coarse rows
  unsigned shift_ = 2;
  size_t taken_ = 0;  // step positions in blocks_
  uint64_t overlay_generation_ = 0;
  std::vector<CoarseRows::Span> spans_;    // scratch
  std::vector<std::vector<Cell>> blocks_;  // each has as many cells as there were tensors then
};

}  // namespace tdbg::query

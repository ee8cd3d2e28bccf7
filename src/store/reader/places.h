// Where in one segment the values of a tensor are.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "format/keys.h"
#include "format/records.h"
#include "format/segment_index.h"
#include "store/reader/layouts.h"

namespace tdbg::store {

enum class PlaceKind : int { kSummary, kScalar, kRaw };

/// One row of a segment's summaries or scalars, or one of its raw values.
struct Spot {
  int64_t global_step = 0;
  uint32_t commit = 0;  ///< index within the segment; unset for rows that were found in columns
  uint32_t index = 0;   ///< row; raw: row of the index's table, or entry of the header
  format::SubKey sub;
  uint32_t form = format::kNoForm;  ///< raw, with an index
};

/// In commit order.
class Places {
 public:
  virtual ~Places() = default;
  virtual void AppendOf(PlaceKind kind, uint32_t tensor, std::vector<Spot>* out) = 0;
  /// The same for one step.
  virtual void AppendAt(PlaceKind kind, uint32_t tensor, int64_t global_step, std::vector<Spot>* out) = 0;
  /// Places of all tensors at one step, each with the reader's id of its tensor.
  virtual void AppendAllAt(PlaceKind kind, int64_t global_step,
                           std::vector<std::pair<uint32_t, Spot>>* out) = 0;
  /// How many AppendOf appends.
  virtual size_t CountOf(PlaceKind kind, uint32_t tensor) = 0;
  /// Raw values, except in commits that also have a summary of the tensor, as far as that is known without
  /// reading columns.
  virtual void AppendLoneRaws(uint32_t tensor, std::vector<Spot>* out) {
    AppendOf(PlaceKind::kRaw, tensor, out);
  }
};

/// Backed by a segment's index: keeps nothing per row, and reads only what is asked for.
class IndexedPlaces final : public Places {
 public:
  /// Borrows all; `steps`: the commits' global steps, `id_map`: the reader's id of each of the writer's.
  /// \pre as many commits as in the index
  IndexedPlaces(const format::SegmentIndex& index, std::span<const int64_t> steps,
                std::span<const uint32_t> id_map, LayoutPool* pool)
      : index_(index), steps_(steps), id_map_(id_map), pool_(pool) {}

  void AppendOf(PlaceKind kind, uint32_t tensor, std::vector<Spot>* out) override;
  void AppendAt(PlaceKind kind, uint32_t tensor, int64_t global_step, std::vector<Spot>* out) override;
  void AppendAllAt(PlaceKind kind, int64_t global_step, std::vector<std::pair<uint32_t, Spot>>* out) override;
  size_t CountOf(PlaceKind kind, uint32_t tensor) override;
  void AppendLoneRaws(uint32_t tensor, std::vector<Spot>* out) override;

 private:
  /// A tensor's places in the layouts of one kind, commit by commit; each layout is searched once.
  class Walk {
   public:
    Walk(IndexedPlaces* of, PlaceKind kind, uint32_t tensor) : of_(of), kind_(kind), tensor_(tensor) {}
    std::span<const uint32_t> At(uint32_t commit);
    const Layout& layout() const { return *layout_; }  ///< of the last At

   private:
    IndexedPlaces* const of_;
    const PlaceKind kind_;
    const uint32_t tensor_;
    uint32_t last_ = 0;
    const Layout* layout_ = nullptr;
    std::span<const uint32_t> places_;
  };
  const Layout& LayoutOf(uint32_t layout);
  /// Calls f(commit, layout, first row) for each commit of the step.
  template <typename F>
  void EachCommitAt(PlaceKind kind, int64_t global_step, F f);
  Spot SpotOf(const Layout& layout, uint32_t place, uint32_t commit, uint64_t begin) const;
  static uint32_t Choose(PlaceKind kind, const format::IndexCommit& commit) {
    return kind == PlaceKind::kSummary ? commit.summaries
           : kind == PlaceKind::kRaw   ? commit.raws
                                       : commit.scalars;
  }
  void Append(const Layout& layout, std::span<const uint32_t> places, uint32_t commit, uint64_t begin,
              std::vector<Spot>* out) const;

  const format::SegmentIndex& index_;
  const std::span<const int64_t> steps_;
  const std::span<const uint32_t> id_map_;
  LayoutPool* const pool_;
  std::vector<std::shared_ptr<const Layout>> layouts_;  // by number; looked up when first used
  std::vector<uint32_t> begins_[3];                     // by kind and commit; when a step is first asked for
};

/// Listed one by one, for segments that have no index.
class ListedPlaces final : public Places {
 public:
  /// In commit order. \pre before the first Append...
  void Add(PlaceKind kind, uint32_t tensor, const Spot& spot) {
    lists_[static_cast<int>(kind)].items.push_back({tensor, spot});
  }
  void AppendOf(PlaceKind kind, uint32_t tensor, std::vector<Spot>* out) override;
  void AppendAt(PlaceKind kind, uint32_t tensor, int64_t global_step, std::vector<Spot>* out) override;
  void AppendAllAt(PlaceKind kind, int64_t global_step, std::vector<std::pair<uint32_t, Spot>>* out) override;
  size_t CountOf(PlaceKind kind, uint32_t tensor) override { return Of(kind, tensor).size(); }

 private:
  struct Item {
    uint32_t tensor;
    Spot spot;
  };
  struct List {
    std::vector<Item> items;
    bool sorted = false;            // by tensor, then as added
    std::vector<uint32_t> by_step;  // places in items; made when a whole step is first asked for
  };
  std::span<const Item> Of(PlaceKind kind, uint32_t tensor);
  List lists_[3];
};

}  // namespace tdbg::store

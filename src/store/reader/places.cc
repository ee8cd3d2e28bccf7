#include "store/reader/places.h"

#include <algorithm>
#include <numeric>

#include "base/stable_sort.h"
#include "store/reader/segment_reader.h"

namespace tdbg::store {

const Layout& IndexedPlaces::LayoutOf(uint32_t layout) {
  if (layouts_.empty()) layouts_.resize(index_.layout_ends.size());
  if (!layouts_[layout]) {
    const std::span<const format::IndexRow> stored = index_.Layout(layout);
    std::vector<format::IndexRow> rows(stored.begin(), stored.end());
    for (format::IndexRow& row : rows) {
      row.tensor = row.tensor < id_map_.size() ? id_map_[row.tensor] : SegmentReader::kUnknownTensor;
    }
    layouts_[layout] = pool_->Get(rows);
  }
  return *layouts_[layout];
}

std::span<const uint32_t> IndexedPlaces::Walk::At(uint32_t commit) {
  const uint32_t chosen = Choose(kind_, of_->index_.commits[commit]);
  if (layout_ == nullptr || chosen != last_) {
    layout_ = &of_->LayoutOf(chosen);
    places_ = layout_->Of(tensor_);
    last_ = chosen;
  }
  return places_;
}

void IndexedPlaces::Append(const Layout& layout, std::span<const uint32_t> places, uint32_t commit,
                           uint64_t begin, std::vector<Spot>* out) const {
  for (const uint32_t place : places) out->push_back(SpotOf(layout, place, commit, begin));
}

Spot IndexedPlaces::SpotOf(const Layout& layout, uint32_t place, uint32_t commit, uint64_t begin) const {
  const format::IndexRow& row = layout.rows()[place];
  return {steps_[commit],
          commit,
          static_cast<uint32_t>(begin + place),
          {row.sub, static_cast<format::Point>(row.point)},
          row.form};
}

void IndexedPlaces::AppendOf(PlaceKind kind, uint32_t tensor, std::vector<Spot>* out) {
  Walk walk(this, kind, tensor);
  uint64_t begin = 0;
  for (uint32_t i = 0; i < steps_.size(); ++i) {
    const std::span<const uint32_t> places = walk.At(i);
    Append(walk.layout(), places, i, begin, out);
    begin += walk.layout().rows().size();
  }
}

size_t IndexedPlaces::CountOf(PlaceKind kind, uint32_t tensor) {
  Walk walk(this, kind, tensor);
  size_t count = 0;
  for (uint32_t i = 0; i < steps_.size(); ++i) count += walk.At(i).size();
  return count;
}

void IndexedPlaces::AppendLoneRaws(uint32_t tensor, std::vector<Spot>* out) {
  Walk raws(this, PlaceKind::kRaw, tensor), summaries(this, PlaceKind::kSummary, tensor);
  uint64_t begin = 0;
  for (uint32_t i = 0; i < steps_.size(); ++i) {
    const std::span<const uint32_t> places = raws.At(i);
    if (!places.empty() && summaries.At(i).empty()) Append(raws.layout(), places, i, begin, out);
    begin += raws.layout().rows().size();
  }
}

template <typename F>
void IndexedPlaces::EachCommitAt(PlaceKind kind, int64_t global_step, F f) {
  std::vector<uint32_t>& begins = begins_[static_cast<int>(kind)];
  if (begins.empty()) {
    uint32_t begin = 0;
    begins.reserve(index_.commits.size());
    for (const format::IndexCommit& commit : index_.commits) {
      begins.push_back(begin);
      begin += static_cast<uint32_t>(index_.Layout(Choose(kind, commit)).size());
    }
  }
  auto at = std::lower_bound(steps_.begin(), steps_.end(), global_step);
  for (; at != steps_.end() && *at == global_step; ++at) {
    const auto commit = static_cast<uint32_t>(at - steps_.begin());
    f(commit, LayoutOf(Choose(kind, index_.commits[commit])), begins[commit]);
  }
}

void IndexedPlaces::AppendAt(PlaceKind kind, uint32_t tensor, int64_t global_step, std::vector<Spot>* out) {
  EachCommitAt(kind, global_step, [&](uint32_t commit, const Layout& layout, uint32_t begin) {
    Append(layout, layout.Of(tensor), commit, begin, out);
  });
}

void IndexedPlaces::AppendAllAt(PlaceKind kind, int64_t global_step,
                                std::vector<std::pair<uint32_t, Spot>>* out) {
  EachCommitAt(kind, global_step, [&](uint32_t commit, const Layout& layout, uint32_t begin) {
    for (uint32_t place = 0; place < layout.rows().size(); ++place)
      out->emplace_back(layout.rows()[place].tensor, SpotOf(layout, place, commit, begin));
  });
}

std::span<const ListedPlaces::Item> ListedPlaces::Of(PlaceKind kind, uint32_t tensor) {
  List& list = lists_[static_cast<int>(kind)];
  const auto before = [](const Item& a, const Item& b) { return a.tensor < b.tensor; };
  if (!list.sorted) base::StableSort(&list.items, before);
  list.sorted = true;
  const auto [first, last] = std::equal_range(list.items.begin(), list.items.end(), Item{tensor, {}}, before);
  return {first, last};
}

void ListedPlaces::AppendOf(PlaceKind kind, uint32_t tensor, std::vector<Spot>* out) {
  for (const Item& item : Of(kind, tensor)) out->push_back(item.spot);
}

void ListedPlaces::AppendAt(PlaceKind kind, uint32_t tensor, int64_t global_step, std::vector<Spot>* out) {
  for (const Item& item : Of(kind, tensor)) {
    if (item.spot.global_step == global_step) out->push_back(item.spot);
  }
}

void ListedPlaces::AppendAllAt(PlaceKind kind, int64_t global_step,
                               std::vector<std::pair<uint32_t, Spot>>* out) {
  (void)Of(kind, 0);  // in their order
  List& list = lists_[static_cast<int>(kind)];
  const auto step_of = [&](uint32_t i) { return list.items[i].spot.global_step; };
  if (list.by_step.size() != list.items.size()) {
    list.by_step.resize(list.items.size());
    std::iota(list.by_step.begin(), list.by_step.end(), 0);
    std::sort(list.by_step.begin(), list.by_step.end(),
              [&](uint32_t a, uint32_t b) { return std::pair(step_of(a), a) < std::pair(step_of(b), b); });
  }
  auto at = std::partition_point(list.by_step.begin(), list.by_step.end(),
                                 [&](uint32_t i) { return step_of(i) < global_step; });
  for (; at != list.by_step.end() && step_of(*at) == global_step; ++at)
    out->emplace_back(list.items[*at].tensor, list.items[*at].spot);
}

}  // namespace tdbg::store

#include "cuda/layout.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>

namespace tdbg::cuda {
namespace {

constexpr uint64_t kAlignment = 256;  // what cuMemAlloc gives, and what each part of the memory gets
constexpr uint64_t kMost = std::numeric_limits<uint32_t>::max();
constexpr double kInf = std::numeric_limits<double>::infinity();

uint64_t RoundUp(uint64_t n, uint64_t to) { return (n + to - 1) / to * to; }

Status CheckTensor(const TensorSpec& t, size_t number) {
  const std::string who = "tensor " + std::to_string(number) + ": ";
  const auto code = static_cast<uint32_t>(t.dtype);
  const bool summarized = IsSummarized(code);
  if ((t.flags & kStatistics) != 0 && !summarized) {
    return Unimplemented(who + "no statistics of " + std::string(DTypeName(t.dtype)) + " on a device");
  }
  if (t.elements > kMaxElements) {
    return Unimplemented(who + std::to_string(t.elements) + " elements; at most " +
                         std::to_string(kMaxElements));
  }
  if ((t.flags & kHistogram) != 0 && (t.flags & kStatistics) == 0) {
    return InvalidArgument(who + "a histogram without statistics");
  }
  if ((t.flags & kValues) != 0 && (!summarized || t.elements * ItemBytes(code) > kMaxValueBytes)) {
    return InvalidArgument(who + "values of more than " + std::to_string(kMaxValueBytes) +
                           " bytes, or of no known type");
  }
  return OkStatus();
}

// Pieces of about kChunk elements; summed one after the other, so they depend on the shape alone.
void Slice(Derived* d) {
  const bool warp_a_unit = d->inner >= 32;
  d->units_a_block = warp_a_unit ? kWarps : kThreads;
  if (d->inner > kChunk) {
    d->outer_a_slice = 1;
    d->inner_a_slice = kChunk;
  } else {
    const uint64_t width =
        std::clamp<uint64_t>(d->units, 1, d->units_a_block) * std::max<uint64_t>(1, d->inner);
    d->inner_a_slice = static_cast<uint32_t>(std::max<uint64_t>(1, d->inner));
    d->outer_a_slice = static_cast<uint32_t>(std::clamp<uint64_t>(kChunk / width, 1, kMost));
  }
}
uint64_t SlicesOf(const Derived& d) {
  const uint64_t outer = (d.outer + d.outer_a_slice - 1) / d.outer_a_slice;
  const uint64_t inner = (d.inner + d.inner_a_slice - 1) / d.inner_a_slice;
  return std::max<uint64_t>(1, outer * inner);
}

Status AppendDerived(const DerivedSpec& spec, std::span<const TensorSpec> tensors, std::vector<Derived>* to) {
  using Kind = Statistic::Kind;
  const std::string who = spec.statistic.Id() + " of tensor " + std::to_string(spec.tensor) + ": ";
  if (spec.tensor >= tensors.size()) return InvalidArgument(who + "no such tensor");
  const TensorSpec& t = tensors[spec.tensor];
  const auto code = static_cast<uint32_t>(t.dtype);
  if (!IsSummarized(code) || code == kComplex64 || code == kComplex128) {
    return Unimplemented(who + "not of " + std::string(DTypeName(t.dtype)));
  }
  if (t.elements > kMaxElements) return Unimplemented(who + "too many elements");
  // In this order no product overflows: each factor is at most kMaxElements, and 0 is looked at first.
  const bool empty = spec.outer == 0 || spec.units == 0 || spec.inner == 0;
  const bool fits = empty ? t.elements == 0
                          : spec.outer <= t.elements && spec.units <= t.elements / spec.outer &&
                                spec.inner <= t.elements / spec.outer / spec.units &&
                                spec.outer * spec.units * spec.inner == t.elements;
  if (!fits) return InvalidArgument(who + "its shape has another number of elements");
  const std::vector<double>& p = spec.statistic.parameters;
  Derived d = {};
  d.outer = spec.outer, d.units = spec.units, d.inner = spec.inner;
  d.tensor = spec.tensor;
  d.kind = kCounts;
  const auto add = [&](double above, double at_most) {
    d.above = above;
    d.at_most = at_most;
    Slice(&d);
    to->push_back(d);
  };
  switch (spec.statistic.kind) {
    case Kind::kCountAbove:
      add(p.at(0), kInf);
      break;
    case Kind::kCountWithin:
      add(p.at(0), std::nextafter(p.at(1), -kInf));
      break;
    case Kind::kSums:
      d.kind = kSums;
      add(0, 0);
      break;
    case Kind::kValueCounts:
      d.outer = 1, d.units = 1, d.inner = t.elements;
      for (const double v : p) add(std::nextafter(v, -kInf), v);
      break;
  }
  return OkStatus();
}

/// Memory in the order in which it is asked for.
class Arena {
 public:
  uint64_t Take(uint64_t bytes) {
    const uint64_t at = size_;
    size_ += RoundUp(bytes, kAlignment);
    return at;
  }
  uint64_t size() const { return size_; }

 private:
  uint64_t size_ = 0;
};

template <typename T>
T* Offset(uint64_t at) {
  return reinterpret_cast<T*>(static_cast<uintptr_t>(at));
}
template <typename T>
void Move(T** pointer, uint64_t base) {
  *pointer = Offset<T>(base + reinterpret_cast<uintptr_t>(*pointer));
}
template <typename T>
T* Put(const std::vector<T>& v, Arena* arena, std::vector<std::byte>* constants) {
  const uint64_t at = arena->Take(v.size() * sizeof(T));
  constants->resize(arena->size());
  if (!v.empty()) std::memcpy(constants->data() + at, v.data(), v.size() * sizeof(T));
  return Offset<T>(at);
}

// Which tensors share a table of pointers: their numbers divided by kPointers.
uint32_t TableOf(uint32_t tensor) { return tensor / kPointers; }

}  // namespace

Plan Layout::At(uint64_t device_memory, uint64_t ring) const {
  Plan p = plan;
  Move(&p.tensors, device_memory);
  Move(&p.chunks, device_memory);
  Move(&p.derived, device_memory);
  Move(&p.tiles, device_memory);
  Move(&p.partials, device_memory);
  Move(&p.tables, device_memory);
  Move(&p.values, device_memory);
  Move(&p.parts, device_memory);
  Move(&p.state, device_memory);
  Move(&p.ring, ring);
  return p;
}

uint32_t TypicalBuckets(std::span<const TensorSpec> tensors) {
  uint64_t n = 0;
  for (const TensorSpec& t : tensors) {
    if ((t.flags & kHistogram) != 0) n += std::min<uint64_t>(t.elements, 320);
  }
  return static_cast<uint32_t>(std::min(n, kMost));
}

Result<Layout> MakeLayout(std::span<const TensorSpec> tensors, std::span<const DerivedSpec> derived,
                          uint32_t slots, uint32_t bucket_capacity) {
  if (slots == 0) return InvalidArgument("a ring of no slots");
  if (tensors.size() > kMost / 2) return InvalidArgument("too many tensors");
  Layout l;
  uint64_t partials = 0, table_words = 0, value_bytes = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const TensorSpec& spec = tensors[i];
    TDBG_RETURN_IF_ERROR(CheckTensor(spec, i));
    Tensor t = {};
    t.n = spec.elements;
    t.code = static_cast<uint32_t>(spec.dtype);
    t.flags = spec.flags;
    // Somebody who asks for the values alone, or for derived statistics, has nothing summed.
    t.chunks = (spec.flags & kStatistics) != 0 ? ChunksOf(spec.elements) : 1;
    t.first_partial = static_cast<uint32_t>(partials);
    partials += t.chunks;
    if ((spec.flags & kHistogram) != 0) {
      t.table = static_cast<uint32_t>(table_words);
      table_words += BinsOf(t.code).words();
    }
    if ((spec.flags & kValues) != 0) {
      t.values = static_cast<uint32_t>(value_bytes);
      value_bytes += RoundUp(spec.elements * ItemBytes(t.code), 16);
    }
    if (partials > kMost || table_words > kMost || value_bytes > kMost) {
      return InvalidArgument("too many elements or tensors for one plan");
    }
    l.tensors.push_back(t);
  }

  // Chunks by table of pointers, then by family: each such group is a launch. The largest grid is 2^31 - 1.
  std::vector<Chunk> chunks;
  chunks.reserve(partials);
  for (uint32_t first = 0; first < tensors.size(); first += kPointers) {
    const auto end = static_cast<uint32_t>(std::min<size_t>(first + kPointers, tensors.size()));
    for (uint32_t family = 0; family < kFamilies; ++family) {
      const auto begin = static_cast<uint32_t>(chunks.size());
      for (uint32_t i = first; i < end; ++i) {
        if (static_cast<uint32_t>(FamilyOf(l.tensors[i].code)) != family) continue;
        for (uint32_t c = 0; c < l.tensors[i].chunks; ++c) chunks.push_back({i, c});
      }
      const auto grid = static_cast<uint32_t>(chunks.size()) - begin;
      if (grid == 0) continue;
      if (grid > kMost / 2) return InvalidArgument("too many elements for one plan");
      l.launches.push_back(
          {kSummarize[family], grid, end - first, {first, begin, l.launches.empty() ? 1u : 0u, 0}});
    }
  }

  std::vector<Derived> statistics;
  std::vector<size_t> first_statistics;  // of each spec
  for (const DerivedSpec& spec : derived) {
    first_statistics.push_back(statistics.size());
    TDBG_RETURN_IF_ERROR(AppendDerived(spec, tensors, &statistics));
  }
  uint64_t results = 0, parts = 0;
  for (Derived& d : statistics) {
    const uint64_t slices = SlicesOf(d);
    if (results + d.units > kMost || parts + slices * d.units > kMost) {
      return InvalidArgument("too many units for one plan");
    }
    d.result = static_cast<uint32_t>(results);
    d.first_part = static_cast<uint32_t>(parts);
    d.slices = static_cast<uint32_t>(slices);
    results += d.units;
    parts += slices * d.units;
  }
  for (const size_t first : first_statistics) {
    l.derived.push_back(first < statistics.size() ? statistics[first].result
                                                  : static_cast<uint32_t>(results));
  }
  std::vector<Tile> tiles;
  for (uint32_t table = 0; table <= TableOf(static_cast<uint32_t>(tensors.size())); ++table) {
    const auto begin = static_cast<uint32_t>(tiles.size());
    for (uint32_t i = 0; i < statistics.size(); ++i) {
      const Derived& d = statistics[i];
      if (TableOf(d.tensor) != table) continue;
      for (uint32_t slice = 0; slice < d.slices; ++slice) {
        for (uint64_t unit = 0; unit < d.units; unit += d.units_a_block) tiles.push_back({i, slice, unit});
      }
    }
    const auto grid = static_cast<uint32_t>(tiles.size()) - begin;
    if (grid == 0) continue;
    const uint32_t first = table * kPointers;
    const auto count = static_cast<uint32_t>(std::min<size_t>(kPointers, tensors.size() - first));
    l.launches.push_back({kDerive, grid, count, {first, begin, 0, 0}});
  }

  Arena arena;
  Plan& p = l.plan;
  p.tensors = Put(l.tensors, &arena, &l.constants);
  p.chunks = Put(chunks, &arena, &l.constants);
  p.derived = Put(statistics, &arena, &l.constants);
  p.tiles = Put(tiles, &arena, &l.constants);
  p.partials = Offset<Partial>(arena.Take(partials * sizeof(Partial)));
  p.tables = Offset<uint32_t>(arena.Take(table_words * sizeof(uint32_t)));
  p.values = Offset<unsigned char>(arena.Take(value_bytes));
  p.parts = Offset<double>(arena.Take(parts * sizeof(double)));
  p.state = Offset<State>(arena.Take(sizeof(State)));
  l.device_bytes = arena.size();
  p.slots = slots;
  p.tensor_count = static_cast<uint32_t>(tensors.size());
  p.derived_count = static_cast<uint32_t>(statistics.size());
  p.derived_values = static_cast<uint32_t>(results);
  p.value_bytes = static_cast<uint32_t>(value_bytes);
  p.bucket_capacity = bucket_capacity;
  p.table_words = static_cast<uint32_t>(table_words);
  p.slot_bytes = SlotBytes(p.tensor_count, p.derived_values, p.value_bytes, p.bucket_capacity);
  if (p.slot_bytes > std::numeric_limits<uint64_t>::max() / slots) return InvalidArgument("too many slots");
  l.ring_bytes = p.slot_bytes * slots;
  return l;
}

}  // namespace tdbg::cuda

#include "cuda/testing/host_plan.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "cuda/testing/host_kernels.h"

namespace tdbg::cuda {
namespace {

Layout Made(std::span<const TensorSpec> tensors, std::span<const DerivedSpec> derived, uint32_t slots,
            uint32_t bucket_capacity) {
  Result<Layout> layout = MakeLayout(tensors, derived, slots, bucket_capacity);
  if (!layout.ok()) {
    std::fprintf(stderr, "%s\n", layout.status().ToString().c_str());
    std::abort();
  }
  return *std::move(layout);
}

uint64_t AddressOf(const void* p) { return reinterpret_cast<uintptr_t>(p); }

}  // namespace

HostPlan::HostPlan(std::span<const TensorSpec> tensors, std::span<const DerivedSpec> derived, uint32_t slots,
                   uint32_t bucket_capacity)
    : layout_(Made(tensors, derived, slots, bucket_capacity)),
      device_((layout_.device_bytes + 255) / 256),
      ring_((layout_.ring_bytes + 255) / 256),
      plan_(layout_.At(AddressOf(device_.data()), AddressOf(ring_.data()))) {
  std::memcpy(static_cast<void*>(device_.data()), layout_.constants.data(), layout_.constants.size());
}

void HostPlan::Begin(std::span<const void* const> pointers, size_t launches, uint64_t seed) {
  for (const KernelLaunch& l : std::span(layout_.launches).first(launches)) {
    Pointers p = {};
    std::copy_n(pointers.begin() + l.launch.first_tensor, l.pointers, p.p);
    Launch launch = l.launch;
    void* params[] = {&p, &plan_, &launch};
    HostLaunch::Make(l.kernel, l.grid, params)->Run(seed);
  }
}

void HostPlan::Step(std::span<const void* const> pointers, uint64_t seed, uint64_t tag) {
  Begin(pointers, layout_.launches.size(), seed);
  void* params[] = {&plan_, &tag};
  HostLaunch::Make(kDeliver, layout_.deliver_grid(), params)->Run(seed);
}

void HostPlan::Reset() {
  void* params[] = {&plan_};
  HostLaunch::Make(kReset, 3, params)->Run(1);
}

bool HostPlan::TablesAreEmpty() const {
  return std::all_of(plan_.tables, plan_.tables + plan_.table_words, [](uint32_t word) { return word == 0; });
}

const std::byte* ArrivedRing::Slot(uint64_t sequence) const {
  return base + (sequence - 1) % layout->plan.slots * layout->plan.slot_bytes;
}

const SlotHeader& ArrivedRing::Header(uint64_t sequence) const {
  return *reinterpret_cast<const SlotHeader*>(Slot(sequence));
}

Arrived ArrivedRing::Of(uint64_t sequence, size_t tensor) const {
  const Plan& plan = layout->plan;
  const std::byte* const slot = Slot(sequence);
  const Row r = reinterpret_cast<const Row*>(slot + RowsAt())[tensor];
  Arrived a;
  a.flags = r.flags;
  a.redone_chunks = r.redone_chunks;
  a.summary.count = r.count;
  a.summary.nan_count = r.nan_count;
  a.summary.pos_inf_count = r.pos_inf_count;
  a.summary.neg_inf_count = r.neg_inf_count;
  a.summary.zero_count = r.zero_count;
  a.summary.min = r.min;
  a.summary.max = r.max;
  a.summary.mean = r.mean;
  a.summary.variance = r.variance;
  a.summary.m3 = r.m3;
  a.summary.m4 = r.m4;
  a.summary.l1 = r.l1;
  a.summary.l2 = r.l2;
  a.summary.abs_min = r.abs_min;
  a.summary.abs_max = r.abs_max;
  const auto* buckets = reinterpret_cast<const Bucket*>(
      slot + BucketsAt(plan.tensor_count, plan.derived_values, plan.value_bytes));
  if ((r.flags & kBucketsLost) == 0) {
    for (uint32_t i = 0; i < r.bucket_count; ++i) {
      const Bucket& b = buckets[r.first_bucket + i];
      a.histogram.push_back({static_cast<int16_t>(b.bucket), b.count});
    }
  }
  const Tensor& t = layout->tensors[tensor];
  if ((t.flags & kValues) != 0) {
    const std::byte* const from = slot + ValuesAt(plan.tensor_count, plan.derived_values) + t.values;
    a.values.assign(from, from + t.n * ItemBytes(t.code));
  }
  return a;
}

std::vector<std::byte> ArrivedRing::Bits(uint64_t sequence) const {
  const Plan& plan = layout->plan;
  std::vector<std::byte> bits;
  const auto append = [&](const void* from, size_t n) {
    const auto* const bytes = static_cast<const std::byte*>(from);
    bits.insert(bits.end(), bytes, bytes + n);
  };
  const std::byte* const slot = Slot(sequence);
  for (size_t i = 0; i < plan.tensor_count; ++i) {
    Row r = reinterpret_cast<const Row*>(slot + RowsAt())[i];
    r.first_bucket = 0;
    append(&r, sizeof r);
    const Arrived a = Of(sequence, i);
    for (const HistogramBucket& b : a.histogram) {
      append(&b.bucket, sizeof b.bucket);
      append(&b.count, sizeof b.count);
    }
    append(a.values.data(), a.values.size());
  }
  append(slot + DerivedAt(plan.tensor_count), plan.derived_values * sizeof(double));
  return bits;
}

double ArrivedRing::Derived(uint64_t sequence, size_t derived, size_t unit) const {
  return reinterpret_cast<const double*>(
      Slot(sequence) + DerivedAt(layout->plan.tensor_count))[layout->derived[derived] + unit];
}

}  // namespace tdbg::cuda

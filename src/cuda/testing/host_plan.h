// A plan in the host's memory, carried out by the kernels on the CPU: for tests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "cuda/layout.h"
#include "tdbg/summary.h"

namespace tdbg::cuda {

/// What arrived of one tensor.
struct Arrived {
  uint32_t flags = 0;  ///< RowFlag
  uint32_t redone_chunks = 0;
  Summary summary = {};
  Histogram histogram = {};
  std::vector<std::byte> values = {};
};

/// A ring of slots, the CPU's or a GPU's, and what its layout says is in it.
struct ArrivedRing {
  const std::byte* base = nullptr;
  const Layout* layout = nullptr;

  const SlotHeader& Header(uint64_t sequence) const;
  /// \pre the step has arrived and lies in the ring yet
  Arrived Of(uint64_t sequence, size_t tensor) const;
  /// All of a slot but what depends on the order of blocks and on time, for comparisons: rows, each with its
  /// buckets, values, derived statistics.
  std::vector<std::byte> Bits(uint64_t sequence) const;
  double Derived(uint64_t sequence, size_t derived, size_t unit) const;

 private:
  const std::byte* Slot(uint64_t sequence) const;
};

class HostPlan {
 public:
  /// \pre MakeLayout accepts it
  explicit HostPlan(std::span<const TensorSpec> tensors, std::span<const DerivedSpec> derived = {},
                    uint32_t slots = 2, uint32_t bucket_capacity = 1u << 16);

  /// One step of the tensors at these addresses (null: absent). `seed`: HostLaunch::Run.
  void Step(std::span<const void* const> pointers, uint64_t seed, uint64_t tag = 0);
  /// The first `launches` of a step and no delivery, as where a launch failed.
  void Begin(std::span<const void* const> pointers, size_t launches, uint64_t seed);
  void Reset();

  const Layout& layout() const { return layout_; }
  ArrivedRing ring() const { return {reinterpret_cast<const std::byte*>(ring_.data()), &layout_}; }
  const SlotHeader& Header(uint64_t sequence) const { return ring().Header(sequence); }
  Arrived Of(uint64_t sequence, size_t tensor) const { return ring().Of(sequence, tensor); }
  std::vector<std::byte> Bits(uint64_t sequence) const { return ring().Bits(sequence); }
  double Derived(uint64_t sequence, size_t derived, size_t unit) const {
    return ring().Derived(sequence, derived, unit);
  }
  /// Whether bins and masks are as they were before the first step.
  bool TablesAreEmpty() const;

 private:
  struct alignas(256) Piece {
    std::byte bytes[256];
  };
  Layout layout_;
  std::vector<Piece> device_, ring_;
  Plan plan_;
};

}  // namespace tdbg::cuda

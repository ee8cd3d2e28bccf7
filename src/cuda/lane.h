// Batches of tensors on a GPU: launched where they are put, read from mapped host memory when they have
// arrived.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "cuda/abi.h"
#include "cuda/connection.h"
#include "cuda/driver.h"
#include "cuda/layout.h"
#include "cuda/ticket.h"
#include "tdbg/statistic.h"
#include "tdbg/status.h"
#include "tdbg/summary.h"
#include "tdbg/tensor.h"

namespace tdbg::cuda {

/// A tensor of a batch: dense in the device's memory, in any order of its axes.
struct Item {
  uint64_t address = 0;  ///< 0: absent in this batch
  uint64_t elements = 0;
  DType dtype = DType::kInvalid;
  uint32_t flags = kStatistics;  ///< TensorFlag
};

/// What came of a batch. Spans of its vectors are by offset, as tensors come by the thousand.
struct Arrival {
  struct Tensor {
    Summary summary;
    bool present = false;
    uint32_t first_bucket = 0, buckets = 0;  ///< in `buckets`
    bool buckets_lost = false;               ///< a histogram was asked for, and the slot had no room for it
    uint32_t first_byte = 0, bytes = 0;      ///< in `values`, of kValues
  };
  std::vector<Tensor> tensors;  ///< in the order of the batch
  std::vector<HistogramBucket> buckets;
  std::vector<std::byte> values;
  std::vector<double> derived;       ///< of all derived statistics
  std::vector<uint32_t> derived_at;  ///< by derived statistic: where its numbers begin; one more at the end

  std::span<const HistogramBucket> histogram(const Tensor& t) const {
    return {buckets.data() + t.first_bucket, t.buckets};
  }
};

struct LaneOptions {
  uint64_t ring_bytes =
      8u << 20;  ///< of pinned memory for each plan's ring, where that makes a number of slots within:
  uint32_t fewest_slots = 4, most_slots = 32;
  /// Of device memory in all, and of pinned memory in all; what would take more is left out, and counted.
  uint64_t device_bytes = 1u << 30, pinned_bytes = 512u << 20;
};

/// Launches the kernels of device/ for one process.
///
/// A batch is launched on the stream on which it is put, so its tensors are read as they are at that place of
/// the stream, and nothing is asked of the device afterwards: results are polled for in host memory. Nothing
/// waits, nothing throws, and an error of the driver ends the lane (`trouble`), never the training. Memory is
/// allocated with the first batch of its kind on its stream, and kept.
///
/// In somebody's capture a batch is launched into the graph, with memory of its own, and every replay
/// delivers once more. That takes a `PrepareCapture` before the capture; without one it stays out.
///
/// \threadsafety  One thread at a time. After fork() the child's copy does nothing and touches nothing.
class Lane {
 public:
  struct Put {
    Refusal refusal = Refusal::kNone;
    Ticket ticket = 0;   ///< 0: refused, or captured
    uint32_t graph = 0;  ///< not 0: launched into a capture; what `Replayed` is told
  };

  /// `driver` and `image` outlive the lane. Asks nothing of the device.
  Lane(const Driver* driver, std::span<const std::byte> image, LaneOptions options = {});
  /// Frees its memory where nothing is under way any more; else the process's end does.
  ~Lane();
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  /// \param device  the framework's number of it
  /// \param stream  a CUstream of that device; 0: its default stream
  Put Launch(int device, uint64_t stream, std::span<const Item> items,
             std::span<const DerivedSpec> derived = {});
  /// Somebody is about to capture a stream of this device: what cannot be had while they do is made now.
  void PrepareCapture(int device);
  /// A graph with batches of ours is about to be launched for the first time, on `stream`: it comes after
  /// what its capture has set in our memory.
  void BeforeReplay(int device, uint64_t stream);
  /// A graph that holds this batch was launched once more. Its ticket: where the results will be.
  Ticket Replayed(uint32_t graph);

  TicketState Look(Ticket ticket);
  /// Forgets the ticket. Nothing unless it has arrived.
  std::optional<Arrival> Take(Ticket ticket);
  /// Its results are wanted no more.
  void Drop(Ticket ticket);

  /// An error of the driver or a GPU that the kernels are not for: one sentence; empty while all is well.
  const std::string& trouble() const { return connection_.trouble(); }
  /// For others that call the driver for the same training: they end with the lane, and it with them.
  Connection* connection() { return &connection_; }
  uint64_t device_bytes() const { return device_bytes_; }
  uint64_t pinned_bytes() const { return pinned_bytes_; }
  size_t plans() const { return plans_.size(); }

 private:
  struct Kind;
  struct Prepared;
  struct Functions;
  struct Block {
    int device;
    DevicePointer memory;
    uint64_t bytes;
  };
  /// A stream of ours, which nobody captures: on it the memory of captured batches is set. And an event
  /// behind all of that.
  struct Aside {
    Handle stream = nullptr, event = nullptr;
  };
  struct Batch {
    Prepared* plan;
    TicketState state = TicketState::kUnderWay;
    bool dropped = false;
    Arrival arrival;
  };

  bool Check(Error error, const char* what) { return connection_.Check(error, what); }
  Functions* FunctionsOf(int device);
  bool Load(int device, Functions* functions);
  Prepared* Make(int device, uint64_t stream, const Kind& kind);
  Put LaunchIntoGraph(int device, uint64_t stream, std::span<const Item> items,
                      std::span<const DerivedSpec> derived);
  Refusal LaunchAll(Prepared* plan, std::span<const Item> items, uint64_t tag);
  Refusal NotLaunched(const Prepared& plan, Error error, const char* kernel);
  void Collect(Prepared* plan);
  void Read(Prepared* plan, const unsigned char* slot, uint64_t sequence, Batch* batch);
  Ticket Issue(Prepared* plan);

  Connection connection_;
  const Driver* const driver_;
  const std::span<const std::byte> image_;
  const LaneOptions options_;
  uint64_t device_bytes_ = 0, pinned_bytes_ = 0;
  Ticket next_ticket_ = 1;
  std::map<int, std::unique_ptr<Functions>> functions_;
  std::vector<std::unique_ptr<Prepared>> plans_;
  std::vector<Block> idle_;  // of the device: of plans for whose rings there was no pinned memory
  std::unordered_map<uint64_t, std::vector<Prepared*>> by_key_;  // plans of eager batches
  std::vector<Prepared*> captured_;                              // by graph - 1
  std::map<int, Aside> asides_;                                  // by device
  std::unordered_map<Ticket, Batch> batches_;
  std::vector<unsigned char> slot_;  // a copy of the slot that is read
};

}  // namespace tdbg::cuda

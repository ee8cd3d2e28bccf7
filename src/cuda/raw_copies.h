// Tensors' bytes on their way from a GPU: a snapshot on the device, from there by a stream of ours into
// pinned memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "cuda/connection.h"
#include "cuda/ticket.h"

namespace tdbg::cuda {

struct RawCopiesOptions {
  /// Memory comes in rings of this size (a larger tensor has a larger one): each is allocated when those that
  /// are there are full, and kept.
  uint64_t ring_bytes = 64u << 20;
  /// Of pinned memory in all. 0: an eighth of the machine's or the container's, 4 GiB at most.
  uint64_t pinned_bytes = 0;
  /// Of device memory in all, for snapshots; and never more than an eighth of what is free then. A ring
  /// without one copies on the training's own stream: as right, but the training's next kernels wait for the
  /// bus.
  uint64_t device_bytes = 1u << 30;
};

/// Copies bytes of tensors to the host, for those few whose raw values are due.
///
/// A tensor is read at its place of the stream on which it is put: the snapshot is taken there (at the speed
/// of device memory), and what the training does to the tensor afterwards changes nothing. The way over the
/// bus is a stream of ours. At its end the device writes a word into mapped host memory, for which the host
/// polls: no event is queried, nothing waits. Many steps may be under way; memory is bounded, and what has no
/// room is refused.
///
/// \threadsafety  One thread at a time. After fork() the child's copy does nothing and touches nothing.
class RawCopies {
 public:
  struct Source {
    uint64_t address = 0;  ///< on the device; dense
    uint64_t bytes = 0;    ///< not 0
  };
  struct Put {
    Refusal refusal = Refusal::kNone;
    Ticket ticket = 0;
  };

  /// `connection` outlives it. Asks nothing of the device.
  explicit RawCopies(Connection* connection, RawCopiesOptions options = {});
  /// Gives back its streams, and its memory where nothing is under way any more; else the process's end does.
  ~RawCopies();
  RawCopies(const RawCopies&) = delete;
  RawCopies& operator=(const RawCopies&) = delete;

  /// One answer for each source, in their order.
  /// \param device  the framework's number of it
  /// \param stream  a CUstream of that device; 0: its default stream
  std::vector<Put> Copy(int device, uint64_t stream, std::span<const Source> sources);

  TicketState Look(Ticket ticket) const;
  /// Where they lie until `Release`. Null unless they have arrived.
  const std::byte* Data(Ticket ticket) const;
  /// Arrived, lost or wanted no more: their room is free once the device does not write there any more.
  void Release(Ticket ticket);

  uint64_t device_bytes() const { return device_bytes_; }
  uint64_t pinned_bytes() const { return pinned_bytes_; }

 private:
  struct Ring;
  struct Device;
  struct Entry;

  Device* DeviceOf(int device);
  Ring* MakeRing(Device* device, uint64_t bytes, Refusal* refusal);
  Entry* Room(Device* device, uint64_t bytes, Refusal* refusal);
  bool Enqueue(Device* device, Handle stream, std::span<const Source> sources,
               std::span<Entry* const> entries);
  bool Deliver(const Device& device, const Entry& entry, DevicePointer from, uint64_t bytes, Handle stream);

  Connection* const connection_;
  const Driver& driver_;
  const RawCopiesOptions options_;
  const uint64_t most_pinned_;
  uint64_t device_bytes_ = 0, pinned_bytes_ = 0;
  Ticket next_ticket_ = 1;
  std::map<int, std::unique_ptr<Device>> devices_;
  std::unordered_map<Ticket, Entry*> entries_;  // of those that are not released
};

}  // namespace tdbg::cuda

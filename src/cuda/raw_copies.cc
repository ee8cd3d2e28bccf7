#include "cuda/raw_copies.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <limits>

namespace tdbg::cuda {
namespace {

constexpr unsigned kPortable = 1, kDeviceMap = 2, kNonBlocking = 1, kWithoutTiming = 2;
constexpr uint32_t kWords = 16384;       // tensors that may be under way, or wait to be taken, on a device
constexpr uint64_t kAlignment = 256;     // of each tensor: a copy of aligned bytes is as fast as the bus
constexpr uint64_t kRounding = 2 << 20;  // of a ring for a larger tensor: pages that the driver maps at once

uint64_t RoundUp(uint64_t n, uint64_t to) { return (n + to - 1) / to * to; }

/// What a container may take of the machine's memory: what is pinned counts, and who takes more is killed.
uint64_t MemoryOfTheContainer() {
  for (const char* const path :
       {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}) {
    std::ifstream file(path);
    uint64_t bytes = 0;
    if (file >> bytes) return bytes;  // where there is no limit the first says "max", the second nearly 2^63
  }
  return std::numeric_limits<uint64_t>::max();
}

uint64_t EighthOfTheMachine() {
  const long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
  if (pages <= 0 || page <= 0) return uint64_t{1} << 30;
  const uint64_t all = static_cast<uint64_t>(pages) * static_cast<uint64_t>(page);
  return std::min<uint64_t>(std::min(all, MemoryOfTheContainer()) / 8, uint64_t{4} << 30);
}

}  // namespace

/// A tensor's place in a ring. Positions only grow: the ring's size is the modulus.
struct RawCopies::Entry {
  Ring* ring;
  Device* device;
  uint64_t end;     // the ring's position behind it
  uint64_t at;      // where its bytes are
  uint32_t word;    // which one says that they are
  uint32_t number;  // once it has this value
  bool released = false;

  bool arrived() const;
};

struct RawCopies::Ring {
  std::byte* pinned = nullptr;
  DevicePointer snapshot = 0;  // 0: there is none
  uint64_t bytes = 0;
  uint64_t head = 0, tail = 0;
  std::deque<Entry> entries;  // between tail and head, in order

  /// Where `wanted` bytes are free, which is then `head`'s; no place otherwise.
  bool Take(uint64_t wanted, uint64_t* at) {
    if (entries.empty()) head = tail = 0;
    uint64_t from = head;
    if (from % bytes + wanted > bytes) from = RoundUp(from, bytes);  // in one piece: what is left is skipped
    if (from + wanted - tail > bytes) return false;
    *at = from % bytes;
    head = from + wanted;
    return true;
  }
};

struct RawCopies::Device {
  int number = 0;
  Handle side = nullptr, event = nullptr;
  uint32_t* words = nullptr;  // pinned, and the device writes to it
  DevicePointer words_there = 0;
  std::vector<uint32_t> free_words;
  uint32_t next_number = 1;
  std::vector<std::unique_ptr<Ring>> rings;
  bool complete = false;  // all of the above is there, but for rings

  void Reclaim() {
    for (const auto& ring : rings) {
      std::deque<Entry>& entries = ring->entries;
      while (!entries.empty() && entries.front().released && entries.front().arrived()) {
        free_words.push_back(entries.front().word);
        ring->tail = entries.front().end;
        entries.pop_front();
      }
    }
  }
};

bool RawCopies::Entry::arrived() const {
  return __atomic_load_n(device->words + word, __ATOMIC_ACQUIRE) == number;
}

RawCopies::RawCopies(Connection* connection, RawCopiesOptions options)
    : connection_(connection),
      driver_(connection->driver()),
      options_(options),
      most_pinned_(options.pinned_bytes != 0 ? options.pinned_bytes : EighthOfTheMachine()) {}

RawCopies::~RawCopies() {
  if (!connection_->usable()) return;
  for (const auto& [number, device] : devices_) {
    const Connection::Entered entered(connection_, number);
    if (!entered.ok()) return;
    const Connection::Relaxed relaxed(connection_);
    if (!relaxed.ok()) return;
    bool all = true;
    for (const auto& ring : device->rings) {
      if (std::ranges::any_of(ring->entries, [](const Entry& e) { return !e.arrived(); })) {
        all = false;
        continue;
      }
      if (ring->snapshot != 0 && !connection_->Check(driver_.MemFree(ring->snapshot), "cuMemFree")) return;
      if (!connection_->Check(driver_.MemFreeHost(ring->pinned), "cuMemFreeHost")) return;
    }
    // Of a device that was out of memory not all of it is there.
    if (all && device->words != nullptr &&
        !connection_->Check(driver_.MemFreeHost(device->words), "cuMemFreeHost")) {
      return;
    }
    if (device->event != nullptr &&
        !connection_->Check(driver_.EventDestroy(device->event), "cuEventDestroy")) {
      return;
    }
    if (device->side != nullptr &&
        !connection_->Check(driver_.StreamDestroy(device->side), "cuStreamDestroy")) {
      return;
    }
  }
}

/// A device that is entered, with its stream, event and words. Null: the driver failed, or memory is out:
/// then what was made already waits for the next try.
auto RawCopies::DeviceOf(int number) -> Device* {
  std::unique_ptr<Device>& found = devices_[number];
  if (found == nullptr) {
    found = std::make_unique<Device>();
    found->number = number;
  }
  if (found->complete) return found.get();
  const Connection::Relaxed relaxed(connection_);
  if (!relaxed.ok()) return nullptr;
  // A stream and an event take memory of the device, too.
  const auto made = [&](Error error, const char* what) {
    return error != kOutOfMemory && connection_->Check(error, what);
  };
  if (found->words == nullptr) {
    void* words = nullptr;
    if (!made(driver_.MemHostAlloc(&words, kWords * sizeof(uint32_t), kPortable | kDeviceMap),
              "cuMemHostAlloc")) {
      return nullptr;
    }
    found->words = static_cast<uint32_t*>(words);
    std::fill_n(found->words, kWords, 0u);
    for (uint32_t i = kWords; i-- > 0;) found->free_words.push_back(i);
    pinned_bytes_ += kWords * sizeof(uint32_t);
  }
  if (!connection_->Check(driver_.MemHostGetDevicePointer(&found->words_there, found->words, 0),
                          "cuMemHostGetDevicePointer")) {
    return nullptr;
  }
  Handle side = nullptr, event = nullptr;
  if (found->side == nullptr) {
    if (!made(driver_.StreamCreate(&side, kNonBlocking), "cuStreamCreate")) return nullptr;
    found->side = side;
  }
  if (!made(driver_.EventCreate(&event, kWithoutTiming), "cuEventCreate")) return nullptr;
  found->event = event;
  found->complete = true;
  return found.get();
}

auto RawCopies::MakeRing(Device* device, uint64_t bytes, Refusal* refusal) -> Ring* {
  *refusal = Refusal::kMemory;
  auto ring = std::make_unique<Ring>();
  ring->bytes = bytes <= options_.ring_bytes ? options_.ring_bytes : RoundUp(bytes, kRounding);
  if (ring->bytes > most_pinned_) return nullptr;
  if (pinned_bytes_ + ring->bytes > most_pinned_) {
    *refusal = Refusal::kFull;
    return nullptr;
  }
  const Connection::Relaxed relaxed(connection_);
  if (!relaxed.ok()) return nullptr;
  void* pinned = nullptr;
  const Error on_host = driver_.MemHostAlloc(&pinned, ring->bytes, kPortable);
  if (on_host == kOutOfMemory || !connection_->Check(on_host, "cuMemHostAlloc")) return nullptr;
  ring->pinned = static_cast<std::byte*>(pinned);
  pinned_bytes_ += ring->bytes;
  // The training's own next allocation must not fail for a snapshot of ours.
  size_t free = 0, total = 0;
  if (!connection_->Check(driver_.MemGetInfo(&free, &total), "cuMemGetInfo")) return nullptr;
  if (device_bytes_ + ring->bytes <= options_.device_bytes && ring->bytes <= free / 8) {
    const Error error = driver_.MemAlloc(&ring->snapshot, ring->bytes);
    if (error == kOutOfMemory) {
      ring->snapshot = 0;
    } else if (!connection_->Check(error, "cuMemAlloc")) {
      return nullptr;
    } else {
      device_bytes_ += ring->bytes;
    }
  }
  device->rings.push_back(std::move(ring));
  return device->rings.back().get();
}

auto RawCopies::Room(Device* device, uint64_t bytes, Refusal* refusal) -> Entry* {
  *refusal = Refusal::kFull;
  if (device->free_words.empty()) return nullptr;
  const uint64_t wanted = RoundUp(bytes, kAlignment);
  Ring* in = nullptr;
  uint64_t at = 0;
  for (const auto& ring : device->rings) {
    if (ring->Take(wanted, &at)) {
      in = ring.get();
      break;
    }
  }
  if (in == nullptr) {
    in = MakeRing(device, wanted, refusal);
    if (in == nullptr) return nullptr;
    in->Take(wanted, &at);
  }
  const uint32_t word = device->free_words.back();
  device->free_words.pop_back();
  device->words[word] = 0;  // nobody writes to it any more: what it told of has arrived
  if (device->next_number == 0) ++device->next_number;
  in->entries.push_back({in, device, in->head, at, word, device->next_number++});
  *refusal = Refusal::kNone;
  return &in->entries.back();
}

/// The copy to the host, and behind it the word.
bool RawCopies::Deliver(const Device& device, const Entry& entry, DevicePointer from, uint64_t bytes,
                        Handle stream) {
  return connection_->Check(driver_.CopyToHostAsync(entry.ring->pinned + entry.at, from, bytes, stream),
                            "cuMemcpyDtoHAsync") &&
         connection_->Check(driver_.SetWordsAsync(device.words_there + entry.word * sizeof(uint32_t),
                                                  entry.number, 1, stream),
                            "cuMemsetD32Async");
}

bool RawCopies::Enqueue(Device* device, Handle stream, std::span<const Source> sources,
                        std::span<Entry* const> entries) {
  bool any = false;
  for (size_t i = 0; i < sources.size(); ++i) {
    if (entries[i] == nullptr) continue;
    const Ring& ring = *entries[i]->ring;
    if (ring.snapshot == 0) {
      if (!Deliver(*device, *entries[i], sources[i].address, sources[i].bytes, stream)) return false;
      continue;
    }
    any = true;
    if (!connection_->Check(driver_.CopyOnDeviceAsync(ring.snapshot + entries[i]->at, sources[i].address,
                                                      sources[i].bytes, stream),
                            "cuMemcpyDtoDAsync")) {
      return false;
    }
  }
  if (!any) return true;
  if (!connection_->Check(driver_.EventRecord(device->event, stream), "cuEventRecord") ||
      !connection_->Check(driver_.StreamWaitEvent(device->side, device->event, 0), "cuStreamWaitEvent")) {
    return false;
  }
  for (size_t i = 0; i < sources.size(); ++i) {
    if (entries[i] == nullptr || entries[i]->ring->snapshot == 0) continue;
    if (!Deliver(*device, *entries[i], entries[i]->ring->snapshot + entries[i]->at, sources[i].bytes,
                 device->side)) {
      return false;
    }
  }
  return true;
}

auto RawCopies::Copy(int number, uint64_t stream, std::span<const Source> sources) -> std::vector<Put> {
  const auto all = [&](Refusal refusal) { return std::vector<Put>(sources.size(), {refusal, 0}); };
  if (!connection_->usable()) return all(Refusal::kClosed);
  const Connection::Entered entered(connection_, number);
  if (!entered.ok()) return all(Refusal::kClosed);
  const auto on = reinterpret_cast<Handle>(stream);
  int status = kNoCapture;
  const Error asked = driver_.StreamIsCapturing(on, &status);
  // The default stream, while somebody captures another one: nothing may be enqueued there.
  if (asked == kCaptureImplicit) return all(Refusal::kCapturing);
  if (!connection_->Check(asked, "cuStreamIsCapturing")) return all(Refusal::kClosed);
  if (status != kNoCapture) return all(Refusal::kCapturing);
  Device* const device = DeviceOf(number);
  if (device == nullptr) return all(connection_->usable() ? Refusal::kMemory : Refusal::kClosed);
  device->Reclaim();

  std::vector<Put> puts(sources.size());
  std::vector<Entry*> entries(sources.size());
  for (size_t i = 0; i < sources.size(); ++i) {
    entries[i] = Room(device, sources[i].bytes, &puts[i].refusal);
    if (!connection_->usable()) return all(Refusal::kClosed);
  }
  if (!Enqueue(device, on, sources, entries)) return all(Refusal::kClosed);
  for (size_t i = 0; i < sources.size(); ++i) {
    if (entries[i] == nullptr) continue;
    puts[i].ticket = next_ticket_++;
    entries_.emplace(puts[i].ticket, entries[i]);
  }
  return puts;
}

TicketState RawCopies::Look(Ticket ticket) const {
  const auto found = entries_.find(ticket);
  if (found == entries_.end() || !connection_->in_its_process()) return TicketState::kLost;
  return found->second->arrived() ? TicketState::kArrived : TicketState::kUnderWay;
}

const std::byte* RawCopies::Data(Ticket ticket) const {
  if (Look(ticket) != TicketState::kArrived) return nullptr;
  const Entry& entry = *entries_.find(ticket)->second;
  return entry.ring->pinned + entry.at;
}

void RawCopies::Release(Ticket ticket) {
  const auto found = entries_.find(ticket);
  if (found == entries_.end()) return;
  found->second->released = true;
  entries_.erase(found);
}

}  // namespace tdbg::cuda

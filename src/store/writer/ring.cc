#include "store/writer/ring.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <new>
#include <utility>

#include "base/bytes.h"

namespace tdbg::store {

using format::JournalHeader;

Ring Ring::Over(std::span<std::byte> mapping, JournalHeader* own) {
  Ring ring;
  ring.header = own;
  ring.shared = reinterpret_cast<JournalHeader*>(mapping.data());
  ring.data = mapping.data() + format::kJournalHeaderBytes;
  ring.bytes = own->ring_bytes;
  return ring;
}

void Ring::Release() const {
  // What was damaged is nowhere else. Somebody may still get more out of it than we did, so it stays: disks
  // lie seldom, and one journal is a small price where one did.
  for (const auto& count : header->drop_count[static_cast<size_t>(format::DropCause::kDamaged)]) {
    if (count.load(std::memory_order_acquire) != 0) return;
  }
  // Through the mapping: its path may lead to the journal of another training by now, and holes in that one
  // are steps lost.
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = base::AlignUp(reinterpret_cast<uintptr_t>(data), page);
  const auto end = base::AlignUp(reinterpret_cast<uintptr_t>(data) + bytes, page);
  if (begin < end) (void)::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_REMOVE);
}

void NewHeader(JournalHeader* own, uint64_t mapping_bytes, uint64_t writer_id, uint64_t next_sequence,
               std::span<const format::Drop> dropped_so_far) {
  new (own) JournalHeader{};
  std::memcpy(own->magic, format::kJournalMagic, sizeof(own->magic));
  own->major = format::kMajor;
  own->minor = format::kMinor;
  own->header_bytes = format::kJournalHeaderBytes;
  own->writer_id = writer_id;
  own->pid = static_cast<uint32_t>(::getpid());
  own->committed_seq.store(next_sequence - 1, std::memory_order_relaxed);
  own->last_seen_step.store(-1, std::memory_order_relaxed);
  for (int cause = 0; cause < format::kDropCauses; ++cause) {
    for (int kind = 0; kind < 4; ++kind) {
      own->drop_first_step[cause][kind].store(-1, std::memory_order_relaxed);
      own->drop_last_step[cause][kind].store(-1, std::memory_order_relaxed);
    }
  }
  for (const format::Drop& drop : dropped_so_far) {
    if (drop.cause >= format::kDropCauses || drop.kind < 1 || drop.kind > 4) continue;
    own->drop_count[drop.cause][drop.kind - 1].store(drop.count, std::memory_order_relaxed);
    own->drop_bytes[drop.cause][drop.kind - 1].store(drop.bytes, std::memory_order_relaxed);
    own->drop_first_step[drop.cause][drop.kind - 1].store(drop.first_step, std::memory_order_relaxed);
    own->drop_last_step[drop.cause][drop.kind - 1].store(drop.last_step, std::memory_order_relaxed);
  }
  RenewHeader(own, mapping_bytes);
}

void RenewHeader(JournalHeader* own, uint64_t mapping_bytes) {
  own->ring_bytes =
      (mapping_bytes - format::kJournalHeaderBytes) / format::kRecordAlignment * format::kRecordAlignment;
  own->sealed_seq.store(own->committed_seq.load(std::memory_order_relaxed), std::memory_order_relaxed);
  own->sealed_pos.store(0, std::memory_order_relaxed);
  own->committed_pos.store(0, std::memory_order_relaxed);
}

void Ring::Publish() const {
  constexpr size_t kMagicBytes = sizeof(header->magic);
  auto* const to = reinterpret_cast<std::byte*>(shared);
  std::memcpy(to + kMagicBytes, reinterpret_cast<const std::byte*>(header) + kMagicBytes,
              sizeof(JournalHeader) - kMagicBytes);
  std::atomic_thread_fence(std::memory_order_release);
  std::memcpy(to, header, kMagicBytes);
}

bool Ring::SaysWhatWeWrote() const {
  return std::memcmp(shared, header, offsetof(JournalHeader, committed_pos)) == 0 &&
         shared->sealed_pos.load(std::memory_order_relaxed) ==
             header->sealed_pos.load(std::memory_order_relaxed) &&
         shared->sealed_seq.load(std::memory_order_relaxed) ==
             header->sealed_seq.load(std::memory_order_relaxed);
}

void Ring::PublishDrop(size_t c, size_t k) const {
  if (shared == nullptr) return;
  const auto publish = [](auto& to, const auto& from) {
    // Again where another thread has counted meanwhile, which may have published before us.
    for (auto value = from.load();;) {
      to.store(value);
      const auto now = from.load();
      if (now == value) return;
      value = now;
    }
  };
  publish(shared->drop_bytes[c][k], header->drop_bytes[c][k]);
  publish(shared->drop_first_step[c][k], header->drop_first_step[c][k]);
  publish(shared->drop_last_step[c][k], header->drop_last_step[c][k]);
  publish(shared->drop_count[c][k], header->drop_count[c][k]);  // last, as below
}

void Ring::CountDropped(const format::Drop& drop) const {
  const size_t c = drop.cause;
  const size_t k = size_t{drop.kind} - 1;
  if (c >= format::kDropCauses || k >= 4 || drop.count == 0) return;
  header->drop_bytes[c][k].fetch_add(drop.bytes, std::memory_order_relaxed);
  auto& first = header->drop_first_step[c][k];
  for (int64_t seen = first.load(std::memory_order_relaxed);
       (seen < 0 || drop.first_step < seen) &&
       !first.compare_exchange_weak(seen, drop.first_step, std::memory_order_relaxed);) {
  }
  auto& last = header->drop_last_step[c][k];
  for (int64_t seen = last.load(std::memory_order_relaxed);
       drop.last_step > seen &&
       !last.compare_exchange_weak(seen, drop.last_step, std::memory_order_relaxed);) {
  }
  // Last, so that who sees the count sees its steps.
  header->drop_count[c][k].fetch_add(drop.count, std::memory_order_release);
  PublishDrop(c, k);
}

void Ring::CountDropped(format::DropCause cause, format::DropKind kind, int64_t step, uint64_t count,
                        uint64_t dropped_bytes) const {
  format::Drop drop;
  drop.cause = static_cast<uint8_t>(cause);
  drop.kind = static_cast<uint8_t>(kind);
  drop.count = count;
  drop.bytes = dropped_bytes;
  drop.first_step = drop.last_step = step;
  CountDropped(drop);
}

void Ring::CountDropped(std::span<const format::Drop> dropped) const {
  for (const format::Drop& drop : dropped) CountDropped(drop);
}

std::vector<format::Drop> DropsIn(const JournalHeader& header) {
  std::vector<format::Drop> dropped;
  for (uint8_t cause = 0; cause < format::kDropCauses; ++cause) {
    for (uint8_t kind = 1; kind <= 4; ++kind) {
      format::Drop drop;
      drop.count = header.drop_count[cause][kind - 1].load(std::memory_order_acquire);
      if (drop.count == 0) continue;
      drop.cause = cause;
      drop.kind = kind;
      drop.bytes = header.drop_bytes[cause][kind - 1].load(std::memory_order_relaxed);
      drop.first_step = header.drop_first_step[cause][kind - 1].load(std::memory_order_relaxed);
      drop.last_step = header.drop_last_step[cause][kind - 1].load(std::memory_order_relaxed);
      dropped.push_back(drop);
    }
  }
  return dropped;
}

void Handoff::TellDefinition(std::string json) {
  const std::lock_guard guard(mutex_);
  definitions_.push_back(std::move(json));
}

std::vector<std::string> Handoff::TakeDefinitions() {
  const std::lock_guard guard(mutex_);
  return std::exchange(definitions_, {});
}

void Handoff::NoteError(Status status) noexcept {
  const std::lock_guard guard(mutex_);
  if (first_error_.ok()) first_error_ = std::move(status);
}

Status Handoff::first_error() const {
  const std::lock_guard guard(mutex_);
  return first_error_;
}

}  // namespace tdbg::store

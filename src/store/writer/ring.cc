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
  for (const auto& count : header->loss_count[static_cast<size_t>(format::LossCause::kDamaged)]) {
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
               std::span<const format::Loss> losses_so_far) {
  new (own) JournalHeader{};
  std::memcpy(own->magic, format::kJournalMagic, sizeof(own->magic));
  own->major = format::kMajor;
  own->minor = format::kMinor;
  own->header_bytes = format::kJournalHeaderBytes;
  own->writer_id = writer_id;
  own->pid = static_cast<uint32_t>(::getpid());
  own->committed_seq.store(next_sequence - 1, std::memory_order_relaxed);
  own->last_seen_step.store(-1, std::memory_order_relaxed);
  for (int cause = 0; cause < format::kLossCauses; ++cause) {
    for (int kind = 0; kind < 4; ++kind) {
      own->loss_first_step[cause][kind].store(-1, std::memory_order_relaxed);
      own->loss_last_step[cause][kind].store(-1, std::memory_order_relaxed);
    }
  }
  for (const format::Loss& loss : losses_so_far) {
    if (loss.cause >= format::kLossCauses || loss.kind < 1 || loss.kind > 4) continue;
    own->loss_count[loss.cause][loss.kind - 1].store(loss.count, std::memory_order_relaxed);
    own->loss_bytes[loss.cause][loss.kind - 1].store(loss.bytes, std::memory_order_relaxed);
    own->loss_first_step[loss.cause][loss.kind - 1].store(loss.first_step, std::memory_order_relaxed);
    own->loss_last_step[loss.cause][loss.kind - 1].store(loss.last_step, std::memory_order_relaxed);
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

void Ring::PublishLoss(size_t c, size_t k) const {
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
  publish(shared->loss_bytes[c][k], header->loss_bytes[c][k]);
  publish(shared->loss_first_step[c][k], header->loss_first_step[c][k]);
  publish(shared->loss_last_step[c][k], header->loss_last_step[c][k]);
  publish(shared->loss_count[c][k], header->loss_count[c][k]);  // last, as below
}

void Ring::CountLoss(const format::Loss& loss) const {
  const size_t c = loss.cause;
  const size_t k = size_t{loss.kind} - 1;
  if (c >= format::kLossCauses || k >= 4 || loss.count == 0) return;
  header->loss_bytes[c][k].fetch_add(loss.bytes, std::memory_order_relaxed);
  auto& first = header->loss_first_step[c][k];
  for (int64_t seen = first.load(std::memory_order_relaxed);
       (seen < 0 || loss.first_step < seen) &&
       !first.compare_exchange_weak(seen, loss.first_step, std::memory_order_relaxed);) {
  }
  auto& last = header->loss_last_step[c][k];
  for (int64_t seen = last.load(std::memory_order_relaxed);
       loss.last_step > seen &&
       !last.compare_exchange_weak(seen, loss.last_step, std::memory_order_relaxed);) {
  }
  // Last, so that who sees the count sees its steps.
  header->loss_count[c][k].fetch_add(loss.count, std::memory_order_release);
  PublishLoss(c, k);
}

void Ring::CountLoss(format::LossCause cause, format::LossKind kind, int64_t step, uint64_t count,
                     uint64_t bytes_lost) const {
  format::Loss loss;
  loss.cause = static_cast<uint8_t>(cause);
  loss.kind = static_cast<uint8_t>(kind);
  loss.count = count;
  loss.bytes = bytes_lost;
  loss.first_step = loss.last_step = step;
  CountLoss(loss);
}

void Ring::CountLosses(std::span<const format::Loss> losses) const {
  for (const format::Loss& loss : losses) CountLoss(loss);
}

std::vector<format::Loss> LossesIn(const JournalHeader& header) {
  std::vector<format::Loss> losses;
  for (uint8_t cause = 0; cause < format::kLossCauses; ++cause) {
    for (uint8_t kind = 1; kind <= 4; ++kind) {
      format::Loss loss;
      loss.count = header.loss_count[cause][kind - 1].load(std::memory_order_acquire);
      if (loss.count == 0) continue;
      loss.cause = cause;
      loss.kind = kind;
      loss.bytes = header.loss_bytes[cause][kind - 1].load(std::memory_order_relaxed);
      loss.first_step = header.loss_first_step[cause][kind - 1].load(std::memory_order_relaxed);
      loss.last_step = header.loss_last_step[cause][kind - 1].load(std::memory_order_relaxed);
      losses.push_back(loss);
    }
  }
  return losses;
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

// How far a training has committed, for the thread that seals.
#pragma once

#include <atomic>
#include <cstdint>

namespace tdbg::store {

/// Where the last commit ends, its sequence, and how many there have been: three numbers that must be read
/// together. The journal's header publishes its numbers one by one; a reader that compared them with a count
/// would take a commit in progress for a lost one.
///
/// Two slots in turn: while the training thread writes the next one, however long it is kept from going on,
/// the last one stands. \threadsafety One thread at a time sets, any thread gets.
class CommitMark {
 public:
  struct Mark {
    uint64_t position = 0;  ///< behind its record
    uint64_t sequence = 0;
    uint64_t count = 0;  ///< in this journal and in those before it
  };

  /// One more commit. To be called once the header shows it: what is not shown as committed is not sealed.
  void Add(uint64_t position, uint64_t sequence) { Set({position, sequence, Last().count + 1}); }
  /// Of another journal, whose first record will be the one behind `sequence`.
  void StartJournal(uint64_t sequence) { Set({0, sequence, Last().count}); }

  Mark Get() const {
    for (;;) {
      const uint64_t turn = turn_.load(std::memory_order_acquire);
      const Mark mark = slots_[turn % 2].Load();
      // Its slot is reused two turns later. A reader that sees part of that write also sees the turn change.
      if (turn_.load(std::memory_order_relaxed) == turn) return mark;
    }
  }

 private:
  struct Slot {
    std::atomic<uint64_t> position{0}, sequence{0}, count{0};
    Mark Load() const {
      return {position.load(std::memory_order_acquire), sequence.load(std::memory_order_acquire),
              count.load(std::memory_order_acquire)};
    }
  };
  Mark Last() const { return slots_[turn_.load(std::memory_order_relaxed) % 2].Load(); }
  void Set(const Mark& mark) {
    const uint64_t turn = turn_.load(std::memory_order_relaxed) + 1;
    Slot& slot = slots_[turn % 2];
    slot.position.store(mark.position, std::memory_order_release);
    slot.sequence.store(mark.sequence, std::memory_order_release);
    slot.count.store(mark.count, std::memory_order_release);
    turn_.store(turn, std::memory_order_release);
  }

  Slot slots_[2];
  std::atomic<uint64_t> turn_{0};
};

}  // namespace tdbg::store

// What becomes of a page of a mapping that is not to be had any more: SIGBUS, and how mappings of ours
// survive it. For the files of this room that map.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace tdbg::base {

class ReadOnlyMapping;

/// A stretch of memory mapped for writing. While one lives, whoever touches a page of it that is gone writes
/// into memory of the process instead of dying: what they write is lost, and `torn` says so.
///
/// The handler is the process's, and a training's process is somebody's: faults elsewhere, and signals that
/// somebody sends, reach the handler that was there before, or kill as they would have.
class GuardedStretch {
 public:
  /// A process has room for 64 of these; the 65th mapping and later ones are not guarded.
  GuardedStretch(std::byte* data, size_t bytes);
  ~GuardedStretch();
  GuardedStretch(const GuardedStretch&) = delete;
  /// Whether a page of it is gone, touched or not: files are cut at their ends, so the last one tells. One
  /// system call, 0.1 us. Any thread.
  bool torn() const;

 private:
  struct Slot;
  friend struct GuardedStretches;
  Slot* slot_;
  const std::byte* const last_word_;
};

/// Can each page of this be read? Its file may have been cut short, or its owner may have forbidden it: a
/// load is then a signal. Asks the kernel, which takes about as long as reading it, and touches nothing else.
/// It may be otherwise a moment later. Any thread.
bool IsReadable(const std::byte* data, size_t bytes);

/// Puts our handler where it belongs, on top, unless it is there: whoever came later (Python's faulthandler)
/// would kill first. A system call.
void ArmBusGuard();

/// The same for mappings that are only read. For our own programs, which call SurviveTornMappings.
void GuardReads(const ReadOnlyMapping* mapping);
void NoLongerGuardReads(const ReadOnlyMapping* mapping);

}  // namespace tdbg::base

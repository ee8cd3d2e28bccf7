// The training's own worker threads, borrowed for a batch of statistics.
#pragma once

#include <functional>

namespace tdbg::capture {

/// Runs work on the OpenMP team of the calling thread, if libgomp is in the process (torch brings it).
///
/// Threads of our own gained nothing: on a machine whose cores the training keeps busy they wake up late and
/// then compete with the team's threads, which spin for a while after each parallel section. The team itself
/// is awake, idle at this very moment, and starts in a microsecond. We do not link libgomp: where the
/// training has none there is nothing to borrow.
class OpenMpTeam {
 public:
  /// Is there a team to borrow in this process? Looked up once.
  static bool Available();
  /// Calls work(thread) for distinct threads of 0..threads-1, at most once each, concurrently, thread 0 among
  /// them; returns when all are done, or throws what one of them threw. The team may be smaller than asked
  /// for.
  /// \threadsafety Any thread that is not inside a parallel section; each has a team of its own.
  static void Run(int threads, const std::function<void(int thread)>& work);
};

}  // namespace tdbg::capture

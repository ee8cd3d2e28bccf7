// Threads that must not disturb a training.
#pragma once

namespace tdbg::base {

/// The calling thread, waking up, no longer takes a core from a thread that runs there: it has a core that is
/// free at once, else one when the scheduler's turn comes round, some milliseconds later (Linux:
/// SCHED_BATCH). Its share of a busy core stays what it was. Threads and processes that it starts inherit it.
/// Does nothing where the system refuses.
void StayInBackground();

}  // namespace tdbg::base

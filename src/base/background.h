// Threads that must not disturb a training.
#pragma once

#include <functional>
#include <thread>

#include "tdbg/status.h"

namespace tdbg::base {

/// A thread of ours beside a training: it stays in the background, and inherits a mask of all signals, so
/// that no handler of the job ever runs on it and a SIGXFSZ stays pending there.
/// \param name  at most 15 characters
/// \error kResourceExhausted  there is no thread to be had
Result<std::thread> StartInBackground(const char* name, std::function<void()> body);

/// The calling thread, waking up, no longer takes a core from a thread that runs there: it has a core that is
/// free at once, else one when the scheduler's turn comes round, some milliseconds later (Linux:
/// SCHED_BATCH). Its share of a busy core stays what it was. Threads and processes that it starts inherit it.
/// Does nothing where the system refuses.
void StayInBackground();

}  // namespace tdbg::base

// A driver of no device, for tests: a shared library with libcuda's functions that carries launches out on
// the CPU. Late, on streams that know nothing of each other, and with whatever goes wrong that one asks for.
//
// Loaded in libcuda's place (Driver::Load, or TDBG_CUDA_DRIVER). Handles of streams are any numbers; device
// memory is the process's own. In a forked child every function aborts: nothing of ours may be called there.
//
// Controlled by the functions below (dlsym), or at first from TDBG_FAKE_CUDA, words with commas between them:
// "immediate,delay_us=500,fail=12:700,memory=1000000,seed=3,version=12040,image=209,device=0".
#pragma once

#include <cstdint>

extern "C" {

/// Back to what it was when loaded, environment and all; what is under way is carried out first.
void fake_cuda_reset();
/// One word of TDBG_FAKE_CUDA:
///   - immediate: a launch runs before the call returns, as the training's next kernel would find it; its
///     results reach the host late all the same
///   - delay_us=N: a launch (immediate: its results) is late by a random time up to this
///   - fail=N:CODE: the n-th call from now gives CODE; from 700 on, the context has died and all later ones
///     give it, too
///   - memory=N: bytes that are left, of the device and pinned
///   - seed=N: of delays and of the order of blocks and threads
///   - version=N; image=CODE (of cuModuleLoadData); device=N (the current one; -1: a thread has no context
///     before it pushes one)
///   - hold=0|1: nothing runs, nothing arrives
/// \return 0: no such word
int fake_cuda_set(const char* word);
/// How often a function was called, by its symbol; null: all of them.
uint64_t fake_cuda_calls(const char* symbol);
/// Waits until everything launched has been carried out and has reached the host.
void fake_cuda_drain();

void fake_cuda_begin_capture(uint64_t stream);
/// \return the graph, from 1; 0: the capture was broken by a call that a capture forbids
uint64_t fake_cuda_end_capture(uint64_t stream);
void fake_cuda_replay(uint64_t graph, uint64_t stream);
}

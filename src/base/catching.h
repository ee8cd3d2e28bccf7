// Where an exception ends and becomes a Status: the standard library throws, our rooms do not.
#pragma once

#include <type_traits>

#include "tdbg/status.h"

namespace tdbg::base {

/// The exception that is being handled, as a status: kResourceExhausted if memory or a thread could not be
/// had, otherwise kInternal. Allocates nothing when memory has run out.
Status StatusOfException() noexcept;

/// What `body` returns, a Status or a Result, or as one what it threw. For threads of ours above all: an
/// exception that leaves one ends the training.
template <typename Body>
std::invoke_result_t<Body> Catching(Body&& body) noexcept {
  try {
    return body();
  } catch (...) {
    return StatusOfException();
  }
}

}  // namespace tdbg::base

// Where an exception ends and becomes a Status: the standard library throws, our rooms do not.
#pragma once

#include <type_traits>

#include "tdbg/status.h"

namespace tdbg::base {

/// Of the exception that is being handled: kResourceExhausted where memory or a thread was not to be had,
/// else kInternal. Needs no memory where there is none.
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

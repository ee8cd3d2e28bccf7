// What is asked of something that was sent on its way from a device.
#pragma once

#include <cstdint>

namespace tdbg::cuda {

using Ticket = uint64_t;  ///< 0: there is none

enum class TicketState : uint8_t { kUnderWay, kArrived, kLost };

/// Why something was not sent.
enum class Refusal : uint8_t {
  kNone,
  kClosed,     ///< the connection's `trouble` says why
  kFull,       ///< no room until earlier ones have been taken: the device is far behind
  kMemory,     ///< no memory for it or for the kernels, or more bytes than may ever be pinned
  kCapturing,  ///< the stream is being captured: nothing was prepared, or each replay would copy, due or not
  kKind,       ///< a tensor of a type or size that the kernels do not take
};

}  // namespace tdbg::cuda

// Reads the events of one run as they are written, and takes each to its handlers.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "events/handlers.h"
#include "tdbg/status.h"

namespace tdbg::events {

/// The kind of the lines in events.jsonl that record the outcome of a delivery (docs/format.md).
inline constexpr const char* kDelivery = "delivery";

struct DeliveryOptions {
  std::string run;  ///< directory
  std::vector<Handler> handlers;
  /// Events before this byte of events.jsonl are not delivered: they are of an earlier job in the directory.
  uint64_t after = 0;
  /// One line for people about a handler that failed.
  std::function<void(const std::string& line)> log;
};

/// Every handler gets the events that its pattern matches, one at a time, in the order in which they were
/// written; no handler waits for another. The outcome of each delivery is a line in the run's events, and the
/// next process that follows the run does not repeat it. An event that was being handled when this process
/// was killed has no such line yet and is delivered once more. Uses no CPU while nothing happens.
class Deliverer {
 public:
  explicit Deliverer(DeliveryOptions options);
  ~Deliverer();
  /// Returns when JobEnded was called and everything written by then was delivered, or Abandon was called.
  Status Follow();
  /// No more events will come: Follow delivers what there is and returns. From any thread or signal handler.
  void JobEnded();
  /// From any thread: starts no further delivery. \return how many are left once Follow has returned
  void Abandon();
  size_t left_over() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tdbg::events

// Calls of functions that somebody waits for (Lambda's Invoke), each in a process of its own.
#pragma once

#include <functional>
#include <list>
#include <memory>
#include <string>

#include "events/handlers.h"
#include "service/reply.h"

namespace tdbg::service {

/// What came of a call, in Lambda's words.
struct Invoked {
  Json payload;  ///< what the function returned, or the error that it ended with
  bool failed = false;
  std::string output;  ///< what it printed, the last kilobytes
};

/// Running calls. A function may call the service that called it, so nobody waits here: the caller is told.
class Invocations {
 public:
  Invocations();
  ~Invocations();  ///< ends the calls that are running; they are not told of any more
  /// \param function  a handler in Python, its time and memory limited
  /// \param done      called once, from another thread
  /// \return false: as many as there may be are running
  bool Start(events::Handler function, const Json& payload, const std::string& request_id,
             std::function<void(const Invoked&)> done);

 private:
  struct Call;
  std::list<std::unique_ptr<Call>> calls_;
};

}  // namespace tdbg::service

// Lambda's functions: programs in Python that are called with a job's events, or by who waits for an answer.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "events/handlers.h"
#include "service/invocations.h"
#include "service/reply.h"
#include "tdbg/status.h"

namespace tdbg::service {

/// A call of Lambda's REST interface, below /2015-03-31/functions.
struct FunctionCall {
  std::string_view method, path, body;
  std::string_view invocation_type = {}, log_type = {};  ///< of Invoke
};

/// Functions on the disk, a directory each. One thread.
class Functions {
 public:
  /// \param directory  the service's; `functions/` is in it
  /// \param changed    called after each change, so that who is told of events follows
  Functions(std::string directory, std::string region, std::string account, std::function<Status()> changed)
      : directory_(std::move(directory)),
        region_(std::move(region)),
        account_(std::move(account)),
        changed_(std::move(changed)) {}

  /// \param done  called once: at once, or, where a function runs first, from another thread
  void Handle(const FunctionCall& call, std::function<void(const Answer<Response>&)> done);
  /// The function of an ARN or a name as a handler of events; nothing: there is none.
  std::optional<events::Handler> Find(const std::string& arn) const;

 private:
  std::string Directory(const std::string& name) const;
  Json Read(const std::string& name) const;  ///< null: there is none
  events::Handler HandlerOf(const Json& function) const;
  Json Configuration(const Json& function) const;
  Answer<Json> List() const;
  Answer<Json> Create(const Json& request, const std::string& name);
  Answer<Json> Configure(const Json& request, Json function);
  Answer<Json> PutCode(const Json& code, const Json& function);
  Answer<Json> Delete(const std::string& name);
  Answer<Json> Change(const FunctionCall& call, const Json& request, const std::string& name,
                      const std::string& verb);
  void Invoke(const FunctionCall& call, const std::string& name,
              std::function<void(const Answer<Response>&)> done);
  Refusal NoSuch(const std::string& name) const;

  std::string directory_, region_, account_;
  std::function<Status()> changed_;
  Invocations invocations_;
};

}  // namespace tdbg::service

// The actions, one maker each. For action.cc and tests; everybody else says ParseAction.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "actions/action.h"

namespace tdbg::actions {

struct ExecOptions {
  int64_t limit_millis = 60'000;
};

struct WebhookOptions {
  int64_t tries = 3;
  int64_t backoff_millis = 500;     ///< before the second try; doubled for each further one
  int64_t timeout_millis = 10'000;  ///< of one try
  std::string program;              ///< empty: the installed one
};

std::unique_ptr<Action> MakeStop(std::function<Status(const Notice&)> stop);
std::unique_ptr<Action> MakeExec(std::string command, ExecOptions options = {});
/// \error kInvalidArgument  not an http or https URL
Result<std::unique_ptr<Action>> MakeWebhook(std::string url, WebhookOptions options = {});

}  // namespace tdbg::actions

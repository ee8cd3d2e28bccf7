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
  int64_t backoff_millis = 500;           ///< before the second try; doubled for each further one
  int64_t timeout_millis = 10'000;        ///< of one try
  std::string program;                    ///< empty: the installed one
  std::vector<std::string> headers = {};  ///< "NAME: VALUE", on top of the usual ones; no line ends
};

std::unique_ptr<Action> MakeStop(std::function<Status(const Notice&)> stop);
/// Asks for a checkpoint, waits for it so many seconds, and stops, whatever came of it.
std::unique_ptr<Action> MakeCheckpointStop(JobControl job, int64_t seconds);
std::unique_ptr<Action> MakeExec(std::string command, ExecOptions options = {});
/// \param url  or "$NAME": the URL is in that variable of this process's environment, and events name only
///             the variable
/// \error kInvalidArgument  not an http or https URL; the variable is not set
Result<std::unique_ptr<Action>> MakeWebhook(std::string url, WebhookOptions options = {});

/// A mail through the server of $TDBG_SMTP_URL (smtp://HOST:PORT or smtps://), from $TDBG_SMTP_FROM, with
/// $TDBG_SMTP_USER and $TDBG_SMTP_PASSWORD where set; the same program and retries. \error kInvalidArgument
Result<std::unique_ptr<Action>> MakeEmail(std::string address, WebhookOptions options = {});
/// {to, text, rule, run} to the webhook $TDBG_SMS_WEBHOOK, which knows a provider. \error kInvalidArgument
Result<std::unique_ptr<Action>> MakeSms(std::string number, WebhookOptions options = {});
/// "capture:COLLECTION[+COLLECTION ...][:STEPS]". \error kInvalidArgument
Result<std::unique_ptr<Action>> MakeCapture(const std::string& text);
/// Holds the training between two steps, for so many seconds at most; "": 600. \error kInvalidArgument
Result<std::unique_ptr<Action>> MakePause(const std::string& text);
/// Keeps the next step whole.
std::unique_ptr<Action> MakeBlackBox();

}  // namespace tdbg::actions

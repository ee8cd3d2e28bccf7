#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "actions/actions.h"
#include "actions/command.h"
#include "base/companion.h"
#include "base/printable.h"
#include "base/process.h"
#include "base/sha256.h"
#include "base/text.h"

namespace tdbg::actions {
namespace {

constexpr const char* kProgram = "tdbg-webhook";

// "https://hooks.example.com" of "https://user:secret@hooks.example.com/services/T0/token".
std::string Origin(const std::string& url) {
  const size_t host = url.find("://") + 3;
  const size_t end = url.find_first_of("/?#", host);
  std::string authority = url.substr(host, end == std::string::npos ? std::string::npos : end - host);
  if (const size_t at = authority.rfind('@'); at != std::string::npos) authority.erase(0, at + 1);
  return url.substr(0, host) + authority;
}

Status Deliver(const WebhookOptions& options, const std::string& message) {
  base::SpawnOptions spawn;
  spawn.argv = {options.program.empty() ? base::FindCompanion(kProgram) : options.program,
                "--tries",
                std::to_string(options.tries),
                "--backoff-millis",
                std::to_string(options.backoff_millis),
                "--timeout-millis",
                std::to_string(options.timeout_millis)};
  spawn.pipe_stdin = true;
  spawn.stdin_text = message;
  // Its own limits end it; this one is for a resolver that hangs, which libcurl cannot always interrupt.
  const int64_t limit_millis =
      options.tries * options.timeout_millis + (options.backoff_millis << options.tries) + 5'000;
  auto result = RunCommand(spawn, limit_millis);
  if (!result.ok()) return result.status();
  if (result->timed_out) return {Code::kDeadlineExceeded, "tdbg-webhook did not come back and was ended"};
  if (result->exit.shell_code() == 0) return OkStatus();
  const std::string_view said = base::Trim(result->output);
  return Unavailable(said.empty() ? "tdbg-webhook failed with " + std::to_string(result->exit.shell_code())
                                  : std::string(said));
}

std::string Environment(const char* name) {
  const char* const value = std::getenv(name);
  return value ? value : "";
}

// Lets the receiver check who sent the body and that nobody changed it.
std::string Signature(const std::string& body) {
  const std::string secret = Environment("TDBG_WEBHOOK_SECRET");
  return secret.empty()
             ? ""
             : "X-Tdbg-Signature-256: sha256=" + base::HexOf(base::HmacSha256(secret, body)) + "\n";
}

// The variable of "$NAME" or "${NAME}"; empty if it is neither.
std::string VariableIn(std::string_view text) {
  if (!text.starts_with('$')) return "";
  text.remove_prefix(1);
  if (text.starts_with('{') && text.ends_with('}')) text = text.substr(1, text.size() - 2);
  const bool is_name =
      std::ranges::all_of(text, [](unsigned char c) { return std::isalnum(c) != 0 || c == '_'; });
  return is_name ? std::string(text) : "";
}

// Also no line end: the program's input is line-oriented.
bool IsUrl(std::string_view text) {
  const bool http = text.starts_with("http://") || text.starts_with("https://");
  return http && text.find_first_of(" \t\r\n") == text.npos && text.find("://") + 3 < text.size();
}

class Webhook : public Action {
 public:
  // \param target  how events call it
  Webhook(std::string url, std::string target, WebhookOptions options)
      : url_(std::move(url)), target_(std::move(target)), options_(std::move(options)) {}
  std::string name() const override { return "webhook"; }
  std::string target() const override { return target_; }

  Status Perform(const Notice& notice) override {
    std::string head = url_ + "\n";
    for (const std::string& header : options_.headers) head += header + "\n";
    return Deliver(options_, head + Signature(notice.json) + "\n" + notice.json);
  }

 private:
  std::string url_, target_;
  WebhookOptions options_;
};

// A message of RFC 5322, plain text. Lines of the details are short, and dots at their beginning are
// libcurl's job.
std::string MailText(const std::string& from, const std::string& to, const Notice& notice) {
  std::string text =
      "From: tdbg <" + from + ">\r\nTo: <" + to + ">\r\nSubject: tdbg: " +
      (notice.headline.empty() ? notice.rule + " " + notice.status : base::Printable(notice.headline)) +
      " at " + (notice.step_name.empty() ? "step " + std::to_string(notice.global_step) : notice.step_name) +
      "\r\nMIME-Version: 1.0\r\nContent-Type: text/plain; charset=utf-8\r\n"
      "Content-Transfer-Encoding: 8bit\r\n\r\n";
  const std::string& said = notice.incidents.empty() ? notice.details : notice.incidents;
  const std::string body = said + "\n\nRule " + notice.rule + " of " + notice.run + "\n";
  for (const char c : body) {
    if (c == '\n') text += '\r';
    text += c;
  }
  return text;
}

bool OneWord(const std::string& text) { return text.find_first_of(" \t\r\n<>") == std::string::npos; }

class Email : public Action {
 public:
  Email(std::string address, WebhookOptions options)
      : address_(std::move(address)), options_(std::move(options)) {}
  std::string name() const override { return "email"; }
  std::string target() const override { return address_; }
  Status Perform(const Notice& notice) override {
    const std::string server = Environment("TDBG_SMTP_URL");
    if (server.empty()) return FailedPrecondition("no mail server; set TDBG_SMTP_URL to smtp://HOST:PORT");
    std::string from = Environment("TDBG_SMTP_FROM");
    if (from.empty()) from = "tdbg@" + base::HostName();
    std::string head = server + "\nFrom: " + from + "\nTo: " + address_ + "\n";
    if (const std::string user = Environment("TDBG_SMTP_USER"); !user.empty()) {
      head += "User: " + user + "\nPassword: " + Environment("TDBG_SMTP_PASSWORD") + "\n";
    }
    return Deliver(options_, head + "\n" + MailText(from, address_, notice));
  }

 private:
  std::string address_;
  WebhookOptions options_;
};

// There is no provider of text messages in tdbg: the message goes to a webhook that knows one.
class Sms : public Action {
 public:
  Sms(std::string number, WebhookOptions options)
      : number_(std::move(number)), options_(std::move(options)) {}
  std::string name() const override { return "sms"; }
  std::string target() const override { return number_; }
  Status Perform(const Notice& notice) override {
    const std::string url = Environment("TDBG_SMS_WEBHOOK");
    if (url.empty()) {
      return FailedPrecondition(
          "no provider of text messages; set TDBG_SMS_WEBHOOK to a URL that takes {to, text}");
    }
    const nlohmann::json json = {
        {"to", number_},
        {"text", "SMDebugRule:" + notice.rule + " fired. " +
                     (notice.incident.empty() ? notice.details : notice.incident).substr(0, 300)},
        {"rule", notice.rule},
        {"run", notice.run}};
    const std::string body = json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    return Deliver(options_, url + "\n" + Signature(body) + "\n" + body);
  }

 private:
  std::string number_;
  WebhookOptions options_;
};

}  // namespace

std::string VariableOfAction(const std::string& action) {
  constexpr std::string_view kKind = "webhook:";
  const std::string_view text = base::Trim(action);
  return text.starts_with(kKind) ? VariableIn(base::Trim(text.substr(kKind.size()))) : "";
}

Result<std::unique_ptr<Action>> MakeEmail(std::string address, WebhookOptions options) {
  const size_t at = address.find('@');
  if (at == std::string::npos || at == 0 || at + 1 == address.size() || !OneWord(address)) {
    return InvalidArgument("email: '" + address + "' is not an address; accepted: email:NAME@HOST");
  }
  return std::unique_ptr<Action>(std::make_unique<Email>(std::move(address), std::move(options)));
}

Result<std::unique_ptr<Action>> MakeSms(std::string number, WebhookOptions options) {
  const bool digits = number.size() > 1 && number[0] == '+' && number.size() <= 16 &&
                      number.find_first_not_of("0123456789", 1) == std::string::npos;
  if (!digits) return InvalidArgument("sms: '" + number + "' is not a number; accepted: sms:+DIGITS");
  return std::unique_ptr<Action>(std::make_unique<Sms>(std::move(number), std::move(options)));
}

Result<std::unique_ptr<Action>> MakeWebhook(std::string url, WebhookOptions options) {
  std::string target;
  if (const std::string variable = VariableIn(url); !variable.empty()) {
    target = "$" + variable;
    url = base::Trim(Environment(variable.c_str()));
    if (url.empty()) return InvalidArgument("webhook: " + target + " is not set");
    if (!IsUrl(url)) return InvalidArgument("webhook: " + target + " holds no http:// or https:// URL");
  }
  if (!IsUrl(url)) return InvalidArgument("webhook: '" + url + "' is not an http:// or https:// URL");
  if (target.empty()) target = Origin(url);
  return std::unique_ptr<Action>(
      std::make_unique<Webhook>(std::move(url), std::move(target), std::move(options)));
}

}  // namespace tdbg::actions

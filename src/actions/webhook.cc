#include "actions/actions.h"
#include "actions/command.h"
#include "base/companion.h"
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

class Webhook : public Action {
 public:
  Webhook(std::string url, WebhookOptions options) : url_(std::move(url)), options_(std::move(options)) {}
  std::string name() const override { return "webhook"; }
  std::string target() const override { return Origin(url_); }

  Status Perform(const Notice& notice) override {
    base::SpawnOptions spawn;
    spawn.argv = {options_.program.empty() ? base::FindCompanion(kProgram) : options_.program,
                  "--tries",
                  std::to_string(options_.tries),
                  "--backoff-millis",
                  std::to_string(options_.backoff_millis),
                  "--timeout-millis",
                  std::to_string(options_.timeout_millis)};
    spawn.pipe_stdin = true;
    spawn.stdin_text = url_ + "\n" + notice.json;
    // Its own limits end it; this one is for a resolver that hangs, which libcurl cannot always interrupt.
    const int64_t limit_millis =
        options_.tries * options_.timeout_millis + (options_.backoff_millis << options_.tries) + 5'000;
    auto result = RunCommand(spawn, limit_millis);
    if (!result.ok()) return result.status();
    if (result->timed_out) return {Code::kDeadlineExceeded, "tdbg-webhook did not come back and was ended"};
    if (result->exit.shell_code() == 0) return OkStatus();
    const std::string_view said = base::Trim(result->output);
    return Unavailable(said.empty() ? "tdbg-webhook failed with " + std::to_string(result->exit.shell_code())
                                    : std::string(said));
  }

 private:
  std::string url_;
  WebhookOptions options_;
};

}  // namespace

Result<std::unique_ptr<Action>> MakeWebhook(std::string url, WebhookOptions options) {
  const bool http = url.starts_with("http://") || url.starts_with("https://");
  // Also no line end: the program's input is line-oriented.
  if (!http || url.find_first_of(" \t\r\n") != std::string::npos || url.find("://") + 3 == url.size()) {
    return InvalidArgument("webhook: '" + url + "' is not an http:// or https:// URL");
  }
  return std::unique_ptr<Action>(std::make_unique<Webhook>(std::move(url), std::move(options)));
}

}  // namespace tdbg::actions

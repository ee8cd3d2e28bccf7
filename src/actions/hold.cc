// pause: the training is held between two steps; blackbox: its next step is kept whole.
#include "actions/actions.h"
#include "actions/control_request.h"
#include "base/durations.h"
#include "base/text.h"

namespace tdbg::actions {
namespace {

constexpr int64_t kSeconds = 600;

class Pause : public Action {
 public:
  explicit Pause(int64_t seconds) : seconds_(seconds) {}
  std::string name() const override { return "pause"; }
  bool needs_job() const override { return true; }
  std::string target() const override { return std::to_string(seconds_); }
  Status Perform(const Notice& notice) override {
    return RequestPause(notice.run, notice.rule, notice.at_step, seconds_, notice.details);
  }

 private:
  const int64_t seconds_;
};

class BlackBox : public Action {
 public:
  std::string name() const override { return "blackbox"; }
  bool needs_job() const override { return true; }
  Status Perform(const Notice& notice) override {
    return RequestBlackBox(notice.run, notice.rule, notice.at_step, notice.details);
  }
};

}  // namespace

Result<std::unique_ptr<Action>> MakePause(const std::string& text) {
  const auto seconds = text.empty() ? kSeconds : base::ParseInt(text);
  if (!seconds || *seconds < 1 || *seconds > base::kLongestSeconds)
    return InvalidArgument("pause: '" + text + "' is no number of seconds; accepted: pause[:SECONDS]");
  return std::unique_ptr<Action>(std::make_unique<Pause>(*seconds));
}

std::unique_ptr<Action> MakeBlackBox() { return std::make_unique<BlackBox>(); }

}  // namespace tdbg::actions

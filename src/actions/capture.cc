#include "actions/actions.h"
#include "actions/control_request.h"
#include "base/text.h"

namespace tdbg::actions {
namespace {

constexpr int64_t kSteps = 50;

class Capture : public Action {
 public:
  Capture(std::vector<std::string> collections, int64_t steps)
      : collections_(std::move(collections)), steps_(steps) {}
  std::string name() const override { return "capture"; }
  bool needs_job() const override { return true; }
  std::string target() const override {
    std::string text;
    for (const std::string& name : collections_) text += (text.empty() ? "" : "+") + name;
    return text + ":" + std::to_string(steps_);
  }
  Status Perform(const Notice& notice) override {
    return RequestCapture(notice.run, notice.rule, notice.at_step, collections_, steps_, /*raw=*/true);
  }

 private:
  const std::vector<std::string> collections_;
  const int64_t steps_;
};

}  // namespace

Result<std::unique_ptr<Action>> MakeCapture(const std::string& text) {
  const size_t colon = text.rfind(':');
  const auto steps = colon == std::string::npos
                         ? kSteps
                         : base::ParseInt(base::Trim(std::string_view(text).substr(colon + 1)));
  const auto collections = base::SplitList(std::string_view(text).substr(0, colon), '+');
  if (collections.empty() || !steps || *steps < 1) {
    return InvalidArgument("capture: '" + text + "'; accepted: capture:COLLECTION[+COLLECTION ...][:STEPS]");
  }
  return std::unique_ptr<Action>(std::make_unique<Capture>(collections, *steps));
}

}  // namespace tdbg::actions

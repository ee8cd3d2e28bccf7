#include "actions/actions.h"
#include "actions/control_request.h"

namespace tdbg::actions {
namespace {

class Stop : public Action {
 public:
  explicit Stop(std::function<Status(const Notice&)> stop) : stop_(std::move(stop)) {}
  std::string name() const override { return "stop"; }
  Status Perform(const Notice& notice) override {
    return stop_ ? stop_(notice) : RequestStop(notice.run, notice.rule);
  }

 private:
  std::function<Status(const Notice&)> stop_;
};

}  // namespace

std::unique_ptr<Action> MakeStop(std::function<Status(const Notice&)> stop) {
  return std::make_unique<Stop>(std::move(stop));
}

}  // namespace tdbg::actions

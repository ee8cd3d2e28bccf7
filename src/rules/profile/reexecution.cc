// Did a step that was executed again (tdbg run --verify-every) give the same bits? The training process
// compares; its record says what differed first, and on which rank.
#include "rules/profile/reexecution.h"

#include <nlohmann/json.hpp>

namespace tdbg::rules::profile {
namespace {

class NotRepeatable : public Detector {
 public:
  void Judge(const Digest& step, std::vector<Finding>* findings) override {
    if (told_) return;
    const std::string* const text = step.topic("not_repeatable");
    if (text == nullptr) return;
    const auto json = nlohmann::json::parse(*text, nullptr, /*allow_exceptions=*/false);
    if (!json.is_object()) return;
    const auto text_of = [&](const char* key) {
      const auto found = json.find(key);
      return found != json.end() && found->is_string() ? found->get<std::string>() : std::string();
    };
    const std::string sentence = text_of("sentence");
    if (sentence.empty()) return;
    told_ = true;
    Finding finding = MakeFinding(step, "not_repeatable", text_of("tensor"));
    if (const std::string worker = text_of("worker"); !worker.empty()) finding.worker = worker;
    finding.measure = "executions compared";
    finding.value = 3;
    finding.comparison = "=";
    finding.text = sentence;
    findings->push_back(std::move(finding));
  }

 private:
  bool told_ = false;
};

}  // namespace

void AddReexecution(Detectors* to) { to->push_back(std::make_unique<NotRepeatable>()); }

}  // namespace tdbg::rules::profile

// Images that were not brought to a mean of zero. README.md beside this file.
#include <fmt/format.h>

#include <cmath>
#include <functional>
#include <map>
#include <tuple>
#include <vector>

#include "base/text.h"
#include "rules/derived_totals.h"
#include "rules/judging.h"
#include "rules/parameter_specs.h"
#include "rules/rule.h"
#include "rules/selector.h"
#include "rules/step_context.h"

namespace tdbg::rules {
namespace {

constexpr const char* kDocumented = ".*hybridsequential0_input_0";

// The smallest picture that people train on (scikit-learn's digits) has eight pixels a side. A noise vector
// written as an image (100 x 1 x 1) has one, latents and feature maps have other channels.
constexpr int64_t kLeastSide = 8;

// A model's input may be token ids, noise or a table. Only what looks like images is judged, unless a user
// named it.
bool LooksLikeImages(const TensorInfo& info, int64_t channel) {
  const bool number = info.dtype == DType::kUInt8 || info.dtype == DType::kFloat16 ||
                      info.dtype == DType::kBFloat16 || info.dtype == DType::kFloat32 ||
                      info.dtype == DType::kFloat64;
  // Images come as a batch (4 axes), or singly with the channels first (3 axes).
  const auto rank = static_cast<int64_t>(info.shape.size());
  const int64_t axis = channel < 0 ? rank + channel : channel;
  const bool batch = rank == 4 && axis >= 1 && axis < rank;
  if (!number || !(batch || (rank == 3 && axis == 0))) return false;
  for (int64_t i = batch ? 1 : 0; i < rank; ++i) {
    const int64_t extent = info.shape[static_cast<size_t>(i)];
    if (i == axis ? extent != 1 && extent != 3 : extent < kLeastSide) return false;
  }
  return true;
}

/// What one worker has seen of one input.
struct Seen {
  std::vector<double> sums;  // per channel
  double elements = 0;       // per channel
  uint64_t images = 0;
};

class CheckInputImages : public DerivedTotals {
 public:
  /// \param by_name  the user said which inputs are images
  CheckInputImages(Selector inspected, const Statistic& sums, bool by_name, double threshold,
                   int64_t least_images)
      : DerivedTotals(std::move(inspected), sums, LooksAt(sums, by_name)),
        by_name_(by_name),
        threshold_(threshold),
        least_images_(least_images) {}

  std::string WouldHaveNeeded() const override {
    return fmt::format("{}, or raw values, of {} ({}{}); {} seen", statistic().Id(),
                       base::Counted(least_images_, "image"), inspected().Describe(),
                       by_name_ ? "" : ", numbers of 1 or 3 channels and at least 8 x 8 pixels",
                       base::Counted(most_images_, "finite one was", "finite ones were"));
  }

 private:
  static std::function<bool(const TensorInfo&)> LooksAt(const Statistic& sums, bool by_name) {
    if (by_name) return {};
    const auto channel = static_cast<int64_t>(sums.parameters[0]);
    return [channel](const TensorInfo& info) { return LooksLikeImages(info, channel); };
  }

  bool Add(const StepContext& step, TensorIndex tensor, WorkerIndex worker, const StatisticValue& value,
           std::vector<Finding>* findings) override {
    for (const double sum : value.values) {
      if (!std::isfinite(sum)) return false;  // ExplodingTensor's; here they would hide all that follow
    }
    Seen& seen = seen_[{tensor, worker, value.values.size()}];
    seen.sums.resize(value.values.size());
    for (size_t c = 0; c < value.values.size(); ++c) seen.sums[c] += value.values[c];
    seen.elements += static_cast<double>(value.elements);
    // Along the first axis there are channels and not images: then it is one.
    seen.images += statistic().parameters[0] == 0 ? 1 : value.samples;
    most_images_ = std::max(most_images_, seen.images);
    if (seen.images < static_cast<uint64_t>(least_images_)) return false;
    Judge(step, tensor, worker, seen, findings);
    return true;
  }

  void Judge(const StepContext& step, TensorIndex tensor, WorkerIndex worker, const Seen& seen,
             std::vector<Finding>* findings) const {
    for (size_t c = 0; c < seen.sums.size(); ++c) {
      const double mean = seen.sums[c] / seen.elements;
      if (!(std::abs(mean) > threshold_)) continue;
      Finding finding = FindingAt(step, tensor, worker);
      finding.measure = "abs_channel_mean";
      finding.value = std::abs(mean);
      finding.comparison = ">";
      finding.threshold = threshold_;
      finding.text = fmt::format("mean {:g} of channel {} of {} over {}", mean, c, seen.sums.size(),
                                 base::Counted(seen.images, "image"));
      findings->push_back(std::move(finding));
    }
  }

  bool by_name_;
  double threshold_;
  int64_t least_images_;
  uint64_t most_images_ = 0;
  std::map<std::tuple<TensorIndex, WorkerIndex, size_t>, Seen>
      seen_;  // by channels: grey images are not colour ones
};

}  // namespace

void RegisterCheckInputImages(RuleRegistry* registry) {
  RuleInfo info;
  info.class_name = "CheckInputImages";
  info.snake_name = "check_input_images";
  info.scope = "deep learning";
  info.summary = "A channel of the input images has a mean far from zero.";
  ParameterSpec channel = NumberParameter("channel", "int", "1", -8, "",
                                          "The axis of the channels; negative ones count from the last.");
  channel.maximum = 8;
  info.parameters = {
      NumberParameter("threshold_mean", "float", "0.2", 0, "of the input",
                      "A channel whose mean is farther from zero is a hit."),
      NumberParameter("threshold_samples", "int", "500", 1, "images", "Judged from so many images on."),
      DocumentedRegexParameter("regex", kDocumented,
                               "Inputs to inspect by name; the default means the collection "
                               "model_input."),
      channel,
  };
  registry->Add(std::move(info), [](const Parameters& parameters) -> Result<std::unique_ptr<Rule>> {
    TDBG_ASSIGN_OR_RETURN(Selector selector,
                          Selector::MakeDocumented(parameters, "regex", kDocumented, {"model_input"}));
    const Statistic sums{Statistic::Kind::kSums, {static_cast<double>(parameters.Int("channel"))}};
    return MakeRule<CheckInputImages>(std::move(selector), sums, parameters.Text("regex") != kDocumented,
                                      parameters.Float("threshold_mean"),
                                      parameters.Int("threshold_samples"));
  });
}

}  // namespace tdbg::rules

// smdebug's collections by framework, with its patterns. Where a pattern of smdebug drops tensors that belong
// to its collection (SHAP values of features that end in b, i, a or s; metrics of eval sets called
// validation_0), ours takes them: docs/migrating-from-smdebug.md.
#include <fmt/format.h>

#include <array>

#include "plan/config_reader.h"
#include "plan/hook_config.h"

namespace tdbg::plan {
namespace {

struct Default {
  const char* name;
  const char* regex;  // or null
  std::array<const char*, 3> kinds = {};
};

constexpr Default kPyTorch[] = {{"all", nullptr},
                                {"default", nullptr},
                                {"weights", "^(?!gradient).*weight"},
                                {"biases", "^(?!gradient).*bias"},
                                {"gradients", "^gradient"},
                                {"losses", "[Ll]oss_(?!input).*output"}};
constexpr Default kMxNet[] = {{"all", nullptr},
                              {"default", nullptr},
                              {"weights", "^(?!gradient).*weight"},
                              {"biases", "^(?!gradient).*bias"},
                              {"gradients", "^gradient"},
                              {"losses", ".*loss._(?!input).*output"}};
constexpr Default kXgBoost[] = {{"all", nullptr},
                                {"default", nullptr},
                                {"hyperparameters", "^hyperparameters/.*$"},
                                {"metrics", "^[A-Za-z0-9_]+-[A-Za-z0-9@_.-]+$"},
                                {"losses", "^[A-Za-z0-9_]+-.+(?<!(auc|map))$"},
                                {"predictions", "^predictions$"},
                                {"labels", "^labels$"},
                                {"feature_importance", "^feature_importance/.*"},
                                {"average_shap", "^average_shap/(?!bias$)"},
                                {"full_shap", "^full_shap/(?!bias$)"},
                                {"trees", "^trees/.*"}};
// smdebug's hook for TensorFlow puts tensors into these by what they are, and has no expressions for them.
constexpr Default kTensorFlow[] = {{"all", nullptr},
                                   {"default", nullptr},
                                   {"weights", nullptr, {"weight", "buffer"}},
                                   {"biases", "^(?!gradient).*bias"},
                                   {"gradients", nullptr, {"gradient"}},
                                   {"losses", nullptr, {"loss"}},
                                   {"metrics", nullptr, {"metric"}},
                                   {"inputs", nullptr, {"input"}},
                                   {"outputs", nullptr, {"output", "prediction", "label"}},
                                   {"layers", nullptr, {"output", "input"}},
                                   {"sm_metrics", nullptr},
                                   {"optimizer_variables", nullptr, {"optimizer"}}};

struct Framework {
  const char* name;
  std::span<const Default> collections;
  std::vector<std::string> always;
  int64_t interval;
};

const std::vector<Framework>& Frameworks() {
  static const auto* const all = new std::vector<Framework>{
      {"pytorch", kPyTorch, {"losses"}, 500},
      {"mxnet", kMxNet, {"losses"}, 500},
      {"tensorflow", kTensorFlow, {"metrics", "losses", "sm_metrics"}, 500},
      {"xgboost", kXgBoost, {"metrics"}, 10},
      {"", {}, {"losses", "metrics"}, 500},  // attached without code: kinds say what belongs where
  };
  return *all;
}

}  // namespace

Result<HookConfig> DefaultHook(const std::string& framework) {
  for (const Framework& f : Frameworks()) {
    if (framework != f.name) continue;
    HookConfig hook;
    hook.framework = framework;
    for (const Default& d : f.collections) {
      HookCollection c;
      c.name = d.name;
      for (const char* kind : d.kinds) {
        if (kind != nullptr) c.kinds.push_back(kind);
      }
      if (d.regex != nullptr) c.include_regex.push_back(d.regex);
      hook.collections.push_back(std::move(c));
    }
    hook.include_collections = f.always;
    for (int m = 1; m < kModes; ++m) {
      hook.save[static_cast<size_t>(m)].emplace();
      hook.save[static_cast<size_t>(m)]->interval = f.interval;
    }
    return hook;
  }
  std::vector<std::string> names;
  for (const Framework& f : Frameworks()) {
    if (*f.name) names.push_back(f.name);
  }
  return InvalidArgument(UnknownName("framework", framework, names));
}

}  // namespace tdbg::plan

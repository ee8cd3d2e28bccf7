// What belongs to a collection is a matter of kind: adaptors say what a tensor is. smdebug's regexes judge
// only tensors of which nobody said it ("?REGEX"), because they misjudge the others: `^(?!gradient).*weight`
// also takes Adam's "exp_avg/conv1.weight" and the output of a module called "reweight".
#include "plan/config.h"

namespace tdbg::plan {
namespace {

CollectionPlan Make(std::string name, std::vector<std::string> kinds, bool histogram = true) {
  CollectionPlan c;
  c.name = std::move(name);
  c.kinds = std::move(kinds);
  c.histogram = histogram;
  return c;
}

std::vector<CollectionPlan> MakeAll() {
  std::vector<CollectionPlan> all;
  all.push_back(Make("all", {"*"}));
  all.push_back(Make("default", {}));
  all.push_back(Make("weights", {"weight", "?^(?!gradient).*weight"}));
  all.push_back(Make("biases", {"bias", "?^(?!gradient).*bias"}));
  all.push_back(Make("gradients", {"gradient", "?^gradient"}));
  all.push_back(Make("buffers", {"buffer"}, false));
  all.push_back(Make("losses", {"loss", "?[Ll]oss_(?!input).*output"}, false));
  all.push_back(Make("outputs", {"output"}));
  all.push_back(Make("inputs", {"input"}));
  all.push_back(Make("output_gradients", {"output_gradient"}));
  all.push_back(Make("layers", {"layer"}));
  all.push_back(Make("relu_output",
                     {"output:relu", "output?.*relu_output|.*ReLU_output", "?.*relu_output|.*ReLU_output"}));
  all.push_back(
      Make("relu_input", {"input:relu", "input?.*relu_input|.*ReLU_input", "?.*relu_input|.*ReLU_input"}));
  all.push_back(Make("tanh_input", {"input:tanh", "input?.*[Tt]anh_input", "?.*[Tt]anh_input"}));
  all.push_back(Make("sigmoid_input", {"input:sigmoid", "input?.*[Ss]igmoid_input", "?.*[Ss]igmoid_input"}));
  // What a model and its first embedding take, as the adaptor says; else as Amazon's rules look for it.
  all.push_back(Make("model_input", {"input?.*hybridsequential0_input_0", "?.*hybridsequential0_input_0"}));
  all.push_back(Make("embedding_input", {"input?.*embedding0_input_0", "?.*embedding0_input_0"}));
  all.push_back(Make("optimizer_variables", {"optimizer"}));
  all.push_back(Make("metrics", {"metric", "?^[a-zA-Z]+-[a-zA-Z0-9]+$"}, false));
  all.push_back(Make("sm_metrics", {"sm_metric"}, false));
  all.push_back(Make("scalars", {"scalar"}, false));
  all.push_back(Make("labels", {"label", "?^labels$"}));
  all.push_back(Make("predictions", {"prediction", "?^predictions$"}));
  all.push_back(Make("hyperparameters", {"hyperparameter", "?^hyperparameters/"}, false));
  all.push_back(Make("feature_importance", {"feature_importance", "?^feature_importance/"}, false));
  all.push_back(Make("average_shap", {"average_shap", "?^average_shap/"}, false));
  all.push_back(Make("full_shap", {"full_shap", "?^full_shap/"}));
  all.push_back(Make("trees", {"tree", "?^trees/"}));
  return all;
}

}  // namespace

const std::vector<CollectionPlan>& BuiltinCollections() {
  static const std::vector<CollectionPlan>* const all = new std::vector<CollectionPlan>(MakeAll());
  return *all;
}

}  // namespace tdbg::plan

// What smdebug's hook saves, as its users write it: a debugging hook's JSON, or the arguments of Hook(...).
//
//   its JSON file ---ParseSmdebugConfig---> HookConfig ---ApplyHook---> the plan
//   Hook(...) -------HookFromJson-------------^
#pragma once

#include <array>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "plan/config.h"
#include "plan/plan.h"
#include "tdbg/status.h"

namespace tdbg::plan {

/// smdebug's ReductionConfig. Without one, raw tensors are kept.
struct HookReductions {
  std::vector<std::string> reductions = {};  ///< "mean", "abs_l2_norm"
  bool save_raw_tensor = false;
  bool save_shape = false;
};

/// By mode; nothing: inherited (a collection from its hook, a hook from its framework's default).
using HookSchedules = std::array<std::optional<Schedule>, kModes>;

/// Of two that were asked for whichever saves more: every step that either saves by list, the shorter
/// interval, the longer range. Of one that is switched off (end 0) only its list counts.
Schedule MoreOf(const Schedule& a, const Schedule& b);

struct HookCollection {
  std::string name;
  std::vector<std::string> include_regex = {}, tensor_names = {};
  std::optional<HookReductions> reductions = {};  ///< nothing: the hook's
  HookSchedules save = {};
  bool save_histogram = true;
  /// What a framework's default holds by what a tensor is, where smdebug has no pattern for it. Not
  /// configured.
  std::vector<std::string> kinds = {};
};

struct HookConfig {
  std::string framework;  ///< pytorch, mxnet, tensorflow, xgboost; empty: not known (zero-code)
  std::string out_dir = {};
  bool save_all = false, dry_run = false, export_tensorboard = false;
  std::string tensorboard_dir = {};
  std::string include_workers = "one";          ///< "all": all; else one
  std::vector<std::string> include_regex = {};  ///< joins the collection `default`, and includes it
  std::vector<std::string> include_collections = {};
  std::optional<HookReductions> reductions = {};
  HookSchedules save = {};
  std::vector<HookCollection> collections = {};  ///< its framework's first, with their own patterns
};

/// What smdebug's hook of a framework does without being configured: which collections exist (with smdebug's
/// patterns), which of them are saved (PyTorch: losses), and how often (500 steps; XGBoost 10).
/// \error kInvalidArgument  no such framework
Result<HookConfig> DefaultHook(const std::string& framework);

/// Is this a hook's JSON file (LocalPath, S3OutputPath, HookParameters, CollectionConfigurations), and not
/// ours?
bool IsSmdebugConfig(const nlohmann::json& document);
/// Everything as text or typed. Keys that nobody knows are passed over (guides are full of placeholders) and
/// named in one warning.
/// \error kInvalidArgument  a value that means nothing, with source, line where known, and key
Result<HookConfig> ParseSmdebugConfig(const nlohmann::json& document, const Source& source,
                                      const std::string& framework, std::vector<std::string>* warnings);

/// The same as JSON, in the words of smdebug's own collections file; what a Hook object is made from, and
/// what it hands back. Strict.
nlohmann::json HookToJson(const HookConfig& hook);
Result<HookConfig> HookFromJson(std::string_view text);

/// Puts what the hook saves on top of `plan`: steps are forwards, and of the hook's collections exactly what
/// it says is kept. Reductions are answered from statistics, taken at the steps that are saved; of a product,
/// which they do not hold, the values are kept.
/// \error kInvalidArgument  a bad regex, a collection that can hold nothing
Status ApplyHook(const HookConfig& hook, Plan* plan);
/// A plan that keeps nothing of its own, for a hook that a script made.
Plan EmptyPlan();

}  // namespace tdbg::plan

// HookConfig as JSON, in the words of smdebug's collections file.
#include <fmt/format.h>

#include <algorithm>

#include "plan/config_reader.h"
#include "plan/hook_config.h"

namespace tdbg::plan {
namespace {

using nlohmann::json;
using Names = std::vector<std::string>;

constexpr const char* kModeNames[kModes] = {"", "TRAIN", "EVAL", "PREDICT", "GLOBAL"};
const Names kHookKeys = {"framework",           "out_dir",          "save_all",        "dry_run",
                         "export_tensorboard",  "tensorboard_dir",  "include_workers", "include_regex",
                         "include_collections", "reduction_config", "save_config",     "collections"};
const Names kCollectionKeys = {"name",        "include_regex",    "tensor_names",
                               "save_config", "reduction_config", "save_histogram"};
const Names kReductionKeys = {"reductions", "save_raw_tensor", "save_shape"};
const Names kModeKeys = {"TRAIN", "EVAL", "PREDICT", "GLOBAL"};

json ToJson(const std::optional<HookReductions>& r) {
  if (!r) return nullptr;
  return {
      {"reductions", r->reductions}, {"save_raw_tensor", r->save_raw_tensor}, {"save_shape", r->save_shape}};
}

json ToJson(const HookSchedules& schedules) {
  json out = json::object();
  for (size_t m = 1; m < kModes; ++m) {
    json& mode = out[kModeNames[m]];
    if (const auto& s = schedules[m]) {
      mode = {{"save_interval", s->interval},
              {"start_step", s->start},
              {"end_step", nullptr},
              {"save_steps", s->steps}};
      if (s->end >= 0) mode["end_step"] = s->end;
    }
  }
  return out;
}

std::optional<HookReductions> ReadReductions(const ConfigNode& node) {
  HookReductions r;
  if (!node.CheckKeys(kReductionKeys)) return r;
  node.At("reductions", [&](const ConfigNode& n) {
    r.reductions = n.Texts();
    for (const std::string& name : r.reductions) {
      if (std::find(Reductions().begin(), Reductions().end(), name) == Reductions().end())
        n.Fail(UnknownName("reduction", name, Reductions()));
    }
  });
  node.At("save_raw_tensor", [&](const ConfigNode& n) { r.save_raw_tensor = n.Bool(); });
  node.At("save_shape", [&](const ConfigNode& n) { r.save_shape = n.Bool(); });
  return r;
}

HookSchedules ReadSchedules(const ConfigNode& node) {
  HookSchedules out;
  if (!node.CheckKeys(kModeKeys)) return out;
  for (size_t m = 1; m < kModes; ++m) {
    node.At(kModeNames[m], [&](const ConfigNode& mode) {
      if (!mode.CheckKeys(SaveKeys())) return;
      Schedule s;
      mode.At("save_interval", [&](const ConfigNode& n) { s.interval = n.Int(1); });
      mode.At("start_step", [&](const ConfigNode& n) { s.start = n.Int(0); });
      mode.At("end_step", [&](const ConfigNode& n) { s.end = n.Int(0); });
      mode.At("save_steps", [&](const ConfigNode& n) {
        if (!n.value().is_array()) return n.Fail("expected a list of steps");
        for (size_t i = 0; i < n.value().size(); ++i) s.steps.push_back(n.Item(i).Int(0));
        std::sort(s.steps.begin(), s.steps.end());
      });
      out[m] = s;
    });
  }
  return out;
}

HookCollection ReadCollection(const ConfigNode& node) {
  HookCollection c;
  if (!node.CheckKeys(kCollectionKeys)) return c;
  node.At("name", [&](const ConfigNode& n) { c.name = n.Text(); });
  if (c.name.empty()) node.Fail("the key \"name\" is missing");
  node.At("include_regex", [&](const ConfigNode& n) { c.include_regex = n.Regexes(); });
  node.At("tensor_names", [&](const ConfigNode& n) { c.tensor_names = n.Regexes(); });
  node.At("reduction_config", [&](const ConfigNode& n) { c.reductions = ReadReductions(n); });
  node.At("save_config", [&](const ConfigNode& n) { c.save = ReadSchedules(n); });
  node.At("save_histogram", [&](const ConfigNode& n) { c.save_histogram = n.Bool(); });
  return c;
}

}  // namespace

json HookToJson(const HookConfig& hook) {
  json collections = json::array();
  for (const HookCollection& c : hook.collections) {
    collections.push_back({{"name", c.name},
                           {"include_regex", c.include_regex},
                           {"tensor_names", c.tensor_names},
                           {"reduction_config", ToJson(c.reductions)},
                           {"save_config", ToJson(c.save)},
                           {"save_histogram", c.save_histogram}});
  }
  return {{"framework", hook.framework},
          {"out_dir", hook.out_dir},
          {"save_all", hook.save_all},
          {"dry_run", hook.dry_run},
          {"export_tensorboard", hook.export_tensorboard},
          {"tensorboard_dir", hook.tensorboard_dir},
          {"include_workers", hook.include_workers},
          {"include_regex", hook.include_regex},
          {"include_collections", hook.include_collections},
          {"reduction_config", ToJson(hook.reductions)},
          {"save_config", ToJson(hook.save)},
          {"collections", std::move(collections)}};
}

Result<HookConfig> HookFromJson(std::string_view text) {
  const json document = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (document.is_discarded()) return InvalidArgument("hook: not JSON");
  Status status;
  const Source source{"hook"};
  const ConfigNode root(document, source, &status);
  HookConfig hook;
  if (!root.CheckKeys(kHookKeys)) return status;
  root.At("framework", [&](const ConfigNode& n) { hook.framework = n.Text(); });
  root.At("out_dir", [&](const ConfigNode& n) { hook.out_dir = n.Text(); });
  root.At("save_all", [&](const ConfigNode& n) { hook.save_all = n.Bool(); });
  root.At("dry_run", [&](const ConfigNode& n) { hook.dry_run = n.Bool(); });
  root.At("export_tensorboard", [&](const ConfigNode& n) { hook.export_tensorboard = n.Bool(); });
  root.At("tensorboard_dir", [&](const ConfigNode& n) { hook.tensorboard_dir = n.Text(); });
  root.At("include_workers", [&](const ConfigNode& n) { hook.include_workers = n.Text(); });
  root.At("include_regex", [&](const ConfigNode& n) { hook.include_regex = n.Regexes(); });
  root.At("include_collections", [&](const ConfigNode& n) { hook.include_collections = n.Regexes(); });
  root.At("reduction_config", [&](const ConfigNode& n) { hook.reductions = ReadReductions(n); });
  root.At("save_config", [&](const ConfigNode& n) { hook.save = ReadSchedules(n); });
  root.At("collections", [&](const ConfigNode& n) {
    if (!n.value().is_array()) return n.Fail("expected a list");
    for (size_t i = 0; i < n.value().size(); ++i) hook.collections.push_back(ReadCollection(n.Item(i)));
  });
  if (!status.ok()) return status;
  return hook;
}

}  // namespace tdbg::plan

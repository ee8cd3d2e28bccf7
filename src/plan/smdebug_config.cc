// smdebug's JSON file: values are strings more often than not, and unknown keys are normal.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "plan/config_reader.h"
#include "plan/hook_config.h"

namespace tdbg::plan {
namespace {

using nlohmann::json;
using Names = std::vector<std::string>;

const Names kTopKeys = {"LocalPath", "S3OutputPath", "S3Path", "HookParameters", "CollectionConfigurations"};
// What somebody wrote there who expects to be told of a finding. A hook has no rules.
const Names kRuleKeys = {"rules", "on_issue", "DebugRuleConfigurations"};
const Names kHookKeys = {"save_all",           "include_regex",   "include_workers",
                         "reductions",         "save_raw_tensor", "save_shape",
                         "export_tensorboard", "tensorboard_dir", "dry_run"};
const Names kCollectionKeys = {"include_regex", "reductions", "save_raw_tensor", "save_shape",
                               "save_histogram"};
const Names kItemKeys = {"CollectionName", "CollectionParameters"};

bool Has(const Names& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

bool IsSaveKey(const std::string& key) {
  if (Has(SaveKeys(), key)) return true;
  const size_t dot = key.find('.');
  return dot != std::string::npos && Has(SaveModes(), key.substr(0, dot)) &&
         Has(SaveKeys(), key.substr(dot + 1));
}

/// What Python's int() makes of text or of a number.
std::optional<int64_t> ToInt(const json& value) {
  if (value.is_number_integer()) return value.get<int64_t>();
  if (value.is_number_float() && std::trunc(value.get<double>()) == value.get<double>())
    return static_cast<int64_t>(value.get<double>());
  if (value.is_string()) return base::ParseInt(base::Trim(value.get<std::string>()));
  return std::nullopt;
}

/// Items of a comma list, or of a JSON list (in which a regex may hold a comma).
Names ToNames(const ConfigNode& node) {
  if (node.value().is_string()) return base::SplitList(node.value().get<std::string>());
  return node.Regexes();
}

bool ToBool(const ConfigNode& node) {
  if (node.value().is_number_integer()) {
    const int64_t n = node.value().get<int64_t>();
    if (n == 0 || n == 1) return n == 1;
  }
  return node.Bool();
}

class Reader {
 public:
  explicit Reader(Names* unknown) : unknown_(unknown) {}

  void Note(const ConfigNode& object, const std::string& path, const Names& known, bool save_keys) {
    for (const auto& [key, unused] : object.value().items()) {
      if (Has(known, key) || (save_keys && IsSaveKey(key))) continue;
      unknown_->push_back(path.empty() ? key : path + "." + key);
    }
  }

  /// The object under `key`; nothing where it is absent or null.
  std::optional<ConfigNode> Object(const ConfigNode& parent, const char* key) {
    std::optional<ConfigNode> found;
    parent.At(key, [&](const ConfigNode& n) {
      if (!n.value().is_object()) return n.Fail("expected an object");
      found = n;
    });
    return found;
  }

  /// `schedules` with the keys of `object` on top. A mode's own key wins over the one without a mode.
  void Schedules(const ConfigNode& object, HookSchedules* schedules) {
    for (const bool with_mode : {false, true}) {
      for (int m = 1; m < kModes; ++m) {
        Schedule& s = (*schedules)[static_cast<size_t>(m)].value();
        const std::string prefix = with_mode ? SaveModes()[static_cast<size_t>(m - 1)] + "." : "";
        Int(object, prefix + "save_interval", 1, &s.interval);
        Int(object, prefix + "start_step", 0, &s.start);
        Int(object, prefix + "end_step", 0, &s.end);
        object.At((prefix + "save_steps").c_str(), [&](const ConfigNode& n) { Steps(n, &s.steps); });
      }
    }
  }

  /// smdebug looks at the other keys only where `reductions` is present.
  std::optional<HookReductions> Reductions(const ConfigNode& object) {
    std::optional<HookReductions> out;
    object.At("reductions", [&](const ConfigNode& n) {
      out.emplace();
      for (std::string name : ToNames(n)) {
        if (name.ends_with("l1") || name.ends_with("l2")) name += "_norm";  // as smdebug's guide spells it
        if (!Has(plan::Reductions(), name)) return n.Fail(UnknownName("reduction", name, plan::Reductions()));
        if (!Has(out->reductions, name)) out->reductions.push_back(name);
      }
    });
    if (!out) return out;
    object.At("save_raw_tensor", [&](const ConfigNode& n) { out->save_raw_tensor = ToBool(n); });
    object.At("save_shape", [&](const ConfigNode& n) { out->save_shape = ToBool(n); });
    return out;
  }

 private:
  void Int(const ConfigNode& object, const std::string& key, int64_t at_least, int64_t* out) {
    object.At(key.c_str(), [&](const ConfigNode& n) {
      const auto number = ToInt(n.value());
      if (!number || *number < at_least)
        return n.Fail(fmt::format("found {}, expected an integer of at least {}",
                                  n.value().dump(-1, ' ', false, json::error_handler_t::replace), at_least));
      *out = *number;
    });
  }

  void Steps(const ConfigNode& node, std::vector<int64_t>* out) {
    const json& value = node.value();
    std::vector<json> items;
    if (value.is_array()) {
      items.assign(value.begin(), value.end());
    } else if (value.is_string()) {
      for (const std::string& item : base::SplitList(value.get<std::string>())) items.push_back(item);
    } else {
      items.push_back(value);
    }
    out->clear();
    for (const json& item : items) {
      const auto step = ToInt(item);
      if (!step || *step < 0) return node.Fail("expected a list of steps such as \"0,10,500\"");
      out->push_back(*step);
    }
    std::sort(out->begin(), out->end());
    out->erase(std::unique(out->begin(), out->end()), out->end());
  }

  Names* unknown_;
};

/// The same collection configured by a rule and by the user: what saves more, whatever the order.
void KeepMore(const HookSchedules& other, HookSchedules* schedules) {
  for (size_t m = 1; m < kModes; ++m) {
    if (other[m] && (*schedules)[m]) (*schedules)[m] = MoreOf(*other[m], *(*schedules)[m]);
  }
}

HookCollection* FindOrAdd(HookConfig* hook, const std::string& name) {
  for (HookCollection& c : hook->collections) {
    if (c.name == name) return &c;
  }
  hook->collections.emplace_back().name = name;
  return &hook->collections.back();
}

}  // namespace

bool IsSmdebugConfig(const json& document) {
  return document.is_object() && std::any_of(kTopKeys.begin(), kTopKeys.end(),
                                             [&](const std::string& key) { return document.contains(key); });
}

Result<HookConfig> ParseSmdebugConfig(const json& document, const Source& source,
                                      const std::string& framework, std::vector<std::string>* warnings) {
  TDBG_ASSIGN_OR_RETURN(HookConfig hook, DefaultHook(framework));
  Status status;
  Names unknown;
  Reader reader(&unknown);
  const ConfigNode root(document, source, &status);
  if (!document.is_object())
    return InvalidArgument(source.name + ": expected a JSON object, smdebug's hook configuration");
  for (const std::string& key : kRuleKeys) {
    if (!document.contains(key)) continue;
    return InvalidArgument(fmt::format(
        "{}: \"{}\": a hook says what is saved, and nothing would judge by its configuration. Put rules "
        "and on_issue into a file of their own, and start the script with it: tdbg run --config FILE "
        "-- python SCRIPT",
        source.name, key));
  }
  reader.Note(root, "", kTopKeys, false);
  root.At("LocalPath", [&](const ConfigNode& n) { hook.out_dir = n.Text(); });

  if (const auto parameters = reader.Object(root, "HookParameters")) {
    reader.Note(*parameters, "HookParameters", kHookKeys, true);
    reader.Schedules(*parameters, &hook.save);
    hook.reductions = reader.Reductions(*parameters);
    parameters->At("save_all", [&](const ConfigNode& n) { hook.save_all = ToBool(n); });
    parameters->At("include_regex", [&](const ConfigNode& n) { hook.include_regex = ToNames(n); });
    parameters->At("include_workers", [&](const ConfigNode& n) { hook.include_workers = n.Text(); });
    parameters->At("export_tensorboard", [&](const ConfigNode& n) { hook.export_tensorboard = ToBool(n); });
    parameters->At("tensorboard_dir", [&](const ConfigNode& n) { hook.tensorboard_dir = n.Text(); });
    parameters->At("dry_run", [&](const ConfigNode& n) { hook.dry_run = ToBool(n); });
  }
  Names listed;
  root.At("CollectionConfigurations", [&](const ConfigNode& list) {
    if (!list.value().is_array()) return list.Fail("expected a list of collections");
    for (size_t i = 0; i < list.value().size(); ++i) {
      const ConfigNode item = list.Item(i);
      if (!item.value().is_object()) return item.Fail("expected an object with CollectionName");
      const std::string path = fmt::format("CollectionConfigurations[{}]", i);
      reader.Note(item, path, kItemKeys, false);
      std::string name;
      item.At("CollectionName", [&](const ConfigNode& n) { name = n.Text(); });
      if (name.empty()) return item.Fail("the key \"CollectionName\" is missing");
      HookCollection* c = FindOrAdd(&hook, name);
      const std::optional<HookSchedules> before = Has(listed, name) ? std::optional(c->save) : std::nullopt;
      if (!Has(hook.include_collections, name)) hook.include_collections.push_back(name);
      listed.push_back(name);
      c->save = hook.save;
      const auto parameters = reader.Object(item, "CollectionParameters");
      if (parameters) reader.Schedules(*parameters, &c->save);
      if (before && status.ok()) {
        warnings->push_back(
            fmt::format("{}: collection \"{}\" is configured twice; what saves more holds, and all patterns",
                        source.name, name));
        KeepMore(*before, &c->save);
      }
      if (!parameters) continue;
      reader.Note(*parameters, path + ".CollectionParameters", kCollectionKeys, true);
      if (auto reductions = reader.Reductions(*parameters)) c->reductions = std::move(reductions);
      parameters->At("include_regex", [&](const ConfigNode& n) {
        for (std::string& regex : ToNames(n)) c->include_regex.push_back(std::move(regex));
      });
      parameters->At("save_histogram", [&](const ConfigNode& n) { c->save_histogram = ToBool(n); });
    }
  });
  if (!status.ok()) return status;
  if (!unknown.empty()) {
    warnings->push_back(fmt::format("{}: not known and passed over: {}", source.name, JoinNames(unknown)));
  }
  return hook;
}

}  // namespace tdbg::plan

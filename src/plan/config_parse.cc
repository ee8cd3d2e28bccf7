#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "plan/config.h"
#include "plan/config_reader.h"
#include "plan/hook_config.h"

namespace tdbg::plan {
namespace {

using Names = std::vector<std::string>;

const Names kTopKeys = {"dir",         "summaries",    "context",
                        "record_end",  "step_by",      "when_full",
                        "journal",     "budget",       "collections",
                        "rules",       "on_issue",     "stop_grace_seconds",
                        "tensorboard", "format",       "action_cooldown_seconds",
                        "shap_rows",   "shared",       "black_box",
                        "flight",      "verify_every", "overhead",
                        "upload"};
const Names kSummariesKeys = {"every", "histograms"};
const Names kJournalKeys = {"size", "directory"};
const Names kTensorBoardKeys = {"dir", "every"};
const Names kRuleKeys = {
    "rule", "rule_file", "name", "parameters", "on_issue", "collections_to_save", "optional", "limit_seconds",
    "limit_start_seconds", "limit_memory", "action_cooldown_seconds",
    // As SageMaker's SDK and its requests call them.
    "base_config", "rule_parameters", "RuleConfigurationName", "RuleParameters", "RuleEvaluatorImage"};
const Names kPackagedRuleKeys = {"DebugRuleConfiguration", "CollectionConfigurations"};
const Names kActions = {"stop",  "exec",    "webhook", "email", "sms", "capture", "checkpoint_stop",
                        "pause", "blackbox"};
const Names kStepBy = {"optimizer", "forward", "call"};
const Names kWhenFull = {"drop_raw", "block"};

const Names& CollectionKeys() {
  static const Names keys = [] {
    Names all = {"name",      "include_regex", "tensor_names", "raw",
                 "summaries", "histogram",     "reductions",   "statistics"};
    all.insert(all.end(), SaveKeys().begin(), SaveKeys().end());
    for (const std::string& mode : SaveModes()) {
      for (const std::string& key : SaveKeys()) all.push_back(mode + "." + key);
    }
    return all;
  }();
  return keys;
}

void ReadActions(const ConfigNode& node, std::vector<std::string>* out) {
  // A command of an exec action may hold commas, so one string is one action.
  for (const std::string& action : node.Regexes()) {
    // What follows the colon is for src/actions to judge, which the command line asks before it starts
    // anything.
    const std::string kind = action.substr(0, action.find(':'));
    const bool bare = kind == action;
    const bool known =
        bare ? kind == "stop" || kind == "checkpoint_stop" || kind == "pause" || kind == "blackbox"
             : kind != "stop" && kind != "blackbox" &&
                   std::find(kActions.begin(), kActions.end(), kind) != kActions.end();
    if (!known) {
      node.Fail(fmt::format(
          "unknown action \"{}\". Accepted: stop, exec:COMMAND, webhook:URL, email:ADDRESS, "
          "sms:+DIGITS, capture:COLLECTION[:STEPS], checkpoint_stop[:SECONDS], pause[:SECONDS], blackbox",
          action));
    }
    out->push_back(action);
  }
}

CollectionConfig ReadCollection(const ConfigNode& node, std::string name) {
  CollectionConfig c;
  c.name = std::move(name);
  c.where = node.Where();
  if (node.is_null() || !node.CheckKeys(CollectionKeys())) return c;
  node.At("name", [&](const ConfigNode& n) {
    const std::string written = n.Text();
    if (!c.name.empty() && c.name != written)
      n.Fail(fmt::format("contradicts the entry's key \"{}\"", c.name));
    c.name = written;
  });
  if (c.name.empty()) node.Fail("the key \"name\" is missing");
  node.At("include_regex", [&](const ConfigNode& n) { c.include_regex = n.Regexes(); });
  node.At("tensor_names", [&](const ConfigNode& n) { c.tensor_names = n.Texts(); });
  node.At("raw", [&](const ConfigNode& n) { c.raw = n.Bool(); });
  node.At("summaries", [&](const ConfigNode& n) { c.summaries = n.Bool(); });
  node.At("histogram", [&](const ConfigNode& n) { c.histogram = n.Bool(); });
  node.At("reductions", [&](const ConfigNode& n) {
    c.reductions = n.Texts();
    for (const std::string& r : c.reductions) {
      if (std::find(Reductions().begin(), Reductions().end(), r) == Reductions().end()) {
        n.Fail(UnknownName("reduction", r, Reductions()));
      }
    }
  });
  node.At("statistics", [&](const ConfigNode& n) {
    // Their parameters hold commas, so one string is one statistic.
    for (const std::string& id : n.Regexes()) {
      auto statistic = Statistic::FromId(id);
      if (!statistic.ok()) return n.Fail(statistic.status().message());
      c.statistics.push_back(*std::move(statistic));
    }
  });
  for (const auto& [key, unused] : node.value().items()) {
    const bool is_save_key = std::any_of(
        SaveKeys().begin(), SaveKeys().end(),
        [&](const std::string& save_key) { return key == save_key || key.ends_with("." + save_key); });
    if (!is_save_key) continue;
    const ConfigNode value = node.Key(key);
    if (value.is_null()) continue;
    const std::string text = value.ScalarText();
    if (const std::string accepted = CheckSaveValue(key, text); !accepted.empty()) {
      value.Fail(fmt::format("found \"{}\", expected {}", text, accepted));
    }
    c.save[key] = text;
  }
  return c;
}

CollectionConfig ReadCollectionItem(const ConfigNode& node) {
  if (!node.value().is_string()) return ReadCollection(node, "");
  auto parsed = ParseCollectFlag(node.Text());
  if (!parsed.ok()) {
    node.Fail(parsed.status().message());
    return {};
  }
  parsed->where = node.Where();
  return *std::move(parsed);
}

// A directory, true (in the run directory), or a mapping.
void ReadTensorBoard(const ConfigNode& node, Config* c) {
  if (node.value().is_string()) {
    c->tensorboard_directory = node.Text();
    if (c->tensorboard_directory->empty()) node.Fail("expected a directory, or true for RUN/tensorboard");
    return;
  }
  if (node.value().is_boolean()) {
    if (node.Bool()) c->tensorboard_directory = "";
    return;
  }
  if (!node.CheckKeys(kTensorBoardKeys)) return;
  c->tensorboard_directory = "";
  node.At("dir", [&](const ConfigNode& n) { c->tensorboard_directory = n.Text(); });
  node.At("every", [&](const ConfigNode& n) { c->tensorboard_every = n.Int(1); });
}

void ReadFormat(const ConfigNode& node, Config* c) {
  const std::string text = node.Text();
  if (text == "smdebug") {
    c->smdebug_directory = "";
  } else if (text.starts_with("smdebug:") && text.size() > 8) {
    c->smdebug_directory = text.substr(8);
  } else if (text != "tdbg") {
    node.Fail(
        fmt::format("found \"{}\". Accepted: tdbg, smdebug (beside the run's own files, in "
                    "RUN/smdebug), smdebug:DIR",
                    text));
  }
}

// Also {name, parameters} and {CollectionName, CollectionParameters}, as the SDK has them.
CollectionConfig ReadSavedCollection(const ConfigNode& node) {
  CollectionConfig c;
  const auto is = [&](const char* key) { return node.value().is_object() && node.value().contains(key); };
  if (!is("parameters") && !is("CollectionName")) return ReadCollectionItem(node);
  if (!node.CheckKeys(Names{"name", "parameters", "CollectionName", "CollectionParameters"})) return c;
  std::string name;
  for (const char* key : {"name", "CollectionName"})
    node.At(key, [&](const ConfigNode& n) { name = n.Text(); });
  if (name.empty()) node.Fail("the key \"name\" is missing: a collection's name");
  c.name = name;
  c.where = node.Where();
  for (const char* key : {"parameters", "CollectionParameters"})
    node.At(key, [&](const ConfigNode& n) { c = ReadCollection(n, name); });
  return c;
}

void ReadSavedCollections(const ConfigNode& node, RuleConfig* r) {
  if (!node.value().is_array()) return node.Fail("expected a list of collections");
  r->collections_to_save.clear();
  for (size_t i = 0; i < node.value().size(); ++i)
    r->collections_to_save.push_back(ReadSavedCollection(node.Item(i)));
}

RuleConfig ReadRule(const ConfigNode& node);

// A rule as the package smdebug_rulesconfig returns it, and as Rule.sagemaker takes it.
RuleConfig ReadPackagedRule(const ConfigNode& node) {
  RuleConfig r;
  if (!node.CheckKeys(kPackagedRuleKeys)) return r;
  node.At("DebugRuleConfiguration", [&](const ConfigNode& n) { r = ReadRule(n); });
  if (node.ok() && r.rule.empty()) node.Fail("the key \"DebugRuleConfiguration\" is missing");
  node.At("CollectionConfigurations", [&](const ConfigNode& n) { ReadSavedCollections(n, &r); });
  r.where = node.Where();
  return r;
}

RuleConfig ReadRule(const ConfigNode& node) {
  RuleConfig r;
  r.where = node.Where();
  if (node.value().is_string()) {
    r.rule = node.Text();
    return r;
  }
  if (node.value().is_object() && node.value().contains("DebugRuleConfiguration"))
    return ReadPackagedRule(node);
  if (!node.CheckKeys(kRuleKeys)) return r;
  node.At("rule", [&](const ConfigNode& n) { r.rule = n.Text(); });
  node.At("base_config", [&](const ConfigNode& n) {
    if (!n.value().is_object()) {
      r.rule = n.Text();
      return;
    }
    r = ReadPackagedRule(n);
    r.where = node.Where();
  });
  node.At("rule_file", [&](const ConfigNode& n) {
    if (!r.rule.empty()) return n.Fail("contradicts \"rule\": a rule is a built-in one or one of a file");
    if (const Status status = ParseRuleFile(n.Text(), &r); n.ok() && !status.ok()) n.Fail(status.message());
  });
  node.At("limit_seconds", [&](const ConfigNode& n) { r.limit_seconds = n.Int(1); });
  node.At("limit_start_seconds", [&](const ConfigNode& n) { r.limit_start_seconds = n.Int(1); });
  node.At("limit_memory", [&](const ConfigNode& n) { r.limit_memory = n.Bytes(); });
  if (r.file.empty() && (r.limit_seconds || r.limit_start_seconds || r.limit_memory)) {
    node.Fail("limits are for a rule_file, which runs in a process of its own; a built-in rule has none");
  }
  const auto read_parameters = [&](const ConfigNode& n) {
    if (!n.value().is_object()) return n.Fail("expected an object of the rule's parameters");
    for (const auto& [key, unused] : n.value().items()) {
      const ConfigNode value = n.Key(key);
      if (!value.is_null()) r.parameters[key] = value.ScalarText();
    }
    if (const auto named = r.parameters.find("rule_to_invoke"); r.rule.empty() && named != r.parameters.end())
      r.rule = named->second;
  };
  for (const char* key : {"parameters", "rule_parameters", "RuleParameters"}) node.At(key, read_parameters);
  if (r.rule.empty())
    node.Fail(
        "the key \"rule\" is missing: the name of a rule, such as VanishingGradient (or \"rule_file\": "
        "FILE:CLASS)");
  for (const char* key : {"name", "RuleConfigurationName"})
    node.At(key, [&](const ConfigNode& n) { r.name = n.Text(); });
  node.At("collections_to_save", [&](const ConfigNode& n) { ReadSavedCollections(n, &r); });
  node.At("on_issue", [&](const ConfigNode& n) { ReadActions(n, &r.on_issue); });
  node.At("action_cooldown_seconds", [&](const ConfigNode& n) { r.action_cooldown_seconds = n.Int(0); });
  node.At("optional", [&](const ConfigNode& n) { r.optional = n.Bool(); });
  return r;
}

Result<Config> ParseHookDocument(const nlohmann::json& document, const Source& source) {
  for (const auto& [key, unused] : document.items()) {
    if (std::find(kTopKeys.begin(), kTopKeys.end(), key) == kTopKeys.end()) continue;
    return InvalidArgument(fmt::format(
        "{}: \"{}\" is tdbg's, beside keys of an smdebug hook configuration; put it into a file of its own "
        "($TDBG_CONFIG and --config are merged)",
        source.name, key));
  }
  Config c;
  TDBG_ASSIGN_OR_RETURN(HookConfig hook, ParseSmdebugConfig(document, source, "", &c.warnings));
  c.dir = hook.out_dir;
  c.hook = std::make_shared<const HookConfig>(std::move(hook));
  return c;
}

}  // namespace

Status ParseRuleFile(const std::string& text, RuleConfig* rule) {
  const size_t colon = text.rfind(':');
  const std::string file(base::Trim(std::string_view(text).substr(0, colon)));
  const std::string name(colon == std::string::npos ? std::string_view()
                                                    : base::Trim(std::string_view(text).substr(colon + 1)));
  if (file.empty() || name.empty() || name.find('/') != std::string::npos) {
    return InvalidArgument(fmt::format(
        "\"{}\" is no rule of a file. Accepted: FILE.py:CLASS (Python) or FILE.so:CLASS (a shared library)",
        text));
  }
  if (!file.ends_with(".py") && !file.ends_with(".so")) {
    return InvalidArgument(
        fmt::format("\"{}\": a file of rules is a Python source (*.py) or a shared library (*.so)", text));
  }
  rule->file = file;
  rule->rule = name;
  return OkStatus();
}

namespace {

// true: with all statistics; false: never; else an interval.
int64_t ReadHistograms(const ConfigNode& node) {
  if (const auto truth = node.IfBool()) return *truth ? 1 : 0;
  return node.Int(0, "true, false or an integer of at least 0 (steps)");
}

double ReadOverhead(const ConfigNode& node) {
  const std::string text = node.ScalarText();
  const auto share = ParseOverhead(text);
  if (!share) node.Fail(fmt::format("found \"{}\", expected {}", text, kOverheadAccepted));
  return share.value_or(0);
}

// false: none is written; else how much they may take.
uint64_t ReadBlackBox(const ConfigNode& node) {
  if (node.IfBool() == false) return 0;
  return node.Bytes();
}

}  // namespace

Result<Config> ParseConfig(const nlohmann::json& document, const Source& source) {
  Status status;
  Config c;
  const ConfigNode root(document, source, &status);
  if (root.is_null()) return c;  // an empty file
  if (IsSmdebugConfig(document)) return ParseHookDocument(document, source);
  if (!root.CheckKeys(kTopKeys)) return status;
  root.At("dir", [&](const ConfigNode& n) { c.dir = n.Text(); });
  root.At("upload", [&](const ConfigNode& n) {
    c.upload = n.Text();
    if (n.ok() && !c.upload.starts_with("s3://") && !c.upload.starts_with("file:///"))
      n.Fail("found '" + c.upload + "'; accepted: s3://BUCKET/PREFIX, file:///DIRECTORY");
  });
  root.At("shared", [&](const ConfigNode& n) { c.shared = n.Bool(); });
  root.At("summaries", [&](const ConfigNode& n) {
    if (!n.CheckKeys(kSummariesKeys)) return;
    n.At("every", [&](const ConfigNode& v) { c.summaries_every = v.Int(0); });
    n.At("histograms", [&](const ConfigNode& v) { c.histograms_every = ReadHistograms(v); });
  });
  root.At("context", [&](const ConfigNode& n) { c.context = n.Bool(); });
  root.At("record_end", [&](const ConfigNode& n) { c.record_end = n.Bool(); });
  root.At("step_by", [&](const ConfigNode& n) { c.step_by = n.Choice(kStepBy); });
  root.At("when_full", [&](const ConfigNode& n) { c.when_full = n.Choice(kWhenFull); });
  root.At("journal", [&](const ConfigNode& n) {
    if (!n.CheckKeys(kJournalKeys)) return;
    n.At("size", [&](const ConfigNode& v) {
      c.journal_bytes = v.Bytes();
      if (v.ok() && *c.journal_bytes < (1u << 20)) v.Fail("expected at least 1MiB");
    });
    n.At("directory", [&](const ConfigNode& v) { c.journal_directory = v.Text(); });
  });
  root.At("budget", [&](const ConfigNode& n) { c.budget_bytes = n.Bytes(); });
  root.At("black_box", [&](const ConfigNode& n) { c.black_box_bytes = ReadBlackBox(n); });
  root.At("overhead", [&](const ConfigNode& n) { c.overhead = ReadOverhead(n); });
  root.At("flight", [&](const ConfigNode& n) { c.flight = n.Int(0); });
  root.At("verify_every", [&](const ConfigNode& n) { c.verify_every = n.Int(0); });
  root.At("shap_rows", [&](const ConfigNode& n) { c.shap_rows = n.Int(1); });
  root.At("stop_grace_seconds", [&](const ConfigNode& n) { c.stop_grace_seconds = n.Int(0); });
  root.At("tensorboard", [&](const ConfigNode& n) { ReadTensorBoard(n, &c); });
  root.At("format", [&](const ConfigNode& n) { ReadFormat(n, &c); });
  root.At("on_issue", [&](const ConfigNode& n) { ReadActions(n, &c.on_issue); });
  root.At("action_cooldown_seconds", [&](const ConfigNode& n) { c.action_cooldown_seconds = n.Int(0); });
  root.At("collections", [&](const ConfigNode& n) {
    if (n.value().is_array()) {
      for (size_t i = 0; i < n.value().size(); ++i) c.collections.push_back(ReadCollectionItem(n.Item(i)));
    } else if (n.value().is_object()) {
      for (const auto& [name, unused] : n.value().items())
        c.collections.push_back(ReadCollection(n.Key(name), name));
    } else {
      n.Fail("expected a mapping of collection names, or a list");
    }
  });
  root.At("rules", [&](const ConfigNode& n) {
    if (!n.value().is_array()) return n.Fail("expected a list of rules");
    c.rules_said = true;
    for (size_t i = 0; i < n.value().size(); ++i) c.rules.push_back(ReadRule(n.Item(i)));
  });
  if (!status.ok()) return status;
  return c;
}

Result<CollectionConfig> ParseCollectFlag(const std::string& text) {
  CollectionConfig c;
  c.where = "--collect";
  const size_t colon = text.rfind(':');
  c.name = std::string(base::Trim(std::string_view(text).substr(0, colon)));
  if (c.name.empty()) {
    return InvalidArgument(
        fmt::format("--collect {}: a collection's name is missing. Accepted: NAME (statistics) or "
                    "NAME:INTERVAL (raw tensors too, every INTERVAL steps)",
                    text));
  }
  if (colon == std::string::npos) return c;
  const std::string interval(base::Trim(std::string_view(text).substr(colon + 1)));
  if (const std::string accepted = CheckSaveValue("save_interval", interval); !accepted.empty()) {
    return InvalidArgument(
        fmt::format("--collect {}: interval \"{}\": expected {}", text, interval, accepted));
  }
  c.save["save_interval"] = interval;
  c.raw = true;
  return c;
}

}  // namespace tdbg::plan

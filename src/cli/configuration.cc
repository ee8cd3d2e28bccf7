#include "cli/configuration.h"

#include <fmt/format.h>
#include <stdlib.h>

#include <nlohmann/json.hpp>

#include "actions/action.h"
#include "base/file.h"
#include "base/redact.h"
#include "base/text.h"
#include "cli/arguments.h"
#include "cli/document.h"
#include "cli/flags.h"
#include "cli/output.h"
#include "cli/trust.h"
#include "jobs/run_directory.h"

namespace tdbg::cli {
namespace {

using nlohmann::json;

constexpr char kRulesFile[] = "rules.json";

Result<plan::Config> ConfigOfDocument(const Document& document) {
  return plan::ParseConfig(document.value, document.source());
}

/// $SMDEBUG_CONFIG_FILE_PATH, smdebug's own variable. A program's hook may read the same file again.
Result<plan::Config> ConfigOfSmdebug() {
  const char* path = ::getenv("SMDEBUG_CONFIG_FILE_PATH");
  if (!path || !*path) return plan::Config();
  auto document = ReadDocument(path);
  if (!document.ok()) return document.status().Annotate("$SMDEBUG_CONFIG_FILE_PATH");
  return ConfigOfDocument(*document);
}

Result<plan::Config> ConfigOfEnvironment() {
  const char* text = ::getenv("TDBG_CONFIG");
  if (!text || !*text) return plan::Config();
  if (base::Trim(text).starts_with("{")) {
    TDBG_ASSIGN_OR_RETURN(const Document document, ParseYaml(text, "$TDBG_CONFIG"));
    return ConfigOfDocument(document);
  }
  auto document = ReadDocument(text);
  if (!document.ok()) return document.status().Annotate("$TDBG_CONFIG");
  return ConfigOfDocument(*document);
}

// The text that is sealed: sorted keys, no blanks.
std::string SealedText(const json& document) {
  const json sealed = {{"files", document.value("files", json::object())}, {"rules", document["rules"]}};
  return sealed.dump(-1, ' ', false, json::error_handler_t::replace);
}

// Checks actions before anything is made or started. The schema (src/plan) checks only the part before the
// colon.
Status CheckActions(const plan::Config& config) {
  const auto check = [](const std::vector<std::string>& actions, const std::string& where) {
    for (const std::string& text : actions)
      TDBG_RETURN_IF_ERROR(actions::ParseAction(text, {}).status().Annotate(where));
    return OkStatus();
  };
  TDBG_RETURN_IF_ERROR(check(config.on_issue, "on_issue"));
  for (const plan::RuleConfig& rule : config.rules) {
    const std::string where = rule.where.empty() ? rule.rule : rule.where;
    TDBG_RETURN_IF_ERROR(check(rule.on_issue, where));
    const auto theirs = rule.parameters.find("action_json");
    std::vector<std::string> skipped;  // the watcher says so
    if (theirs != rule.parameters.end())
      TDBG_RETURN_IF_ERROR(actions::ParseActionJson(theirs->second, {}, &skipped).status().Annotate(where));
  }
  return OkStatus();
}

// Parsed by the schema of the file, so that a flag and its key accept the same and have the same errors.
Status TakeFlag(const std::string& flag, json document, plan::Config* config) {
  plan::Source source;
  source.name = flag;
  TDBG_ASSIGN_OR_RETURN(const plan::Config parsed, plan::ParseConfig(document, source));
  *config = plan::MergeConfigs(std::move(*config), parsed);
  return OkStatus();
}

}  // namespace

void ConfigFlags::DefineRuleFlags(Flags& flags) {
  flags
      .AddOption(
          "--rule", rules,
          "a rule to judge with, and its key=value parameters; repeatable; recommended: those that suit "
          "any training and keep nothing more; all: every one; tdbg rules lists them")
      .TypeName("RULE [KEY=VALUE ...]")
      .Repeatable();
  flags
      .AddOption("--rule-file", rule_files,
                 "a rule of your own, from a Python file or a shared library, and its parameters; repeatable")
      .TypeName("FILE:CLASS [KEY=VALUE ...]")
      .Repeatable();
  flags
      .AddOption("--on-issue", on_issue,
                 "what to do at a finding: stop, exec:COMMAND, webhook:URL; repeatable")
      .TypeName("ACTION")
      .Repeatable();
}

void ConfigFlags::DefineConfigFlag(Flags& flags) {
  flags
      .AddOption("--config", config_file,
                 "configuration, YAML or JSON (docs/configuration.md); - is standard input")
      .TypeName("FILE");
}

void ConfigFlags::Define(Flags& flags) {
  flags.AddOption("--dir", dir, "the run directory; default: a fresh one under ./tdbg-runs").TypeName("DIR");
  flags.AddFlag("--shared", shared,
                "a new run is for everybody whom the umask lets in; default: for you alone");
  DefineRuleFlags(flags);
  flags
      .AddOption("--collect", collect,
                 "keep a collection's statistics, or raw tensors every INTERVAL steps; repeatable")
      .TypeName("NAME[:INTERVAL]")
      .Repeatable();
  flags.AddOption("--summaries", summaries, "statistics every so many steps, or off; default 1")
      .TypeName("EVERY|off");
  flags
      .AddOption(
          "--histograms", histograms,
          "histograms every so many steps, or off; default 10, and where a tensor leaves its recent range")
      .TypeName("EVERY|off");
  DefineConfigFlag(flags);
  flags.AddOption("--journal", journal, "size of each worker's journal; default 256MiB").TypeName("SIZE");
  flags.AddOption("--when-full", when_full, "when the disk cannot keep up: drop_raw (default) or block")
      .TypeName("POLICY");
  flags.AddOption("--tensorboard", tensorboard, "also write TensorBoard's files, while it trains")
      .TypeName("DIR");
  flags.AddOption("--format", format, "smdebug: also write smdebug's layout, to RUN/smdebug or DIR")
      .TypeName("tdbg|smdebug[:DIR]");
  flags.AddOption("--budget", budget, "disk space for each worker; default 8GiB").TypeName("SIZE");
  flags
      .AddOption("--black-box", black_box,
                 "what steps with a NaN may take on the disk, for tdbg replay; default 2GiB")
      .TypeName("SIZE|off");
  flags
      .AddOption("--verify-every", verify_every,
                 "execute forward and backward of every so many steps twice, and compare the bits (PyTorch)")
      .TypeName("STEPS")
      .Check(IntegerFrom(1));
  flags
      .AddOption("--flight", flight,
                 "keep the gradients of the last so many steps in memory, for the black box (PyTorch)")
      .TypeName("STEPS")
      .Check(IntegerFrom(1));
}

Result<plan::Config> ResolveConfig(const ConfigFlags& flags) {
  TDBG_ASSIGN_OR_RETURN(plan::Config config, ConfigOfSmdebug());
  TDBG_ASSIGN_OR_RETURN(const plan::Config environment, ConfigOfEnvironment());
  config = plan::MergeConfigs(std::move(config), environment);
  if (!flags.config_file.empty()) {
    TDBG_ASSIGN_OR_RETURN(const Document document, ReadDocument(flags.config_file));
    TDBG_ASSIGN_OR_RETURN(const plan::Config parsed, ConfigOfDocument(document));
    config = plan::MergeConfigs(std::move(config), parsed);
  }
  if (!flags.warned) {
    for (const std::string& warning : config.warnings) Tell("tdbg: {}\n", warning);
  }
  plan::Config from_flags;
  from_flags.dir = flags.dir;
  if (flags.shared) from_flags.shared = true;
  TDBG_ASSIGN_OR_RETURN(from_flags.rules, RulesOfFlags(flags.rules, flags.rule_files));
  for (const std::string& text : flags.collect) {
    TDBG_ASSIGN_OR_RETURN(plan::CollectionConfig collection, plan::ParseCollectFlag(text));
    plan::Config one;
    one.collections.push_back(std::move(collection));
    from_flags = plan::MergeConfigs(std::move(from_flags), one);
  }
  if (!flags.on_issue.empty())
    TDBG_RETURN_IF_ERROR(TakeFlag("--on-issue", {{"on_issue", flags.on_issue}}, &from_flags));
  if (flags.summaries) {
    const std::string every = *flags.summaries == "off" ? "0" : *flags.summaries;
    TDBG_RETURN_IF_ERROR(TakeFlag("--summaries", {{"summaries", {{"every", every}}}}, &from_flags));
  }
  if (flags.histograms) {
    const std::string every = *flags.histograms == "off" ? "0" : *flags.histograms;
    TDBG_RETURN_IF_ERROR(TakeFlag("--histograms", {{"summaries", {{"histograms", every}}}}, &from_flags));
  }
  if (flags.journal)
    TDBG_RETURN_IF_ERROR(TakeFlag("--journal", {{"journal", {{"size", *flags.journal}}}}, &from_flags));
  if (flags.when_full)
    TDBG_RETURN_IF_ERROR(TakeFlag("--when-full", {{"when_full", *flags.when_full}}, &from_flags));
  if (flags.budget) TDBG_RETURN_IF_ERROR(TakeFlag("--budget", {{"budget", *flags.budget}}, &from_flags));
  if (flags.black_box) {
    const std::string size = *flags.black_box == "off" ? "0" : *flags.black_box;
    TDBG_RETURN_IF_ERROR(TakeFlag("--black-box", {{"black_box", size}}, &from_flags));
  }
  if (flags.flight > 0) from_flags.flight = flags.flight;
  if (flags.verify_every > 0) from_flags.verify_every = flags.verify_every;
  if (flags.tensorboard)
    TDBG_RETURN_IF_ERROR(TakeFlag("--tensorboard", {{"tensorboard", *flags.tensorboard}}, &from_flags));
  if (flags.format) TDBG_RETURN_IF_ERROR(TakeFlag("--format", {{"format", *flags.format}}, &from_flags));
  config = plan::MergeConfigs(std::move(config), from_flags);
  TDBG_RETURN_IF_ERROR(ExpandGroups(&config.rules));
  for (plan::RuleConfig& rule : config.rules) {
    // `check` may be called from another directory.
    if (!rule.file.empty()) rule.file = jobs::AbsolutePath(rule.file);
  }
  TDBG_RETURN_IF_ERROR(CheckActions(config));
  return config;
}

Result<std::vector<plan::RuleConfig>> RulesOfFlags(const std::vector<std::string>& rules,
                                                   const std::vector<std::string>& rule_files) {
  std::vector<plan::RuleConfig> parsed;
  for (const std::string& text : rules) {
    TDBG_ASSIGN_OR_RETURN(plan::RuleConfig rule, ParseRuleFlag(text));
    parsed.push_back(std::move(rule));
  }
  for (const std::string& text : rule_files) {
    TDBG_ASSIGN_OR_RETURN(plan::RuleConfig rule, ParseRuleFileFlag(text));
    rule.file = jobs::AbsolutePath(rule.file);
    parsed.push_back(std::move(rule));
  }
  for (const plan::RuleConfig& rule : parsed) {
    if (rule.on_issue.empty()) continue;
    // Checked by the schema, as in a file.
    plan::Config checked;
    TDBG_RETURN_IF_ERROR(TakeFlag("--rule " + rule.rule, json{{"on_issue", rule.on_issue}}, &checked));
  }
  return parsed;
}

std::vector<plan::RuleConfig> RulesToWatch(const plan::Config& config) {
  std::vector<plan::RuleConfig> rules = config.rules;
  if (rules.empty() && !config.rules_said && config.hook == nullptr) {
    plan::RuleConfig profile;
    profile.rule = "Profile";
    // Recorded, so that a later tdbg judges this run by the same version.
    profile.parameters["version"] = "1";
    profile.where = "the default rule";
    profile.optional = true;
    rules.push_back(std::move(profile));
  }
  for (plan::RuleConfig& rule : rules) {
    if (rule.on_issue.empty()) rule.on_issue = config.on_issue;
    if (!rule.action_cooldown_seconds) rule.action_cooldown_seconds = config.action_cooldown_seconds;
  }
  return rules;
}

bool AsksToJudge(const plan::Config& config) {
  return !config.rules.empty() || (!config.on_issue.empty() && !RulesToWatch(config).empty());
}

std::string RulesToJson(const std::vector<plan::RuleConfig>& rules) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  json files = json::object();  // path -> SHA-256
  bool programs = false;        // otherwise the user's key is not needed, and not made
  for (const plan::RuleConfig& rule : rules) {
    nlohmann::ordered_json entry;
    if (rule.file.empty()) {
      entry["rule"] = rule.rule;
    } else {
      entry["rule_file"] = rule.file + ":" + rule.rule;
      files[rule.file] = HashOfRuleFile(rule.file);
      if (rule.limit_seconds) entry["limit_seconds"] = *rule.limit_seconds;
      if (rule.limit_start_seconds) entry["limit_start_seconds"] = *rule.limit_start_seconds;
      if (rule.limit_memory) entry["limit_memory"] = *rule.limit_memory;
    }
    if (!rule.name.empty()) entry["name"] = rule.name;
    if (rule.optional) entry["optional"] = true;
    nlohmann::ordered_json parameters = nlohmann::ordered_json::object();
    for (const auto& [key, value] : rule.parameters) {
      const bool secret = base::NamesASecret(key) && !value.empty();
      parameters[key] = secret ? std::string(base::kRedacted) : base::RedactText(value);
    }
    nlohmann::ordered_json actions = nlohmann::ordered_json::array();
    for (const std::string& action : rule.on_issue) actions.push_back(base::RedactText(action));
    programs |= !rule.file.empty() || !actions.empty() || rule.parameters.contains("action_json");
    entry["parameters"] = std::move(parameters);
    entry["on_issue"] = std::move(actions);
    if (rule.action_cooldown_seconds) entry["action_cooldown_seconds"] = *rule.action_cooldown_seconds;
    list.push_back(std::move(entry));
  }
  nlohmann::ordered_json document;
  document["format"] = {{"major", 1}, {"minor", 0}};
  document["kind"] = "rules";
  document["rules"] = std::move(list);
  if (!files.empty()) document["files"] = files;
  if (programs) {
    const auto text = document.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
    const std::string seal = SealOf(SealedText(json::parse(text)), /*make_key=*/true);
    if (!seal.empty()) document["seal"] = seal;
  }
  return document.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

Result<std::optional<RecordedRules>> ReadRules(const std::string& run_directory) {
  const std::string path = base::JoinPath(run_directory, kRulesFile);
  if (!base::LocalFileSystem().Exists(path)) return std::optional<RecordedRules>();
  TDBG_ASSIGN_OR_RETURN(const std::string text, base::LocalFileSystem().ReadFile(path));
  const auto read = ParseJson(text, path);
  if (!read.ok() || !read->value.is_object() || !read->value.contains("rules"))
    return DataLoss("no rules can be read from " + path);
  plan::Source source;
  source.name = path;
  // Through the schema of configurations: the entries are written in its words.
  RecordedRules recorded;
  recorded.sealed_text = SealedText(read->value);
  if (const auto seal = read->value.find("seal"); seal != read->value.end() && seal->is_string())
    recorded.seal = seal->get<std::string>();
  TDBG_ASSIGN_OR_RETURN(const plan::Config config,
                        plan::ParseConfig(json{{"rules", read->value["rules"]}}, source));
  recorded.rules = config.rules;
  if (const auto files = read->value.find("files"); files != read->value.end() && files->is_object()) {
    for (const auto& [file, hash] : files->items()) {
      if (hash.is_string()) recorded.hashes[file] = hash.get<std::string>();
    }
  }
  return std::optional(std::move(recorded));
}

}  // namespace tdbg::cli

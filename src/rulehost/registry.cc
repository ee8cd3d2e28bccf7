#include "rulehost/registry.h"

#include <nlohmann/json.hpp>
#include <span>

#include "base/file.h"
#include "base/hash.h"
#include "rulehost/custom_rule.h"
#include "rulehost/host_command.h"
#include "rulehost/host_process.h"
#include "rulehost/messages.h"

namespace tdbg::rulehost {
namespace {

// A hash of the rule's file, class and parameters. A file that cannot be read counts as an empty one.
std::string CodeOf(const plan::RuleConfig& config) {
  const auto file = base::LocalFileSystem().ReadFile(config.file);
  const std::string text = nlohmann::json({config.rule, config.parameters})
                               .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) +
                           (file.ok() ? *file : "");
  return base::Hex64(base::Hash64(std::as_bytes(std::span(text))));
}

}  // namespace

Result<Description> Describe(const plan::RuleConfig& config) {
  if (!base::LocalFileSystem().Exists(config.file)) {
    return InvalidArgument("no such file of rules: " + config.file);
  }
  TDBG_ASSIGN_OR_RETURN(HostOptions options, HostFor(config));
  HostProcess process(std::move(options), DescribeMessage(config), {});
  const HostProcess::Reply reply = process.Wait();
  if (!reply.status.ok()) return InvalidArgument("rule " + config.rule + ": " + reply.status.message());
  return ReadDescription(reply.json, config);
}

Registry::Key Registry::KeyOf(const plan::RuleConfig& config) {
  return {config.file + ":" + config.rule, config.parameters};
}

Result<std::unique_ptr<Registry>> Registry::Create(const std::vector<plan::RuleConfig>& configs,
                                                   RegistryOptions options) {
  std::unique_ptr<Registry> registry(new Registry());
  static_cast<rules::RuleRegistry&>(*registry) = rules::BuiltinRules();
  registry->options_ = std::move(options);
  for (const plan::RuleConfig& config : configs) {
    if (config.file.empty() || registry->described_.contains(KeyOf(config))) continue;
    auto description = Describe(config);
    if (!description.ok()) {
      return config.where.empty() ? description.status() : description.status().Annotate(config.where);
    }
    registry->described_.emplace(KeyOf(config), *std::move(description));
  }
  return registry;
}

Result<const rules::RuleInfo*> Registry::FindFor(const plan::RuleConfig& config) const {
  if (config.file.empty()) return RuleRegistry::FindFor(config);
  const auto found = described_.find(KeyOf(config));
  if (found == described_.end()) return Internal("rule " + config.rule + " was never described");
  return &found->second.info;
}

Result<std::unique_ptr<rules::Rule>> Registry::MakeFor(const plan::RuleConfig& config) const {
  if (config.file.empty()) return RuleRegistry::MakeFor(config);
  const auto found = described_.find(KeyOf(config));
  if (found == described_.end()) return Internal("rule " + config.rule + " was never described");
  TDBG_ASSIGN_OR_RETURN(const rules::Parameters parameters,
                        rules::Parameters::Parse(found->second.info, config.parameters));
  TDBG_ASSIGN_OR_RETURN(HostOptions host, HostFor(config));
  return std::unique_ptr<rules::Rule>(std::make_unique<CustomRule>(
      std::move(host), JudgeMessage(config, parameters, options_.run, options_.attempt), found->second.needs,
      CodeOf(config)));
}

}  // namespace tdbg::rulehost

// tdbg rules: which rules there are, what one takes, and its page.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include "base/text.h"
#include "cli/command.h"
#include "cli/configuration.h"
#include "cli/exit_codes.h"
#include "cli/flags.h"
#include "cli/json_output.h"
#include "cli/markdown.h"
#include "cli/output.h"
#include "cli/rule_template.h"
#include "cli/run_path.h"
#include "cli/terminal.h"
#include "rulehost/host_command.h"
#include "rulehost/registry.h"
#include "rules/pages.h"
#include "rules/rule.h"

namespace tdbg::cli {
namespace {

Json InfoToJson(const rules::RuleInfo& info) {
  Json parameters = Json::array();
  for (const rules::ParameterSpec& parameter : info.parameters) {
    parameters.push_back({{"name", parameter.name},
                          {"type", parameter.type},
                          {"default", parameter.default_value},
                          {"required", parameter.required},
                          {"unit", parameter.unit},
                          {"help", parameter.help}});
  }
  return {{"class_name", info.class_name},
          {"snake_name", info.snake_name},
          {"scope", info.scope},
          {"summary", info.summary},
          {"parameters", parameters}};
}

void PrintOne(const rules::RuleInfo& info, const Terminal& terminal) {
  Print("{} ({}), for {}\n{}\n\n", Paint(terminal, Colour::kBold, info.class_name), info.snake_name,
        info.scope, info.summary);
  Table table({"PARAMETER", "TYPE", "DEFAULT", "UNIT", "MEANING"});
  for (const rules::ParameterSpec& parameter : info.parameters) {
    table.Add({parameter.name, parameter.type,
               parameter.required                ? "required"
               : parameter.default_value.empty() ? "-"
                                                 : parameter.default_value,
               parameter.unit.empty() ? "-" : parameter.unit, parameter.help});
  }
  // Help is not cut at the terminal's width.
  Terminal wide = terminal;
  wide.columns = 0;
  if (!table.empty()) Print("{}", table.Format(wide));
}

// What a run keeps because of the rule, as a sentence; empty if the rule declares no needs.
std::string NeedsText(const plan::Need& needs) {
  if (needs.collections.empty() && needs.tensor_regex.empty()) return {};
  std::vector<std::string> what = needs.collections;
  for (const std::string& regex : needs.tensor_regex) what.push_back("tensors like " + regex);
  std::string text =
      fmt::format("Needs {} of {}", needs.raw ? "values" : "statistics", fmt::join(what, ", "));
  if (needs.raw_schedule)
    text += needs.raw_schedule->interval == 1 ? ", at every step"
                                              : fmt::format(", every {} steps", needs.raw_schedule->interval);
  return text + ".";
}

class RulesCommand : public Command {
 public:
  std::string name() const override { return "rules"; }
  std::string help() const override { return "list the rules; show NAME: explain one; new NAME: begin one"; }
  void Define(Flags& flags) override {
    flags
        .AddOption("NAME", words_,
                   "a rule: VanishingGradient or vanishing_gradient, for its parameters; show "
                   "NAME for its page")
        .TypeName("[show] NAME | [show] FILE:CLASS | new NAME [DIR]")
        .Words(0, 3);
    flags.AddOption("--rule-file", files_, "a rule of your own instead of NAME")
        .TypeName("FILE:CLASS [KEY=VALUE ...]")
        .Words(1, 1)
        .Repeatable();
    const Flag python = flags.AddFlag("--python", python_, "new: a rule in Python, with a test (default)");
    flags.AddFlag("--cpp", cpp_, "new: a rule in C++, with a Makefile and a test").Excludes(python);
    flags.AddFlag("--json", json_, "one JSON document on stdout");
    flags.Footer("\nexample: tdbg rules show vanishing_gradient");
  }

  Result<int> Run() override {
    if (!words_.empty() && words_[0] == "new") return New();
    if (python_ || cpp_) return InvalidArgument("rules: --python and --cpp are for tdbg rules new NAME");
    const Terminal terminal = Terminal::Of(STDOUT_FILENO);
    const rules::RuleRegistry& registry = rules::BuiltinRules();
    const bool show = !words_.empty() && words_[0] == "show";
    if (words_.size() == (show ? 2u : 1u) && words_.back().find(':') != std::string::npos) {
      files_.push_back(words_.back());  // no built-in rule is called so
      words_.pop_back();
    }
    if (!files_.empty()) {
      if (files_.size() > 1 || words_.size() > (show ? 1u : 0u))
        return InvalidArgument("rules: one rule at a time");
      return ShowFile(terminal);
    }
    if (words_.size() > (show ? 2u : 1u) || (show && words_.size() == 1)) {
      return InvalidArgument(show && words_.size() > 1 ? "rules show: one rule at a time"
                             : show                    ? "rules show: which rule? tdbg rules lists them"
                                                       : "rules: '" + words_[0] +
                                          "' is no subcommand; accepted: show NAME, new NAME [DIR], or NAME");
    }
    if (!words_.empty()) {
      const auto info = registry.Find(words_.back());
      if (!info.ok()) {
        // A misspelt name is a usage error here as it is in --rule.
        return InvalidArgument(info.status().message());
      }
      if (json_) {
        Json json = InfoToJson(**info);
        if (show) json["page"] = std::string(rules::RulePage((*info)->snake_name));
        PrintJson(json);
      } else if (show) {
        Print("{}", FormatMarkdown(rules::RulePage((*info)->snake_name), terminal));
      } else {
        PrintOne(**info, terminal);
      }
      return kExitOk;
    }
    Table table({"RULE", "NAME", "SEES"});
    table.WrapLast();
    Json list = Json::array();
    for (const rules::RuleInfo* info : registry.All()) {
      list.push_back(InfoToJson(*info));
      table.Add({info->snake_name, info->class_name, info->summary});
    }
    if (json_)
      PrintJson(list);
    else
      Print("{}", table.Format(terminal));
    return kExitOk;
  }

 private:
  Result<int> ShowFile(const Terminal& terminal) {
    TDBG_ASSIGN_OR_RETURN(const std::vector<plan::RuleConfig> configs, RulesOfFlags({}, files_));
    TDBG_ASSIGN_OR_RETURN(const rulehost::Description found, rulehost::Describe(configs[0]));
    if (json_) {
      Json json = InfoToJson(found.info);
      json["page"] = found.page;
      json["needs"] = {{"collections", found.needs.collections},
                       {"tensor_regex", found.needs.tensor_regex},
                       {"raw", found.needs.raw}};
      PrintJson(json);
      return kExitOk;
    }
    PrintOne(found.info, terminal);
    for (const std::string& text : {NeedsText(found.needs), found.page}) {
      if (!text.empty()) Print("\n{}\n", text);
    }
    return kExitOk;
  }

  Result<int> New() {
    if (words_.size() == 1)
      return InvalidArgument("rules new: what is the rule called? tdbg rules new LargeGradient");
    const std::string directory = words_.size() > 2 ? words_[2] : ".";
    TDBG_ASSIGN_OR_RETURN(
        const std::vector<std::string> files,
        WriteRuleTemplate(words_[1], cpp_ ? RuleLanguage::kCpp : RuleLanguage::kPython, directory));
    const std::string try_it = cpp_ ? "make -C " + ShellWord(directory) + " test"
                                    : ShellWord(rulehost::PythonInterpreter()) + " " + ShellWord(files[0]);
    if (json_) {
      PrintJson({{"files", files}, {"test", try_it}});
    } else {
      for (const std::string& file : files) Print("{}\n", file);
      Tell("tdbg: try it: {}\n", try_it);
    }
    return kExitOk;
  }

  std::vector<std::string> words_, files_;
  bool python_ = false, cpp_ = false, json_ = false;
};

}  // namespace

std::unique_ptr<Command> MakeRulesCommand() { return std::make_unique<RulesCommand>(); }

}  // namespace tdbg::cli

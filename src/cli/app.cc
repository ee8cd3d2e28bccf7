#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <memory>

#include "base/file.h"
#include "base/text.h"
#include "cli/arguments.h"
#include "cli/command.h"
#include "cli/exit_codes.h"
#include "cli/output.h"
#include "cli/terminal.h"
#include "cli/version.h"

namespace tdbg::cli {
namespace {

constexpr size_t kOptionsColumn = 34;
constexpr char kFooter[] =
    "\nRUN is a path, a name under ./tdbg-runs, or `last`. Every command takes --help; docs/cli.md has "
    "examples\n"
    "and the exit codes.";

int Complain(const std::string& message, int exit_code) {
  // One line, whatever the names that were given or found hold.
  Tell("tdbg: {}\n", Printable(message));
  return exit_code;
}

Command* FindCommand(const std::vector<std::unique_ptr<Command>>& commands, const std::string& name) {
  for (const auto& command : commands) {
    if (command->name() == name) return command.get();
  }
  return nullptr;
}

std::string Overview(const std::vector<std::unique_ptr<Command>>& commands) {
  std::string text =
      "tdbg watches a training job, judges it against rules, and acts.\n\nusage: tdbg COMMAND ...\n\n";
  size_t columns = 0;
  for (const auto& command : commands) columns = std::max(columns, command->name().size());
  for (const auto& command : commands)
    text += fmt::format("  {:<{}}  {}\n", command->name(), columns, command->help());
  text += "  --version\n";
  return text + kFooter + "\n";
}

// CLI11 leaves a description on one line, whatever its length: broken here, behind the options' column.
std::string WithoutWideLines(const std::string& help) {
  std::string text;
  for (size_t begin = 0; begin < help.size();) {
    const size_t end = std::min(help.find('\n', begin), help.size());
    const std::string line = help.substr(begin, end - begin);
    begin = end + 1;
    size_t column = 0;
    if (line.size() > kOptionsColumn && line[kOptionsColumn - 1] == ' ') column = kOptionsColumn;
    text += line.substr(0, column) + Wrapped(line.substr(column), static_cast<int>(column)) + "\n";
  }
  return text;
}

// CLI11 counts the words of an argument that takes several: NAME(0x).
class UsageFormatter : public CLI::Formatter {
 public:
  std::string make_option_usage(const CLI::Option* option) const override {
    if (option->get_expected_max() <= 1) return Formatter::make_option_usage(option);
    const std::string words = make_option_name(option, true) + "...";
    return option->get_required() ? words : "[" + words + "]";
  }
};

int Dispatch(Command& command, const Arguments& arguments) {
  CLI::App app(command.help(), command.name());
  app.formatter(std::make_shared<UsageFormatter>());
  app.get_formatter()->column_width(kOptionsColumn);
  command.Define(app);
  if (arguments.has_command && !command.TakesCommand()) {
    return Complain(command.name() + ": found '--', but it starts no command; leave it out", kExitUsage);
  }
  try {
    // CLI11 takes them last one first.
    std::vector<std::string> reversed(arguments.ours.rbegin(), arguments.ours.rend());
    app.parse(std::move(reversed));
  } catch (const CLI::CallForHelp&) {
    Print("{}", WithoutWideLines(app.help()));
    return kExitOk;
  } catch (const CLI::ParseError& error) {
    return Complain(DescribeParseError(error, app, command.TakesCommand()), kExitUsage);
  }
  command.SetFlags(arguments.ours);
  if (arguments.has_command) command.SetCommand(arguments.command);
  const Result<int> result = command.Run();
  if (result.ok()) return *result;
  return Complain(result.status().message(), ExitCodeOf(result.status()));
}

int Answer(const std::vector<std::string>& words, const std::vector<std::unique_ptr<Command>>& commands) {
  if (words.empty() || words[0] == "--help" || words[0] == "-h" || words[0] == "help") {
    if (words.size() > 1) {
      if (Command* command = FindCommand(commands, words[1])) {
        Arguments arguments;
        arguments.ours = {"--help"};
        return Dispatch(*command, arguments);
      }
    }
    if (words.empty()) {
      WriteErr(Overview(commands));
      return kExitUsage;
    }
    WriteOut(Overview(commands));
    return kExitOk;
  }
  if (words[0] == "--version") {
    Print("tdbg {}\n", kVersion);
    return kExitOk;
  }
  Command* const command = FindCommand(commands, words[0]);
  if (!command) {
    std::vector<std::string> names;
    for (const auto& known : commands) names.push_back(known->name());
    const auto nearest = base::Nearest(words[0], names);
    return Complain(
        fmt::format("unknown {} '{}'; {}", words[0].starts_with("-") ? "flag" : "command", words[0],
                    nearest ? "did you mean 'tdbg " + *nearest + "'?" : "`tdbg --help` lists the commands"),
        kExitUsage);
  }
  return Dispatch(*command, SplitArguments(std::span(words).subspan(1)));
}

}  // namespace

int Main(int argc, char** argv) {
  OccupyStandardStreams();
  base::SurviveTornMappings();
  const std::vector<std::string> words(argv + 1, argv + argc);
  const auto commands = AllCommands();
  const int exit_code = Answer(words, commands);
  int trouble = kExitOk;
  if (const Status written = FlushOut(); !written.ok()) trouble = Complain(written.message(), kExitRefused);
  if (const auto torn = base::TornMapping()) {
    trouble = Complain(*torn + "; the answer may be wrong: ask again", kExitDamaged);
  }
  if (trouble == kExitOk) return exit_code;
  // The started command's exit code matters more than whether its summary could be printed.
  const Command* const command = words.empty() ? nullptr : FindCommand(commands, words[0]);
  return command != nullptr && command->TakesCommand() ? exit_code : trouble;
}

}  // namespace tdbg::cli

#include <fmt/format.h>

#include <algorithm>
#include <iostream>
#include <memory>

#include "base/file.h"
#include "base/text.h"
#include "cli/arguments.h"
#include "cli/command.h"
#include "cli/exit_codes.h"
#include "cli/flags.h"
#include "cli/output.h"
#include "cli/terminal.h"
#include "cli/version.h"

namespace tdbg::cli {
namespace {

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

int Dispatch(Command& command, const Arguments& arguments) {
  Flags flags(command.name(), command.help());
  command.Define(flags);
  if (arguments.has_command && !command.TakesCommand()) {
    return Complain(command.name() + ": found '--', but it starts no command; leave it out", kExitUsage);
  }
  const Result<bool> help = flags.Parse(arguments.ours, command.TakesCommand());
  if (!help.ok()) return Complain(help.status().message(), ExitCodeOf(help.status()));
  if (*help) {
    Print("{}", flags.Help());
    return kExitOk;
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

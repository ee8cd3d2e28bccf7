// A subcommand: its name, its flags, what it does. One file each; the list is in commands.cc.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tdbg/status.h"

namespace tdbg::cli {

class Flags;

class Command {
 public:
  virtual ~Command() = default;
  virtual std::string name() const = 0;
  virtual std::string help() const = 0;  ///< one line
  /// Adds flags that are bound to members. Called once, before Run.
  virtual void Define(Flags& flags) = 0;
  /// Gets everything behind "--". Refused by default: only `run` starts commands.
  virtual bool TakesCommand() const { return false; }
  virtual void SetCommand(std::vector<std::string> words) { (void)words; }
  /// Gets everything before it, as SplitArguments returned it, for commands that start the same again.
  virtual void SetFlags(std::vector<std::string> words) { (void)words; }
  /// Data to stdout, everything else to stderr. \return the exit code, or the error that becomes one.
  virtual Result<int> Run() = 0;
};

/// All of them, in the order in which `tdbg --help` shows them.
std::vector<std::unique_ptr<Command>> AllCommands();

std::unique_ptr<Command> MakeRunCommand();
std::unique_ptr<Command> MakeJobsCommand();
std::unique_ptr<Command> MakeLogsCommand();
std::unique_ptr<Command> MakeResumeCommand();
std::unique_ptr<Command> MakeInterruptCommand();
std::unique_ptr<Command> MakeReplayCommand();
std::unique_ptr<Command> MakeLsCommand();
std::unique_ptr<Command> MakeStatusCommand();
std::unique_ptr<Command> MakeExplainCommand();
std::unique_ptr<Command> MakeMuteCommand();
std::unique_ptr<Command> MakeTensorsCommand();
std::unique_ptr<Command> MakeShowCommand();
std::unique_ptr<Command> MakeStepsCommand();
std::unique_ptr<Command> MakeDiffCommand();
std::unique_ptr<Command> MakeViewCommand();
std::unique_ptr<Command> MakeReportCommand();
std::unique_ptr<Command> MakeMcpCommand();
std::unique_ptr<Command> MakeCompactCommand();
std::unique_ptr<Command> MakeKeepCommand();
std::unique_ptr<Command> MakeExportCommand();
std::unique_ptr<Command> MakeCheckCommand();
std::unique_ptr<Command> MakeRulesCommand();
std::unique_ptr<Command> MakeWatchCommand();
std::unique_ptr<Command> MakeStopCommand();
std::unique_ptr<Command> MakeCaptureCommand();
std::unique_ptr<Command> MakeHandlersCommand();
std::unique_ptr<Command> MakeMetricsCommand();
std::unique_ptr<Command> MakeForwardCommand();
std::unique_ptr<Command> MakeMigrateCommand();
std::unique_ptr<Command> MakePlanCommand();
std::unique_ptr<Command> MakeDumpCommand();
std::unique_ptr<Command> MakeDoctorCommand();
std::unique_ptr<Command> MakeUploadCommand();
std::unique_ptr<Command> MakeServeCommand();
std::unique_ptr<Command> MakeAwsEnvCommand();

/// Parses, dispatches, reports. What main() returns.
int Main(int argc, char** argv);

}  // namespace tdbg::cli

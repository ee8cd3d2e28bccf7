#include "cli/break.h"
#include "cli/command.h"
#include "cli/prune.h"

namespace tdbg::cli {

std::vector<std::unique_ptr<Command>> AllCommands() {
  std::vector<std::unique_ptr<Command>> commands;
  commands.push_back(MakeRunCommand());
  commands.push_back(MakeJobsCommand());
  commands.push_back(MakeLogsCommand());
  commands.push_back(MakeReplayCommand());
  commands.push_back(MakeLsCommand());
  commands.push_back(MakePruneCommand());
  commands.push_back(MakeStatusCommand());
  commands.push_back(MakeExplainCommand());
  commands.push_back(MakeMuteCommand());
  commands.push_back(MakeTensorsCommand());
  commands.push_back(MakeShowCommand());
  commands.push_back(MakeStepsCommand());
  commands.push_back(MakeDiffCommand());
  commands.push_back(MakeViewCommand());
  commands.push_back(MakeReportCommand());
  commands.push_back(MakeMcpCommand());
  commands.push_back(MakeCompactCommand());
  commands.push_back(MakeKeepCommand());
  commands.push_back(MakeExportCommand());
  commands.push_back(MakeCheckCommand());
  commands.push_back(MakeRulesCommand());
  commands.push_back(MakeWatchCommand());
  commands.push_back(MakeStopCommand());
  commands.push_back(MakeInterruptCommand());
  commands.push_back(MakeResumeCommand());
  commands.push_back(MakeCaptureCommand());
  commands.push_back(MakeBreakCommand());
  commands.push_back(MakeContinueCommand());
  commands.push_back(MakeHandlersCommand());
  commands.push_back(MakeMetricsCommand());
  commands.push_back(MakeForwardCommand());
  commands.push_back(MakeUploadCommand());
  commands.push_back(MakeMigrateCommand());
  commands.push_back(MakePlanCommand());
  commands.push_back(MakeServeCommand());
  commands.push_back(MakeAwsEnvCommand());
  commands.push_back(MakeDumpCommand());
  commands.push_back(MakeDoctorCommand());
  return commands;
}

}  // namespace tdbg::cli

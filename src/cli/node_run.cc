#include "cli/node_run.h"

#include <fmt/format.h>

#include "actions/control_request.h"
#include "cli/output.h"
#include "cli/run_path.h"
#include "cli/terminal.h"
#include "watch/events.h"
#include "watch/requests.h"

namespace tdbg::cli {

Result<std::unique_ptr<NodeRun>> NodeRun::Join(const jobs::NodePlace& place, int64_t timeout_millis,
                                               const jobs::PrepareOptions& prepare, bool adopts, bool quiet,
                                               jobs::PreparedAttempt* prepared) {
  jobs::NodeOptions options;
  options.prepare = prepare;
  options.place = place;
  options.adopts = adopts;
  options.timeout_millis = timeout_millis;
  if (!quiet) options.say = [](const std::string& line) { Note(line); };
  options.on_event = [run = jobs::AbsolutePath(prepare.run_directory)](const std::string& kind,
                                                                       int64_t node) {
    (void)AppendEvent(run, kind, {{"node", node}});
  };
  std::unique_ptr<NodeRun> joined(new NodeRun);
  joined->adopts_ = adopts;
  TDBG_ASSIGN_OR_RETURN(joined->launch_, jobs::NodeLaunch::Join(options, prepared));
  if (!quiet && !joined->launch_->laid_out())
    Note(fmt::format("{} joins attempt {}; another node judges", joined->Name(), prepared->attempt));
  return joined;
}

std::string NodeRun::Name() const { return fmt::format("node {} of {}", node(), nodes()); }

Status NodeRun::StopAll(const std::string& run_directory, const std::string& rule) {
  // At a step that no worker has reached, where the run can be asked for one.
  int64_t at_step = -1;
  if (const auto trial = Trial::Open(run_directory); trial.ok() && (*trial)->Refresh().ok())
    at_step = watch::CommonFutureStep(**trial);
  return actions::RequestStop(run_directory, rule, at_step);
}

Status NodeRun::Follow(watch::Watcher& watcher, const std::function<void()>& taking_over) {
  if (launch_->AwaitTurn() != jobs::NodeLaunch::Turn::kJudge) return OkStatus();
  if (!launch_->laid_out()) {
    took_over_ = true;
    watcher.TakeOver();
    taking_over();
  } else if (adopts_) {  // the launchers before have said things, too
    watcher.TakeOver();
  }
  judged_ = true;
  const Status status = watcher.Follow();
  if (launch_->MayJudge().code() != Code::kFailedPrecondition) {  // to the end
    launch_->SetOver();
    return status;
  }
  judged_ = false;
  Note("this node was not heard of for too long; another one judges");
  return OkStatus();
}

rules::JobEnd NodeRun::End(const jobs::PreparedAttempt& prepared, const jobs::JobResult& result,
                           const std::string& stop) {
  launch_->Ended({result.exit.shell_code(), stop, result.stopped_by});
  const jobs::NodeLaunch::Outcome all = launch_->AwaitEnd();
  if (all.judges) {
    const auto said = LastJobEnding(prepared.run_directory);
    if (!said || said->attempt != prepared.attempt)
      (void)AppendEvent(prepared.run_directory, "job_ended",
                        {{"attempt", prepared.attempt},
                         {"exit_code", all.exit_code},
                         {"signal", 0},
                         {"stop", all.stop},
                         {"stopped_by", all.stopped_by},
                         {"killed", result.killed},
                         {"nodes", nodes()}});
  }
  if (all.any_stopped) return rules::JobEnd::kStopped;
  return all.all_completed ? rules::JobEnd::kCompleted : rules::JobEnd::kFailed;
}

std::vector<rules::RuleStatus> NodeRun::Statuses(const watch::Watcher& watcher,
                                                 const std::string& run_directory) {
  if (judged_) return watcher.statuses();
  const auto said = watch::ReadShownStatuses(run_directory);
  return said.ok() ? *said : watcher.statuses();
}

}  // namespace tdbg::cli

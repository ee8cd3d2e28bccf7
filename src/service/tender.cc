#include "service/tender.h"

#include <errno.h>
#include <fmt/format.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <set>

#include "actions/control_request.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/process.h"
#include "base/redact.h"
#include "base/text.h"
#include "events/change.h"
#include "jobs/registry.h"
#include "jobs/run_directory.h"
#include "jobs/training_output.h"
#include "service/container.h"
#include "service/describe.h"
#include "service/event_rules.h"
#include "service/helpers.h"
#include "service/job_files.h"
#include "service/job_state.h"
#include "service/launcher.h"
#include "service/local_aws.h"
#include "service/metrics.h"
#include "service/private_root.h"
#include "service/requests.h"
#include "service/rule_settings.h"

namespace tdbg::service {
namespace {

constexpr int kLookMillis = 200;
// How long the last files may take on their way into the bucket.
constexpr int64_t kSendMillis = 600'000;
// A launcher writes its end before it lets go of its lock; whoever sees neither has lost it.
constexpr int kLooksWithoutLauncher = 25;
constexpr const char* kEndOfDebugOutput = "training_job_end.ts";  // smdebug's name
constexpr size_t kMostReason = 1024;
// How long handlers may take for the events that are left.
constexpr int64_t kHandlersMillis = 60'000;

/// What `tdbg run` says of the training, as its events come.
struct RunNews {
  std::string status, phase, failure_reason;
};

class Tender {
 public:
  Tender(JobDocument job, JobPaths paths, std::string package_index)
      : job_(std::move(job)),
        paths_(std::move(paths)),
        package_index_(std::move(package_index)),
        progress_(job_, paths_) {}
  void Run();

 private:
  bool StopAsked() const { return base::LocalFileSystem().Exists(paths_.stop); }
  std::function<bool()> stopped() const {
    return [this] { return StopAsked(); };
  }
  Status Prepare();
  Status CheckOutputs();
  Status FetchInputs();
  Status Install();
  Status WriteSettings();
  Status Launch();
  Status Watch();
  void TellRules(const Json& detail);
  void StopRules();
  void SendRuleOutput();
  bool LauncherLives() const;
  void Follow();
  Status Upload();
  void TellHandlers();
  void StartMirrors();
  void FinishMirrors();
  void Finish(Beside& mirror, const std::string& what, const std::string& uri);
  std::string WithLost(const std::string& message) const;
  std::string WhyItFailed(const std::string& reason) const;
  void End(const Status& status);
  void EndRules();
  std::string TellsPath() const { return base::JoinPath(paths_.directory, "told"); }
  std::string EnvironmentPath() const { return base::JoinPath(paths_.directory, "environment"); }
  std::string OutputUri(const std::string& below) const {
    return UriBelow(job_.request["OutputDataConfig"]["S3OutputPath"], job_.name() + "/" + below);
  }

  JobDocument job_;
  JobPaths paths_;
  std::string package_index_;
  std::string notice_;  ///< for the training's log
  std::string lost_;    ///< what of its output is not in the bucket, and why
  JobProgress progress_;
  Beside debug_output_, tensorboard_, checkpoints_, handlers_;
  std::set<std::string> stopped_rules_;
  std::map<std::string, Beside> rule_output_;  ///< of rules that have written something, by name
  int64_t handlers_told_ = -1;                 ///< when the handlers that are told were written, nanoseconds
  std::string root_ = "/opt/ml";
  bool told_before_ = false;
  uint64_t read_ = 0;  ///< of the run's events
  uint64_t told_ = 0;  ///< what of them a predecessor has passed on
  std::optional<RunNews> news_, end_;
  bool asked_run_ = false;  ///< there was a run when the stop came
  bool told_run_ = false;   ///< and it knows
};

void Tender::Run() {
  Status status;
  if (const auto told = base::LocalFileSystem().ReadFile(TellsPath()); told.ok())
    told_ = static_cast<uint64_t>(std::max<int64_t>(0, base::ParseInt(*told).value_or(0)));
  TellHandlers();
  told_before_ = true;  // who registers from now on hears of what happens from then on
  // A run that is there was launched by a predecessor of ours.
  if (!base::LocalFileSystem().Exists(base::JoinPath(paths_.run, "run.json")) && !StopAsked()) {
    progress_.Move("InProgress", "Starting", "Starting the training job");
    status = Prepare();
    if (status.ok() && !StopAsked()) status = Launch();
  }
  if (base::LocalFileSystem().Exists(base::JoinPath(paths_.run, "run.json"))) {
    StartMirrors();
    if (status.ok()) status = Watch();
    // What a script left is its user's, whatever became of it.
    if (progress_.status() == "InProgress")
      progress_.Move("InProgress", "Uploading", "Uploading generated training model");
    const Status uploaded = Upload();
    FinishMirrors();
    if (status.ok()) status = uploaded;
  }
  End(status);
  (void)handlers_.Finish(kHandlersMillis);
}

Status Tender::Prepare() {
  if (job_.python.empty()) return InvalidArgument(job_.no_python);
  std::error_code ignored;
  std::filesystem::remove_all(paths_.ml, ignored);  // of a predecessor that was killed half way
  TDBG_RETURN_IF_ERROR(base::LocalFileSystem().CreateDirectories(paths_.ml));
  if (!CanMakeRootPrivate(paths_.ml)) root_ = paths_.ml;
  progress_.Move("InProgress", "Downloading", "Downloading input data");
  TDBG_RETURN_IF_ERROR(CheckOutputs());
  TDBG_RETURN_IF_ERROR(LayOutContainer(job_, paths_, root_));
  TDBG_RETURN_IF_ERROR(FetchInputs());
  TDBG_RETURN_IF_ERROR(Install());
  if (StopAsked()) return OkStatus();
  auto container = PlanContainer(job_, paths_, root_);
  if (!container.ok()) return container.status().Annotate("ClientError");
  container->notice = notice_;
  TDBG_RETURN_IF_ERROR(WriteContainer(paths_, *container));
  return WriteSettings();
}

// Before it trains: what a training has made should not turn out to have no place.
Status Tender::CheckOutputs() {
  std::set<std::string> seen;
  for (const auto& [member, place] :
       {std::pair("OutputDataConfig", "S3OutputPath"), std::pair("DebugHookConfig", "S3OutputPath"),
        std::pair("TensorBoardOutputConfig", "S3OutputPath"), std::pair("CheckpointConfig", "S3Uri")}) {
    if (!job_.request.contains(member)) continue;
    const std::string uri = job_.request[member][place];
    if (!seen.insert(uri).second) continue;
    TDBG_RETURN_IF_ERROR(
        MayPut(uri, stopped()).Annotate(fmt::format("ClientError: {}.{} {}", member, place, uri)));
  }
  return OkStatus();
}

Status Tender::FetchInputs() {
  const Json& request = job_.request;
  for (const Json& channel : request.value("InputDataConfig", Json::array())) {
    const std::string to = paths_.ml + "/input/data/" + channel["ChannelName"].get<std::string>();
    const Status fetched = Fetch(channel["DataSource"]["S3DataSource"]["S3Uri"], to, stopped());
    if (!fetched.ok())
      return fetched.Annotate("ClientError: channel " + channel["ChannelName"].get<std::string>());
  }
  const auto parameters = request.value("HyperParameters", Json::object());
  if (parameters.contains("sagemaker_submit_directory")) {
    const nlohmann::json place = HyperParameter(parameters["sagemaker_submit_directory"]);
    const std::string uri = place.is_string() ? place.get<std::string>() : "";
    if (!IsS3Uri(uri))
      return InvalidArgument("ClientError: sagemaker_submit_directory is no s3 URI of a .tar.gz: " + uri);
    const std::string folder = base::JoinPath(paths_.directory, "source");
    const Status fetched = Fetch(uri, folder, stopped());
    if (!fetched.ok()) return fetched.Annotate("ClientError: sagemaker_submit_directory");
    const Status unpacked =
        Unpack(base::JoinPath(folder, base::BaseName(uri)), paths_.ml + "/code", stopped());
    if (!unpacked.ok()) return unpacked.Annotate("ClientError: sagemaker_submit_directory");
  }
  if (request.contains("CheckpointConfig")) {
    const std::string local = request["CheckpointConfig"].value("LocalPath", "/opt/ml/checkpoints");
    const Status fetched = Fetch(request["CheckpointConfig"]["S3Uri"], HostPath(paths_, local), stopped());
    // Nothing there: the first of these trainings.
    if (!fetched.ok() && fetched.code() != Code::kNotFound)
      return fetched.Annotate("ClientError: checkpointConfig");
  }
  return OkStatus();
}

// What the code asks for besides its image, as the training toolkit installs it: into an environment of this
// job, since the one that stands for the image is everybody's.
Status Tender::Install() {
  const std::string code = paths_.ml + "/code";
  if (StopAsked() || !base::LocalFileSystem().Exists(code + "/requirements.txt")) return OkStatus();
  if (package_index_.empty()) {
    notice_ = fmt::format(
        "tdbg serve: requirements.txt is not installed, since this server has no package index "
        "(--package-index); what the code imports is {}'s",
        job_.python);
    return OkStatus();
  }
  const std::string environment = EnvironmentPath();
  std::error_code ignored;
  std::filesystem::remove_all(environment, ignored);  // of a predecessor that was killed half way
  std::map<std::string, std::string> variables;       // a line of requirements.txt may name one
  const Json given = job_.request.value("Environment", Json::object());
  for (const auto& [name, value] : given.items()) variables[name] = value.get<std::string>();
  const Status installed =
      InstallRequirements(job_.python, code, environment, package_index_, variables, stopped());
  if (StopAsked()) return OkStatus();
  if (!installed.ok())
    return InvalidArgument(
        fmt::format("AlgorithmError: InstallRequirementsError:\nErrorMessage \"{}\"\nCommand \"pip install "
                    "-r requirements.txt\"",
                    base::RedactText(installed.message())));
  job_.python = base::JoinPath(environment, "bin/python");
  return OkStatus();
}

Status Tender::WriteSettings() {
  nlohmann::json rules = nlohmann::json::array();
  const std::string path = base::JoinPath(paths_.directory, "rules.json");
  for (const Json& configuration : job_.request.value("DebugRuleConfigurations", Json::array())) {
    const std::string name = configuration["RuleConfigurationName"];
    std::string file;
    Status usable;
    if (const std::string source = RuleSource(configuration); !source.empty()) {
      const std::string folder = base::JoinPath(paths_.directory, "rule-sources/" + name);
      usable = IsS3Uri(source) ? Fetch(source, folder, stopped())
                               : InvalidArgument("source_s3_uri is no s3 URI: " + source);
      file = base::JoinPath(folder, base::BaseName(source));
    }
    const auto entry = RuleEntry(configuration, file);
    if (usable.ok()) usable = entry.status();
    if (usable.ok()) usable = CheckRule(*entry);
    // One that cannot be judged is that rule's error, and no reason for a job not to train.
    if (!usable.ok()) {
      progress_.MoveRule(name, "", "Error", "ClientError: " + usable.message(), -1);
      continue;
    }
    rules.push_back(*entry);
  }
  return base::LocalFileSystem().WriteFileAtomic(
      path, nlohmann::json{{"rules", rules}, {"stop_grace_seconds", 120}}.dump(2));
}

Status Tender::Launch() {
  return RunHelper(
             LauncherCommand(job_, paths_), [] { return false; }, LauncherEnvironment(job_, paths_))
      .Annotate("InternalServerError: tdbg run");
}

bool Tender::LauncherLives() const {
  return base::LocalFileSystem().IsLocked(base::JoinPath(paths_.run, "launcher.lock"));
}

void Tender::TellRules(const Json& detail) {
  const Json ours = detail.value("tdbg", Json::object());
  const std::string name = ours.value("name", "");
  // One that was stopped (StopProcessingJob) is judged on, since it costs nothing; nobody hears of it any
  // more.
  if (ours.value("change", "") != "rule" || stopped_rules_.contains(name)) return;
  const std::string rule = ours.value("rule", ""), status = ours.value("status", "");
  const int64_t step = ours.value("global_step", int64_t{-1});
  std::string details;
  if (status == "IssuesFound")
    details = fmt::format(
        "RuleEvaluationConditionMet: Evaluation of the rule {} at step {} resulted in the condition being "
        "met\n",
        rule, step);
  else if (status == "Error")
    details = "ClientError: " + ours.value("details", "");
  else if (status == "Stopped")
    details = ours.value("details", "");
  progress_.MoveRule(name, rule, status, details, step);
}

void Tender::StopRules() {
  const auto asked = base::LocalFileSystem().ReadFile(paths_.stop_rules);
  if (!asked.ok()) return;
  for (const std::string& name : base::SplitList(*asked, '\n')) {
    if (!stopped_rules_.insert(name).second) continue;
    const std::vector<std::string> open = progress_.OpenRules();
    if (std::ranges::find(open, name) != open.end())
      progress_.MoveRule(name, "", "Stopped", "StopProcessingJob", -1);
  }
}

// Reads what the run's events say since the last look, and passes it on.
void Tender::Follow() {
  StopRules();
  const auto text = base::LocalFileSystem().ReadFile(base::JoinPath(paths_.run, "events.jsonl"));
  if (!text.ok() || text->size() <= read_) return;
  const size_t whole = text->rfind('\n');
  if (whole == std::string::npos || whole < read_) return;
  const std::string_view fresh = std::string_view(*text).substr(read_, whole + 1 - read_);
  read_ = whole + 1;
  uint64_t at = read_ - fresh.size();
  for (std::string_view rest = fresh; !rest.empty();) {
    const size_t bytes = rest.find('\n') + 1;
    const std::string_view line = rest.substr(0, bytes);
    rest.remove_prefix(bytes);
    at += bytes;
    if (line.find(events::kStateChange) == std::string_view::npos) continue;
    const Json event = Json::parse(line, nullptr, false);
    if (!event.is_object() || event.value("kind", "") != events::kStateChange) continue;
    const Json detail = event.value("/event/detail"_json_pointer, Json::object());
    const bool known = at <= told_;
    if (!known) TellRules(detail);
    const RunNews now{detail.value("TrainingJobStatus", ""), detail.value("SecondaryStatus", ""),
                      detail.value("FailureReason", "")};
    if (HasEnded(detail)) {
      end_ = now;
      continue;
    }
    end_.reset();
    if (news_ && news_->phase == now.phase) continue;
    news_ = now;
    if (known) continue;
    if (now.phase == "Training")
      progress_.Move("InProgress", "Training", "Training image download completed. Training in progress.");
    else if (now.phase == "Interrupted")
      progress_.Move("InProgress", "Interrupted", "The training was interrupted");
    else if (now.phase == "Restarting")
      progress_.Move("InProgress", "Starting", "Starting the training again");
    else if (now.phase == "Stopping")
      progress_.Move("Stopping", "Stopping", "Stopping the training job");
  }
  // Whoever comes after us passes on what is behind this, and nothing twice.
  if (read_ > told_) (void)base::LocalFileSystem().WriteFileAtomic(TellsPath(), std::to_string(read_));
}

Status Tender::Watch() {
  base::ChangeWaiter changes;
  changes.Watch(base::JoinPath(paths_.run, "events.jsonl"));
  changes.Watch(paths_.directory);
  for (int looks_without = 0;;) {
    const bool lives = LauncherLives();
    Follow();
    TellHandlers();
    SendRuleOutput();
    for (Beside* const beside : {&debug_output_, &tensorboard_, &checkpoints_, &handlers_}) beside->Look();
    for (auto& [unused, beside] : rule_output_) beside.Look();
    if (end_ && !lives) return OkStatus();
    looks_without = lives ? 0 : looks_without + 1;
    if (StopAsked() && !told_run_) {
      if (!asked_run_) progress_.Move("Stopping", "Stopping", "Stopping the training job");
      asked_run_ = true;
      // Where that cannot be written (a full disk) it is tried again: a job that trains has not ended.
      told_run_ = actions::RequestStop(paths_.run, "StopTrainingJob").ok();
    }
    if (looks_without > kLooksWithoutLauncher) {
      looks_without = 0;
      // Killed. A training that goes on gets another launcher; one that is gone, too, has failed.
      const auto registry = jobs::Registry::OpenExisting();
      const auto known = registry.ok() ? registry->FindRun(jobs::RunId(paths_.run))
                                       : Result<jobs::JobRecord>(registry.status());
      // A registry that cannot be read now (it is busy, the disk is full) says nothing: asked again.
      if (!known.ok() && known.status().code() != Code::kNotFound && known.status().code() != Code::kDataLoss)
        continue;
      if (!known.ok() || !jobs::IsAlive(known->process))
        return Unavailable("InternalServerError: the training and what looked after it were killed");
      // Where it cannot have one (its command line had a secret, which is not kept) it is looked at again:
      // the job has not ended before its training has.
      (void)RunHelper(
          {base::SelfExecutable(), "resume", known->name, "--detach"}, [] { return false; },
          LauncherEnvironment(job_, paths_));
    }
    (void)changes.Wait(kLookMillis);
  }
}

// Whoever is registered (events.h) hears of what happens from then on; where that changes, so does who is
// told.
void Tender::TellHandlers() {
  const std::string root = std::filesystem::path(paths_.directory).parent_path().parent_path();
  const std::string file = base::JoinPath(root, kHandlersFile);
  struct stat info;
  const int64_t written =
      ::stat(file.c_str(), &info) == 0 ? info.st_mtim.tv_sec * 1'000'000'000L + info.st_mtim.tv_nsec : -1;
  if (written == handlers_told_) return;
  handlers_told_ = written;
  if (handlers_.started()) (void)handlers_.Finish(kHandlersMillis);
  const auto text = base::LocalFileSystem().ReadFile(file);
  const Json document = text.ok() ? Json::parse(*text, nullptr, false) : Json();
  if (!document.is_object() || document.value("handlers", Json::array()).empty()) return;
  std::error_code error;
  const uintmax_t after = told_before_ ? std::filesystem::file_size(paths_.events, error) : 0;
  told_before_ = true;
  // The server may have come back elsewhere, and with other keys, since it started us.
  const auto environment = [path = base::JoinPath(root, kServerFile)] {
    const auto endpoints = ReadEndpoints(path);
    return endpoints.ok() ? ClientEnvironment(*endpoints) : std::map<std::string, std::string>();
  };
  (void)handlers_.Start({base::SelfExecutable(), "handlers", "deliver", paths_.directory, "--launched",
                         "--on-event", file, "--after", std::to_string(error ? 0 : after)},
                        environment);
}

void Tender::StartMirrors() {
  const Json& request = job_.request;
  if (request.contains("DebugHookConfig")) {
    (void)debug_output_.Start(SendCommand(
        paths_.debug_output,
        UriBelow(request["DebugHookConfig"]["S3OutputPath"], job_.name() + "/debug-output"), false));
  }
  if (request.contains("TensorBoardOutputConfig")) {
    const Json& board = request["TensorBoardOutputConfig"];
    (void)tensorboard_.Start(
        SendCommand(HostPath(paths_, board.value("LocalPath", "/opt/ml/output/tensorboard")),
                    UriBelow(board["S3OutputPath"], job_.name() + "/tensorboard-output"), false));
  }
  if (request.contains("CheckpointConfig"))
    (void)checkpoints_.Start(
        SendCommand(HostPath(paths_, request["CheckpointConfig"].value("LocalPath", "/opt/ml/checkpoints")),
                    request["CheckpointConfig"]["S3Uri"], true));
}

// A rule that makes a document (watch/report_files.h) has a folder from the moment on at which there is one.
void Tender::SendRuleOutput() {
  const std::string folder = base::JoinPath(paths_.run, "rule-output");
  const auto entries = base::LocalFileSystem().List(folder);
  if (!entries.ok()) return;
  for (const base::DirEntry& entry : *entries) {
    const auto rule = std::ranges::find(job_.rules, entry.name, &RuleJob::rule);
    if (!entry.is_directory || rule == job_.rules.end() || rule_output_.contains(entry.name)) continue;
    (void)rule_output_[entry.name].Start(
        SendCommand(base::JoinPath(folder, entry.name), RuleOutputUri(job_, *rule), false));
  }
}

void Tender::FinishMirrors() {
  SendRuleOutput();

  // The platform's word that no more will come; readers wait for it. A job that was stopped before its first
  // step has no other file there.
  if (job_.request.contains("DebugHookConfig")) {
    const std::string marker = base::JoinPath(paths_.debug_output, kEndOfDebugOutput);
    base::FileSystem& files = base::LocalFileSystem();
    if (files.CreateDirectories(paths_.debug_output).ok() && !files.Exists(marker))
      (void)files.WriteFileAtomic(marker, "");
  }
  const Json& request = job_.request;
  const auto place = [&request](const char* member, const char* key) {
    return request.contains(member) ? request[member][key].get<std::string>() : std::string();
  };
  Finish(debug_output_, "debug output", place("DebugHookConfig", "S3OutputPath"));
  Finish(tensorboard_, "TensorBoard output", place("TensorBoardOutputConfig", "S3OutputPath"));
  Finish(checkpoints_, "checkpoints", place("CheckpointConfig", "S3Uri"));
  for (auto& [name, mirror] : rule_output_) {
    const auto rule = std::ranges::find(job_.rules, name, &RuleJob::rule);
    Finish(mirror, "output of the rule " + name, RuleOutputUri(job_, *rule));
  }
  if (!lost_.empty()) (void)base::LocalFileSystem().WriteFileAtomic(paths_.lost, lost_ + "\n");
}

void Tender::Finish(Beside& mirror, const std::string& what, const std::string& uri) {
  if (const Status sent = mirror.Finish(kSendMillis); !sent.ok())
    lost_ += fmt::format("{}the {} could not all be uploaded to {}: {}", lost_.empty() ? "" : "; ", what, uri,
                         sent.message());
}

std::string Tender::WithLost(const std::string& message) const {
  return lost_.empty() ? message : (message + "; " + lost_).substr(0, kMostReason);
}

Status Tender::Upload() {
  const auto never = [] { return false; };
  for (const auto& [folder, archive] :
       {std::pair("/model", "model.tar.gz"), std::pair("/output/data", "output.tar.gz")}) {
    const std::string directory = paths_.ml + folder;
    std::error_code error;
    if (!std::filesystem::is_directory(directory, error) ||
        (std::string_view(folder) != "/model" && std::filesystem::is_empty(directory, error)))
      continue;
    if (std::string_view(folder) == "/model" && !IsModelPacked(job_)) {
      TDBG_RETURN_IF_ERROR(SendFolder(directory, ModelUri(job_), never).Annotate("ClientError"));
      continue;
    }
    const std::string file = base::JoinPath(paths_.directory, archive);
    TDBG_RETURN_IF_ERROR(Pack(directory, file, never).Annotate("InternalServerError"));
    TDBG_RETURN_IF_ERROR(
        Send(file, OutputUri(std::string("output/") + archive), never).Annotate("ClientError"));
    (void)base::LocalFileSystem().Remove(file);
  }
  return OkStatus();
}

std::string Tender::WhyItFailed(const std::string& reason) const {
  const auto failure = base::LocalFileSystem().ReadFile(paths_.ml + "/output/failure", 64 << 10);
  if (failure.ok() && !base::Trim(*failure).empty()) {
    // A script is its user's algorithm whatever it says; a built-in one tells the user's mistakes from its
    // own.
    const bool of_user = failure->starts_with("ClientError: ") && !AlgorithmOf(job_.request).empty();
    return (of_user ? "" : "AlgorithmError: ") + base::ToValidUtf8(failure->substr(0, kMostReason));
  }
  std::string last;
  for (int64_t attempt = 0;; ++attempt) {
    jobs::OutputReader reader(paths_.run, attempt);
    if (!reader.Exists()) break;
    for (auto lines = reader.Next(true); !lines.empty(); lines = reader.Next(true)) {
      for (const jobs::OutputLine& line : lines) {
        const bool ours = line.text.starts_with("tdbg serve: ");
        if (!ours && !base::Trim(line.text).empty()) last = line.text;
      }
    }
  }
  std::string command;
  if (const auto container = ReadContainer(paths_); container.ok()) {
    for (const std::string& word : container->command) command += (command.empty() ? "" : " ") + word;
  }
  return base::ToValidUtf8(
      fmt::format("AlgorithmError: ExecuteUserScriptError:\n{}\nErrorMessage \"{}\"\nCommand \"{}\"", reason,
                  last.substr(0, 600), command.substr(0, 300)));
}

void Tender::EndRules() {
  for (const std::string& rule : progress_.OpenRules())
    progress_.MoveRule(rule, "", "Stopped", "the training job ended before there was anything to judge", -1);
}

void Tender::End(const Status& status) {
  Follow();
  EndRules();
  // Before anybody hears that it has ended. A disk that takes no more has cost the job's log as well.
  (void)WriteMetrics(paths_, FinalMetrics(job_.request, paths_.run));
  std::error_code ignored;
  std::filesystem::remove_all(EnvironmentPath(), ignored);
  if (StopAsked() && !end_ && !asked_run_) {
    progress_.Move("Stopped", "Stopped", "Training job stopped");  // before there was anything to stop
  } else if (!status.ok()) {
    const std::string& message = status.message();
    const bool said = message.starts_with("ClientError") || message.starts_with("AlgorithmError") ||
                      message.starts_with("InternalServerError");
    progress_.Move("Failed", "Failed", WithLost("Training job failed"),
                   said ? message : "InternalServerError: " + message);
  } else if (!end_) {
    progress_.Move("Stopped", "Stopped", "Training job stopped");
  } else if (end_->status == "Failed") {
    progress_.Move("Failed", "Failed", WithLost("Training job failed"), WhyItFailed(end_->failure_reason));
  } else if (end_->status == "Stopped") {
    progress_.Move("Stopped", end_->phase,
                   WithLost(end_->phase == "Stopped" ? "Training job stopped"
                                                     : "Training job stopped: its time was over"));
  } else {
    progress_.Move("Completed", "Completed", WithLost("Training job completed"));
  }
}

}  // namespace

Status TendJob(const std::string& job_directory) {
  const JobPaths paths(job_directory);
  const char* const given = ::getenv(kPackageIndexVariable);
  const std::string package_index = given == nullptr ? "" : given;
  ::unsetenv(kPackageIndexVariable);
  TDBG_ASSIGN_OR_RETURN(const auto lock, base::LocalFileSystem().Lock(paths.lock));
  TDBG_ASSIGN_OR_RETURN(JobDocument job, ReadJob(job_directory));
  if (HasEnded(LastDetail(paths))) return OkStatus();
  Tender(std::move(job), paths, package_index).Run();
  return OkStatus();
}

}  // namespace tdbg::service

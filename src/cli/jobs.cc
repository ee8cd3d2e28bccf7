// tdbg jobs: all jobs of this user and how they ended; or one job's transitions.
#include <fmt/format.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <span>

#include "base/clock.h"
#include "base/process.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/exit_codes.h"
#include "cli/flags.h"
#include "cli/job_path.h"
#include "cli/json_output.h"
#include "cli/output.h"
#include "cli/run_path.h"
#include "cli/terminal.h"
#include "format/json_fields.h"
#include "jobs/exact_words.h"
#include "jobs/job_life.h"
#include "jobs/registry.h"
#include "jobs/run_directory.h"

namespace tdbg::cli {
namespace {

std::string TimeText(int64_t wall_nanos) {
  const time_t seconds = static_cast<time_t>(wall_nanos / 1'000'000'000);
  struct tm local;
  char text[32] = "";
  if (::localtime_r(&seconds, &local)) ::strftime(text, sizeof(text), "%Y-%m-%d %H:%M:%S", &local);
  return text;
}

std::string Duration(int64_t nanos) {
  const int64_t seconds = std::max<int64_t>(0, nanos / 1'000'000'000);
  if (seconds < 60) return fmt::format("{} s", seconds);
  if (seconds < 3600) return fmt::format("{} min", seconds / 60);
  return fmt::format("{} h {:02} min", seconds / 3600, seconds / 60 % 60);
}

std::string LifeName(jobs::JobLife life) {
  switch (life) {
    case jobs::JobLife::kEnded:
      return "ended";
    case jobs::JobLife::kWatched:
      return "watched";
    case jobs::JobLife::kUnwatched:
      return "unwatched";
    case jobs::JobLife::kGone:
      return "gone";
    case jobs::JobLife::kElsewhere:
      return "elsewhere";
  }
  return "unknown";
}

// What is no UTF-8 is U+FFFD in JSON's strings: its bytes, by field and word.
Json OtherBytesOf(const jobs::JobRecord& job) {
  Json bytes = Json::object();
  const auto add = [&](const char* field, const auto& other) {
    if (!other.empty()) bytes[field] = other;
  };
  add("run", jobs::OtherBytes(job.run_directory));
  add("working_directory", jobs::OtherBytes(job.working_directory));
  add("command", jobs::OtherBytes(job.command));
  add("flags", jobs::OtherBytes(job.flags));
  return bytes;
}

bool IsInBucketOnly(const jobs::JobRecord& job) {
  return !job.url.empty() && jobs::RunId(job.run_directory) != job.run_id;
}

std::string PlaceOf(const jobs::JobRecord& job) {
  return IsInBucketOnly(job) ? job.url : DisplayPath(job.run_directory);
}

Json JobJson(const jobs::JobRecord& job, jobs::JobLife life) {
  Json settings = Json::object();
  if (const auto parsed = format::ParseJsonObject(job.settings, "settings"); parsed.ok()) settings = *parsed;
  Json json = {{"job", job.name},
               {"run", IsInBucketOnly(job) ? job.url : LastingPlace(job.run_directory)},
               {"url", job.url.empty() ? Json() : Json(job.url)},
               {"working_directory", job.working_directory},
               {"command", job.command},
               {"flags", job.flags},
               {"settings", settings},
               {"status", jobs::JobStatusName(job.status)},
               {"phase", jobs::JobPhaseName(job.phase)},
               {"message", job.message},
               {"life", LifeName(life)},
               {"host", job.host},
               {"detached", job.detached},
               {"attempt", job.attempt},
               {"pid", job.process.pid},
               {"created_wall_nanos", job.created_wall_nanos},
               {"ended_wall_nanos", job.ended_wall_nanos}};
  json["exit_code"] = job.exit_code ? Json(*job.exit_code) : Json();
  if (Json bytes = OtherBytesOf(job); !bytes.empty()) json["bytes"] = std::move(bytes);
  return json;
}

class JobsCommand : public Command {
 public:
  std::string name() const override { return "jobs"; }
  std::string help() const override {
    return "list your jobs, wherever they were started; of one, its history";
  }
  void Define(Flags& flags) override {
    flags.AddOption("JOB", job_, "a job: its history");
    flags.AddFlag("--running", running_, "only those that have not ended");
    flags.AddOption("--limit", limit_, "so many, the latest; default 100").Check(IntegerFrom(1));
    flags.AddFlag("--prune", prune_, "forget those that have ended and whose run is gone");
    flags.AddFlag("--json", json_, "one JSON document on stdout");
  }

  Result<int> Run() override {
    auto registry = jobs::Registry::OpenExisting();
    if (!registry.ok() && registry.status().code() != Code::kNotFound) return registry.status();
    if (!job_.empty()) {
      if (!registry.ok()) return registry.status();
      TDBG_ASSIGN_OR_RETURN(const jobs::JobRecord job, ResolveJob(*registry, job_));
      return ShowOne(*registry, job);
    }
    if (prune_) return Prune(registry.ok() ? &*registry : nullptr);
    std::vector<jobs::JobRecord> found;
    if (registry.ok()) {
      TDBG_RETURN_IF_ERROR(SettleAll(*registry));
      TDBG_ASSIGN_OR_RETURN(found, Wanted(*registry));
    }
    Json list = Json::array();
    Table table({"JOB", "STATE", "ATTEMPT", "BEGAN", "RAN", "RUN"});
    table.AlignRight(2);
    // The newest stands above the prompt.
    for (auto job = found.rbegin(); job != found.rend(); ++job) {
      const jobs::JobLife life = jobs::LifeOf(*job);
      list.push_back(JobJson(*job, life));
      const int64_t end = job->ended_wall_nanos > 0 ? job->ended_wall_nanos : base::SystemClock().WallNanos();
      table.Add({Printable(job->name), Printable(jobs::StateText(*job, life)), std::to_string(job->attempt),
                 TimeText(job->created_wall_nanos), Duration(end - job->created_wall_nanos),
                 Printable(PlaceOf(*job))});
    }
    if (json_)
      PrintJson(list);
    else if (table.empty())
      Tell("tdbg: no {}job of yours is known; start one with tdbg run -- COMMAND\n",
           running_ ? "running " : "");
    else
      Print("{}", table.Format(Terminal::Of(STDOUT_FILENO)));
    return kExitOk;
  }

 private:
  // A launcher that was killed recorded no end, so find out now.
  static Status SettleAll(jobs::Registry& registry) {
    for (const jobs::JobStatus status : {jobs::JobStatus::kInProgress, jobs::JobStatus::kStopping}) {
      jobs::JobQuery query;
      query.status = status;
      query.limit = 10'000;
      TDBG_ASSIGN_OR_RETURN(std::vector<jobs::JobRecord> jobs, registry.List(query));
      constexpr size_t kAtOnce = 200;  // launchers that would write wait no longer than for these
      for (std::span<jobs::JobRecord> left(jobs); !left.empty();) {
        const auto some = left.first(std::min(left.size(), kAtOnce));
        TDBG_RETURN_IF_ERROR(jobs::Reconcile(registry, some, base::SystemClock().WallNanos()));
        left = left.subspan(some.size());
      }
    }
    return OkStatus();
  }

  // A run on a disk that is not mounted now counts as gone, too; only its line in the list is lost. One that
  // was uploaded is not gone.
  Result<int> Prune(jobs::Registry* registry) const {
    std::vector<std::string> forgotten;
    jobs::JobQuery query;
    query.limit = 1'000;
    while (registry != nullptr) {
      TDBG_ASSIGN_OR_RETURN(const std::vector<jobs::JobRecord> listed, registry->List(query));
      for (const jobs::JobRecord& job : listed) {
        if (!jobs::HasEnded(job.status) || job.host != base::HostName() || !job.url.empty() ||
            jobs::RunId(job.run_directory) == job.run_id || !registry->Forget(job.run_id).ok()) {
          ++query.offset;
          continue;
        }
        forgotten.push_back(job.name);
      }
      if (static_cast<int64_t>(listed.size()) < query.limit) break;
    }
    if (json_)
      PrintJson({{"forgotten", forgotten}});
    else
      Tell("tdbg: forgot {}\n", base::Counted(forgotten.size(), "job"));
    return kExitOk;
  }

  Result<std::vector<jobs::JobRecord>> Wanted(const jobs::Registry& registry) const {
    jobs::JobQuery query;
    query.limit = limit_;
    if (!running_) return registry.List(query);
    query.status = jobs::JobStatus::kStopping;
    TDBG_ASSIGN_OR_RETURN(std::vector<jobs::JobRecord> all, registry.List(query));
    query.status = jobs::JobStatus::kInProgress;
    TDBG_ASSIGN_OR_RETURN(const std::vector<jobs::JobRecord> training, registry.List(query));
    all.insert(all.end(), training.begin(), training.end());
    return all;
  }

  Result<int> ShowOne(const jobs::Registry& registry, const jobs::JobRecord& job) {
    TDBG_ASSIGN_OR_RETURN(const std::vector<jobs::JobTransition> transitions, registry.Transitions(job.id));
    TDBG_ASSIGN_OR_RETURN(const std::vector<jobs::JobAttempt> attempts, registry.Attempts(job.id));
    const jobs::JobLife life = jobs::LifeOf(job);
    if (json_) {
      Json json = JobJson(job, life);
      for (const jobs::JobTransition& transition : transitions) {
        json["transitions"].push_back({{"status", jobs::JobStatusName(transition.status)},
                                       {"phase", jobs::JobPhaseName(transition.phase)},
                                       {"message", transition.message},
                                       {"began_wall_nanos", transition.began_wall_nanos},
                                       {"ended_wall_nanos", transition.ended_wall_nanos}});
      }
      for (const jobs::JobAttempt& attempt : attempts) {
        json["attempts"].push_back({{"attempt", attempt.attempt},
                                    {"began_wall_nanos", attempt.began_wall_nanos},
                                    {"ended_wall_nanos", attempt.ended_wall_nanos},
                                    {"exit_code", attempt.exit_code ? Json(*attempt.exit_code) : Json()},
                                    {"message", attempt.message}});
      }
      PrintJson(json);
      return kExitOk;
    }
    Print("{}  {}\n  run      {}\n", Printable(job.name), Printable(jobs::StateText(job, life)),
          Printable(PlaceOf(job)));
    std::string command;
    for (const std::string& word : job.command) command += (command.empty() ? "" : " ") + ShellWord(word);
    Print("  command  {}\n", command);
    for (const jobs::JobTransition& transition : transitions) {
      Print("  {}  {:<12}  {}\n", TimeText(transition.began_wall_nanos), jobs::JobPhaseName(transition.phase),
            Printable(transition.message));
    }
    if (life == jobs::JobLife::kUnwatched)
      Tell("tdbg: nobody judges it: `tdbg resume {}` looks after it again, and `tdbg stop {}` ends it\n",
           ShellWord(job.name), ShellWord(job.name));
    return kExitOk;
  }

  std::string job_;
  bool running_ = false, prune_ = false, json_ = false;
  int64_t limit_ = 100;
};

}  // namespace

std::unique_ptr<Command> MakeJobsCommand() { return std::make_unique<JobsCommand>(); }

}  // namespace tdbg::cli

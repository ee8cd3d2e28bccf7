#include "service/job_files.h"

#include <errno.h>
#include <fmt/format.h>
#include <stdio.h>

#include <filesystem>

#include "base/file.h"
#include "events/change.h"
#include "format/events.h"

namespace tdbg::service {
namespace {

constexpr const char* kEventsFile = "events.jsonl";

}  // namespace

JobPaths::JobPaths(std::string job_directory) : directory(std::move(job_directory)) {
  job = base::JoinPath(directory, "job.json");
  events = base::JoinPath(directory, kEventsFile);
  started = base::JoinPath(directory, "started");
  stop = base::JoinPath(directory, "stop");
  stop_rules = base::JoinPath(directory, "stop-rules");
  lock = base::JoinPath(directory, "tender.lock");
  log = base::JoinPath(directory, "tender.log");
  ml = base::JoinPath(directory, "ml");
  container = base::JoinPath(directory, "container.json");
  run = base::JoinPath(directory, "runs/" + base::BaseName(directory));
  debug_output = base::JoinPath(directory, "debug-output");
  lost = base::JoinPath(directory, "lost");
}

std::string JobDocument::arn() const {
  return fmt::format("arn:aws:sagemaker:{}:{}:training-job/{}", region, account, name());
}
std::string JobDocument::processing_arn(const RuleJob& rule) const {
  return fmt::format("arn:aws:sagemaker:{}:{}:processing-job/{}", region, account, rule.processing);
}

Json JobDocument::ToJson() const {
  Json rule_jobs = Json::array();
  for (const RuleJob& rule : rules)
    rule_jobs.push_back({{"rule", rule.rule}, {"processing", rule.processing}, {"profiler", rule.profiler}});
  return {{"request", request},     {"region", region},
          {"account", account},     {"created_wall_nanos", created_wall_nanos},
          {"rules", rule_jobs},     {"python", python},
          {"no_python", no_python}, {"endpoint", endpoint}};
}

Result<JobDocument> ReadJob(const std::string& job_directory) {
  const std::string path = JobPaths(job_directory).job;
  TDBG_ASSIGN_OR_RETURN(const std::string text, base::LocalFileSystem().ReadFile(path));
  const Json json = Json::parse(text, nullptr, false);
  JobDocument job;
  // Written by us; whoever edits it gets a refusal and no crash.
  try {
    job.request = json.at("request");
    (void)job.name();
    job.region = json.at("region");
    job.account = json.at("account");
    job.created_wall_nanos = json.at("created_wall_nanos");
    for (const Json& rule : json.at("rules"))
      job.rules.push_back({rule.at("rule"), rule.at("processing"), rule.at("profiler")});
    job.python = json.at("python");
    job.no_python = json.at("no_python");
    job.endpoint = json.at("endpoint");
  } catch (const Json::exception& wrong) {
    return DataLoss(path + ": " + wrong.what());
  }
  return job;
}

Json LastDetail(const JobPaths& paths) {
  const auto text = base::LocalFileSystem().ReadFile(paths.events);
  Json detail = Json::object();
  if (!text.ok()) return detail;
  // From the end: of a job with many events only the last is looked at.
  std::string_view rest = *text;
  while (!rest.empty()) {
    if (rest.back() == '\n') rest.remove_suffix(1);
    const size_t begin = rest.rfind('\n');
    const std::string_view line = begin == std::string_view::npos ? rest : rest.substr(begin + 1);
    rest = begin == std::string_view::npos ? std::string_view() : rest.substr(0, begin + 1);
    if (line.find(events::kStateChange) == std::string_view::npos) continue;
    const Json event = Json::parse(line, nullptr, false);
    if (!event.is_object() || event.value("kind", "") != events::kStateChange) continue;
    const auto it = event.find("event");
    if (it != event.end() && it->is_object() && it->contains("detail")) return (*it)["detail"];
  }
  return detail;
}

JobPaths JobDirectory::Paths(const std::string& name) const { return JobPaths(base::JoinPath(root_, name)); }

std::string JobDirectory::EventsPath(const std::string& name) const {
  return base::JoinPath(base::JoinPath(root_, name), kEventsFile);
}

Status JobDirectory::Create(const JobDocument& job) const {
  base::FileSystem& files = base::LocalFileSystem();
  const std::string name = job.name();
  // A name that no job can have: whoever lists meanwhile does not see it, and a crash leaves nothing that
  // counts.
  const std::string temporary = base::JoinPath(root_, fmt::format(".{}.{}", name, events::NewUuid()));
  TDBG_RETURN_IF_ERROR(files.CreateDirectories(temporary));
  Status written = files.WriteFileAtomic(JobPaths(temporary).job, job.ToJson().dump(2) + "\n");
  if (written.ok()) written = files.AppendLine(JobPaths(temporary).events, "");
  // Of two that create the same name one gets it: a directory that is not empty is not replaced.
  if (written.ok() && ::rename(temporary.c_str(), Paths(name).directory.c_str()) != 0)
    written = errno == ENOTEMPTY || errno == EEXIST ? Status(Code::kAlreadyExists, "there is a job " + name)
                                                    : ErrnoStatus(errno, "cannot create the job " + name);
  if (!written.ok()) {
    std::error_code ignored;
    std::filesystem::remove_all(temporary, ignored);
  }
  return written;
}

Status JobDirectory::Delete(const std::string& name) const {
  const std::string away = base::JoinPath(root_, fmt::format(".{}.{}", name, events::NewUuid()));
  if (::rename(Paths(name).directory.c_str(), away.c_str()) != 0)
    return ErrnoStatus(errno, "cannot delete the job " + name);
  std::error_code error;
  std::filesystem::remove_all(away, error);
  return error ? Unavailable(away + ": " + error.message()) : OkStatus();
}

Result<std::vector<std::string>> JobDirectory::Names() const {
  std::vector<std::string> names;
  TDBG_ASSIGN_OR_RETURN(const auto entries, base::LocalFileSystem().List(root_));
  for (const base::DirEntry& entry : entries) {
    if (entry.is_directory && entry.name[0] != '.') names.push_back(entry.name);
  }
  return names;
}

bool JobDirectory::Exists(const std::string& name) const {
  return base::LocalFileSystem().Exists(Paths(name).job);
}

Json JobDirectory::Tags(const std::string& name) const {
  const auto text = base::LocalFileSystem().ReadFile(base::JoinPath(Paths(name).directory, "tags.json"));
  if (text.ok()) {
    const Json tags = Json::parse(*text, nullptr, false);
    if (tags.is_array()) return tags;
  }
  const auto job = ReadJob(Paths(name).directory);
  return job.ok() ? job->request.value("Tags", Json::array()) : Json::array();
}

Status JobDirectory::SetTags(const std::string& name, const Json& tags) const {
  return base::LocalFileSystem().WriteFileAtomic(base::JoinPath(Paths(name).directory, "tags.json"),
                                                 tags.dump() + "\n");
}

}  // namespace tdbg::service

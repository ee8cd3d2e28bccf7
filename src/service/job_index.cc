#include "service/job_index.h"

#include <sys/stat.h>

#include <algorithm>

#include "base/clock.h"
#include "service/describe.h"

namespace tdbg::service {
namespace {

// Of two changes of a directory within one tick of the kernel's clock (10 ms at most) both leave the same
// time: a list that was made so soon after a change is made again at the next look.
constexpr int64_t kTickNanos = 50'000'000;

Summary SummaryOf(Json document, const char* name, const char* status) {
  Summary summary;
  summary.name = document.at(name);
  summary.status = document.at(status);
  summary.created = document.at("CreationTime");
  summary.modified = document.at("LastModifiedTime");
  summary.document = std::move(document);
  return summary;
}

IndexedJob ReadIndexed(const JobPaths& paths) {
  IndexedJob indexed;
  const auto job = ReadJob(paths.directory);
  if (!job.ok()) return indexed;
  const Json detail = LastDetail(paths);
  indexed.readable = true;
  indexed.ended = HasEnded(detail);
  indexed.created_wall_nanos = job->created_wall_nanos;
  indexed.phase = detail.value("SecondaryStatus", "");
  indexed.training = SummaryOf(SummarizeTrainingJob(*job, detail), "TrainingJobName", "TrainingJobStatus");
  for (const RuleJob& rule : job->rules)
    indexed.rules.push_back({rule, SummaryOf(DescribeProcessingJob(*job, rule, detail, true),
                                             "ProcessingJobName", "ProcessingJobStatus")});
  return indexed;
}

}  // namespace

JobIndex::Stamp JobIndex::StampOf(const std::string& path) {
  struct stat info;
  if (::stat(path.c_str(), &info) != 0) return {};
  return {info.st_ino, info.st_size, info.st_mtim.tv_sec * 1'000'000'000L + info.st_mtim.tv_nsec};
}

const std::map<std::string, IndexedJob>& JobIndex::Look() {
  // Both before its content, so that what changes meanwhile is seen at the next look.
  const int64_t now = base::SystemClock().WallNanos();
  const Stamp directory = StampOf(jobs_->root());
  if (!listed_ || *listed_ != directory) {
    listed_.reset();
    if (List() && now - directory.nanos > kTickNanos) listed_ = directory;
    return index_;
  }
  // One that has ended has no further event.
  for (auto next = unfinished_.begin(); next != unfinished_.end();) {
    const std::string name = *next++;  // it may be none of these any more
    Read(name);
  }
  return index_;
}

bool JobIndex::List() {
  const auto names = jobs_->Names();
  if (!names.ok()) return false;  // as it was, until it can be seen again
  std::erase_if(index_, [&](const auto& one) { return !std::ranges::binary_search(*names, one.first); });
  std::erase_if(unfinished_, [&](const std::string& one) { return !index_.contains(one); });
  std::erase_if(jobs_read_, [&](const auto& one) { return !index_.contains(one.first); });
  for (const std::string& name : *names) Read(name);
  return true;
}

void JobIndex::Read(const std::string& name) {
  // Events are only added to: one more is another size.
  const Stamp events = StampOf(jobs_->EventsPath(name));
  const auto known = jobs_read_.find(name);
  if (known != jobs_read_.end() && known->second == events && index_[name].readable) return;
  IndexedJob& job = index_[name] = ReadIndexed(jobs_->Paths(name));
  jobs_read_[name] = events;
  if (job.ended)
    unfinished_.erase(name);
  else
    unfinished_.insert(name);
  // A file that has something and shows nothing could not be read now.
  if (events.bytes > 1 && job.phase.empty()) jobs_read_.erase(name);
}

}  // namespace tdbg::service

#include "storage/run_list.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "base/clock.h"
#include "format/version.h"
#include "storage/parallel.h"
#include "storage/upload_state.h"

namespace tdbg::storage {
namespace {

constexpr int kAtOnce = 12;
constexpr int kDeepest = 4;             // folders between the prefix and a run
constexpr size_t kLevelObjects = 1000;  // one page; a run has few files at its top

int64_t SinceNanos(int64_t wall_nanos) {
  return std::max<int64_t>(0, base::SystemClock().WallNanos() - wall_nanos);
}

const char* StateWord(const UploadState& state, int64_t age_nanos) {
  if (state.complete) return "complete";
  if (!state.following) return "incomplete";
  if (state.left) return "left";
  if (age_nanos >= state.SilenceNanos(kGoneNanos)) return "gone";
  return age_nanos >= state.SilenceNanos(kReplacedNanos) ? "late" : "running";
}

Result<uint64_t> BytesBelow(ObjectStore* store, const std::string& prefix) {
  TDBG_ASSIGN_OR_RETURN(const std::vector<ObjectInfo> objects, store->List(prefix));
  uint64_t bytes = 0;
  for (const ObjectInfo& object : objects) bytes += object.bytes;
  return bytes;
}

class Search {
 public:
  Search(ObjectStore* store, const Location& from, size_t most)
      : store_(store), prefix_(from.KeyPrefix()), most_(most) {}

  Result<RunList> Go() {
    std::vector<std::string> due = {""};
    for (int depth = 0; depth <= kDeepest && !due.empty(); ++depth) {
      next_.clear();
      TDBG_RETURN_IF_ERROR(InParallel(due.size(), kAtOnce, [&](size_t i) { return Look(due[i]); }));
      due = std::exchange(next_, {});
      std::ranges::sort(due);
      const size_t room = most_ - std::min(most_, list_.runs.size());
      list_.more |= due.size() > room || (depth == kDeepest && !due.empty());
      due.resize(std::min(due.size(), room));
    }
    std::ranges::sort(list_.runs, {}, &ListedRun::name);
    return std::move(list_);
  }

 private:
  Status Look(const std::string& name) {
    const std::string below = name.empty() ? prefix_ : KeyBelow(prefix_, name);
    const std::string prefix = below.empty() ? "" : below + "/";
    TDBG_ASSIGN_OR_RETURN(const Level level, store_->ListLevel(prefix, std::max(most_, kLevelObjects)));
    const auto object = [&](std::string_view of) -> const ObjectInfo* {
      const auto at = std::ranges::find(level.objects, prefix + std::string(of), &ObjectInfo::key);
      return at == level.objects.end() ? nullptr : &*at;
    };
    const auto has = [&](const char* folder) {
      return std::ranges::find(level.folders, folder) != level.folders.end();
    };
    ListedRun run;
    run.name = name;
    if (object(kStateFile) != nullptr) {
      TDBG_RETURN_IF_ERROR(ReadState(prefix, &run));
    } else if (const ObjectInfo* const info = object(format::kRunFile)) {
      run.state = "copied";
      run.age_nanos = SinceNanos(info->modified_wall_nanos);
      TDBG_ASSIGN_OR_RETURN(run.bytes, BytesBelow(store_, prefix));
    } else if (has("collections") && (has("events") || has("index"))) {
      run.state = "smdebug";
      TDBG_ASSIGN_OR_RETURN(const auto objects, store_->List(prefix));
      int64_t newest = 0;
      for (const ObjectInfo& one : objects) {
        run.bytes += one.bytes;
        newest = std::max(newest, one.modified_wall_nanos);
      }
      run.age_nanos = SinceNanos(newest);
    } else {
      const std::lock_guard guard(mutex_);
      list_.more |= level.more;
      for (const std::string& folder : level.folders)
        next_.push_back(name.empty() ? folder : name + "/" + folder);
      return OkStatus();
    }
    const std::lock_guard guard(mutex_);
    list_.runs.push_back(std::move(run));
    return OkStatus();
  }

  Status ReadState(const std::string& prefix, ListedRun* run) {
    TDBG_ASSIGN_OR_RETURN(const Object object, store_->Get(prefix + std::string(kStateFile)));
    const auto state = UploadState::FromJson(object.bytes);
    run->age_nanos = std::max<int64_t>(0, AgeNanos(object));
    run->state = state.ok() ? StateWord(*state, run->age_nanos) : "incomplete";
    if (!state.ok()) return OkStatus();
    run->host = state->host;
    run->bytes = static_cast<uint64_t>(std::max<int64_t>(0, state->bytes));
    if (run->bytes > 0) return OkStatus();
    TDBG_ASSIGN_OR_RETURN(run->bytes, BytesBelow(store_, prefix));
    return OkStatus();
  }

  ObjectStore* const store_;
  const std::string prefix_;
  const size_t most_;
  std::mutex mutex_;
  RunList list_;                   // guarded by mutex_, as is the next
  std::vector<std::string> next_;  // folders to look at next
};

}  // namespace

Result<RunList> RunsBelow(ObjectStore* store, const Location& from, size_t most) {
  return Search(store, from, most).Go();
}

}  // namespace tdbg::storage

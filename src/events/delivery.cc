#include "events/delivery.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <set>
#include <thread>
#include <utility>

#include "base/below.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/posix.h"
#include "base/redact.h"
#include "events/change.h"
#include "events/target.h"
#include "format/events.h"
#include "format/version.h"

namespace tdbg::events {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kLookMillis = 1000;  // in case the file system reports no changes, or the run was moved
constexpr size_t kLongestLine = 16u << 20;
constexpr int64_t kFirstPauseMillis = 1000;
constexpr int64_t kLongestPauseMillis = 60'000;
constexpr int64_t kMostSaid = 5;  // failures of a handler, each in other words
constexpr int kProcessTries = 3;  // for an event whose process was killed

// What a handler is started with, as text in which its secrets are found.
std::string GivenTo(const Handler& handler) {
  std::string given = handler.kind == HandlerKind::kExec ? "exec:" + handler.target : std::string();
  for (const auto& [name, value] : handler.environment) given.append("\n" + name + "=" + value);
  return given;
}

// Reads the file's new whole lines.
class LineReader {
 public:
  explicit LineReader(std::string path) : path_(std::move(path)) {}

  // Calls f(line, its offset) for each new line.
  template <typename F>
  Status Read(const F& f) {
    const base::UniqueFd file(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (!file.ok()) return errno == ENOENT ? OkStatus() : ErrnoStatus(errno, "cannot read " + path_);
    struct stat info;
    if (::fstat(file.get(), &info) != 0 || !S_ISREG(info.st_mode))
      return FailedPrecondition(path_ + " is no regular file");
    if (static_cast<uint64_t>(info.st_size) < position_) {  // the file was replaced by another one
      position_ = 0;
      rest_.clear();
    }
    char buffer[65536];
    ssize_t got;
    while ((got = ::pread(file.get(), buffer, sizeof(buffer), static_cast<off_t>(position_))) > 0) {
      position_ += static_cast<uint64_t>(got);
      rest_.append(buffer, static_cast<size_t>(got));
      size_t begin = 0;
      for (size_t end; (end = rest_.find('\n', begin)) != std::string::npos; begin = end + 1) {
        if (!std::exchange(too_long_, false))
          f(std::string_view(rest_).substr(begin, end - begin), position_ - rest_.size() + begin);
      }
      rest_.erase(0, begin);
      if (rest_.size() > kLongestLine) {
        too_long_ = true;
        rest_.clear();
      }
    }
    return got < 0 ? ErrnoStatus(errno, "cannot read " + path_) : OkStatus();
  }

 private:
  const std::string path_;
  uint64_t position_ = 0;
  std::string rest_;
  bool too_long_ = false;
};

}  // namespace

struct Deliverer::Impl {
  // A handler with its thread.
  struct Lane {
    explicit Lane(Handler given) : handler(std::move(given)) {}
    Handler handler;
    std::set<std::string> done;  // ids of events that were delivered before this process started
    std::deque<std::shared_ptr<const Event>> waiting;  // guarded by Impl::mutex
    std::thread thread;
    // Its thread's, and whose joins it: how many deliveries failed, and the first failure's words.
    int64_t handled = 0, failed = 0;
    std::string said;
  };

  explicit Impl(DeliveryOptions given)
      : options(std::move(given)), reader(base::JoinPath(options.run, format::kEventsFile)) {
    for (Handler& handler : options.handlers) lanes.push_back(std::make_unique<Lane>(std::move(handler)));
  }

  DeliveryOptions options;
  LineReader reader;
  base::ChangeWaiter waiter;
  std::atomic<bool> job_ended = false;

  std::mutex mutex;
  std::condition_variable news;
  // Guarded by mutex.
  bool no_more = false, abandoned = false, write_failed = false;
  size_t left_over = 0;
  std::vector<std::unique_ptr<Lane>> lanes;  // last: its threads use all the above

  void Log(const std::string& line) const {
    if (options.log) options.log(line);
  }

  void WriteDown(const Handler& handler, const Event& event, const Outcome& outcome, int64_t tries,
                 int64_t millis) {
    char time[32];
    const int64_t now = base::SystemClock().WallNanos();
    Json line = {{"kind", kDelivery},         {"wall_nanos", now},    {"time", base::FormatUtc(now, time)},
                 {"handler", handler.name},   {"event_id", event.id}, {"target", Describe(handler)},
                 {"ok", outcome.status.ok()}, {"tries", tries},       {"millis", millis}};
    if (!outcome.status.ok()) line["error"] = base::RedactOutput(outcome.status.message(), GivenTo(handler));
    if (!outcome.output.empty()) line["output"] = base::RedactOutput(outcome.output, GivenTo(handler));
    const Status written = base::FilesBelow(base::LocalFileSystem(), options.run)
                               .AppendLine(base::JoinPath(options.run, format::kEventsFile),
                                           line.dump(-1, ' ', false, Json::error_handler_t::replace));
    if (written.ok()) return;
    const std::lock_guard lock(mutex);
    if (!std::exchange(write_failed, true))
      Log("what came of events cannot be written down, so they may come again: " + written.message());
  }

  // False if Abandon interrupted the wait.
  bool Pause(int64_t millis) {
    std::unique_lock lock(mutex);
    news.wait_for(lock, std::chrono::milliseconds(millis), [this] { return abandoned; });
    return !abandoned;
  }

  // On somebody's terminal, amid a training: a handler that fails at each event says so once and counts.
  void TellFailure(Lane& lane, const Event& event, const Status& failure) {
    ++lane.failed;
    const std::string text = base::RedactOutput(failure.message(), GivenTo(lane.handler));
    std::string same = text;  // at whichever event
    if (const size_t id = same.find(event.id); id != std::string::npos) same.erase(id, event.id.size());
    if (lane.failed > 1 && same == lane.said) return;
    if (lane.failed <= kMostSaid) Log("handler " + lane.handler.name + " failed: " + text);
    lane.said = same;
  }

  void Handle(Lane& lane, Target& target, const Event& event) {
    const Handler& handler = lane.handler;
    const int64_t begin = base::SystemClock().MonotonicNanos();
    Outcome outcome;
    int64_t tries = 0, failures = 0;
    int deaths = 0;
    while (true) {
      ++tries;
      try {
        outcome = target.Deliver(event);
      } catch (const std::exception& error) {
        outcome = {Internal(error.what()), "", false};
      }
      if (outcome.status.ok()) break;
      if (outcome.process_gone && ++deaths < kProcessTries) continue;
      if (failures >= handler.retries) break;
      if (!Pause(std::min(kFirstPauseMillis << failures, kLongestPauseMillis))) break;
      ++failures;
    }
    WriteDown(handler, event, outcome, tries, (base::SystemClock().MonotonicNanos() - begin) / 1'000'000);
    ++lane.handled;
    if (!outcome.status.ok()) TellFailure(lane, event, outcome.status);
  }

  void Run(Lane& lane) {
    const std::unique_ptr<Target> target = MakeTarget(lane.handler, options.run);
    target->Prepare();
    while (true) {
      std::shared_ptr<const Event> event;
      {
        std::unique_lock lock(mutex);
        news.wait(lock, [&] { return abandoned || no_more || !lane.waiting.empty(); });
        if (abandoned || lane.waiting.empty()) return;
        event = lane.waiting.front();
      }
      Handle(lane, *target, *event);
      const std::lock_guard lock(mutex);
      lane.waiting.pop_front();
    }
  }

  void TakeEvent(const format::Json& line) {
    const auto found = line.find("event");
    if (found == line.end() || !found->is_object()) return;
    auto event = std::make_shared<Event>();
    event->json = *found;
    const auto id = event->json.find("id");
    if (id == event->json.end() || !id->is_string()) return;
    event->id = id->get<std::string>();
    event->text = format::DumpJson(event->json);
    for (const auto& lane : lanes) {
      if (lane->done.contains(event->id) || !lane->handler.pattern.Matches(event->json)) continue;
      const std::lock_guard lock(mutex);
      lane->waiting.push_back(event);
    }
    news.notify_all();
  }

  void TakeDelivery(const format::Json& line) {
    std::string handler, id;
    format::GetField(line, "handler", &handler);
    format::GetField(line, "event_id", &id);
    for (const auto& lane : lanes) {
      if (lane->handler.name == handler) lane->done.insert(id);
    }
  }

  Status Read(bool first) {
    std::vector<format::Json> events;  // deliveries of an event are recorded behind it
    const Status status = reader.Read([&](std::string_view text, uint64_t begin) {
      const bool change = text.find(kStateChange) != std::string_view::npos;
      if (!change && !(first && text.find(kDelivery) != std::string_view::npos)) return;
      if (!format::IsJson(text)) return;  // not JSON, or nested too deeply
      auto line = format::ParseEvent(text);
      if (!line) return;
      const std::string& kind = (*line)["kind"].get_ref<const std::string&>();
      if (kind == kDelivery && first) TakeDelivery(*line);
      if (kind == kStateChange && begin >= options.after) events.push_back(*std::move(line));
    });
    for (const format::Json& event : events) TakeEvent(event);
    return status;
  }

  void End(bool abandon) {
    {
      const std::lock_guard lock(mutex);
      no_more = true;
      abandoned = abandoned || abandon;
    }
    news.notify_all();
  }

  void Join() {
    for (const auto& lane : lanes) {
      if (!lane->thread.joinable()) continue;
      lane->thread.join();
      if (lane->failed > 1)
        Log("handler " + lane->handler.name + " failed at " + std::to_string(lane->failed) + " of " +
            std::to_string(lane->handled) +
            " events; the lines of kind delivery in the run's events.jsonl say why");
    }
    const std::lock_guard lock(mutex);
    left_over = 0;
    for (const auto& lane : lanes) left_over += lane->waiting.size();
  }

  Status Follow() {
    waiter.Watch(base::JoinPath(options.run, format::kEventsFile));
    Status status = Read(true);
    for (const auto& lane : lanes) lane->thread = std::thread([this, &lane] { Run(*lane); });
    while (true) {
      // Read before looking, so that the look sees everything written before the end.
      const bool over = job_ended;
      status = Read(false);
      if (over) break;
      (void)waiter.Wait(kLookMillis);
    }
    End(false);
    Join();
    return status;
  }
};

Deliverer::Deliverer(DeliveryOptions options) : impl_(std::make_unique<Impl>(std::move(options))) {}

Deliverer::~Deliverer() {
  impl_->End(true);
  impl_->Join();
}

Status Deliverer::Follow() { return impl_->Follow(); }

void Deliverer::JobEnded() {
  impl_->job_ended = true;
  impl_->waiter.Wake();
}

void Deliverer::Abandon() {
  impl_->End(true);
  JobEnded();
}

size_t Deliverer::left_over() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->left_over;
}

}  // namespace tdbg::events

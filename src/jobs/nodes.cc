#include "jobs/nodes.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/below.h"
#include "base/clock.h"
#include "base/process.h"
#include "base/text.h"
#include "format/json_fields.h"
#include "format/version.h"
#include "jobs/once_file.h"
#include "jobs/run_place.h"

namespace tdbg::jobs {
namespace {

using format::Json;

constexpr int64_t kMostNodes = 4096;
constexpr int64_t kBeatsPerTimeout = 5;
constexpr int64_t kLeastBeatMillis = 50;
constexpr int64_t kLookMillis = 50;
constexpr uint64_t kMostBytes = 64u << 10;
// How long whoever lays an attempt out may take beyond the launch's timeout: journals are not its business.
constexpr int64_t kLayoutMillis = 20'000;

int64_t Now() { return base::SystemClock().MonotonicNanos(); }
int64_t Nanos(int64_t millis) { return millis * 1'000'000; }

void Sleep(int64_t millis) { std::this_thread::sleep_for(std::chrono::milliseconds(millis)); }

std::string NodesFolder(const std::string& run) { return base::JoinPath(run, kNodesFolder); }

std::optional<Json> ReadObject(const std::string& path) {
  const auto text = base::LocalFileSystem().ReadFile(path, kMostBytes);
  if (!text.ok()) return std::nullopt;
  auto json = format::ParseJsonObject(*text, path);
  if (!json.ok()) return std::nullopt;
  return *std::move(json);
}

int64_t NumberOf(const Json& json, const char* key, int64_t otherwise) {
  format::GetField(json, key, &otherwise);
  return otherwise;
}

std::string TextOf(const Json& json, const char* key) {
  std::string text;
  format::GetField(json, key, &text);
  return text;
}

// The latest launch in the folder; -1: none yet. Its files begin with its number.
int64_t LatestLaunch(const std::string& folder) {
  int64_t latest = -1;
  const auto entries = base::LocalFileSystem().List(folder);
  if (!entries.ok()) return latest;
  for (const base::DirEntry& entry : *entries) {
    if (!entry.name.ends_with("-launch.json")) continue;
    if (const auto number = base::ParseInt(entry.name.substr(0, entry.name.find('-'))))
      latest = std::max(latest, *number);
  }
  return latest;
}

std::string FileOf(const std::string& folder, int64_t launch, const std::string& rest) {
  return base::JoinPath(folder, fmt::format("{}-{}.json", launch, rest));
}

std::string NodeLock(const std::string& folder, int64_t node) {
  return base::JoinPath(folder, fmt::format("node-{}.lock", node));
}

}  // namespace

Result<NodePlace> ParseNodePlace(const std::string& text) {
  const size_t slash = text.find('/');
  const auto node = base::ParseInt(text.substr(0, slash));
  const auto nodes =
      slash == std::string::npos ? std::optional<int64_t>() : base::ParseInt(text.substr(slash + 1));
  if (node && nodes && *node >= 0 && *node < *nodes && *nodes <= kMostNodes) return NodePlace{*node, *nodes};
  return InvalidArgument(fmt::format(
      "--node: found '{}'; accepted: NODE/NODES, counted from 0, as 0/2 and 1/2; at most {} nodes", text,
      kMostNodes));
}

bool NodeLauncherAlive(const std::string& run_directory, int64_t node) {
  return base::LocalFileSystem().IsLocked(NodeLock(NodesFolder(run_directory), node));
}

NodeLaunch::NodeLaunch(NodeOptions options)
    : options_(std::move(options)),
      directory_(AbsolutePath(options_.prepare.run_directory)),
      folder_(NodesFolder(directory_)) {}

NodeLaunch::~NodeLaunch() {
  {
    const std::lock_guard lock(mutex_);
    leaving_ = true;
  }
  changed_.notify_all();
  if (beating_.joinable()) beating_.join();
}

std::string NodeLaunch::Name(const std::string& rest) const { return FileOf(folder_, launch_, rest); }

std::string NodeLaunch::NodeFile(int64_t node, int64_t incarnation) const {
  return Name(fmt::format("node-{}-{}", node, incarnation));
}

Result<std::unique_ptr<NodeLaunch>> NodeLaunch::Join(const NodeOptions& options, PreparedAttempt* prepared) {
  std::unique_ptr<NodeLaunch> launch(new NodeLaunch(options));
  TDBG_RETURN_IF_ERROR(launch->Enter(prepared));
  launch->began_nanos_ = Now();
  launch->Beat();
  launch->beating_ = std::thread([self = launch.get()] { self->Run(); });
  return launch;
}

// Does some launcher of this launch change its file? Also says what forbids to join one that lives.
Result<bool> NodeLaunch::Lives(int64_t launch, int64_t nodes, int64_t timeout_millis) {
  const NodePlace& place = options_.place;
  std::map<std::string, std::string> first;
  const int64_t until = Now() + Nanos(timeout_millis);
  const int64_t patient_until = Now() + Nanos(timeout_millis) * 2 / kBeatsPerTimeout;
  bool told = false, lives = false;
  while (true) {
    const auto entries = base::LocalFileSystem().List(folder_);
    if (!entries.ok()) return entries.status();
    const std::string prefix = fmt::format("{}-node-", launch);
    const std::string own = fmt::format("{}{}-", prefix, place.node);
    bool others = false;
    int64_t mine = -1;
    for (const base::DirEntry& entry : *entries) {
      if (!entry.name.starts_with(prefix) || !entry.name.ends_with(".json")) continue;
      const bool is_own = entry.name.starts_with(own);
      if (is_own) ++mine;
      const auto text = base::LocalFileSystem().ReadFile(base::JoinPath(folder_, entry.name), kMostBytes);
      if (!text.ok()) continue;
      const auto json = format::ParseJsonObject(*text, entry.name);
      const bool stopped = json.ok() && TextOf(*json, "stop") == "requested";
      const auto [at, is_new] = first.emplace(entry.name, *text);
      if (is_new || at->second == *text) continue;
      if (stopped)
        return FailedPrecondition(fmt::format(
            "the job was stopped (by {}) and its nodes are about to end; start all of them again then",
            TextOf(*json, "stopped_by")));
      if (is_own)
        return FailedPrecondition(fmt::format(
            "node {} of this run has a launcher already, on {}; wait for it, stop it (tdbg stop), "
            "or choose another --dir: {}",
            place.node, json.ok() ? TextOf(*json, "host") : "another host", directory_));
      others = true;
    }
    if (base::LocalFileSystem().Exists(FileOf(folder_, launch, "over"))) return false;
    if (others && nodes != place.nodes)
      return FailedPrecondition(
          fmt::format("this run's job has {} nodes, and --node says {}: the same number on every node", nodes,
                      place.nodes));
    // One that takes the place of a dead one must be sure that it is dead.
    if (others && mine < 0) return true;
    lives = lives || others;
    if (Now() >= until) return lives;
    if (Now() >= patient_until && !lives && !std::exchange(told, true) && options_.say)
      options_.say(
          fmt::format("an earlier launch of this run's nodes has left no word of its end; waiting "
                      "up to {} s for a sign of life",
                      (timeout_millis + 999) / 1000));
    Sleep(kLookMillis);
  }
}

Status NodeLaunch::Enter(PreparedAttempt* prepared) {
  // While another node lays it out it holds files and is no run yet.
  const Status place = CheckPlace(directory_, options_.prepare.shared);
  if (!place.ok() && LatestLaunch(folder_) < 0) return place;
  TDBG_RETURN_IF_ERROR(base::FilesBelow(base::LocalFileSystem(), directory_).CreateDirectories(folder_));
  for (int64_t latest = LatestLaunch(folder_);; latest = LatestLaunch(folder_)) {
    if (latest >= 0 && !base::LocalFileSystem().Exists(FileOf(folder_, latest, "over"))) {
      const auto launch = ReadObject(FileOf(folder_, latest, "launch"));
      if (!launch) return Unavailable("cannot be read: " + FileOf(folder_, latest, "launch"));
      const int64_t timeout = NumberOf(*launch, "timeout_millis", options_.timeout_millis);
      TDBG_ASSIGN_OR_RETURN(const bool lives, Lives(latest, NumberOf(*launch, "nodes", 0), timeout));
      if (lives) {
        launch_ = latest;
        options_.timeout_millis = timeout;
        return AwaitLayout(prepared);
      }
    }
    launch_ = latest + 1;
    const Json launch = {{"nodes", options_.place.nodes},
                         {"timeout_millis", options_.timeout_millis},
                         {"by", options_.place.node}};
    TDBG_ASSIGN_OR_RETURN(const bool first, MakeOnce(directory_, Name("launch"), launch.dump()));
    if (first) break;
  }
  laid_out_ = true;
  TDBG_RETURN_IF_ERROR(TakePlace());
  auto made = options_.adopts ? AdoptAttempt(directory_) : PrepareAttempt(options_.prepare);
  if (!made.ok()) {
    (void)MakeOnce(directory_, Name("over"), Json({{"failed", made.status().message()}}).dump());
    return made.status();
  }
  *prepared = *std::move(made);
  launcher_lock_ = std::move(prepared->launcher_lock);
  const Json judge = {{"node", options_.place.node}};
  TDBG_RETURN_IF_ERROR(MakeOnce(directory_, Name("judge-0"), judge.dump()).status());
  judges_ = true;
  judge_generation_ = 0;
  judge_node_ = options_.place.node;
  return MakeOnce(directory_, Name("attempt-0"), Json({{"attempt", prepared->attempt}}).dump()).status();
}

Status NodeLaunch::AwaitLayout(PreparedAttempt* prepared) {
  const int64_t until = Now() + Nanos(options_.timeout_millis + kLayoutMillis);
  while (true) {
    if (const auto over = ReadObject(Name("over"))) {
      const std::string why = TextOf(*over, "failed");
      return FailedPrecondition(why.empty() ? "the job has just ended; start all of its nodes again"
                                            : "the first node could not lay the run out: " + why);
    }
    // Of several the latest: a node that died and comes again goes on where the others are.
    for (int64_t round = 0;; ++round) {
      const auto attempt = ReadObject(Name(fmt::format("attempt-{}", round)));
      if (!attempt) break;
      prepared->run_directory = directory_;
      prepared->attempt = NumberOf(*attempt, "attempt", -1);
      round_ = round;
    }
    if (!prepared->run_directory.empty() && prepared->attempt >= 0) return TakePlace();
    if (Now() >= until)
      return Status(Code::kDeadlineExceeded,
                    "the node that began to lay the run out has not done it; end what is left of it and "
                    "start all nodes again");
    Sleep(kLookMillis);
  }
}

Status NodeLaunch::TakePlace() {
  const int64_t node = options_.place.node;
  while (base::LocalFileSystem().Exists(NodeFile(node, incarnation_))) ++incarnation_;
  TDBG_ASSIGN_OR_RETURN(const bool mine, MakeOnce(directory_, NodeFile(node, incarnation_),
                                                  Json({{"node", node}, {"host", base::HostName()}}).dump()));
  if (mine) {
    // For other programs of this machine. Where the file system has no locks, they take this node's launcher
    // for gone.
    auto lock = base::FilesBelow(base::LocalFileSystem(), directory_).Lock(NodeLock(folder_, node));
    if (lock.ok()) node_lock_ = *std::move(lock);
    return OkStatus();
  }
  return FailedPrecondition(
      fmt::format("another launcher became node {} at this moment; give each node its own number", node));
}

void NodeLaunch::Beat() {
  Json json = {{"node", options_.place.node}, {"host", base::HostName()}, {"pid", ::getpid()}};
  {
    const std::lock_guard lock(mutex_);
    json["beat"] = ++beats_;
    if (end_) {
      json["exit_code"] = end_->exit_code;
      json["stop"] = end_->stop;
      json["stopped_by"] = end_->stopped_by;
    }
  }
  const int64_t now = Now();  // before it is seen by anybody
  const Status written =
      base::FilesBelow(base::LocalFileSystem(), directory_)
          .WriteFileAtomic(NodeFile(options_.place.node, incarnation_), format::DumpJson(json) + "\n");
  const std::lock_guard lock(mutex_);
  if (written.ok()) last_beat_nanos_ = now;
}

void NodeLaunch::Tell(const std::string& kind, int64_t node, const std::string& line) {
  if (options_.on_event) options_.on_event(kind, node);
  if (options_.say && !line.empty()) options_.say(line);
}

void NodeLaunch::LookAt(int64_t node, int64_t now) {
  Seen seen;
  {
    const std::lock_guard lock(mutex_);
    seen = nodes_[node];
  }
  while (seen.joined && base::LocalFileSystem().Exists(NodeFile(node, seen.incarnation + 1))) {
    ++seen.incarnation;
    seen.ended = false;
  }
  const auto text = base::LocalFileSystem().ReadFile(NodeFile(node, seen.incarnation), kMostBytes);
  if (text.ok() && *text != seen.text) {
    seen.text = *text;
    seen.changed_nanos = now;
    seen.joined = true;
    if (const auto json = format::ParseJsonObject(*text, "node"); json.ok()) {
      seen.ended = json->contains("exit_code");
      seen.end = {NumberOf(*json, "exit_code", 0), TextOf(*json, "stop"), TextOf(*json, "stopped_by")};
    }
  }
  const std::lock_guard lock(mutex_);
  nodes_[node] = seen;
}

bool NodeLaunch::IsDead(const Seen& seen, int64_t now) const {
  return now - (seen.joined ? seen.changed_nanos : began_nanos_) >= Nanos(options_.timeout_millis);
}

// Who does not judge looks at one file: a thousand launchers that read a thousand files each would be the
// file server's main business.
void NodeLaunch::LookAtJudge(int64_t now) {
  while (base::LocalFileSystem().Exists(Name(fmt::format("judge-{}", judge_generation_ + 1)))) {
    const auto judge = ReadObject(Name(fmt::format("judge-{}", judge_generation_ + 1)));
    if (!judge) break;
    const std::lock_guard lock(mutex_);
    ++judge_generation_;
    judge_node_ = NumberOf(*judge, "node", -1);
    judge_since_nanos_ = now;
    if (judges_) superseded_ = true;
    judges_ = false;
    changed_.notify_all();
  }
  if (judges()) return;
  bool dead = now - began_nanos_ >= Nanos(options_.timeout_millis);
  if (judge_node_ >= 0) {
    LookAt(judge_node_, now);
    const std::lock_guard lock(mutex_);
    const Seen& seen = nodes_[judge_node_];
    // One that has just been elected is given its time.
    dead = IsDead(seen, now) && now - judge_since_nanos_ >= Nanos(options_.timeout_millis);
  }
  if (!dead) return;
  if (superseded_) {  // its engine has judged already: it does not stand again, and waits for nobody
    const std::lock_guard lock(mutex_);
    over_ = true;
    return;
  }
  const auto mine = MakeOnce(directory_, Name(fmt::format("judge-{}", judge_generation_ + 1)),
                             Json({{"node", options_.place.node}}).dump());
  if (!mine.ok() || !*mine) return;
  const int64_t before = judge_node_;
  {
    const std::lock_guard lock(mutex_);
    ++judge_generation_;
    judge_node_ = options_.place.node;
    judges_ = true;
    changed_.notify_all();
  }
  Tell("judge", options_.place.node,
       fmt::format("node {} has not been heard of for {} s; this node, {}, judges from here on", before,
                   options_.timeout_millis / 1000.0, options_.place.node));
}

void NodeLaunch::LookAtAll(int64_t now) {
  for (int64_t node = 0; node < options_.place.nodes; ++node) {
    if (node == options_.place.node) continue;
    LookAt(node, now);
    const char* kind = nullptr;
    std::string line;
    {
      const std::lock_guard lock(mutex_);
      Seen& seen = nodes_[node];
      const bool dead = !seen.ended && IsDead(seen, now);
      if (dead == seen.told) continue;
      seen.told = dead;
      kind = !dead ? "node_joined" : seen.joined ? "node_lost" : "node_missing";
      line = !dead ? fmt::format("node {} of {} is here", node, options_.place.nodes)
             : seen.joined
                 ? fmt::format(
                       "node {} of {} has not been heard of for {} s: its launcher or its machine is "
                       "gone",
                       node, options_.place.nodes, options_.timeout_millis / 1000.0)
                 : fmt::format("node {} of {} has not come yet; start it there with --node {}/{}", node,
                               options_.place.nodes, node, options_.place.nodes);
    }
    Tell(kind, node, line);
  }
}

void NodeLaunch::Run() {
  const int64_t interval = std::max(kLeastBeatMillis, options_.timeout_millis / kBeatsPerTimeout);
  while (true) {
    {
      std::unique_lock lock(mutex_);
      const int64_t beats = beats_;
      changed_.wait_for(lock, std::chrono::milliseconds(interval),
                        [&] { return leaving_ || (end_ && ended_nanos_ == 0) || beats_ != beats; });
      if (leaving_) return;
      if (end_ && ended_nanos_ == 0) ended_nanos_ = Now();
    }
    Beat();
    const int64_t now = Now();
    // Whoever asks whether a launcher is there asks for this lock; one of us holds it.
    if (!launcher_lock_) {
      auto lock = base::FilesBelow(base::LocalFileSystem(), directory_)
                      .Lock(base::JoinPath(directory_, format::kLauncherLockFile));
      if (lock.ok()) launcher_lock_ = *std::move(lock);
    }
    const bool over = base::LocalFileSystem().Exists(Name("over"));
    LookAtJudge(now);
    if (judges()) LookAtAll(now);
    const std::lock_guard lock(mutex_);
    over_ = over_ || over;
    changed_.notify_all();
  }
}

NodeLaunch::Turn NodeLaunch::AwaitTurn() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return judges_ || over_ || leaving_ || superseded_; });
  return judges_ && !over_ ? Turn::kJudge : over_ ? Turn::kOver : Turn::kNever;
}

bool NodeLaunch::judges() {
  const std::lock_guard lock(mutex_);
  return judges_;
}

Status NodeLaunch::MayJudge() {
  int64_t generation;
  {
    const std::lock_guard lock(mutex_);
    if (superseded_) return FailedPrecondition("another node judges");
    // The others wait for the whole timeout, from when they saw the last beat: not before it was made.
    if (Now() - last_beat_nanos_ >= Nanos(options_.timeout_millis) * 4 / 5)
      return Unavailable("the run's directory has not been reached for a while");
    generation = judge_generation_;
  }
  if (!base::LocalFileSystem().Exists(Name(fmt::format("judge-{}", generation + 1)))) return OkStatus();
  return FailedPrecondition("another node judges");
}

void NodeLaunch::Ended(const NodeEnd& end) {
  const std::lock_guard lock(mutex_);
  end_ = end;
  changed_.notify_all();
}

NodeLaunch::Outcome NodeLaunch::AwaitEnd() {
  std::unique_lock lock(mutex_);
  bool told = false;
  const auto all_gone = [&] {
    if (!judges_ || ended_nanos_ == 0) return false;
    const int64_t now = Now();
    for (int64_t node = 0; node < options_.place.nodes; ++node) {
      if (node == options_.place.node) continue;
      const auto seen = nodes_.find(node);
      if (seen == nodes_.end()) return false;
      if (seen->second.ended) continue;
      // Who never came may still come, for as long as it takes to notice that somebody died.
      if (!IsDead(seen->second, now) || now - ended_nanos_ < Nanos(options_.timeout_millis)) return false;
    }
    return true;
  };
  while (!over_ && !all_gone()) {
    changed_.wait_for(lock, std::chrono::milliseconds(2000));
    if (!std::exchange(told, true) && options_.say && !over_ && !all_gone()) {
      lock.unlock();
      options_.say("this node's command has ended; waiting for the other nodes and the verdict");
      lock.lock();
    }
  }
  Outcome outcome;
  outcome.judges = judges_ && !over_;
  outcome.all_completed = true;
  for (int64_t node = 0; node < options_.place.nodes; ++node) {
    const bool own = node == options_.place.node;
    const Seen& seen = nodes_[node];
    if (!own && !seen.ended) {
      outcome.all_completed = false;
      if (outcome.exit_code == 0) outcome.exit_code = 1;
      continue;
    }
    const NodeEnd& end = own ? *end_ : seen.end;
    if (end.exit_code != 0) outcome.all_completed = false;
    if (outcome.exit_code == 0) outcome.exit_code = end.exit_code;
    if (end.stop != "none" && !outcome.any_stopped) {
      outcome.any_stopped = true;
      outcome.stop = end.stop;
      outcome.stopped_by = end.stopped_by;
    }
  }
  return outcome;
}

void NodeLaunch::SetOver() {
  (void)MakeOnce(directory_, Name("over"), Json({{"by", options_.place.node}}).dump());
  const std::lock_guard lock(mutex_);
  over_ = true;
  changed_.notify_all();
}

bool NodeLaunch::MayBeginNext() const {
  for (const int64_t attempt : ListAttempts(directory_)) {
    if (AnyWorkerAlive(directory_, attempt)) return false;
  }
  return true;
}

Status NodeLaunch::BeginNext(PreparedAttempt* prepared, int64_t wall_nanos) {
  while (const auto begun = ReadObject(Name(fmt::format("attempt-{}", round_ + 1)))) {
    ++round_;
    prepared->attempt = NumberOf(*begun, "attempt", prepared->attempt);
    if (!base::LocalFileSystem().Exists(Name(fmt::format("attempt-{}", round_ + 1)))) return OkStatus();
  }
  const std::string next = fmt::format("{}", round_ + 1);
  TDBG_ASSIGN_OR_RETURN(const bool first, MakeOnce(directory_, Name("layout-" + next),
                                                   Json({{"by", options_.place.node}}).dump()));
  if (first) {
    TDBG_RETURN_IF_ERROR(BeginNextAttempt(prepared, wall_nanos));
    ++round_;
    return MakeOnce(directory_, Name("attempt-" + next), Json({{"attempt", prepared->attempt}}).dump())
        .status();
  }
  const int64_t until = Now() + Nanos(options_.timeout_millis + kLayoutMillis);
  while (Now() < until) {
    if (const auto attempt = ReadObject(Name("attempt-" + next))) {
      prepared->attempt = NumberOf(*attempt, "attempt", prepared->attempt);
      ++round_;
      return OkStatus();
    }
    Sleep(kLookMillis);
  }
  return Unavailable("another node began to lay the next attempt out and has not done it");
}

}  // namespace tdbg::jobs

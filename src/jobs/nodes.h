// One job on several machines: each node's launcher starts its part of the command, all share the run's
// directory, and one of them judges. They agree through small files in RUN/nodes (docs/format.md, "nodes")
// and compare no clock with another's: whoever stops changing its file for a while, by the clock of who
// looks, is taken for dead (docs/semantics.md, "Several machines").
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "base/file.h"
#include "jobs/run_directory.h"
#include "tdbg/status.h"

namespace tdbg::jobs {

/// Which of how many: `--node 1/2` is the second of two.
struct NodePlace {
  int64_t node = 0, nodes = 1;
};
/// \error kInvalidArgument
Result<NodePlace> ParseNodePlace(const std::string& text);

/// Does a launcher of this machine look after this node's part?
bool NodeLauncherAlive(const std::string& run_directory, int64_t node);

/// How a node's command ended, for the others.
struct NodeEnd {
  int64_t exit_code = 0;
  std::string stop = "none", stopped_by;  ///< as in events.jsonl's job_ended
};

struct NodeOptions {
  PrepareOptions prepare;
  NodePlace place;
  /// Its command runs already, without a launcher: no attempt is begun for it.
  bool adopts = false;
  /// A node whose file has not changed for so long is dead. What the launch's first node says holds for all.
  int64_t timeout_millis = 10'000;
  /// A line for people. Called from a thread of its own.
  std::function<void(const std::string& line)> say;
  /// Of the node that judges: "node_missing", "node_lost", "node_joined", "judge". Likewise.
  std::function<void(const std::string& kind, int64_t node)> on_event;
};

/// This node's part in a launch: the starts of one job's nodes that belong together.
class NodeLaunch {
 public:
  /// The first node lays the run's next attempt out, the others join it, whoever comes when.
  /// Takes as long as `timeout_millis` where an earlier launch left no word of its end.
  /// \param prepared  as PrepareAttempt; its launcher_lock stays empty, the launch holds it
  /// \error kFailedPrecondition  this node is here already; the launch has another number of nodes; it was
  ///                             stopped, or could not be laid out
  /// \error as PrepareAttempt
  static Result<std::unique_ptr<NodeLaunch>> Join(const NodeOptions& options, PreparedAttempt* prepared);
  ~NodeLaunch();
  NodeLaunch(const NodeLaunch&) = delete;

  const NodePlace& place() const { return options_.place; }
  bool laid_out() const { return laid_out_; }

  enum class Turn { kJudge, kOver, kNever };
  /// Waits until this launcher is to judge, another one has, or Leave was called.
  Turn AwaitTurn();
  /// May it say what it found? kUnavailable: not now, it cannot show that it lives. kFailedPrecondition:
  /// another one judges. \threadsafety Any thread.
  Status MayJudge();
  bool judges();
  /// The command has ended: the others are told at once.
  void Ended(const NodeEnd& end);
  /// Then: waits until the job is judged, or, where this one judges, until all others have ended or are dead.
  /// \return  of all nodes together, where this one judges
  struct Outcome {
    bool judges = false;
    bool all_completed = false, any_stopped = false;
    int64_t exit_code = 0;  ///< the first that is not 0, in the order of nodes
    std::string stop = "none", stopped_by;
  };
  Outcome AwaitEnd();
  /// The judge has said everything.
  void SetOver();

  /// May the next attempt begin? Not while a worker of this one lives somewhere.
  bool MayBeginNext() const;
  /// The attempt of this node's next start: the one that another node has begun meanwhile, else a new one.
  Status BeginNext(PreparedAttempt* prepared, int64_t wall_nanos);

 private:
  struct Seen {
    bool joined = false, ended = false, told = false;
    int64_t incarnation = 0;
    std::string text;  ///< of its file
    int64_t changed_nanos = 0;
    NodeEnd end;
  };

  explicit NodeLaunch(NodeOptions options);
  std::string Name(const std::string& rest) const;
  std::string NodeFile(int64_t node, int64_t incarnation) const;
  Status Enter(PreparedAttempt* prepared);
  Result<bool> Lives(int64_t launch, int64_t nodes, int64_t timeout_millis);
  Status AwaitLayout(PreparedAttempt* prepared);
  Status TakePlace();
  void Beat();
  void Run();
  void LookAt(int64_t node, int64_t now);
  bool IsDead(const Seen& seen, int64_t now) const;
  void LookAtJudge(int64_t now);
  void LookAtAll(int64_t now);
  void Tell(const std::string& kind, int64_t node, const std::string& line);

  NodeOptions options_;
  std::string directory_, folder_;
  int64_t launch_ = 0, incarnation_ = 0, round_ = 0;
  bool laid_out_ = false;

  std::thread beating_;
  std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_, but for what only the beating thread uses once it has been started.
  std::unique_ptr<base::FileLock> launcher_lock_;
  std::unique_ptr<base::FileLock> node_lock_;  ///< of this node's part, whoever holds the launcher's
  bool leaving_ = false, over_ = false, superseded_ = false, judges_ = false;
  int64_t judge_generation_ = -1, judge_node_ = -1, judge_since_nanos_ = 0;
  int64_t beats_ = 0, last_beat_nanos_ = 0, began_nanos_ = 0, ended_nanos_ = 0;
  std::optional<NodeEnd> end_;
  std::map<int64_t, Seen> nodes_;
};

}  // namespace tdbg::jobs

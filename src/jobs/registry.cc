#include "jobs/registry.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <filesystem>
#include <iterator>

#include "base/file.h"
#include "base/process.h"
#include "base/text.h"
#include "format/json_fields.h"
#include "jobs/exact_words.h"
#include "jobs/state_directory.h"

namespace tdbg::jobs {
namespace {

using format::Json;

constexpr int64_t kVersion = 2;
constexpr size_t kLongestMessage = 4096;

// Version 1. What came later is in kMigrations, so that an old file and a new one become the same.
constexpr char kSchema[] = R"(
CREATE TABLE jobs(
  id INTEGER PRIMARY KEY,
  run_id TEXT NOT NULL UNIQUE,
  name TEXT NOT NULL UNIQUE,
  run_directory TEXT NOT NULL,
  working_directory TEXT NOT NULL,
  command TEXT NOT NULL,
  flags TEXT NOT NULL,
  environment TEXT NOT NULL,
  settings TEXT NOT NULL,
  host TEXT NOT NULL,
  detached INTEGER NOT NULL,
  attempt INTEGER NOT NULL,
  status TEXT NOT NULL,
  phase TEXT NOT NULL,
  message TEXT NOT NULL,
  pid INTEGER NOT NULL DEFAULT 0,
  start_ticks INTEGER NOT NULL DEFAULT 0,
  boot_id TEXT NOT NULL DEFAULT '',
  created INTEGER NOT NULL,
  launched INTEGER NOT NULL,
  changed INTEGER NOT NULL,
  ended INTEGER NOT NULL DEFAULT 0,
  exit_code INTEGER NOT NULL DEFAULT -1
);
CREATE INDEX jobs_by_launch ON jobs(launched);
CREATE INDEX jobs_by_status ON jobs(status, launched);
CREATE TABLE transitions(
  job INTEGER NOT NULL REFERENCES jobs(id) ON DELETE CASCADE,
  sequence INTEGER NOT NULL,
  status TEXT NOT NULL,
  phase TEXT NOT NULL,
  message TEXT NOT NULL,
  began INTEGER NOT NULL,
  PRIMARY KEY(job, sequence)
) WITHOUT ROWID;
CREATE TABLE attempts(
  job INTEGER NOT NULL REFERENCES jobs(id) ON DELETE CASCADE,
  attempt INTEGER NOT NULL,
  began INTEGER NOT NULL,
  ended INTEGER NOT NULL DEFAULT 0,
  exit_code INTEGER NOT NULL DEFAULT -1,
  message TEXT NOT NULL DEFAULT '',
  PRIMARY KEY(job, attempt)
) WITHOUT ROWID;
)";

// From version 1 to 2, and so on.
constexpr const char* kMigrations[] = {
    "ALTER TABLE jobs ADD COLUMN url TEXT NOT NULL DEFAULT '';"
    "CREATE INDEX jobs_by_url ON jobs(url, launched);"
    "CREATE INDEX jobs_by_directory ON jobs(run_directory, launched);",
};
static_assert(std::size(kMigrations) == kVersion - 1);

constexpr char kColumns[] =
    "SELECT id, run_id, name, run_directory, url, working_directory, command, flags, environment, settings, "
    "host, "
    "detached, attempt, status, phase, message, pid, start_ticks, boot_id, created, changed, ended, "
    "exit_code "
    "FROM jobs ";
constexpr char kOfUrl[] = "WHERE url=?1 ORDER BY launched DESC LIMIT 1";
constexpr char kOfDirectory[] = "WHERE run_directory=?1 ORDER BY launched DESC LIMIT 1";
constexpr char kOrder[] = " ORDER BY launched DESC, id DESC LIMIT ?1 OFFSET ?2";

std::optional<int64_t> ExitCode(int64_t stored) {
  return stored < 0 ? std::nullopt : std::optional<int64_t>(stored);
}

JobRecord RecordOf(const Statement& row) {
  JobRecord job;
  int column = 0;
  job.id = row.Integer(column++);
  job.run_id = row.Text(column++);
  job.name = row.Text(column++);
  job.run_directory = row.Text(column++);
  job.url = row.Text(column++);
  job.working_directory = row.Text(column++);
  job.command = WordsOf(row.Text(column++));
  job.flags = WordsOf(row.Text(column++));
  if (const auto json = format::ParseJsonObject(row.Text(column++), "environment"); json.ok()) {
    for (const auto& [name, value] : json->items()) {
      if (value.is_string()) job.environment[name] = value.get<std::string>();
    }
  }
  job.settings = row.Text(column++);
  job.host = row.Text(column++);
  job.detached = row.Integer(column++) != 0;
  job.attempt = row.Integer(column++);
  job.status = JobStatusOf(row.Text(column++)).value_or(JobStatus::kFailed);
  job.phase = JobPhaseOf(row.Text(column++)).value_or(JobPhase::kFailed);
  job.message = row.Text(column++);
  job.process.pid = row.Integer(column++);
  job.process.start_ticks = row.Integer(column++);
  job.process.boot_id = row.Text(column++);
  job.created_wall_nanos = row.Integer(column++);
  job.changed_wall_nanos = row.Integer(column++);
  job.ended_wall_nanos = row.Integer(column++);
  job.exit_code = ExitCode(row.Integer(column++));
  return job;
}

// Commands and paths may be of any length and, on Linux, contain any bytes.
std::string Kept(const std::string& message) {
  return base::ToValidUtf8(std::string_view(message).substr(0, kLongestMessage));
}

}  // namespace

std::string Registry::DefaultPath() {
  const std::string state = StateDirectory();
  return state.empty() ? "" : base::JoinPath(state, "jobs.sqlite");
}

Result<Registry> Registry::OpenExisting(const std::string& path) {
  if (path.empty() || !base::LocalFileSystem().Exists(path)) return NotFound("no job was registered yet");
  return Open(path);
}

// A write holds the lock for a millisecond. A launcher waits two seconds, then starts its job unregistered.
Result<Registry> Registry::Open(const std::string& path, int64_t wait_millis) {
  if (path.empty()) return Unavailable("there is no home directory to keep the registry of jobs in");
  const std::string directory = std::filesystem::path(path).parent_path().string();
  TDBG_RETURN_IF_ERROR(base::LocalFileSystem().CreateDirectories(directory));
  TDBG_ASSIGN_OR_RETURN(Database database, Database::Open(path, wait_millis));
  Registry registry(std::move(database));
  TDBG_RETURN_IF_ERROR(registry.Prepare());
  return registry;
}

Status Registry::Prepare() {
  const auto version = [&]() -> Result<int64_t> {
    TDBG_ASSIGN_OR_RETURN(Statement pragma, database_.Prepare("PRAGMA user_version"));
    TDBG_ASSIGN_OR_RETURN(const bool row, pragma.Step());
    return row ? pragma.Integer(0) : 0;
  };
  TDBG_ASSIGN_OR_RETURN(int64_t found, version());
  if (found == kVersion) return OkStatus();
  // If two processes find it empty, one creates the tables; the version is written in the same transaction.
  TDBG_ASSIGN_OR_RETURN(Transaction transaction, Transaction::Begin(database_));
  TDBG_ASSIGN_OR_RETURN(found, version());
  if (found == kVersion) return OkStatus();
  if (found > kVersion)
    return Unimplemented(
        fmt::format("the registry of jobs is of version {}, this tdbg knows {}; use a newer "
                    "tdbg: {}",
                    found, kVersion, database_.path()));
  if (found == 0) {
    TDBG_RETURN_IF_ERROR(database_.Execute(kSchema));
    found = 1;
  }
  for (; found < kVersion; ++found) TDBG_RETURN_IF_ERROR(database_.Execute(kMigrations[found - 1]));
  TDBG_RETURN_IF_ERROR(database_.Execute(fmt::format("PRAGMA user_version={}", kVersion).c_str()));
  return transaction.Commit();
}

Status Registry::Append(int64_t job, JobStatus status, JobPhase phase, const std::string& message,
                        int64_t wall_nanos) const {
  TDBG_ASSIGN_OR_RETURN(
      Statement insert,
      database_.Prepare("INSERT INTO transitions SELECT ?1, 1 + coalesce(max(sequence), 0), ?2, ?3, ?4, ?5 "
                        "FROM transitions WHERE job = ?1"));
  return insert.Bind(1, job)
      .Bind(2, JobStatusName(status))
      .Bind(3, JobPhaseName(phase))
      .Bind(4, Kept(message))
      .Bind(5, wall_nanos)
      .Run();
}

Result<std::string> Registry::Launch(const JobRecord& job, const std::string& message, int64_t wall_nanos) {
  TDBG_ASSIGN_OR_RETURN(Transaction transaction, Transaction::Begin(database_));
  int64_t id = 0;
  std::string name;
  {
    TDBG_ASSIGN_OR_RETURN(Statement known, database_.Prepare("SELECT id, name FROM jobs WHERE run_id = ?1"));
    TDBG_ASSIGN_OR_RETURN(const bool row, known.Bind(1, job.run_id).Step());
    if (row) {
      id = known.Integer(0);
      name = known.Text(1);
    }
  }
  if (id == 0) {
    const std::string wanted = base::ToValidUtf8(base::BaseName(job.run_directory));
    TDBG_ASSIGN_OR_RETURN(Statement taken, database_.Prepare("SELECT 1 FROM jobs WHERE name = ?1"));
    name = wanted;
    for (int n = 2;; ++n) {
      TDBG_ASSIGN_OR_RETURN(const bool row, taken.Bind(1, name).Step());
      if (!row) break;
      (void)taken.Step();
      name = fmt::format("{}-{}", wanted, n);
    }
    TDBG_ASSIGN_OR_RETURN(
        Statement insert,
        database_.Prepare("INSERT INTO jobs(run_id, name, run_directory, working_directory, command, flags, "
                          "environment, settings, host, detached, attempt, status, phase, message, created, "
                          "launched, changed) "
                          "VALUES(?1, ?2, '', '', '', '', '', '', '', 0, 0, '', '', '', ?3, ?3, ?3)"));
    TDBG_RETURN_IF_ERROR(insert.Bind(1, job.run_id).Bind(2, name).Bind(3, wall_nanos).Run());
    id = database_.last_id();
  }
  TDBG_ASSIGN_OR_RETURN(
      Statement update,
      database_.Prepare(
          "UPDATE jobs SET run_directory=?2, working_directory=?3, command=?4, flags=?5, "
          "environment=?6, settings=?7, host=?8, detached=?9, attempt=?10, status=?11, "
          "phase=?12, message=?13, changed=?14, launched=?14, pid=0, ended=0, exit_code=-1, url=?15 "
          "WHERE id=?1"));
  update.Bind(1, id)
      .Bind(2, job.run_directory)
      .Bind(3, job.working_directory)
      .Bind(4, WordsText(job.command))
      .Bind(5, WordsText(job.flags))
      .Bind(6, format::DumpJson(Json(job.environment)))
      .Bind(7, job.settings)
      .Bind(8, job.host)
      .Bind(9, int64_t{job.detached})
      .Bind(10, job.attempt)
      .Bind(11, JobStatusName(JobStatus::kInProgress))
      .Bind(12, JobPhaseName(JobPhase::kStarting))
      .Bind(13, Kept(message))
      .Bind(14, wall_nanos)
      .Bind(15, job.url);
  TDBG_RETURN_IF_ERROR(update.Run());
  TDBG_RETURN_IF_ERROR(Append(id, JobStatus::kInProgress, JobPhase::kStarting, message, wall_nanos));
  TDBG_ASSIGN_OR_RETURN(Statement attempt,
                        database_.Prepare("INSERT OR IGNORE INTO attempts(job, attempt, began) "
                                          "VALUES(?1, ?2, ?3)"));
  TDBG_RETURN_IF_ERROR(attempt.Bind(1, id).Bind(2, job.attempt).Bind(3, wall_nanos).Run());
  TDBG_RETURN_IF_ERROR(transaction.Commit());
  return name;
}

Status Registry::BeginAttempt(const std::string& run_id, int64_t attempt, int64_t wall_nanos) {
  TDBG_ASSIGN_OR_RETURN(Transaction transaction, Transaction::Begin(database_));
  TDBG_ASSIGN_OR_RETURN(const JobRecord job, FindRun(run_id));
  TDBG_ASSIGN_OR_RETURN(Statement update, database_.Prepare("UPDATE jobs SET attempt=?2 WHERE id=?1"));
  TDBG_RETURN_IF_ERROR(update.Bind(1, job.id).Bind(2, attempt).Run());
  TDBG_ASSIGN_OR_RETURN(Statement insert,
                        database_.Prepare("INSERT OR IGNORE INTO attempts(job, attempt, began) "
                                          "VALUES(?1, ?2, ?3)"));
  TDBG_RETURN_IF_ERROR(insert.Bind(1, job.id).Bind(2, attempt).Bind(3, wall_nanos).Run());
  return transaction.Commit();
}

Status Registry::EndAttempt(const std::string& run_id, int64_t attempt, std::optional<int64_t> exit_code,
                            const std::string& message, int64_t wall_nanos) {
  TDBG_ASSIGN_OR_RETURN(Transaction transaction, Transaction::Begin(database_));
  TDBG_ASSIGN_OR_RETURN(const JobRecord job, FindRun(run_id));
  TDBG_ASSIGN_OR_RETURN(Statement ended,
                        database_.Prepare("UPDATE attempts SET ended=?3, exit_code=?4, message=?5 "
                                          "WHERE job=?1 AND attempt=?2"));
  TDBG_RETURN_IF_ERROR(ended.Bind(1, job.id)
                           .Bind(2, attempt)
                           .Bind(3, wall_nanos)
                           .Bind(4, exit_code.value_or(-1))
                           .Bind(5, Kept(message))
                           .Run());
  TDBG_ASSIGN_OR_RETURN(Statement last, database_.Prepare("UPDATE jobs SET exit_code=?2, pid=0 WHERE id=?1"));
  TDBG_RETURN_IF_ERROR(last.Bind(1, job.id).Bind(2, exit_code.value_or(-1)).Run());
  return transaction.Commit();
}

Status Registry::SetProcess(const std::string& run_id, const ProcessIdentity& process) {
  TDBG_ASSIGN_OR_RETURN(
      Statement update,
      database_.Prepare("UPDATE jobs SET pid=?2, start_ticks=?3, boot_id=?4 WHERE run_id=?1"));
  return update.Bind(1, run_id)
      .Bind(2, process.pid)
      .Bind(3, process.start_ticks)
      .Bind(4, process.boot_id)
      .Run();
}

Status Registry::Move(const std::string& run_id, JobPhase phase, const std::string& message,
                      int64_t wall_nanos) {
  TDBG_ASSIGN_OR_RETURN(Transaction transaction, Transaction::Begin(database_));
  TDBG_ASSIGN_OR_RETURN(const JobRecord job, FindRun(run_id));
  if (!MayFollow(job.status, phase)) {
    return FailedPrecondition(fmt::format("job '{}' is {} and cannot become {}", job.name,
                                          JobPhaseName(job.phase), JobPhaseName(phase)));
  }
  if (job.phase == phase && job.message == Kept(message)) return OkStatus();
  const JobStatus status = StatusOfPhase(phase, job.status);
  TDBG_ASSIGN_OR_RETURN(Statement update,
                        database_.Prepare("UPDATE jobs SET status=?2, phase=?3, message=?4, changed=?5, "
                                          "ended=?6 WHERE id=?1"));
  TDBG_RETURN_IF_ERROR(update.Bind(1, job.id)
                           .Bind(2, JobStatusName(status))
                           .Bind(3, JobPhaseName(phase))
                           .Bind(4, Kept(message))
                           .Bind(5, wall_nanos)
                           .Bind(6, HasEnded(status) ? wall_nanos : 0)
                           .Run());
  TDBG_RETURN_IF_ERROR(Append(job.id, status, phase, message, wall_nanos));
  return transaction.Commit();
}

Status Registry::Forget(const std::string& run_id) {
  TDBG_ASSIGN_OR_RETURN(Transaction transaction, Transaction::Begin(database_));
  TDBG_ASSIGN_OR_RETURN(const JobRecord job, FindRun(run_id));
  if (!HasEnded(job.status)) return FailedPrecondition("it has not ended: " + job.name);
  TDBG_ASSIGN_OR_RETURN(Statement gone, database_.Prepare("DELETE FROM jobs WHERE id = ?1"));
  TDBG_RETURN_IF_ERROR(gone.Bind(1, job.id).Run());
  return transaction.Commit();
}

Result<JobRecord> Registry::One(const std::string& condition, const std::string& value,
                                const std::string& what) const {
  TDBG_ASSIGN_OR_RETURN(Statement select, database_.Prepare(kColumns + condition));
  TDBG_ASSIGN_OR_RETURN(const bool row, select.Bind(1, value).Step());
  if (!row) return NotFound("no job " + what + " '" + value + "'");
  return RecordOf(select);
}

Result<JobRecord> Registry::Find(const std::string& name) const {
  return One("WHERE name=?1", name, "named");
}

Result<JobRecord> Registry::FindRun(const std::string& run_id) const {
  return One("WHERE run_id=?1", run_id, "of the run");
}

Result<JobRecord> Registry::FindUrl(const std::string& url) const {
  return One(kOfUrl, url, "whose run is uploaded to");
}

Result<JobRecord> Registry::FindDirectory(const std::string& run_directory) const {
  return One(kOfDirectory, run_directory, "in the directory");
}

Result<std::vector<JobRecord>> Registry::List(const JobQuery& query) const {
  const std::string sql = std::string(kColumns) + (query.status ? "WHERE status=?3" : "") + kOrder;
  TDBG_ASSIGN_OR_RETURN(Statement select, database_.Prepare(sql));
  select.Bind(1, query.limit).Bind(2, query.offset);
  if (query.status) select.Bind(3, JobStatusName(*query.status));
  std::vector<JobRecord> jobs;
  while (true) {
    TDBG_ASSIGN_OR_RETURN(const bool row, select.Step());
    if (!row) return jobs;
    jobs.push_back(RecordOf(select));
  }
}

Result<std::vector<std::string>> Registry::Names() const {
  TDBG_ASSIGN_OR_RETURN(Statement select, database_.Prepare("SELECT name FROM jobs"));
  std::vector<std::string> names;
  while (true) {
    TDBG_ASSIGN_OR_RETURN(const bool row, select.Step());
    if (!row) return names;
    names.push_back(select.Text(0));
  }
}

Result<std::vector<JobTransition>> Registry::Transitions(int64_t job) const {
  TDBG_ASSIGN_OR_RETURN(
      Statement select,
      database_.Prepare(
          "SELECT status, phase, message, began FROM transitions WHERE job=?1 ORDER BY sequence"));
  select.Bind(1, job);
  std::vector<JobTransition> all;
  while (true) {
    TDBG_ASSIGN_OR_RETURN(const bool row, select.Step());
    if (!row) break;
    JobTransition transition;
    transition.status = JobStatusOf(select.Text(0)).value_or(JobStatus::kFailed);
    transition.phase = JobPhaseOf(select.Text(1)).value_or(JobPhase::kFailed);
    transition.message = select.Text(2);
    transition.began_wall_nanos = select.Integer(3);
    if (!all.empty()) all.back().ended_wall_nanos = transition.began_wall_nanos;
    if (HasEnded(transition.status)) transition.ended_wall_nanos = transition.began_wall_nanos;
    all.push_back(std::move(transition));
  }
  return all;
}

Result<std::vector<JobAttempt>> Registry::Attempts(int64_t job) const {
  TDBG_ASSIGN_OR_RETURN(Statement select,
                        database_.Prepare("SELECT attempt, began, ended, exit_code, message FROM attempts "
                                          "WHERE job=?1 ORDER BY attempt"));
  select.Bind(1, job);
  std::vector<JobAttempt> all;
  while (true) {
    TDBG_ASSIGN_OR_RETURN(const bool row, select.Step());
    if (!row) return all;
    all.push_back({select.Integer(0), select.Integer(1), select.Integer(2), ExitCode(select.Integer(3)),
                   select.Text(4)});
  }
}

Result<std::vector<std::string>> Registry::QueryPlans() const {
  std::vector<std::string> plans;
  for (const char* condition :
       {"WHERE name=?1", "WHERE run_id=?1", kOfUrl, kOfDirectory, "", "WHERE status=?3"}) {
    const bool list = std::string_view(condition) == "" || std::string_view(condition) == "WHERE status=?3";
    TDBG_ASSIGN_OR_RETURN(Statement explain, database_.Prepare("EXPLAIN QUERY PLAN " + std::string(kColumns) +
                                                               condition + (list ? kOrder : "")));
    while (true) {
      TDBG_ASSIGN_OR_RETURN(const bool row, explain.Step());
      if (!row) break;
      plans.push_back(explain.Text(3));
    }
  }
  return plans;
}

ProcessIdentity IdentityOf(int64_t pid) {
  ProcessIdentity identity;
  const auto stat = base::LocalFileSystem().ReadFile(fmt::format("/proc/{}/stat", pid));
  if (!stat.ok()) return identity;
  // "pid (name) state ppid ...": the name may hold anything, so count from the last ')'. The start is
  // field 22.
  const size_t name_end = stat->rfind(')');
  if (name_end == std::string::npos) return identity;
  const std::vector<std::string> fields = base::SplitList(stat->substr(name_end + 1), ' ');
  constexpr size_t kState = 0, kStart = 19;
  if (fields.size() <= kStart || fields[kState] == "Z" || fields[kState] == "X") return identity;
  identity.pid = pid;
  identity.start_ticks = base::ParseInt(fields[kStart]).value_or(0);
  identity.boot_id = base::BootId();
  return identity;
}

bool IsAlive(const ProcessIdentity& process) {
  if (process.pid <= 0) return false;
  const ProcessIdentity now = IdentityOf(process.pid);
  return now.pid == process.pid && now.start_ticks == process.start_ticks && now.boot_id == process.boot_id;
}

}  // namespace tdbg::jobs

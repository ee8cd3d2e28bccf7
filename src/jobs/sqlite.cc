#include "jobs/sqlite.h"

#include <fcntl.h>
#include <sqlite3.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/posix.h"

namespace tdbg::jobs {
namespace {

Status ErrorOf(int code, const std::string& message, const std::string& path) {
  const std::string text = message + ": " + path;
  switch (code & 0xff) {
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      // Losing the registry is harmless: it is only an index, and each run describes itself.
      return DataLoss(text + "; it may be deleted: jobs are listed again from the next one on");
    case SQLITE_FULL:
      return Status(Code::kResourceExhausted, text);
    case SQLITE_CONSTRAINT:
      return Status(Code::kAlreadyExists, text);
    case SQLITE_MISUSE:
    case SQLITE_RANGE:
    case SQLITE_ERROR:
      return Status(Code::kInternal, text);
    default:
      return Unavailable(text);
  }
}

Status ErrorOf(sqlite3* database, const std::string& path) {
  return ErrorOf(sqlite3_extended_errcode(database), sqlite3_errmsg(database), path);
}

}  // namespace

void Statement::Finalize::operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }
// _v2: if a statement outlives its database, the database is freed with the statement.
void Database::Close::operator()(sqlite3* database) const { sqlite3_close_v2(database); }

Statement& Statement::Bind(int index, int64_t value) {
  if (const int code = sqlite3_bind_int64(statement_.get(), index, value)) bind_error_ = code;
  return *this;
}

Statement& Statement::Bind(int index, std::string_view text) {
  const int code =
      sqlite3_bind_text64(statement_.get(), index, text.data(), text.size(), SQLITE_TRANSIENT, SQLITE_UTF8);
  if (code != SQLITE_OK) bind_error_ = code;
  return *this;
}

Result<bool> Statement::Step() {
  sqlite3* const database = sqlite3_db_handle(statement_.get());
  const char* const path = sqlite3_db_filename(database, "main");
  if (bind_error_ != SQLITE_OK) return ErrorOf(bind_error_, sqlite3_errstr(bind_error_), path);
  const int code = sqlite3_step(statement_.get());
  if (code == SQLITE_ROW) return true;
  if (code == SQLITE_DONE) {
    sqlite3_reset(statement_.get());
    return false;
  }
  const Status status = ErrorOf(database, path);
  sqlite3_reset(statement_.get());
  return status;
}

Status Statement::Run() { return Step().status(); }

int64_t Statement::Integer(int column) const { return sqlite3_column_int64(statement_.get(), column); }

std::string Statement::Text(int column) const {
  const auto* const text = reinterpret_cast<const char*>(sqlite3_column_text(statement_.get(), column));
  return text ? std::string(text, static_cast<size_t>(sqlite3_column_bytes(statement_.get(), column))) : "";
}

Result<Database> Database::Open(const std::string& path, int64_t wait_millis) {
  // Created here, with mode 0600, and not by SQLite, which would apply the umask.
  {
    const base::UniqueFd made = base::OpenFd(path.c_str(), O_RDWR | O_CREAT, 0600);
  }
  Database database;
  database.path_ = path;
  sqlite3* opened = nullptr;
  const int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX;
  const int code = sqlite3_open_v2(path.c_str(), &opened, flags, nullptr);
  database.database_.reset(opened);
  if (code != SQLITE_OK) return ErrorOf(code, sqlite3_errstr(code), path);
  if (sqlite3_db_readonly(opened, "main") == 1)
    return Unavailable("the registry of jobs may not be written: " + path);
  sqlite3_busy_timeout(opened, static_cast<int>(wait_millis));
  // Nothing of it is mapped: a write-ahead log is used through a file that all map, and that is a SIGBUS in
  // the launcher as soon as another process cuts it short. An earlier tdbg made it one, and while that is at
  // work on it (kUnavailable) it stays one.
  TDBG_RETURN_IF_ERROR(database.Execute("PRAGMA mmap_size=0"));
  if (const Status left = database.Execute("PRAGMA journal_mode=TRUNCATE");
      !left.ok() && left.code() != Code::kUnavailable)
    return left;
  // NORMAL: a killed process loses no record. A power failure may, but it has ended that record's job, too.
  TDBG_RETURN_IF_ERROR(database.Execute("PRAGMA synchronous=NORMAL"));
  TDBG_RETURN_IF_ERROR(database.Execute("PRAGMA foreign_keys=ON"));
  return database;
}

Result<Statement> Database::Prepare(std::string_view sql) const {
  sqlite3_stmt* made = nullptr;
  const int code =
      sqlite3_prepare_v2(database_.get(), sql.data(), static_cast<int>(sql.size()), &made, nullptr);
  Statement statement;
  statement.statement_.reset(made);
  if (code != SQLITE_OK) return ErrorOf(database_.get(), path_);
  return statement;
}

Status Database::Execute(const char* sql) const {
  if (sqlite3_exec(database_.get(), sql, nullptr, nullptr, nullptr) == SQLITE_OK) return OkStatus();
  return ErrorOf(database_.get(), path_);
}

void Database::WaitAtMost(int64_t millis) const {
  sqlite3_busy_timeout(database_.get(), static_cast<int>(millis));
}

bool Database::in_transaction() const { return ::sqlite3_get_autocommit(database_.get()) == 0; }

int64_t Database::last_id() const { return sqlite3_last_insert_rowid(database_.get()); }

Result<Transaction> Transaction::Begin(const Database& database) {
  const bool is_inner = database.in_transaction();
  TDBG_RETURN_IF_ERROR(database.Execute(is_inner ? "SAVEPOINT part" : "BEGIN IMMEDIATE"));
  return Transaction(database, is_inner);
}

Transaction::~Transaction() {
  if (database_ != nullptr)
    (void)database_->Execute(is_inner_ ? "ROLLBACK TO part; RELEASE part" : "ROLLBACK");
}

Status Transaction::Commit() {
  TDBG_RETURN_IF_ERROR(database_->Execute(is_inner_ ? "RELEASE part" : "COMMIT"));
  database_ = nullptr;
  return OkStatus();
}

}  // namespace tdbg::jobs

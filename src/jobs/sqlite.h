// SQLite behind Status: a database, its statements.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "tdbg/status.h"

struct sqlite3;
struct sqlite3_stmt;

namespace tdbg::jobs {

class Statement {
 public:
  /// Parameters are numbered from 1, columns from 0.
  Statement& Bind(int index, int64_t value);
  Statement& Bind(int index, std::string_view text);
  /// Steps to the next row; false if there is none.
  Result<bool> Step();
  /// Executes a statement that returns no rows.
  Status Run();
  int64_t Integer(int column) const;
  std::string Text(int column) const;

 private:
  friend class Database;
  struct Finalize {
    void operator()(sqlite3_stmt* statement) const;
  };
  std::unique_ptr<sqlite3_stmt, Finalize> statement_;
  int bind_error_ = 0;
};

/// One connection. \threadsafety None. Must not be used after a fork.
class Database {
 public:
  /// \error kDataLoss          the file is no database, or a damaged one
  /// \error kUnavailable       it cannot be opened or read; another process has locked it for too long
  /// \error kResourceExhausted the disk is full
  static Result<Database> Open(const std::string& path, int64_t wait_millis);
  Result<Statement> Prepare(std::string_view sql) const;
  /// Executes statements without parameters and results.
  Status Execute(const char* sql) const;
  int64_t last_id() const;
  bool in_transaction() const;
  /// How long to wait for another process's lock, from now on.
  void WaitAtMost(int64_t millis) const;
  const std::string& path() const { return path_; }

 private:
  struct Close {
    void operator()(sqlite3* database) const;
  };
  std::unique_ptr<sqlite3, Close> database_;
  std::string path_;
};

/// BEGIN IMMEDIATE: nobody else can write until Commit. Rolled back unless Commit was called. One that begins
/// within another is a part of it (a savepoint): what it commits is kept when the outer one is.
class Transaction {
 public:
  static Result<Transaction> Begin(const Database& database);
  Transaction(Transaction&& other) noexcept
      : database_(std::exchange(other.database_, nullptr)), is_inner_(other.is_inner_) {}
  ~Transaction();
  Status Commit();

 private:
  Transaction(const Database& database, bool is_inner) : database_(&database), is_inner_(is_inner) {}
  const Database* database_;
  bool is_inner_;
};

}  // namespace tdbg::jobs

// Status and Result: how every call of this library reports that it could not do what was asked.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace tdbg {

/// What went wrong, for programs. The message is for people and is never parsed.
/// Stored in events and used as exit-code classes; never renumber.
enum class Code : uint8_t {
  kOk = 0,
  kInvalidArgument = 1,     ///< the caller asked for something that can never work
  kNotFound = 2,            ///< the named thing does not exist
  kAlreadyExists = 3,       ///< it exists and must not
  kFailedPrecondition = 4,  ///< it could work, but not in this state (locked, ended, not yet)
  kDataLoss = 5,            ///< bytes were read that are damaged or missing
  kResourceExhausted = 6,   ///< disk, memory, journal or limit is full
  kUnimplemented = 7,       ///< a valid request this build cannot serve (dtype, newer format)
  kUnavailable = 8,         ///< not yet, or a peer is gone; asking again may work
  kDeadlineExceeded = 9,    ///< the time allowed ran out
  kInternal = 10,           ///< a defect of tdbg
};

std::string_view CodeName(Code code);

class [[nodiscard]] Status {
 public:
  Status() = default;  ///< OK
  Status(Code code, std::string message) : code_(code), message_(std::move(message)) {}

  bool ok() const { return code_ == Code::kOk; }
  Code code() const { return code_; }
  const std::string& message() const { return message_; }
  /// "kind: message", or "ok".
  std::string ToString() const;

  /// The same status with `where` in front of its message: the layer that knows a name adds it.
  Status Annotate(std::string_view where) const;

 private:
  Code code_ = Code::kOk;
  std::string message_;
};

inline Status OkStatus() { return {}; }
Status InvalidArgument(std::string message);
Status NotFound(std::string message);
Status FailedPrecondition(std::string message);
Status DataLoss(std::string message);
Status ResourceExhausted(std::string message);
Status Unimplemented(std::string message);
Status Unavailable(std::string message);
Status Internal(std::string message);
/// kNotFound, kResourceExhausted (ENOSPC, EDQUOT, EFBIG) or kUnavailable by `error_number`;
/// message "what: strerror".
Status ErrnoStatus(int error_number, std::string_view what);

/// A value or the Status that explains its absence.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}         // NOLINT: implicit on purpose
  Result(Status status) : status_(std::move(status)) {  // NOLINT: implicit on purpose
    if (status_.ok()) status_ = Internal("Result made from an OK status without a value");
  }

  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }
  /// \pre ok()
  T& operator*() & { return *value_; }
  const T& operator*() const& { return *value_; }
  T&& operator*() && { return std::move(*value_); }
  T* operator->() { return &*value_; }
  const T* operator->() const { return &*value_; }

 private:
  std::optional<T> value_;
  Status status_;
};

#define TDBG_CONCAT_INNER(a, b) a##b
#define TDBG_CONCAT(a, b) TDBG_CONCAT_INNER(a, b)
/// Returns the status of `expr` from the enclosing function unless it is OK.
#define TDBG_RETURN_IF_ERROR(expr)               \
  do {                                           \
    ::tdbg::Status tdbg_status_ = (expr);        \
    if (!tdbg_status_.ok()) return tdbg_status_; \
  } while (0)
/// `TDBG_ASSIGN_OR_RETURN(auto x, F());` declares x, or returns F's status.
#define TDBG_ASSIGN_OR_RETURN(lhs, expr) \
  TDBG_ASSIGN_OR_RETURN_INNER(TDBG_CONCAT(tdbg_result_, __LINE__), lhs, expr)
#define TDBG_ASSIGN_OR_RETURN_INNER(result, lhs, expr) \
  auto result = (expr);                                \
  if (!result.ok()) return result.status();            \
  lhs = std::move(*result)

}  // namespace tdbg

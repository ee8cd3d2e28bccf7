#include "tdbg/status.h"

#include <cerrno>
#include <system_error>

namespace tdbg {

std::string_view CodeName(Code code) {
  switch (code) {
    case Code::kOk:
      return "ok";
    case Code::kInvalidArgument:
      return "invalid_argument";
    case Code::kNotFound:
      return "not_found";
    case Code::kAlreadyExists:
      return "already_exists";
    case Code::kFailedPrecondition:
      return "failed_precondition";
    case Code::kDataLoss:
      return "data_loss";
    case Code::kResourceExhausted:
      return "resource_exhausted";
    case Code::kUnimplemented:
      return "unimplemented";
    case Code::kUnavailable:
      return "unavailable";
    case Code::kDeadlineExceeded:
      return "deadline_exceeded";
    case Code::kInternal:
      return "internal";
  }
  return "unknown";  // a number read from a newer version's file
}

std::string Status::ToString() const {
  if (ok()) return "ok";
  std::string text(CodeName(code_));
  text += ": ";
  text += message_;
  return text;
}

Status Status::Annotate(std::string_view where) const {
  if (ok()) return *this;
  std::string text(where);
  text += ": ";
  text += message_;
  return Status(code_, std::move(text));
}

Status InvalidArgument(std::string message) { return {Code::kInvalidArgument, std::move(message)}; }
Status NotFound(std::string message) { return {Code::kNotFound, std::move(message)}; }
Status FailedPrecondition(std::string message) { return {Code::kFailedPrecondition, std::move(message)}; }
Status DataLoss(std::string message) { return {Code::kDataLoss, std::move(message)}; }
Status ResourceExhausted(std::string message) { return {Code::kResourceExhausted, std::move(message)}; }
Status Unimplemented(std::string message) { return {Code::kUnimplemented, std::move(message)}; }
Status Unavailable(std::string message) { return {Code::kUnavailable, std::move(message)}; }
Status Internal(std::string message) { return {Code::kInternal, std::move(message)}; }

Status ErrnoStatus(int error_number, std::string_view what) {
  Code code = Code::kUnavailable;
  if (error_number == ENOENT) {
    code = Code::kNotFound;
  } else if (error_number == ENOSPC || error_number == EDQUOT || error_number == EFBIG) {
    code = Code::kResourceExhausted;
  }
  std::string text(what);
  text += ": ";
  // std::system_category and not strerror: that one may share a buffer between threads.
  text += std::system_category().message(error_number);
  return {code, std::move(text)};
}

}  // namespace tdbg

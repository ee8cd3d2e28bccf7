// What an operation answers: a document, or one of AWS's errors.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tdbg::service {

using Json = nlohmann::ordered_json;

/// An error as clients of AWS's JSON protocol take it: HTTP 400, {"__type", "message"}.
struct Refusal {
  std::string code;  ///< "ValidationException"
  std::string message;
};

/// A value, or why there is none.
template <typename T>
class Answer {
 public:
  Answer(T value) : value_(std::move(value)) {}              // NOLINT: implicit on purpose
  Answer(Refusal refusal) : refusal_(std::move(refusal)) {}  // NOLINT: implicit on purpose
  bool ok() const { return value_.has_value(); }
  const Refusal& refusal() const { return refusal_; }
  T& operator*() & { return *value_; }
  const T& operator*() const& { return *value_; }
  T&& operator*() && { return std::move(*value_); }
  T* operator->() { return &*value_; }
  const T* operator->() const { return &*value_; }

 private:
  std::optional<T> value_;
  Refusal refusal_;
};

/// What goes out over HTTP in answer to a request.
struct Response {
  Response(Json document) : body(std::move(document)) {}  // NOLINT: implicit on purpose
  Response(Json document, int http_status) : body(std::move(document)), status(http_status) {}
  Json body;
  int status = 200;  ///< 202 and 204 go without the body
  std::vector<std::pair<std::string, std::string>> headers = {};
};

inline Answer<Response> AsResponse(Answer<Json> answer) {
  if (!answer.ok()) return answer.refusal();
  return Response(*std::move(answer));
}

inline Refusal Invalid(std::string message) { return {"ValidationException", std::move(message)}; }

}  // namespace tdbg::service

#include "http/response.h"

#include <ostream>
// It takes <ostream> for granted.
#include <boost/beast/http/status.hpp>
#include <string_view>

namespace tdbg::http {
namespace {

void Append(std::string* head, std::string_view name, std::string_view value) {
  head->append(name).append(": ");
  for (const char c : value) *head += c == '\r' || c == '\n' || c == '\0' ? ' ' : c;
  head->append("\r\n");
}

}  // namespace

std::string ResponseHead(int status, const Headers& headers, bool keep, std::optional<size_t> length) {
  const auto reason = boost::beast::http::obsolete_reason(static_cast<boost::beast::http::status>(status));
  std::string head = "HTTP/1.1 " + std::to_string(status) + " ";
  head.append(reason.data(), reason.size()).append("\r\n");
  for (const auto& [name, value] : headers) Append(&head, name, value);
  if (!keep) Append(&head, "Connection", "close");
  if (length) Append(&head, "Content-Length", std::to_string(*length));
  return head + "\r\n";
}

}  // namespace tdbg::http

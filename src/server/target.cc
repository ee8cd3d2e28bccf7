#include "server/target.h"

#include "base/text.h"

namespace tdbg::server {
namespace {

int Digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

constexpr std::string_view kApi = "api/v1/";

}  // namespace

std::optional<std::string> Decode(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out += text[i] == '+' ? ' ' : text[i];
      continue;
    }
    if (i + 2 >= text.size()) return {};
    const int high = Digit(text[i + 1]), low = Digit(text[i + 2]);
    if (high < 0 || low < 0) return {};
    out += static_cast<char>(high * 16 + low);
    i += 2;
  }
  if (!out.empty() && !base::IsValidName(out)) return {};
  return out;
}

std::optional<Target> ParseTarget(std::string_view target) {
  if (target.empty() || target.front() != '/') return {};
  target.remove_prefix(1);
  const size_t mark = target.find('?');
  std::string_view path = target.substr(0, mark);
  std::string_view query = mark == std::string_view::npos ? std::string_view() : target.substr(mark + 1);
  Target out;
  const size_t slash = path.find('/');
  out.token = path.substr(0, slash);
  if (slash == std::string_view::npos) {
    out.path = "/";  // the document's address must end in '/', so that its relative links work
    return out;
  }
  out.path = path.substr(slash + 1);
  if (out.path.starts_with(kApi)) out.question.name = out.path.substr(kApi.size());
  while (!query.empty()) {
    const size_t end = query.find('&');
    const std::string_view part = query.substr(0, end);
    query.remove_prefix(end == std::string_view::npos ? query.size() : end + 1);
    if (part.empty()) continue;
    const size_t equals = part.find('=');
    const auto key = Decode(part.substr(0, equals));
    const auto value =
        Decode(equals == std::string_view::npos ? std::string_view() : part.substr(equals + 1));
    if (!key || !value || !out.question.parameters.emplace(*key, *value).second) return {};
  }
  return out;
}

}  // namespace tdbg::server

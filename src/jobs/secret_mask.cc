#include "jobs/secret_mask.h"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <iterator>
#include <set>

#include "base/redact.h"
#include "base/text.h"
#include "format/json_fields.h"

namespace tdbg::jobs {
namespace {

using format::Json;

constexpr size_t kShortest = 6;
constexpr size_t kShortestLine = 16;    // of several: "}" and "-----" are no secrets
constexpr size_t kMostObjectsDeep = 8;  // objects within objects

std::string Replaced(std::string text, std::string_view from, std::string_view to) {
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
  return text;
}

// Without its quotes.
std::string AsJson(const std::string& text, bool ascii) {
  const std::string quoted = Json(text).dump(-1, ' ', ascii, Json::error_handler_t::replace);
  return quoted.substr(1, quoted.size() - 2);
}

// As Python's repr() has it, whichever quotes it chose.
std::string AsRepr(const std::string& text) {
  std::string out = Replaced(text, "\\", "\\\\");
  for (const auto& [from, to] : {std::pair("\n", "\\n"), std::pair("\r", "\\r"), std::pair("\t", "\\t")})
    out = Replaced(std::move(out), from, to);
  return out;
}

// \param kept  on top of letters, digits and "-._~"
std::string AsUrl(const std::string& text, std::string_view kept, const char* digits) {
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isalnum(byte) != 0 || std::strchr("-._~", c) != nullptr || kept.find(c) != kept.npos) {
      out += c;
    } else {
      out += '%';
      out += digits[byte >> 4];
      out += digits[byte & 15];
    }
  }
  return out;
}

class Secrets {
 public:
  void Add(const std::string& secret) {
    AddForms(secret);
    AddLines(secret);
    if (secret.starts_with('{'))
      AddMembers(Json::parse(secret, nullptr, /*allow_exceptions=*/false), /*named=*/false, 0);
  }
  std::vector<std::string> All() && { return {found_.begin(), found_.end()}; }

 private:
  void AddForms(const std::string& secret) {
    std::string url = AsUrl(secret, "", "0123456789ABCDEF");
    for (std::string form :
         {secret, Replaced(Replaced(secret, "\r\n", "\n"), "\n", "\r\n"), AsJson(secret, /*ascii=*/false),
          AsJson(secret, /*ascii=*/true), AsRepr(secret), AsUrl(secret, "/", "0123456789ABCDEF"),
          AsUrl(secret, "", "0123456789abcdef"), Replaced(url, "%20", "+"), url}) {
      if (form.size() >= kShortest) found_.insert(std::move(form));
    }
  }
  // Whoever prints a key line by line, or indented.
  void AddLines(const std::string& secret) {
    if (secret.find('\n') == std::string::npos) return;
    for (size_t from = 0; from < secret.size();) {
      const size_t end = std::min(secret.find('\n', from), secret.size());
      const std::string_view line = base::Trim(std::string_view(secret).substr(from, end - from));
      if (line.size() >= kShortestLine) found_.emplace(line);
      from = end + 1;
    }
  }
  void AddMembers(const Json& json, bool named, size_t depth) {
    if (json.is_string() && named) {
      const auto text = json.get<std::string>();
      AddForms(text);
      AddLines(text);
    }
    if (!json.is_structured() || depth == kMostObjectsDeep) return;
    for (const auto& [name, value] : json.items())
      AddMembers(value, json.is_object() ? base::NamesASecret(name) : named, depth + 1);
  }

  std::set<std::string> found_;
};

// Names that end like a secret's also hold where something is: OLD_PWD, XDG_CREDENTIALS.
bool IsPathOfSomething(const std::string& value) {
  return value.starts_with('/') && ::access(value.c_str(), F_OK) == 0;
}

uint32_t Beginning(std::string_view text) {
  uint32_t bytes;
  std::memcpy(&bytes, text.data(), sizeof(bytes));
  return bytes;
}

}  // namespace

std::vector<std::string> SecretsOf(const std::vector<std::string>& command,
                                   const std::map<std::string, std::string>& environment,
                                   const std::vector<std::string>& names) {
  std::vector<std::string> taken;
  for (const auto& [name, value] : environment) {
    const bool asked = std::find(names.begin(), names.end(), name) != names.end();
    if (asked || (base::NamesASecret(name) && !IsPathOfSomething(value)))
      taken.push_back(value);
    else
      base::RedactText(value, &taken);
  }
  base::RedactCommand(command, &taken);
  Secrets secrets;
  for (const std::string& secret : taken) {
    if (secret.size() >= kShortest) secrets.Add(secret);
  }
  return std::move(secrets).All();
}

SecretMask::SecretMask(std::vector<std::string> secrets) : secrets_(std::move(secrets)) {
  std::ranges::sort(secrets_, std::greater(), &std::string::size);
  for (const std::string& secret : secrets_) {
    first_bytes_.set(static_cast<unsigned char>(secret[0]));
    by_beginning_[Beginning(secret)].push_back(secret);
  }
}

std::string SecretMask::Feed(std::string_view bytes) {
  if (secrets_.empty()) return std::string(bytes);
  held_ += bytes;
  return Mask(/*ends=*/false);
}

std::string SecretMask::Mask(bool ends) {
  std::string out;
  size_t at = 0;
  while (at < held_.size()) {
    // Most bytes begin no secret: skip runs of them at once.
    size_t plain = at;
    while (plain < held_.size() && !first_bytes_[static_cast<unsigned char>(held_[plain])]) ++plain;
    out.append(held_, at, plain - at);
    at = plain;
    if (at == held_.size()) break;
    const Found found = FindAt(std::string_view(held_).substr(at));
    // A longer secret may still come: wait before masking a shorter one.
    if (found.begins && !ends) break;
    if (found.length > 0) {
      out += base::kRedacted;
      at += found.length;
    } else {
      out += held_[at++];
    }
  }
  held_.erase(0, at);
  return out;
}

SecretMask::Found SecretMask::FindAt(std::string_view text) const {
  if (text.size() < sizeof(uint32_t)) return Compare(text, secrets_);
  const auto found = by_beginning_.find(Beginning(text));
  return found == by_beginning_.end() ? Found() : Compare(text, found->second);
}

SecretMask::Found SecretMask::Compare(std::string_view text, const std::vector<std::string>& secrets) {
  Found found;
  for (const std::string& secret : secrets) {
    if (text.starts_with(secret)) {
      found.length = secret.size();
      break;
    }
    found.begins |= text.size() < secret.size() && std::string_view(secret).starts_with(text);
  }
  return found;
}

}  // namespace tdbg::jobs

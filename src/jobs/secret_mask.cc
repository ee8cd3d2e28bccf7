#include "jobs/secret_mask.h"

#include <algorithm>

#include "base/redact.h"

namespace tdbg::jobs {
namespace {

constexpr size_t kShortest = 6;

}  // namespace

std::vector<std::string> SecretsOf(const std::vector<std::string>& command,
                                   const std::map<std::string, std::string>& environment,
                                   const std::vector<std::string>& names) {
  std::vector<std::string> secrets;
  for (const auto& [name, value] : environment) {
    if (base::NamesASecret(name) || std::find(names.begin(), names.end(), name) != names.end())
      secrets.push_back(value);
  }
  const std::vector<std::string> redacted = base::RedactCommand(command);
  for (size_t i = 0; i < command.size() && i < redacted.size(); ++i) {
    const size_t at = redacted[i].find(base::kRedacted);
    if (at == std::string::npos || redacted[i] == command[i]) continue;
    // Find the secret within the word, between the parts that were kept.
    const size_t behind = redacted[i].size() - at - base::kRedacted.size();
    if (command[i].size() > at + behind)
      secrets.push_back(command[i].substr(at, command[i].size() - at - behind));
  }
  std::erase_if(secrets, [](const std::string& secret) { return secret.size() < kShortest; });
  // Longer secrets first: if one is the beginning of another, the whole of the longer one is masked.
  std::sort(secrets.begin(), secrets.end(), [](const std::string& a, const std::string& b) {
    return a.size() != b.size() ? a.size() > b.size() : a < b;
  });
  secrets.erase(std::unique(secrets.begin(), secrets.end()), secrets.end());
  return secrets;
}

SecretMask::SecretMask(std::vector<std::string> secrets) : secrets_(std::move(secrets)) {
  for (const std::string& secret : secrets_) first_bytes_.set(static_cast<unsigned char>(secret[0]));
}

std::string SecretMask::Feed(std::string_view bytes) {
  if (secrets_.empty()) return std::string(bytes);
  held_ += bytes;
  std::string out;
  size_t at = 0;
  while (at < held_.size()) {
    // Most bytes begin no secret: skip runs of them at once.
    size_t plain = at;
    while (plain < held_.size() && !first_bytes_[static_cast<unsigned char>(held_[plain])]) ++plain;
    out.append(held_, at, plain - at);
    at = plain;
    if (at == held_.size()) break;
    const std::string_view rest = std::string_view(held_).substr(at);
    bool begins = false;
    size_t length = 0;
    for (const std::string& secret : secrets_) {
      if (rest.starts_with(secret)) {
        length = secret.size();
        break;
      }
      if (rest.size() < secret.size() && std::string_view(secret).starts_with(rest)) {
        begins = true;  // a longer secret may still match: wait before masking a shorter one
        break;
      }
    }
    if (begins) break;
    if (length > 0) {
      out += base::kRedacted;
      at += length;
    } else {
      out += held_[at++];
    }
  }
  held_.erase(0, at);
  return out;
}

std::string SecretMask::Flush() {
  std::string out;
  // The bytes that were held back for a longer secret may contain a shorter one.
  std::vector<std::string> all = secrets_;
  while (!held_.empty()) {
    const auto found = std::find_if(all.begin(), all.end(),
                                    [&](const std::string& secret) { return held_.starts_with(secret); });
    if (found != all.end()) {
      out += base::kRedacted;
      held_.erase(0, found->size());
    } else {
      out += held_[0];
      held_.erase(0, 1);
    }
  }
  return out;
}

}  // namespace tdbg::jobs

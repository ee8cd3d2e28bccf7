#include "cli/trust.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "actions/action.h"
#include "base/below.h"
#include "base/file.h"
#include "base/posix.h"
#include "base/redact.h"
#include "base/sha256.h"
#include "base/text.h"
#include "cli/run_path.h"
#include "jobs/state_directory.h"

namespace tdbg::cli {
namespace {

constexpr size_t kKeyBytes = 32;

std::string ReadKey(const std::string& path) {
  const base::UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  struct stat info;
  if (!fd.ok() || ::fstat(fd.get(), &info) != 0 || !S_ISREG(info.st_mode)) return {};
  // A key that others can read, or have put there, proves nothing.
  if (info.st_uid != ::geteuid() || (info.st_mode & 077) != 0) return {};
  std::string key(kKeyBytes, '\0');
  return ::read(fd.get(), key.data(), key.size()) == static_cast<ssize_t>(key.size()) ? key : std::string();
}

// Empty where the user has no home.
std::string PathOfKey() {
  const std::string state = jobs::StateDirectory();
  return state.empty() ? "" : base::JoinPath(state, "key");
}

// Made whole under another name and linked: of two that make it at once one wins, and the other uses the
// winner's.
std::string UsersKey(bool make) {
  const std::string path = PathOfKey();
  if (path.empty()) return {};
  if (std::string key = ReadKey(path); !key.empty() || !make) return key;
  std::string key(kKeyBytes, '\0');
  if (::getrandom(key.data(), key.size(), 0) != static_cast<ssize_t>(key.size())) return {};
  if (!base::CreatePrivateDirectory(path.substr(0, path.rfind('/')), /*shared=*/false).ok()) return {};
  const std::string temporary = fmt::format("{}.{}", path, ::getpid());
  const base::UniqueFd fd(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!fd.ok()) return {};
  const bool whole = base::WriteFully(fd.get(), std::as_bytes(std::span(key))) == 0 && ::fsync(fd.get()) == 0;
  if (whole && ::link(temporary.c_str(), path.c_str()) != 0 && errno != EEXIST)
    (void)::rename(temporary.c_str(), path.c_str());  // a file system without hard links
  ::unlink(temporary.c_str());
  return ReadKey(path);
}

bool OthersMayWrite(const struct stat& info) {
  if ((info.st_mode & S_IWOTH) != 0) return true;
  // A group that has the user's number is the user's own, by the custom of useradd.
  return (info.st_mode & S_IWGRP) != 0 && info.st_gid != info.st_uid;
}

// Why the run's records may not be the caller's own; empty if they are.
std::string WhyNotOwn(const std::string& run, const RecordedRules& recorded) {
  const std::string file = base::JoinPath(run, "rules.json");
  for (const std::string& path : {run, file}) {
    struct stat info;
    const bool there = path == file ? ::lstat(path.c_str(), &info) == 0 : ::stat(path.c_str(), &info) == 0;
    if (!there || S_ISLNK(info.st_mode)) return "its rules.json is not a file of its own";
    if (info.st_uid != ::geteuid()) return fmt::format("the run is another user's (uid {})", info.st_uid);
    if (OthersMayWrite(info)) return "others may write to the run";
  }
  if (recorded.seal.empty())
    return "the run has no seal (made by an earlier tdbg, or where no key could be kept in the home "
           "directory)";
  const std::string seal = SealOf(recorded.sealed_text, /*make_key=*/false);
  if (seal.empty()) {
    const std::string path = PathOfKey();
    return "your key, which tells what is yours, is missing: " + (path.empty() ? "you have no home" : path);
  }
  return seal == recorded.seal ? "" : "it was recorded elsewhere or by another user, or changed since";
}

std::string WhyNotFile(const std::string& path, const std::string& hash) {
  struct stat info;
  if (::stat(path.c_str(), &info) != 0) return "the file is gone";
  if (info.st_uid != ::geteuid() && info.st_uid != 0)
    return fmt::format("the file is another user's (uid {})", info.st_uid);
  if (OthersMayWrite(info)) return "others may write to the file";
  if (hash.empty()) return "its hash was not recorded";
  return HashOfRuleFile(path) == hash ? "" : "the file has changed since the run was made";
}

bool LacksASecret(const std::string& text) { return text.find(base::kRedacted) != std::string::npos; }

std::string NameOf(const plan::RuleConfig& rule) { return rule.name.empty() ? rule.rule : rule.name; }

}  // namespace

std::string SealOf(const std::string& text, bool make_key) {
  const std::string key = UsersKey(make_key);
  return key.empty() ? "" : base::HexOf(base::HmacSha256(key, text));
}

std::string HashOfRuleFile(const std::string& path) {
  const auto text = base::LocalFileSystem().ReadFile(path);
  return text.ok() ? base::HexOf(base::Sha256(*text)) : "";
}

TrustedRules RulesToTrust(const std::string& run_directory, const RecordedRules& recorded,
                          const TrustOptions& options) {
  TrustedRules trusted;
  const std::string why_not = options.trust ? "" : WhyNotOwn(run_directory, recorded);
  for (plan::RuleConfig rule : recorded.rules) {
    const auto secret =
        std::find_if(rule.parameters.begin(), rule.parameters.end(), [](const auto& parameter) {
          return parameter.first != "action_json" && LacksASecret(parameter.second);
        });
    if (secret != rule.parameters.end()) {
      trusted.lost_rules = true;
      trusted.left_out.push_back(
          fmt::format("rule {} is left out: its parameter {} was recorded without its secret; give the rule "
                      "again, with --rule{}",
                      NameOf(rule), secret->first, rule.file.empty() ? "" : "-file"));
      continue;
    }
    if (!rule.file.empty()) {
      std::string why = why_not;
      const auto hash = recorded.hashes.find(rule.file);
      if (why.empty() && !options.trust)
        why = WhyNotFile(rule.file, hash == recorded.hashes.end() ? "" : hash->second);
      if (!why.empty()) {
        trusted.lost_rules = true;
        trusted.left_out.push_back(
            fmt::format("rule {} is left out, and {} is not run: {}; read it, then name it with --rule-file, "
                        "or say --trust",
                        NameOf(rule), rule.file, why));
        continue;
      }
    }
    const auto leave_out = [&](const std::string& action, const std::string& why) {
      trusted.lost_actions = true;
      if (options.actions)
        trusted.left_out.push_back(fmt::format("{} of rule {} is left out: {}", action, NameOf(rule), why));
    };
    const std::string ask = why_not + "; ask for it with --on-issue, or say --trust";
    std::vector<std::string> actions;
    for (const std::string& action : rule.on_issue) {
      if (!why_not.empty()) {
        leave_out("action " + action, ask);
      } else if (LacksASecret(action)) {
        leave_out("action " + action, "it was recorded without its secret; give it again, with --on-issue");
      } else if (const auto parsed = actions::ParseAction(action, {}); !parsed.ok()) {
        leave_out("action " + action, parsed.status().message());  // its variable is not set here
      } else {
        actions.push_back(action);
      }
    }
    rule.on_issue = std::move(actions);
    for (const char* const key : {"action_json", "stop_training_on_fire"}) {
      const auto found = rule.parameters.find(key);
      if (found == rule.parameters.end() || why_not.empty()) continue;
      if (found->second != "False" && found->second != "false")
        leave_out(std::string("parameter ") + key, ask);
      rule.parameters.erase(found);
    }
    trusted.rules.push_back(std::move(rule));
  }
  return trusted;
}

}  // namespace tdbg::cli

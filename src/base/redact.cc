#include "base/redact.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstddef>
#include <utility>

namespace tdbg::base {
namespace {

bool IsUpper(char c) { return c >= 'A' && c <= 'Z'; }
bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsAlnum(char c) { return IsDigit(c) || IsUpper(c) || (c >= 'a' && c <= 'z'); }
bool IsNameChar(char c) { return IsAlnum(c) || c == '_' || c == '-' || c == '.'; }
bool IsKeyChar(char c) { return IsAlnum(c) || c == '_' || c == '-'; }

template <size_t N>
bool IsOneOf(std::string_view word, const std::array<std::string_view, N>& words) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

// "wandbApi_KEY" -> wandb, api, key.
std::vector<std::string> WordsOf(std::string_view name) {
  std::vector<std::string> words(1);
  for (size_t i = 0; i < name.size(); ++i) {
    const char c = name[i];
    const bool hump = i > 0 && IsUpper(c) && !IsUpper(name[i - 1]);
    if ((!IsAlnum(c) || hump) && !words.back().empty()) words.emplace_back();
    if (IsAlnum(c)) words.back() += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  if (words.back().empty()) words.pop_back();
  return words;
}

constexpr std::array<std::string_view, 15> kSecretWords = {
    "password",  "passwd",        "passphrase",  "passwort",  "secret",
    "secrets",   "credential",    "credentials", "apikey",    "accesskey",
    "secretkey", "authorization", "privkey",     "authtoken", "accesstoken"};
// In front of "key" they make it a secret; "token" is one by itself.
constexpr std::array<std::string_view, 13> kKeysOf = {
    "api",        "access", "secret", "private", "auth",         "account", "signing",
    "encryption", "master", "shared", "service", "subscription", "license"};
// With one of these suffixes a name is not the secret itself but something about it: token_file,
// password_length.
constexpr std::array<std::string_view, 27> kAboutIt = {
    "file", "path",     "dir",    "name",   "length", "len",    "size", "dim",    "count",
    "type", "limit",    "ids",    "idx",    "loss",   "level",  "env",  "index",  "embed",
    "mask", "provider", "policy", "budget", "url",    "weight", "num",  "expiry", "arn"};
// Tokens of a language model.
constexpr std::array<std::string_view, 32> kTokensOfText = {
    "pad",     "bos",         "eos",      "unk",      "cls",         "sep",          "mask",    "special",
    "image",   "audio",       "video",    "prefix",   "suffix",      "start",        "end",     "stop",
    "begin",   "first",       "last",     "next",     "per",         "class",        "decoder", "encoder",
    "trigger", "placeholder", "instance", "modifier", "initializer", "distillation", "text",    "by"};

// Values that are no secrets: switches, and numbers that count something.
bool IsPlainValue(std::string_view value) {
  static constexpr std::array<std::string_view, 12> kSwitches = {
      "true", "false", "True", "False", "yes", "no", "on", "off", "none", "None", "null", ""};
  if (IsOneOf(value, kSwitches)) return true;
  return value.size() < 4 && std::all_of(value.begin(), value.end(), IsDigit);
}
// A variable's name is no secret, and a command that was recorded with it can be used again.
bool IsReference(std::string_view value) {
  return value.starts_with('$') || value.starts_with("%(") || value.starts_with(kRedacted) ||
         value.starts_with('<');
}
bool Stays(std::string_view value) { return IsPlainValue(value) || IsReference(value); }

// Long, and letters and digits in one: no word of a language.
bool LooksRandom(std::string_view text, size_t at_least) {
  if (text.size() < at_least || !std::all_of(text.begin(), text.end(), IsKeyChar)) return false;
  return std::any_of(text.begin(), text.end(), IsDigit) &&
         std::any_of(text.begin(), text.end(), [](char c) { return IsAlnum(c) && !IsDigit(c); });
}

struct KeyShape {
  std::string_view prefix;
  size_t at_least;  // characters behind it
};
constexpr std::array<KeyShape, 26> kShapes = {
    {{"AKIA", 16},     {"ASIA", 16},        {"ghp_", 20},   {"gho_", 20},  {"ghu_", 20},     {"ghs_", 20},
     {"ghr_", 20},     {"github_pat_", 20}, {"glpat-", 16}, {"xoxa-", 10}, {"xoxb-", 10},    {"xoxp-", 10},
     {"xoxr-", 10},    {"xoxs-", 10},       {"xapp-", 10},  {"sk-", 20},   {"sk_live_", 16}, {"sk_test_", 16},
     {"rk_live_", 16}, {"hf_", 20},         {"AIza", 30},   {"npm_", 30},  {"pypi-", 40},    {"dop_v1_", 30},
     {"ya29.", 20},    {"SG.", 30}}};

// The length of a key of a well-known shape at the beginning, or 0.
size_t KeyAt(std::string_view text) {
  const auto run = [&](size_t from, bool dots) {
    size_t end = from;
    while (end < text.size() && (IsKeyChar(text[end]) || (dots && text[end] == '.'))) ++end;
    return end;
  };
  for (const KeyShape& shape : kShapes) {
    if (!text.starts_with(shape.prefix)) continue;
    const size_t end = run(shape.prefix.size(), shape.prefix.ends_with('.'));
    const std::string_view behind = text.substr(shape.prefix.size(), end - shape.prefix.size());
    // "sk-learn-pipelines-of-mine" has no digit.
    if (behind.size() >= shape.at_least && std::any_of(behind.begin(), behind.end(), IsDigit)) return end;
  }
  if (text.starts_with("eyJ")) {  // a JSON web token: three parts
    const size_t end = run(0, true);
    if (end >= 30 && std::count(text.begin(), text.begin() + static_cast<ptrdiff_t>(end), '.') == 2)
      return end;
  }
  constexpr std::string_view kBegin = "-----BEGIN ", kPrivate = "PRIVATE KEY-----";
  if (text.starts_with(kBegin)) {
    const size_t head = text.find(kPrivate);
    if (head == std::string_view::npos || head > 40) return 0;
    const size_t end = text.find(kPrivate, head + kPrivate.size());
    return end == std::string_view::npos ? text.size() : end + kPrivate.size();
  }
  return 0;
}

// Hosts of web hooks whose path is the whole secret: whoever knows it may post.
bool IsHookHost(std::string_view host) {
  for (const std::string_view known :
       {"hooks.slack.com", "discord.com", "discordapp.com", "webhook.office.com", "chat.googleapis.com",
        "api.telegram.org", "hooks.zapier.com", "maker.ifttt.com", "logic.azure.com", "webhook.site",
        "open.feishu.cn", "oapi.dingtalk.com"}) {
    if (host == known || (host.ends_with(known) && host[host.size() - known.size() - 1] == '.')) return true;
  }
  return false;
}

std::string RedactParameters(std::string_view query) {
  static constexpr std::array<std::string_view, 10> kSecret = {"sig", "signature", "key", "code", "auth",
                                                               "pwd", "pass",      "sas", "jwt",  "hmac"};
  std::string out;
  while (!query.empty()) {
    const size_t end = std::min(query.find_first_of("&;#"), query.size());
    const std::string_view item = query.substr(0, end);
    const size_t equals = item.find('=');
    const std::string_view name = item.substr(0, equals);
    std::string lower(name);
    std::transform(lower.begin(), lower.end(), lower.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    const bool named = NamesASecret(name) || IsOneOf(std::string_view(lower), kSecret) ||
                       lower.ends_with("signature") || lower.ends_with("x-amz-credential");
    if (equals != std::string_view::npos && named && !IsReference(item.substr(equals + 1))) {
      out.append(item.substr(0, equals + 1)).append(kRedacted);
    } else {
      out.append(RedactText(item));
    }
    if (end < query.size()) out += query[end];
    query.remove_prefix(std::min(end + 1, query.size()));
  }
  return out;
}

// `url` begins with its scheme and holds "://" at `colon`.
std::string RedactUrl(std::string_view url, size_t colon, bool hook) {
  const std::string_view scheme = url.substr(0, colon);
  std::string out(url.substr(0, colon + 3));
  const size_t host_at = colon + 3;
  const size_t path_at = std::min(url.find_first_of("/?#", host_at), url.size());
  std::string_view host = url.substr(host_at, path_at - host_at);
  if (const size_t at = host.rfind('@'); at != std::string_view::npos) {
    const std::string_view user = host.substr(0, at);
    const size_t pair = user.find(':');
    if (IsReference(user) && pair == std::string_view::npos) {
      out.append(user);
    } else if (pair != std::string_view::npos) {
      const bool kept = IsReference(user.substr(pair + 1));
      // A token may stand in either half ("https://TOKEN:x-oauth-basic@").
      out.append(LooksRandom(user.substr(0, pair), 16) ? kRedacted : user.substr(0, pair)).append(":");
      out.append(kept ? user.substr(pair + 1) : kRedacted);
    } else {
      out.append(scheme.starts_with("http") || LooksRandom(user, 16) ? kRedacted : user);  // not git@
    }
    out += '@';
    host.remove_prefix(at + 1);
  }
  out.append(host);
  const std::string_view rest = url.substr(path_at);
  const size_t query_at = std::min(rest.find_first_of("?#"), rest.size());
  const std::string_view path = rest.substr(0, query_at);
  bool secret = scheme.starts_with("http") && IsHookHost(host.substr(0, host.find(':'))) && path.size() > 1;
  for (size_t from = 0; hook && !secret && from < path.size();) {
    const size_t end = std::min(path.find('/', from), path.size());
    secret = LooksRandom(path.substr(from, end - from), 16);
    from = end + 1;
  }
  if (secret) {
    out.append("/").append(kRedacted);
  } else {
    for (size_t from = 0; from < path.size();) {  // a key may be a part of it
      const size_t end = std::min(path.find('/', from), path.size());
      const std::string_view part = path.substr(from, end - from);
      out.append(KeyAt(part) > 0 ? kRedacted : part);
      if (end < path.size()) out += '/';
      from = end + 1;
    }
  }
  if (query_at < rest.size()) {
    out += rest[query_at];
    out += RedactParameters(rest.substr(query_at + 1));
  }
  return out;
}

constexpr std::string_view kUrlEnds = " \t\r\n\"'`<>|\\^{}";

struct Value {
  size_t begin = 0, end = 0;  // of what is to be redacted
};

// The value of a name that ends at `at`: after '=' or ':', and after a flag's name also after blanks. Empty
// if there is no value.
Value ValueBehind(std::string_view text, size_t at, bool is_flag) {
  const auto skip_blanks = [&] {
    while (at < text.size() && (text[at] == ' ' || text[at] == '\t')) ++at;
  };
  if (at < text.size() && (text[at] == '"' || text[at] == '\'')) ++at;  // "password": "X"
  const size_t before = at;
  skip_blanks();
  if (at < text.size() && (text[at] == '=' || text[at] == ':')) {
    // "secrets: in the open" is prose, and still better redacted; "https://secret:..." was taken as a URL.
    ++at;
    if (at < text.size() && text[at - 1] == ':' && text[at] == ':') return {};  // a C++ name
    skip_blanks();
  } else if (!is_flag || at == before || (at < text.size() && text[at] == '-')) {
    return {};
  }
  for (const std::string_view scheme : {"Bearer ", "bearer ", "Basic ", "basic ", "Token ", "token "}) {
    if (text.substr(at).starts_with(scheme)) at += scheme.size();
  }
  Value value{at, at};
  if (at < text.size() && (text[at] == '"' || text[at] == '\'')) {
    const char quote = text[at];
    value.begin = at + 1;
    value.end = std::min(text.find(quote, value.begin), text.size());
  } else {
    value.end = std::min(text.find_first_of(" \t\r\n\"'`;,|&)}]", at), text.size());
    if (text.substr(at).starts_with(kRedacted)) value.end = at + kRedacted.size();
    if (at < text.size() && text[at] == '$') value.end = at;
  }
  return value;
}

}  // namespace

bool NamesASecret(std::string_view name) {
  if (name == "PWD") return false;  // a shell's word for where it is, and a part of most paths in a log
  const std::vector<std::string> words = WordsOf(name);
  if (words.empty() || IsOneOf(std::string_view(words.back()), kAboutIt)) return false;
  for (const std::string& word : words) {
    if (IsOneOf(std::string_view(word), kSecretWords)) return true;
  }
  const std::string& last = words.back();
  const std::string before = words.size() > 1 ? words[words.size() - 2] : std::string();
  if (last == "token" || last == "pat") return !IsOneOf(std::string_view(before), kTokensOfText);
  if (last == "tokens") return before == "auth" || before == "access";
  if (last == "key") return IsOneOf(std::string_view(before), kKeysOf);
  return last == "pwd" || last == "bearer" || (last == "auth" && words.size() == 1);
}

std::vector<std::string> RedactCommand(const std::vector<std::string>& words) {
  std::vector<std::string> out;
  bool is_value = false;
  const std::string* before = nullptr;
  for (const std::string& word : words) {
    const bool is_script = before != nullptr && *before == "-c";  // several words in one
    before = &word;
    if (std::exchange(is_value, false) && !word.starts_with('-')) {
      out.push_back(Stays(word) ? word : std::string(kRedacted));
      continue;
    }
    size_t end = 0;
    while (end < word.size() && (IsNameChar(word[end]) || (end == 0 && word[end] == '+'))) ++end;
    const bool whole = end == word.size(), assigned = !whole && word[end] == '=';
    if (!is_script && end > 0 && (whole || assigned) && NamesASecret(std::string_view(word).substr(0, end))) {
      is_value = whole && word.starts_with('-');
      const std::string_view value = assigned ? std::string_view(word).substr(end + 1) : std::string_view();
      out.push_back(assigned && !Stays(value) ? word.substr(0, end + 1).append(kRedacted) : word);
      continue;
    }
    out.push_back(RedactText(word));
  }
  return out;
}

std::string RedactText(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const bool starts = at == 0 || !IsKeyChar(text[at - 1]);
    if (!starts || (!IsAlnum(text[at]) && text[at] != '-' && text[at] != '_')) {
      out += text[at++];
      continue;
    }
    if (const size_t key = KeyAt(text.substr(at)); key > 0) {
      out.append(kRedacted);
      at += key;
      continue;
    }
    size_t end = at;
    while (end < text.size() && (IsNameChar(text[end]) || text[end] == '+')) ++end;
    if (text.substr(end).starts_with("://")) {
      const size_t url_end = std::min(text.find_first_of(kUrlEnds, end), text.size());
      out += RedactUrl(text.substr(at, url_end - at), end - at, /*hook=*/false);
      at = url_end;
      continue;
    }
    while (end > at && text[end - 1] == '.') --end;  // a full stop
    if (end == at) {
      out += text[at++];
      continue;
    }
    const std::string_view name = text.substr(at, end - at);
    if (NamesASecret(name)) {
      const Value value = ValueBehind(text, end, name.starts_with('-'));
      if (value.end > value.begin && !Stays(text.substr(value.begin, value.end - value.begin))) {
        out.append(text.substr(at, value.begin - at)).append(kRedacted);
        at = value.end;
        continue;
      }
    }
    out.append(name);
    at = end;
  }
  return out;
}

std::string RedactHook(std::string_view url) {
  const size_t colon = url.find("://");
  return colon == std::string_view::npos ? RedactText(url) : RedactUrl(url, colon, /*hook=*/true);
}

}  // namespace tdbg::base

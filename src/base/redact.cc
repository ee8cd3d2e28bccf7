#include "base/redact.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstddef>
#include <functional>
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

// Text without its secrets, and these.
class Redaction {
 public:
  explicit Redaction(std::vector<std::string>* taken) : taken_(taken) {}
  void Keep(std::string_view text) { out_.append(text); }
  void Keep(char c) { out_ += c; }
  void Take(std::string_view secret) {
    out_.append(kRedacted);
    if (taken_ != nullptr) taken_->emplace_back(secret);
  }
  void KeepOrTake(std::string_view text, bool secret) { secret ? Take(text) : Keep(text); }
  std::string Text() && { return std::move(out_); }

 private:
  std::string out_;
  std::vector<std::string>* taken_;
};

void AddText(std::string_view text, Redaction& out);

void AddParameters(std::string_view query, Redaction& out) {
  static constexpr std::array<std::string_view, 10> kSecret = {"sig", "signature", "key", "code", "auth",
                                                               "pwd", "pass",      "sas", "jwt",  "hmac"};
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
      out.Keep(item.substr(0, equals + 1));
      out.Take(item.substr(equals + 1));
    } else {
      AddText(item, out);
    }
    if (end < query.size()) out.Keep(query[end]);
    query.remove_prefix(std::min(end + 1, query.size()));
  }
}

// The credentials in front of a host.
void AddUser(std::string_view user, std::string_view scheme, Redaction& out) {
  const size_t pair = user.find(':');
  if (IsReference(user) && pair == std::string_view::npos) {
    out.Keep(user);
  } else if (pair != std::string_view::npos) {
    // A token may stand in either half ("https://TOKEN:x-oauth-basic@").
    out.KeepOrTake(user.substr(0, pair), LooksRandom(user.substr(0, pair), 16));
    out.Keep(':');
    out.KeepOrTake(user.substr(pair + 1), !IsReference(user.substr(pair + 1)));
  } else {
    out.KeepOrTake(user, scheme.starts_with("http") || LooksRandom(user, 16));  // not git@
  }
  out.Keep('@');
}

// `url` begins with its scheme and holds "://" at `colon`.
void AddUrl(std::string_view url, size_t colon, bool hook, Redaction& out) {
  const std::string_view scheme = url.substr(0, colon);
  out.Keep(url.substr(0, colon + 3));
  const size_t host_at = colon + 3;
  const size_t path_at = std::min(url.find_first_of("/?#", host_at), url.size());
  std::string_view host = url.substr(host_at, path_at - host_at);
  if (const size_t at = host.rfind('@'); at != std::string_view::npos) {
    AddUser(host.substr(0, at), scheme, out);
    host.remove_prefix(at + 1);
  }
  out.Keep(host);
  const std::string_view rest = url.substr(path_at);
  const size_t query_at = std::min(rest.find_first_of("?#"), rest.size());
  const std::string_view path = rest.substr(0, query_at);
  bool secret = scheme.starts_with("http") && IsHookHost(host.substr(0, host.find(':'))) && path.size() > 1;
  for (size_t from = 0; hook && !secret && from < path.size();) {
    size_t end = from;
    while (end < path.size() && IsKeyChar(path[end])) ++end;
    secret = LooksRandom(path.substr(from, end - from), 16);
    from = end + 1;
  }
  if (secret) {
    out.Keep('/');
    out.Take(path.substr(1));
  } else {
    for (size_t from = 0; from < path.size();) {  // a key may be a part of it
      const size_t end = std::min(path.find('/', from), path.size());
      const std::string_view part = path.substr(from, end - from);
      out.KeepOrTake(part, KeyAt(part) > 0);
      if (end < path.size()) out.Keep('/');
      from = end + 1;
    }
  }
  if (query_at < rest.size()) {
    out.Keep(rest[query_at]);
    AddParameters(rest.substr(query_at + 1), out);
  }
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

// Where an action (webhook:URL, exec:COMMAND) begins; npos if there is none.
size_t ActionIn(std::string_view text) {
  size_t first = std::string_view::npos;
  for (const std::string_view action : {"webhook:", "exec:"}) {
    const size_t at = text.find(action);
    if (at != std::string_view::npos && (at == 0 || !IsKeyChar(text[at - 1]))) first = std::min(first, at);
  }
  return first;
}

void AddText(std::string_view text, Redaction& out) {
  const size_t action = ActionIn(text);
  for (size_t at = 0; at < text.size();) {
    const bool starts = at == 0 || !IsKeyChar(text[at - 1]);
    if (!starts || (!IsAlnum(text[at]) && text[at] != '-' && text[at] != '_')) {
      out.Keep(text[at++]);
      continue;
    }
    if (const size_t key = KeyAt(text.substr(at)); key > 0) {
      out.Take(text.substr(at, key));
      at += key;
      continue;
    }
    size_t end = at;
    while (end < text.size() && (IsNameChar(text[end]) || text[end] == '+')) ++end;
    if (text.substr(end).starts_with("://")) {
      const bool hook = at > action;
      size_t url_end = std::min(text.find_first_of(kUrlEnds, end), text.size());
      if (hook) url_end = std::min(url_end, text.find(';', end));  // a command's end
      AddUrl(text.substr(at, url_end - at), end - at, hook, out);
      at = url_end;
      continue;
    }
    while (end > at && text[end - 1] == '.') --end;  // a full stop
    if (end == at) {
      out.Keep(text[at++]);
      continue;
    }
    const std::string_view name = text.substr(at, end - at);
    if (NamesASecret(name)) {
      const Value value = ValueBehind(text, end, name.starts_with('-'));
      const std::string_view secret = text.substr(value.begin, value.end - value.begin);
      if (!secret.empty() && !Stays(secret)) {
        out.Keep(text.substr(at, value.begin - at));
        out.Take(secret);
        at = value.end;
        continue;
      }
    }
    out.Keep(name);
    at = end;
  }
}

}  // namespace

bool NamesASecret(std::string_view name) {
  if (name == "PWD") return false;  // a shell's word for where it is, and a part of most paths in a log
  const std::vector<std::string> words = WordsOf(name);
  if (words.size() > 1) {  // SLACK_WEBHOOK_URL: whoever knows it may post
    const bool is_url = words.back() == "url" || words.back() == "uri";
    if (words[words.size() - (is_url ? 2 : 1)] == "webhook") return true;
  }
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

std::vector<std::string> RedactCommand(const std::vector<std::string>& words,
                                       std::vector<std::string>* taken) {
  std::vector<std::string> redacted;
  bool is_value = false;
  const std::string* before = nullptr;
  for (const std::string& word : words) {
    const bool is_script = before != nullptr && *before == "-c";  // several words in one
    before = &word;
    Redaction out(taken);
    size_t end = 0;
    while (end < word.size() && (IsNameChar(word[end]) || (end == 0 && word[end] == '+'))) ++end;
    const bool whole = end == word.size(), assigned = !whole && word[end] == '=';
    if (std::exchange(is_value, false) && !word.starts_with('-')) {
      out.KeepOrTake(word, !Stays(word));
    } else if (!is_script && end > 0 && (whole || assigned) &&
               NamesASecret(std::string_view(word).substr(0, end))) {
      is_value = whole && word.starts_with('-');
      const std::string_view value = assigned ? std::string_view(word).substr(end + 1) : std::string_view();
      out.Keep(std::string_view(word).substr(0, word.size() - value.size()));
      out.KeepOrTake(value, !Stays(value));
    } else {
      AddText(word, out);
    }
    redacted.push_back(std::move(out).Text());
  }
  return redacted;
}

std::string RedactText(std::string_view text, std::vector<std::string>* taken) {
  Redaction out(taken);
  AddText(text, out);
  return std::move(out).Text();
}

std::string RedactOutput(std::string_view text, std::string_view given) {
  constexpr size_t kShortest = 6;  // "1" occurs everywhere
  std::vector<std::string> secrets;
  RedactText(given, &secrets);
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view variable = *entry;
    const size_t equals = std::min(variable.find('='), variable.size());
    if (NamesASecret(variable.substr(0, equals)))
      secrets.emplace_back(variable.substr(std::min(equals + 1, variable.size())));
  }
  std::ranges::sort(secrets, std::greater(), &std::string::size);  // one may be a part of another
  std::string out(text);
  for (const std::string& secret : secrets) {
    if (secret.size() < kShortest) break;
    for (size_t at = 0; (at = out.find(secret, at)) != std::string::npos; at += kRedacted.size())
      out.replace(at, secret.size(), kRedacted);
  }
  return RedactText(out);
}

}  // namespace tdbg::base

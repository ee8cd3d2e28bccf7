// tdbg-webhook: posts a JSON body to a URL, or hands a mail to an SMTP server. A program of its own, so that
// libcurl is loaded where it is used.
//
//   standard input: the URL on the first line (not an argument: it may hold a secret, and `ps` shows those),
//                   headers, one a line, an empty line, the body. A URL smtp:// or smtps:// is a mail: its
//                   "headers" are `User:`, `Password:`, `From:` and `To:` (the envelope's), its body the
//                   message
//   tdbg-webhook [--tries N] [--backoff-millis N] [--timeout-millis N]
//   exit code:      0 delivered, 1 not delivered (the reason on standard error), 2 called wrongly
#include <curl/curl.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

namespace {

struct Limits {
  long tries = 3;
  long backoff_millis = 500;  // doubled after each try
  long timeout_millis = 10'000;
};

struct Reply {
  CURLcode code = CURLE_OK;
  long status = 0;
  std::string error;
  std::string body;

  bool mail = false;

  bool delivered() const { return code == CURLE_OK && status >= 200 && status < 300; }
  // A refusal (404, 401) will be the same next time; an overload, a time-out or a restart may not.
  bool worth_retrying() const {
    if (code == CURLE_URL_MALFORMAT || code == CURLE_UNSUPPORTED_PROTOCOL || code == CURLE_LOGIN_DENIED)
      return false;
    // SMTP has it the other way round: 4xx is "later", 5xx is "never".
    if (mail && status >= 500) return false;
    return code != CURLE_OK || status == 408 || status == 429 || status >= 500;
  }
  std::string Why() const {
    if (code != CURLE_OK) return error.empty() ? curl_easy_strerror(code) : error;
    return "the server answered " + std::to_string(status) + (body.empty() ? "" : ": " + body);
  }
};

size_t KeepBeginning(const char* data, size_t, size_t bytes, void* into) {
  auto* const text = static_cast<std::string*>(into);
  if (text->size() < 200) text->append(data, std::min<size_t>(bytes, 200 - text->size()));
  return bytes;
}

struct Message {
  std::string url;
  std::vector<std::string> headers;
  std::string body;

  std::string Header(const std::string& name) const {
    for (const std::string& header : headers) {
      if (header.starts_with(name + ": ")) return header.substr(name.size() + 2);
    }
    return {};
  }
};

struct Reading {
  const std::string& text;
  size_t at = 0;
};

size_t ReadSome(char* into, size_t size, size_t count, void* from) {
  auto* const reading = static_cast<Reading*>(from);
  const size_t n = std::min(size * count, reading->text.size() - reading->at);
  std::memcpy(into, reading->text.data() + reading->at, n);
  reading->at += n;
  return n;
}

// Does what `curl` was told, and gives it and its list back.
void Perform(CURL* curl, curl_slist* list, const Limits& limits, Reply* reply) {
  char error[CURL_ERROR_SIZE] = "";
  curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, error);
  curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, limits.timeout_millis);
  curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
  reply->code = curl_easy_perform(curl);
  curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &reply->status);
  reply->error = error;
  curl_slist_free_all(list);
  curl_easy_cleanup(curl);
}

Reply Mail(const Message& message, const Limits& limits) {
  Reply reply;
  reply.mail = true;
  CURL* const curl = curl_easy_init();
  if (!curl) return {CURLE_FAILED_INIT, 0, "", ""};
  const std::string user = message.Header("User"), password = message.Header("Password"),
                    from = message.Header("From");
  curl_slist* to = curl_slist_append(nullptr, message.Header("To").c_str());
  Reading reading{message.body};
  curl_easy_setopt(curl, CURLOPT_URL, message.url.c_str());
  curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "smtp,smtps");
  // A server that offers encryption gets it; credentials never go without.
  curl_easy_setopt(curl, CURLOPT_USE_SSL, static_cast<long>(user.empty() ? CURLUSESSL_TRY : CURLUSESSL_ALL));
  if (!user.empty()) {
    curl_easy_setopt(curl, CURLOPT_USERNAME, user.c_str());
    curl_easy_setopt(curl, CURLOPT_PASSWORD, password.c_str());
  }
  curl_easy_setopt(curl, CURLOPT_MAIL_FROM, from.c_str());
  curl_easy_setopt(curl, CURLOPT_MAIL_RCPT, to);
  curl_easy_setopt(curl, CURLOPT_READFUNCTION, ReadSome);
  curl_easy_setopt(curl, CURLOPT_READDATA, &reading);
  curl_easy_setopt(curl, CURLOPT_UPLOAD, 1L);
  Perform(curl, to, limits, &reply);
  return reply;
}

Reply Post(const Message& message, const Limits& limits) {
  if (message.url.starts_with("smtp://") || message.url.starts_with("smtps://")) return Mail(message, limits);
  const std::string& body = message.body;
  Reply reply;
  CURL* const curl = curl_easy_init();
  if (!curl) return {CURLE_FAILED_INIT, 0, "", ""};
  curl_slist* headers = curl_slist_append(nullptr, "Content-Type: application/json");
  headers = curl_slist_append(headers, "Expect:");  // costs a second against servers that do not know it
  for (const std::string& header : message.headers) headers = curl_slist_append(headers, header.c_str());
  curl_easy_setopt(curl, CURLOPT_URL, message.url.c_str());
  curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
  curl_easy_setopt(curl, CURLOPT_USERAGENT, "tdbg");
  curl_easy_setopt(curl, CURLOPT_POSTFIELDS, body.data());
  curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(body.size()));
  curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, KeepBeginning);
  curl_easy_setopt(curl, CURLOPT_WRITEDATA, &reply.body);
  Perform(curl, headers, limits, &reply);
  return reply;
}

bool ParseArguments(int argc, char** argv, Limits* limits) {
  for (int i = 1; i < argc; i += 2) {
    char* end = nullptr;
    const long value = i + 1 < argc ? std::strtol(argv[i + 1], &end, 10) : -1;
    if (!end || *end != '\0' || value < 0) return false;
    if (std::strcmp(argv[i], "--tries") == 0) {
      limits->tries = value;
    } else if (std::strcmp(argv[i], "--backoff-millis") == 0) {
      limits->backoff_millis = value;
    } else if (std::strcmp(argv[i], "--timeout-millis") == 0) {
      limits->timeout_millis = value;
    } else {
      return false;
    }
  }
  return limits->tries > 0;
}

}  // namespace

int main(int argc, char** argv) {
  Limits limits;
  Message message;
  if (!ParseArguments(argc, argv, &limits) || !std::getline(std::cin, message.url) || message.url.empty()) {
    std::fprintf(stderr,
                 "usage: tdbg-webhook [--tries N] [--backoff-millis N] [--timeout-millis N]\n"
                 "       < URL, newline, headers, empty line, body\n");
    return 2;
  }
  for (std::string header; std::getline(std::cin, header) && !header.empty();)
    message.headers.push_back(header);
  message.body = std::string((std::istreambuf_iterator<char>(std::cin)), std::istreambuf_iterator<char>());
  curl_global_init(CURL_GLOBAL_DEFAULT);
  Reply reply;
  long tries = 0;
  while (tries < limits.tries) {
    if (tries > 0)
      std::this_thread::sleep_for(std::chrono::milliseconds(limits.backoff_millis << (tries - 1)));
    ++tries;
    reply = Post(message, limits);
    if (reply.delivered()) return 0;
    if (!reply.worth_retrying()) break;
  }
  std::fprintf(stderr, "not delivered after %ld %s: %s\n", tries, tries == 1 ? "try" : "tries",
               reply.Why().c_str());
  return 1;
}

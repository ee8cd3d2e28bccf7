// tdbg-webhook: posts a JSON body to a URL. A program of its own, so that libcurl is loaded where it is used.
//
//   standard input: the URL on the first line (not an argument: it may hold a secret, and `ps` shows those),
//                   the body behind it
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

  bool delivered() const { return code == CURLE_OK && status >= 200 && status < 300; }
  // A refusal (404, 401) will be the same next time; an overload, a time-out or a restart may not.
  bool worth_retrying() const {
    if (code == CURLE_URL_MALFORMAT || code == CURLE_UNSUPPORTED_PROTOCOL) return false;
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

Reply Post(const std::string& url, const std::string& body, const Limits& limits) {
  Reply reply;
  CURL* const curl = curl_easy_init();
  if (!curl) return {CURLE_FAILED_INIT, 0, "", ""};
  char error[CURL_ERROR_SIZE] = "";
  curl_slist* headers = curl_slist_append(nullptr, "Content-Type: application/json");
  headers = curl_slist_append(headers, "Expect:");  // costs a second against servers that do not know it
  curl_easy_setopt(curl, CURLOPT_URL, url.c_str());
  curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
  curl_easy_setopt(curl, CURLOPT_USERAGENT, "tdbg");
  curl_easy_setopt(curl, CURLOPT_POSTFIELDS, body.data());
  curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(body.size()));
  curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, KeepBeginning);
  curl_easy_setopt(curl, CURLOPT_WRITEDATA, &reply.body);
  curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, error);
  curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, limits.timeout_millis);
  curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
  reply.code = curl_easy_perform(curl);
  curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &reply.status);
  reply.error = error;
  curl_slist_free_all(headers);
  curl_easy_cleanup(curl);
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
  std::string url;
  if (!ParseArguments(argc, argv, &limits) || !std::getline(std::cin, url) || url.empty()) {
    std::fprintf(
        stderr,
        "usage: tdbg-webhook [--tries N] [--backoff-millis N] [--timeout-millis N] < URL, newline, body\n");
    return 2;
  }
  const std::string body((std::istreambuf_iterator<char>(std::cin)), std::istreambuf_iterator<char>());
  curl_global_init(CURL_GLOBAL_DEFAULT);
  Reply reply;
  long tries = 0;
  while (tries < limits.tries) {
    if (tries > 0)
      std::this_thread::sleep_for(std::chrono::milliseconds(limits.backoff_millis << (tries - 1)));
    ++tries;
    reply = Post(url, body, limits);
    if (reply.delivered()) return 0;
    if (!reply.worth_retrying()) break;
  }
  std::fprintf(stderr, "not delivered after %ld %s: %s\n", tries, tries == 1 ? "try" : "tries",
               reply.Why().c_str());
  return 1;
}

#include "storage/s3/http.h"

#include <curl/curl.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <mutex>
#include <string_view>

namespace tdbg::storage {
namespace {

struct Transfer {
  const HttpRequest* request;
  HttpAnswer answer;
  size_t sent = 0;
  bool too_long = false;
};

size_t TakeHeader(const char* data, size_t, size_t bytes, void* into) {
  auto* const transfer = static_cast<Transfer*>(into);
  std::string_view line(data, bytes);
  // Those of "100 Continue" are not the answer's.
  if (line.starts_with("HTTP/")) transfer->answer.headers.clear();
  while (!line.empty() && (line.back() == '\r' || line.back() == '\n')) line.remove_suffix(1);
  const size_t colon = line.find(':');
  if (colon == std::string_view::npos || transfer->answer.headers.size() > 200) return bytes;
  std::string name(line.substr(0, colon));
  for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  line.remove_prefix(colon + 1);
  while (line.starts_with(' ')) line.remove_prefix(1);
  transfer->answer.headers[name] = line;
  return bytes;
}

size_t TakeBody(const char* data, size_t, size_t bytes, void* into) {
  auto* const transfer = static_cast<Transfer*>(into);
  if (bytes > transfer->request->most_bytes - transfer->answer.body.size()) {
    transfer->too_long = true;
    return 0;
  }
  transfer->answer.body.append(data, bytes);
  return bytes;
}

size_t GiveBody(char* into, size_t size, size_t count, void* from) {
  auto* const transfer = static_cast<Transfer*>(from);
  const size_t n = std::min(size * count, transfer->request->body.size() - transfer->sent);
  std::memcpy(into, transfer->request->body.data() + transfer->sent, n);
  transfer->sent += n;
  return n;
}

int Rewind(void* from, curl_off_t offset, int origin) {
  auto* const transfer = static_cast<Transfer*>(from);
  if (origin != SEEK_SET || offset < 0 || static_cast<size_t>(offset) > transfer->request->body.size())
    return CURL_SEEKFUNC_CANTSEEK;
  transfer->sent = static_cast<size_t>(offset);
  return CURL_SEEKFUNC_OK;
}

}  // namespace

struct HttpClient::Handles {
  std::mutex mutex;
  std::vector<CURL*> idle;  // guarded by mutex; each keeps its connection
};

HttpClient::HttpClient(std::string certificates)
    : certificates_(std::move(certificates)), handles_(std::make_unique<Handles>()) {
  static std::once_flag once;
  std::call_once(once, [] { curl_global_init(CURL_GLOBAL_DEFAULT); });
}

HttpClient::~HttpClient() {
  for (CURL* const handle : handles_->idle) curl_easy_cleanup(handle);
}

Result<HttpAnswer> HttpClient::Send(const HttpRequest& request) {
  CURL* curl = nullptr;
  {
    const std::lock_guard guard(handles_->mutex);
    if (!handles_->idle.empty()) {
      curl = handles_->idle.back();
      handles_->idle.pop_back();
    }
  }
  if (curl == nullptr) curl = curl_easy_init();
  if (curl == nullptr) return Unavailable("libcurl has no memory");
  curl_easy_reset(curl);
  Transfer transfer{&request, {}};
  char error[CURL_ERROR_SIZE] = "";
  // Else curl waits a second for servers that do not answer it.
  curl_slist* headers = curl_slist_append(nullptr, "Expect:");
  headers = curl_slist_append(headers, "Content-Type:");
  for (const auto& [name, value] : request.headers)
    headers = curl_slist_append(headers, (name + ": " + value).c_str());
  curl_easy_setopt(curl, CURLOPT_URL, request.url.c_str());
  curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
  // The path must be sent as it was signed: curl must not normalise "a/../b" in a key.
  curl_easy_setopt(curl, CURLOPT_PATH_AS_IS, 1L);
  curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, error);
  curl_easy_setopt(curl, CURLOPT_USERAGENT, "tdbg");
  curl_easy_setopt(curl, CURLOPT_TCP_NODELAY, 1L);
  curl_easy_setopt(curl, CURLOPT_BUFFERSIZE, 256L * 1024);
  curl_easy_setopt(curl, CURLOPT_UPLOAD_BUFFERSIZE, 1024L * 1024);
  curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(request.connect_millis));
  curl_easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, 1L);
  curl_easy_setopt(curl, CURLOPT_LOW_SPEED_TIME,
                   static_cast<long>(std::max<int64_t>(1, request.silent_millis / 1000)));
  if (!certificates_.empty()) curl_easy_setopt(curl, CURLOPT_CAINFO, certificates_.c_str());
  if (request.direct) curl_easy_setopt(curl, CURLOPT_NOPROXY, "*");
  if (request.total_millis > 0)
    curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, static_cast<long>(request.total_millis));
  curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, TakeHeader);
  curl_easy_setopt(curl, CURLOPT_HEADERDATA, &transfer);
  curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, TakeBody);
  curl_easy_setopt(curl, CURLOPT_WRITEDATA, &transfer);
  if (request.method == "HEAD") {
    curl_easy_setopt(curl, CURLOPT_NOBODY, 1L);
  } else if (request.method != "GET" && request.method != "DELETE") {
    curl_easy_setopt(curl, CURLOPT_UPLOAD, 1L);
    curl_easy_setopt(curl, CURLOPT_INFILESIZE_LARGE, static_cast<curl_off_t>(request.body.size()));
    curl_easy_setopt(curl, CURLOPT_READFUNCTION, GiveBody);
    curl_easy_setopt(curl, CURLOPT_READDATA, &transfer);
    curl_easy_setopt(curl, CURLOPT_SEEKFUNCTION, Rewind);
    curl_easy_setopt(curl, CURLOPT_SEEKDATA, &transfer);
  }
  if (request.method != "GET" && request.method != "HEAD")
    curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, request.method.c_str());
  curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
  const CURLcode code = curl_easy_perform(curl);
  long status = 0;
  curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
  curl_slist_free_all(headers);
  transfer.answer.status = static_cast<int>(status);
  {
    const std::lock_guard guard(handles_->mutex);
    handles_->idle.push_back(curl);
  }
  if (transfer.too_long) return Unavailable("the answer is longer than what was asked for");
  // A server may refuse before it has read the whole body: that is an answer, too.
  if (code == CURLE_SEND_ERROR && status >= 300) return std::move(transfer.answer);
  if (code == CURLE_PEER_FAILED_VERIFICATION || code == CURLE_SSL_CACERT_BADFILE)
    return FailedPrecondition(
        request.url.substr(0, request.url.find('/', request.url.find("://") + 3)) +
        " shows a certificate that is not trusted: " + (*error ? error : curl_easy_strerror(code)) +
        "; AWS_CA_BUNDLE may name a file of those that are");
  if (code != CURLE_OK) return Unavailable(*error ? error : curl_easy_strerror(code));
  return std::move(transfer.answer);
}

}  // namespace tdbg::storage

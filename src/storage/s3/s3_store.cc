#include "storage/s3/s3_store.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <mutex>
#include <random>
#include <thread>

#include "base/clock.h"
#include "base/posix.h"
#include "base/text.h"
#include "storage/s3/payload_hash.h"

namespace tdbg::storage {
namespace {

constexpr uint64_t kMaxParts = 10'000;               // S3's
constexpr uint64_t kLeastPart = 5u << 20;            // S3's, of all parts but the last
constexpr uint64_t kCopiedPart = uint64_t{1} << 30;  // S3 copies 5 GiB at most at once
constexpr uint64_t kLongestAnswer = uint64_t{5} << 30;
constexpr uint64_t kLeastRoom = 64u << 10;  // room for an error's text
constexpr int64_t kClockMatters = 60'000'000'000;

constexpr int64_t kLongestAskedMillis = 20'000;  // that a store may ask us to wait

// Anything up to `longest_millis`, so that many clients that failed at once do not return at once.
int64_t Jitter(int64_t longest_millis) {
  static thread_local std::mt19937_64 random{std::random_device{}()};
  return std::uniform_int_distribution<int64_t>(0, longest_millis)(random);
}

std::string AmzTime(int64_t wall_nanos) {
  const time_t seconds = static_cast<time_t>(wall_nanos / 1'000'000'000);
  tm parts = {};
  ::gmtime_r(&seconds, &parts);
  char text[32];
  (void)::strftime(text, sizeof(text), "%Y%m%dT%H%M%SZ", &parts);
  return text;
}

// "Mon, 23 Nov 2026 23:00:00 GMT"; 0 if it is not a date.
int64_t HttpTime(const std::string& text) {
  tm parts = {};
  if (::strptime(text.c_str(), "%a, %d %b %Y %H:%M:%S", &parts) == nullptr) return 0;
  return static_cast<int64_t>(::timegm(&parts)) * 1'000'000'000;
}

// How long the store asks us to wait; 0: it does not.
int64_t AskedMillis(const HttpAnswer& answer) {
  const std::string text = answer.Header("retry-after");
  const auto seconds = base::ParseInt(text);
  const int64_t until = seconds ? 0 : HttpTime(text);
  const int64_t asked = seconds ? std::clamp<int64_t>(*seconds, 0, kLongestAskedMillis / 1000) * 1000
                                : (until - base::SystemClock().WallNanos()) / 1'000'000;
  return std::clamp<int64_t>(asked, 0, kLongestAskedMillis);
}

bool WorthRetrying(int status, const std::string& code) {
  if (status == 501) return false;  // the store does not offer it
  return status >= 500 || status == 408 || status == 429 || code == "SlowDown" || code == "RequestTimeout" ||
         code == "RequestTimeTooSkewed" || code == "ExpiredToken" || code == "BadDigest" ||
         code == "XAmzContentSHA256Mismatch" || code == "IncompleteBody" || code == "OperationAborted" ||
         code == "ConditionalRequestConflict";
}

std::string CodeOf(const HttpAnswer& answer) {
  const auto xml = ParseXml(answer.body);
  return xml.ok() && xml->name == "Error" ? xml->TextOf("Code") : "";
}

Result<std::string> ReadStretch(const std::string& path, uint64_t begin, uint64_t bytes) {
  const base::UniqueFd fd = base::OpenFd(path.c_str(), O_RDONLY);
  if (!fd.ok()) return base::PathError(errno, "cannot open", path);
  std::string content(bytes, '\0');
  const ssize_t got = ::pread(fd.get(), content.data(), bytes, static_cast<off_t>(begin));
  if (got < 0) return base::PathError(errno, "cannot read", path);
  if (static_cast<uint64_t>(got) != bytes) return DataLoss("became shorter: " + path);
  return content;
}

std::string Unquoted(const std::string& etag) {
  return etag.size() >= 2 && etag.front() == '"' ? etag.substr(1, etag.size() - 2) : etag;
}

std::string HostOf(const std::string& url) {
  const size_t begin = url.find("://") + 3;
  return url.substr(begin, url.find('/', begin) - begin);
}

}  // namespace

Result<std::unique_ptr<S3Store>> S3Store::Open(const std::string& bucket, const StoreOptions& options,
                                               const Environment& environment) {
  TDBG_ASSIGN_OR_RETURN(Settings settings, ReadSettings(environment));
  return std::unique_ptr<S3Store>(new S3Store(bucket, options, std::move(settings), environment));
}

S3Store::S3Store(std::string bucket, StoreOptions options, Settings settings, const Environment& environment)
    : bucket_(std::move(bucket)),
      options_(options),
      settings_(std::move(settings)),
      http_(settings_.certificates),
      credentials_(settings_, environment, &http_) {}

Result<HttpAnswer> S3Store::Try(const Call& call) {
  TDBG_ASSIGN_OR_RETURN(const Credentials credentials, credentials_.Get());
  // The certificate for *.s3.amazonaws.com does not match a bucket's name with dots in it.
  const bool path_style = settings_.path_style || bucket_.find('.') != std::string::npos;
  std::string base = settings_.endpoint;
  if (base.empty()) base = "https://s3." + settings_.region + ".amazonaws.com";
  std::string path = "/" + call.key;
  if (path_style) {
    path = "/" + bucket_ + (call.key.empty() ? "" : path);
  } else {
    base.insert(base.find("://") + 3, bucket_ + ".");
  }
  // The endpoint's URL may have a path of its own.
  if (const size_t slash = base.find('/', base.find("://") + 3); slash != std::string::npos) {
    path = base.substr(slash) + path;
    base.resize(slash);
  }
  SignedRequest signed_request;
  signed_request.method = call.method;
  signed_request.path = path;
  signed_request.query = call.query;
  // The payload is hashed and signed even over TLS, so that the store refuses bytes that were damaged on
  // their way.
  signed_request.payload_hash = Sha256Hex(call.body);
  const std::string time = AmzTime(base::SystemClock().WallNanos() + clock_offset_nanos_.load());
  signed_request.headers = call.headers;
  signed_request.headers.emplace_back("x-amz-content-sha256", signed_request.payload_hash);
  signed_request.headers.emplace_back("x-amz-date", time);
  if (!credentials.session_token.empty())
    signed_request.headers.emplace_back("x-amz-security-token", credentials.session_token);
  HttpRequest request;
  request.method = call.method;
  const std::string query = CanonicalQuery(call.query);
  request.url = base + UriEncode(path, true) + (query.empty() ? "" : "?" + query);
  request.headers = signed_request.headers;
  signed_request.headers.emplace_back("host", HostOf(base));
  request.headers.emplace_back("Authorization",
                               Authorization(signed_request, credentials, time, settings_.region, "s3"));
  request.body = call.body;
  request.most_bytes = std::max(call.most_bytes, kLeastRoom);
  request.connect_millis = options_.connect_millis;
  request.silent_millis = options_.silent_millis;
  return http_.Send(request);
}

Result<HttpAnswer> S3Store::Perform(const Call& call) {
  int64_t delay_millis = options_.first_delay_millis;
  for (int tries = 1;; ++tries) {
    auto answer = Try(call);
    const int64_t asked_millis = answer.ok() ? AskedMillis(*answer) : 0;
    const bool last = tries >= options_.tries;
    if (answer.ok() && answer->status < 300) {
      const bool complete = !call.complete || call.complete(*answer);
      if (complete) return answer;
      if (last)
        return Unavailable(Location{true, bucket_, call.key}.ToString() +
                           (call.method == "PUT" ? ": the store has other bytes than were sent"
                                                 : ": the answer is not whole"));
    } else if (answer.ok()) {
      const std::string code = CodeOf(*answer);
      if (!WorthRetrying(answer->status, code) || last) return ErrorOf(call, *answer);
      if (code == "ExpiredToken") credentials_.Forget();
      if (code == "RequestTimeTooSkewed") {
        const int64_t theirs = HttpTime(answer->Header("date"));
        // Only once: if the store refuses again, the clock was not the reason.
        if (theirs == 0 || clock_offset_nanos_.load() != 0) return ErrorOf(call, *answer);
        clock_offset_nanos_ = theirs - base::SystemClock().WallNanos();
        continue;
      }
    } else if (answer.status().code() != Code::kUnavailable || last) {
      const std::string where = settings_.endpoint.empty() ? "S3" : settings_.endpoint;
      if (answer.status().code() != Code::kUnavailable) return answer.status();
      return Unavailable(where + " cannot be reached: " + answer.status().message());
    }
    ::usleep(static_cast<useconds_t>(1000 * (asked_millis + Jitter(delay_millis))));
    delay_millis = std::min(delay_millis * 2, options_.longest_delay_millis);
  }
}

std::string S3Store::PermissionFor(const Call& call) {
  const auto asks = [&call](std::string_view name) {
    return std::ranges::any_of(call.query, [&](const auto& one) { return one.first == name; });
  };
  if (call.method == "PUT" || call.method == "POST") return "s3:PutObject";
  if (call.method == "DELETE") return asks("uploadId") ? "s3:AbortMultipartUpload" : "s3:DeleteObject";
  return asks("list-type") ? "s3:ListBucket" : "s3:GetObject";
}

Status S3Store::ErrorOf(const Call& call, const HttpAnswer& answer) const {
  const auto xml = ParseXml(answer.body);
  const std::string code = xml.ok() ? xml->TextOf("Code") : "";
  std::string said = xml.ok() ? xml->TextOf("Message") : "";
  if (said.size() > 300) said.resize(300);
  const std::string what = Location{true, bucket_, call.key}.ToString() + ": ";
  if (code == "NoSuchBucket") return InvalidArgument("there is no bucket '" + bucket_ + "'; create it first");
  if (answer.status == 412) return Status(Code::kAlreadyExists, what + "another one is there");
  if (code == "RequestTimeTooSkewed" || code == "RequestExpired") {
    const int64_t theirs = HttpTime(answer.Header("date"));
    const int64_t off = theirs == 0 ? 0 : base::SystemClock().WallNanos() - theirs;
    return FailedPrecondition("this machine's clock is off" +
                              (std::abs(off) > kClockMatters
                                   ? " by " + std::to_string(off / 1'000'000'000) + " s"
                                   : std::string()) +
                              ", and the store refuses what it signs");
  }
  if (answer.status == 404)
    return NotFound(what + "not there" +
                    (call.method == "HEAD" ? ""
                     : code.empty()        ? ""
                                           : " (" + code + ")"));
  if (answer.status == 301 || answer.status == 307 || code == "PermanentRedirect" ||
      code == "AuthorizationHeaderMalformed") {
    std::string region = answer.Header("x-amz-bucket-region");
    if (region.empty() && xml.ok()) region = xml->TextOf("Region");
    if (code == "AuthorizationHeaderMalformed" && region.empty())
      return InvalidArgument(what + "the store answered " + code + (said.empty() ? "" : ": " + said));
    return InvalidArgument("the bucket '" + bucket_ + "' is in another region" +
                           (region.empty() ? "" : ": set AWS_REGION=" + region));
  }
  if (answer.status == 401 || answer.status == 403) {
    // Other codes are about who asks: a key that is none, a signature that is wrong.
    const bool lacks = code.empty() || code == "AccessDenied";
    return FailedPrecondition(what + "not allowed" + (code.empty() ? "" : " (" + code + ")") +
                              (said.empty() ? "" : ": " + said) +
                              (lacks ? "; it takes the permission " + PermissionFor(call) : ""));
  }
  const std::string text = what + "the store answered " + std::to_string(answer.status) +
                           (code.empty() ? "" : " " + code) + (said.empty() ? "" : ": " + said);
  if ((answer.status >= 500 && answer.status != 501) || answer.status == 429 || answer.status == 408)
    return Unavailable(text);
  return InvalidArgument(text);
}

ObjectInfo S3Store::InfoOf(const std::string& key, const HttpAnswer& answer, uint64_t bytes) const {
  return {key, bytes, answer.Header("etag"), HttpTime(answer.Header("last-modified"))};
}

Result<ListPage> S3Store::ListOnePage(const std::string& prefix, size_t most, const std::string& token,
                                      const std::string& delimiter) {
  Call call;
  call.method = "GET";
  call.query = {{"list-type", "2"}, {"prefix", prefix}, {"encoding-type", "url"}};
  if (!delimiter.empty()) call.query.emplace_back("delimiter", delimiter);
  if (most > 0) call.query.emplace_back("max-keys", std::to_string(std::min<size_t>(most, 1000)));
  if (!token.empty()) call.query.emplace_back("continuation-token", token);
  Result<ListPage> page = DataLoss("no list");
  // If the XML of an answer was cut off, request it again.
  call.complete = [&page](const HttpAnswer& answer) { return (page = ParseListPage(answer.body)).ok(); };
  TDBG_RETURN_IF_ERROR(Perform(call).status());
  return page;
}

Result<std::vector<ObjectInfo>> S3Store::List(const std::string& prefix, size_t most) {
  std::vector<ObjectInfo> objects;
  std::string token;
  while (true) {
    TDBG_ASSIGN_OR_RETURN(ListPage page, ListOnePage(prefix, most, token, ""));
    for (ObjectInfo& object : page.objects) {
      if (object.key.starts_with(prefix)) objects.push_back(std::move(object));
      if (most > 0 && objects.size() >= most) return objects;
    }
    if (page.next.empty() || page.next == token) break;
    token = page.next;
  }
  std::ranges::sort(objects, {}, &ObjectInfo::key);
  return objects;
}

Result<Level> S3Store::ListLevel(const std::string& prefix, size_t most) {
  Level level;
  std::string token;
  while (true) {
    TDBG_ASSIGN_OR_RETURN(ListPage page, ListOnePage(prefix, most, token, "/"));
    for (ObjectInfo& object : page.objects) {
      if (object.key.starts_with(prefix)) level.objects.push_back(std::move(object));
    }
    for (const std::string& folder : page.prefixes) {
      if (folder.starts_with(prefix) && folder.size() > prefix.size() + 1)
        level.folders.push_back(folder.substr(prefix.size(), folder.size() - prefix.size() - 1));
    }
    if (page.next.empty() || page.next == token) return level;
    level.more = level.objects.size() + level.folders.size() >= most;
    if (level.more) return level;
    token = page.next;
  }
}

Result<ObjectInfo> S3Store::Head(const std::string& key) {
  Call call;
  call.method = "HEAD";
  call.key = key;
  TDBG_ASSIGN_OR_RETURN(const HttpAnswer answer, Perform(call));
  const auto bytes = base::ParseInt(answer.Header("content-length"));
  return InfoOf(key, answer, bytes ? static_cast<uint64_t>(*bytes) : 0);
}

Result<Object> S3Store::Get(const std::string& key, std::optional<Range> range) {
  Call call;
  call.method = "GET";
  call.key = key;
  call.most_bytes = range && range->bytes > 0 ? range->bytes : kLongestAnswer;
  if (range) {
    const std::string last = range->bytes > 0 ? std::to_string(range->offset + range->bytes - 1) : "";
    call.headers.emplace_back("range", "bytes=" + std::to_string(range->offset) + "-" + last);
  }
  uint64_t whole = 0;
  // "bytes 0-9/443": which part was sent. A proxy that does not know ranges sends the whole object.
  call.complete = [&](const HttpAnswer& answer) {
    const auto length = base::ParseInt(answer.Header("content-length"));
    if (length && static_cast<uint64_t>(*length) != answer.body.size()) return false;
    whole = answer.body.size();
    if (!range) return true;
    const std::string said = answer.Header("content-range");
    const auto total = base::ParseInt(said.substr(std::min(said.size(), said.rfind('/') + 1)));
    if (answer.status != 206 || !total) return false;
    whole = static_cast<uint64_t>(*total);
    const uint64_t left = whole - std::min(whole, range->offset);
    return answer.body.size() == (range->bytes > 0 ? std::min(left, range->bytes) : left);
  };
  auto answer = Perform(call);
  if (!answer.ok() && range && answer.status().message().find("InvalidRange") != std::string::npos) {
    TDBG_ASSIGN_OR_RETURN(ObjectInfo info, Head(key));
    return Object{std::move(info), "", 0};
  }
  if (!answer.ok()) return answer.status();
  Object object;
  object.info = InfoOf(key, *answer, whole);
  object.store_wall_nanos = HttpTime(answer->Header("date"));
  object.bytes = std::move(answer->body);
  return object;
}

Result<ObjectInfo> S3Store::Put(const std::string& key, std::span<const std::byte> bytes,
                                const Condition& condition) {
  Call call;
  call.method = "PUT";
  call.key = key;
  call.body = bytes;
  if (condition.absent) call.headers.emplace_back("if-none-match", "*");
  if (!condition.matching.empty()) call.headers.emplace_back("if-match", condition.matching);
  call.complete = [&](const HttpAnswer& answered) { return Received(call, answered); };
  const auto answer = Perform(call);
  if (!answer.ok() && answer.status().code() == Code::kAlreadyExists) {
    // The answer to an earlier try may have been lost, and the object there may be ours.
    const auto there = Get(key, std::nullopt);
    if (there.ok() && std::ranges::equal(std::as_bytes(std::span(there->bytes)), bytes)) return there->info;
  }
  if (!answer.ok()) return answer.status();
  return InfoOf(key, *answer, bytes.size());
}

// The ETag of what is put in one piece is its MD5, unless the store encrypts with a key that it was given, or
// makes ETags of its own: then the object says whether it is what was sent.
bool S3Store::Received(const Call& call, const HttpAnswer& answer) {
  const std::string etag = Unquoted(answer.Header("etag")),
                    encrypted = answer.Header("x-amz-server-side-encryption");
  const bool is_md5 = etags_are_md5_ && etag.size() == 32 && (encrypted.empty() || encrypted == "AES256") &&
                      answer.Header("x-amz-server-side-encryption-customer-algorithm").empty();
  const std::string md5 = is_md5 ? Md5Hex(call.body) : "";
  if (md5.empty() || md5 == etag) return true;
  if (!call.query.empty()) return false;  // a part cannot be asked for
  const auto there = Get(call.key, std::nullopt);
  if (!there.ok() || !std::ranges::equal(std::as_bytes(std::span(there->bytes)), call.body)) return false;
  etags_are_md5_ = false;
  return true;
}

bool S3Store::Holds(const ObjectInfo& there, const std::string& path, uint64_t bytes) {
  const std::string etag = Unquoted(there.etag);
  if (there.bytes != bytes || bytes > 2 * options_.part_bytes || etag.size() != 32) return false;
  const auto content = ReadStretch(path, 0, bytes);
  return content.ok() && Md5Hex(std::as_bytes(std::span(*content))) == etag;
}

Result<ObjectInfo> S3Store::PutFile(const std::string& key, const std::string& path, uint64_t bytes) {
  if (bytes > 2 * options_.part_bytes) return PutInParts(key, path, bytes, PartsOf(0, bytes), nullptr);
  TDBG_ASSIGN_OR_RETURN(const std::string content, ReadStretch(path, 0, bytes));
  return Put(key, std::as_bytes(std::span(content)), {});
}

// The store itself copies what is there: all but the last part must have S3's least size.
Result<ObjectInfo> S3Store::Lengthen(const ObjectInfo& there, const std::string& path, uint64_t bytes) {
  if (there.bytes < kLeastPart || there.bytes >= bytes || there.etag.empty() || !copies_)
    return PutFile(there.key, path, bytes);
  std::vector<Part> parts;
  uint64_t copied = 0;
  while (there.bytes - copied >= kLeastPart) {
    const uint64_t stretch = std::min(there.bytes - copied, kCopiedPart);
    parts.push_back({copied, stretch, true});
    copied += stretch;
  }
  const std::vector<Part> added = PartsOf(copied, bytes);
  parts.insert(parts.end(), added.begin(), added.end());
  auto put = PutInParts(there.key, path, bytes, parts, &there);
  if (put.ok() || put.status().code() == Code::kUnavailable || put.status().code() == Code::kDataLoss)
    return put;
  // Another object is there by now; or this store does not copy, and will not do so later.
  const Code code = put.status().code();
  if (code != Code::kAlreadyExists && code != Code::kNotFound) copies_ = false;
  return PutFile(there.key, path, bytes);
}

std::vector<S3Store::Part> S3Store::PartsOf(uint64_t begin, uint64_t end) const {
  const uint64_t bytes = std::max(options_.part_bytes, (end - begin + kMaxParts - 1) / kMaxParts);
  std::vector<Part> parts;
  for (; begin < end; begin += bytes) parts.push_back({begin, std::min(bytes, end - begin), false});
  return parts;
}

Result<std::string> S3Store::BeginParts(const std::string& key) {
  Call begin;
  begin.method = "POST";
  begin.key = key;
  begin.query = {{"uploads", ""}};
  std::string upload;
  begin.complete = [&upload](const HttpAnswer& answer) {
    const auto xml = ParseXml(answer.body);
    upload = xml.ok() ? xml->TextOf("UploadId") : "";
    return !upload.empty();
  };
  TDBG_RETURN_IF_ERROR(Perform(begin).status());
  return upload;
}

// Returns its ETag.
Result<std::string> S3Store::PutPart(const std::string& key, const std::string& path,
                                     const std::string& upload, size_t number, const Part& part,
                                     const ObjectInfo* there) {
  Call call;
  call.method = "PUT";
  call.key = key;
  call.query = {{"partNumber", std::to_string(number)}, {"uploadId", upload}};
  std::string content, etag;
  if (!part.copied) {
    TDBG_ASSIGN_OR_RETURN(content, ReadStretch(path, part.begin, part.bytes));
    call.body = std::as_bytes(std::span(content));
    call.complete = [&](const HttpAnswer& answered) { return Received(call, answered); };
    TDBG_ASSIGN_OR_RETURN(const HttpAnswer answer, Perform(call));
    return answer.Header("etag");
  }
  call.headers = {
      {"x-amz-copy-source", UriEncode("/" + bucket_ + "/" + there->key, true)},
      {"x-amz-copy-source-if-match", there->etag},
      {"x-amz-copy-source-range", fmt::format("bytes={}-{}", part.begin, part.begin + part.bytes - 1)}};
  // The status comes first here, too: only the body says whether it worked.
  call.complete = [&etag](const HttpAnswer& answer) {
    const auto xml = ParseXml(answer.body);
    etag = xml.ok() ? xml->TextOf("ETag") : "";
    return !etag.empty();
  };
  TDBG_RETURN_IF_ERROR(Perform(call).status());
  return etag;
}

Result<ObjectInfo> S3Store::PutInParts(const std::string& key, const std::string& path, uint64_t bytes,
                                       const std::vector<Part>& parts, const ObjectInfo* there) {
  TDBG_ASSIGN_OR_RETURN(const std::string upload, BeginParts(key));
  std::vector<std::string> etags(parts.size());
  std::atomic<size_t> next{0};
  std::mutex mutex;
  Status failed;  // guarded by mutex
  const auto put_parts = [&] {
    for (size_t i = next++; i < parts.size(); i = next++) {
      auto etag = PutPart(key, path, upload, i + 1, parts[i], there);
      if (etag.ok()) {
        etags[i] = *std::move(etag);
        continue;
      }
      const std::lock_guard guard(mutex);
      if (failed.ok()) failed = etag.status();
      next = parts.size();
    }
  };
  {
    std::vector<std::jthread> others;
    for (int i = 1; i < options_.parts_at_once && static_cast<size_t>(i) < parts.size(); ++i)
      others.emplace_back(put_parts);
    put_parts();
  }
  auto put = failed.ok() ? CompleteParts(key, bytes, upload, etags) : Result<ObjectInfo>(failed);
  if (put.ok()) return put;
  Call abort;  // until the upload is aborted, its parts cost money
  abort.method = "DELETE";
  abort.key = key;
  abort.query = {{"uploadId", upload}};
  (void)Perform(abort).ok();
  return put;
}

Result<ObjectInfo> S3Store::CompleteParts(const std::string& key, uint64_t bytes, const std::string& upload,
                                          const std::vector<std::string>& etags) {
  std::string list = "<CompleteMultipartUpload>";
  for (size_t i = 0; i < etags.size(); ++i)
    list += fmt::format("<Part><PartNumber>{}</PartNumber><ETag>{}</ETag></Part>", i + 1, etags[i]);
  list += "</CompleteMultipartUpload>";
  Call complete;
  complete.method = "POST";
  complete.key = key;
  complete.query = {{"uploadId", upload}};
  complete.body = std::as_bytes(std::span(list));
  std::string etag;
  // S3 sends status 200 first; only the body says whether it worked.
  complete.complete = [&etag](const HttpAnswer& answer) {
    const auto xml = ParseXml(answer.body);
    etag = xml.ok() ? xml->TextOf("ETag") : "";
    return !etag.empty();
  };
  const auto answer = Perform(complete);
  if (!answer.ok()) {
    // An earlier try succeeded and its answer was lost: then the upload is gone and the object is there.
    const auto there = Head(key);
    if (answer.status().code() == Code::kNotFound && there.ok() && there->bytes == bytes) return there;
    return answer.status();
  }
  return ObjectInfo{key, bytes, etag, 0};
}

Status S3Store::Delete(const std::string& key) {
  Call call;
  call.method = "DELETE";
  call.key = key;
  const auto answer = Perform(call);
  if (answer.ok() || answer.status().code() == Code::kNotFound) return OkStatus();
  return answer.status();
}

}  // namespace tdbg::storage

#include "jobs/log_messages.h"

#include <errno.h>
#include <sys/socket.h>

#include <cstring>

#include "format/json_fields.h"

namespace tdbg::jobs {
namespace {

using format::Json;

constexpr size_t kMaxSources = 2;
constexpr size_t kLongestTask = 120'000;  // below a socket's buffer

}  // namespace

int SendTask(int socket, const LogTask& task) {
  Json sources = Json::array();
  std::vector<int> descriptors;
  for (const LogTask::Source& source : task.sources) {
    sources.push_back(
        {{"forward", source.forward_fd}, {"stream", source.stream}, {"terminal", source.terminal}});
    descriptors.push_back(source.read_fd);
  }
  // Sent as bytes, not as text: a path or a secret need not be UTF-8.
  const auto bytes = [](const std::string& text) {
    Json numbers = Json::array();
    for (const char c : text) numbers.push_back(static_cast<unsigned char>(c));
    return numbers;
  };
  Json secrets = Json::array();
  size_t budget = kLongestTask / 8;
  for (const std::string& secret : task.secrets) {
    if (secret.size() > budget) continue;  // a long one, as a certificate: not printed in one piece anyway
    budget -= secret.size();
    secrets.push_back(bytes(secret));
  }
  std::string text = Json({{"run", bytes(task.run_directory)},
                           {"attempt", task.attempt},
                           {"node", task.node},
                           {"limit", task.limit_bytes},
                           {"secrets", secrets},
                           {"sources", sources}})
                         .dump();
  iovec part = {text.data(), text.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(kMaxSources * sizeof(int))] = {};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = CMSG_SPACE(descriptors.size() * sizeof(int));
  cmsghdr* const header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(descriptors.size() * sizeof(int));
  std::memcpy(CMSG_DATA(header), descriptors.data(), descriptors.size() * sizeof(int));
  ssize_t sent;
  do {
    sent = ::sendmsg(socket, &message, MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  return sent < 0 ? errno : 0;
}

std::optional<LogTask> ReceiveTask(int socket) {
  std::string text(kLongestTask, '\0');
  iovec part = {text.data(), text.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(kMaxSources * sizeof(int))] = {};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  ssize_t got;
  do {
    got = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  } while (got < 0 && errno == EINTR);
  if (got <= 0) return std::nullopt;
  text.resize(static_cast<size_t>(got));
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return std::nullopt;
  const auto string_of = [](const Json& numbers) {
    std::string bytes;
    for (const Json& number : numbers) bytes += static_cast<char>(number.get<int>());
    return bytes;
  };
  LogTask task;
  task.run_directory = string_of(json["run"]);
  task.attempt = json["attempt"].get<int64_t>();
  task.node = json["node"].get<int64_t>();
  task.limit_bytes = json["limit"].get<uint64_t>();
  for (const Json& secret : json["secrets"]) task.secrets.push_back(string_of(secret));
  const cmsghdr* const header = CMSG_FIRSTHDR(&message);
  if (header == nullptr || header->cmsg_type != SCM_RIGHTS) return std::nullopt;
  size_t index = 0;
  for (const Json& one : json["sources"]) {
    LogTask::Source source;
    std::memcpy(&source.read_fd, CMSG_DATA(header) + index++ * sizeof(int), sizeof(int));
    source.forward_fd = one["forward"].get<int>();
    source.stream = one["stream"].get<uint32_t>();
    source.terminal = one["terminal"].get<bool>();
    task.sources.push_back(source);
  }
  return task;
}

bool SendNote(int socket, LogWord word, int64_t number) {
  const LogNote note = {word, number};
  return ::send(socket, &note, sizeof(note), MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof(note));
}

std::optional<LogNote> ReceiveNote(int socket, bool* gone) {
  LogNote note;
  const ssize_t got = ::recv(socket, &note, sizeof(note), MSG_DONTWAIT);
  *gone = got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR);
  if (got != static_cast<ssize_t>(sizeof(note))) return std::nullopt;
  return note;
}

}  // namespace tdbg::jobs

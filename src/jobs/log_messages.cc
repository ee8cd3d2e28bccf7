#include "jobs/log_messages.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>

#include "format/json_fields.h"

namespace tdbg::jobs {
namespace {

using format::Json;

constexpr size_t kMaxSources = 2;
constexpr size_t kDescriptors = kMaxSources + 1;
constexpr size_t kLongestTask = 120'000;  // below a socket's buffer

// Secrets, of which there may be more than a message takes, in memory that has a descriptor: of each its
// length, and then its bytes. An invalid one, and errno, where there is none to be had.
base::UniqueFd InMemory(const std::vector<std::string>& secrets) {
  std::string text;
  for (const std::string& secret : secrets) {
    const uint64_t size = secret.size();
    text.append(reinterpret_cast<const char*>(&size), sizeof(size)).append(secret);
  }
  base::UniqueFd memory(::memfd_create("tdbg-secrets", MFD_CLOEXEC));
  if (!memory.ok()) return memory;
  for (size_t at = 0; at < text.size();) {
    const ssize_t written =
        ::pwrite(memory.get(), text.data() + at, text.size() - at, static_cast<off_t>(at));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return {};
    at += static_cast<size_t>(written);
  }
  return memory;
}

bool ReadAt(int fd, uint64_t at, void* bytes, size_t size) {
  for (size_t done = 0; done < size;) {
    const ssize_t got =
        ::pread(fd, static_cast<char*>(bytes) + done, size - done, static_cast<off_t>(at + done));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    done += static_cast<size_t>(got);
  }
  return true;
}

std::vector<std::string> FromMemory(int fd) {
  std::vector<std::string> secrets;
  uint64_t at = 0, size = 0;
  while (ReadAt(fd, at, &size, sizeof(size))) {
    secrets.emplace_back(size, '\0');
    if (!ReadAt(fd, at + sizeof(size), secrets.back().data(), size)) break;
    at += sizeof(size) + size;
  }
  return secrets;
}

}  // namespace

int SendTask(int socket, const LogTask& task) {
  Json sources = Json::array();
  std::vector<int> descriptors;
  for (const LogTask::Source& source : task.sources) {
    sources.push_back(
        {{"forward", source.forward_fd}, {"stream", source.stream}, {"terminal", source.terminal}});
    descriptors.push_back(source.read_fd);
  }
  // Sent as bytes, not as text: a path need not be UTF-8.
  const auto bytes = [](const std::string& text) {
    Json numbers = Json::array();
    for (const char c : text) numbers.push_back(static_cast<unsigned char>(c));
    return numbers;
  };
  const base::UniqueFd secrets = InMemory(task.secrets);
  if (!secrets.ok()) return errno;
  descriptors.push_back(secrets.get());
  std::string text = Json({{"run", bytes(task.run_directory)},
                           {"attempt", task.attempt},
                           {"node", task.node},
                           {"limit", task.limit_bytes},
                           {"sources", sources}})
                         .dump();
  iovec part = {text.data(), text.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(kDescriptors * sizeof(int))] = {};
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
  alignas(cmsghdr) char control[CMSG_SPACE(kDescriptors * sizeof(int))] = {};
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
  int secrets = -1;
  if (header->cmsg_len < CMSG_LEN((index + 1) * sizeof(int))) return std::nullopt;
  std::memcpy(&secrets, CMSG_DATA(header) + index * sizeof(int), sizeof(int));
  task.secrets = FromMemory(base::UniqueFd(secrets).get());
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

#include "service/loopback.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "base/clock.h"

namespace tdbg::service {
namespace {

constexpr size_t kMostAnswerBytes = 1 << 20;

sockaddr_in At(uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

base::UniqueFd Socket() { return base::UniqueFd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)); }

/// Waits until the socket is ready for `events`; false: it is not by then.
bool Await(int fd, int16_t events, int64_t until_nanos) {
  for (;;) {
    const int64_t left = until_nanos - base::SystemClock().MonotonicNanos();
    if (left <= 0) return false;
    pollfd source{fd, events, 0};
    const int ready = ::poll(&source, 1, static_cast<int>((left + 999'999) / 1'000'000));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return false;
  }
}

}  // namespace

Result<uint16_t> FreePort() {
  const base::UniqueFd fd = Socket();
  sockaddr_in address = At(0);
  socklen_t size = sizeof(address);
  if (!fd.ok() || ::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), size) != 0 ||
      ::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0)
    return ErrnoStatus(errno, "no free port");
  return ntohs(address.sin_port);
}

Result<base::UniqueFd> Connect(uint16_t port) {
  base::UniqueFd fd = Socket();
  const sockaddr_in address = At(port);
  // On loopback this waits for nobody.
  if (!fd.ok() || ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0)
    return Unavailable(ErrnoStatus(errno, "connect").message());
  return fd;
}

Result<std::string> Exchange(uint16_t port, std::string_view request, int millis) {
  const int64_t until = base::SystemClock().MonotonicNanos() + millis * int64_t{1'000'000};
  TDBG_ASSIGN_OR_RETURN(const base::UniqueFd fd, Connect(port));
  const Status late(Code::kDeadlineExceeded, "no whole answer in time");
  while (!request.empty()) {
    if (!Await(fd.get(), POLLOUT, until)) return late;
    const ssize_t sent = ::send(fd.get(), request.data(), request.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno != EAGAIN && errno != EINTR)
      return Unavailable(ErrnoStatus(errno, "send").message());
    request.remove_prefix(static_cast<size_t>(std::max<ssize_t>(sent, 0)));
  }
  std::string answer;
  std::array<char, 4096> piece;
  for (;;) {
    if (!Await(fd.get(), POLLIN, until)) return late;
    const ssize_t came = ::recv(fd.get(), piece.data(), piece.size(), MSG_DONTWAIT);
    if (came == 0) return answer;
    if (came < 0 && errno != EAGAIN && errno != EINTR)
      return Unavailable(ErrnoStatus(errno, "recv").message());
    answer.append(piece.data(), static_cast<size_t>(std::max<ssize_t>(came, 0)));
    if (answer.size() > kMostAnswerBytes) return ResourceExhausted("an answer of more than 1 MiB");
  }
}

}  // namespace tdbg::service

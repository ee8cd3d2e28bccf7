#include "service/loopback.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <functional>
#include <future>
#include <thread>

namespace tdbg::service {
namespace {

/// Listens on a port, and does something with the first connection, on a thread of its own.
class Peer {
 public:
  explicit Peer(std::function<void(int)> does) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    socklen_t size = sizeof(address);
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::bind(fd_.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(::listen(fd_.get(), 1), 0);
    EXPECT_EQ(::getsockname(fd_.get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this, does = std::move(does)] {
      const base::UniqueFd client(::accept(fd_.get(), nullptr, nullptr));
      does(client.get());
    });
  }
  ~Peer() { thread_.join(); }
  uint16_t port() const { return port_; }

 private:
  base::UniqueFd fd_;
  uint16_t port_ = 0;
  std::thread thread_;
};

void Say(int fd, std::string_view text) { (void)::send(fd, text.data(), text.size(), MSG_NOSIGNAL); }
/// Reads until the other side closes.
void Hear(int fd) {
  char piece[4096];
  while (::recv(fd, piece, sizeof(piece), 0) > 0) {
  }
}

TEST(LoopbackTest, AnAnswerIsWhatComesUntilTheEnd) {
  const Peer peer([](int fd) {
    char request[5];
    EXPECT_EQ(::recv(fd, request, 5, MSG_WAITALL), 5);
    Say(fd, "first ");
    Say(fd, std::string(request, 5) + std::string(100'000, 'y'));
  });
  const auto answer = Exchange(peer.port(), "hello", 60'000);
  ASSERT_TRUE(answer.ok()) << answer.status().ToString();
  EXPECT_EQ(*answer, "first hello" + std::string(100'000, 'y'));
}

TEST(LoopbackTest, TheTimeIsForAllOfIt) {
  {
    const Peer silent([](int fd) { Hear(fd); });
    EXPECT_EQ(Exchange(silent.port(), "hello", 50).status().code(), Code::kDeadlineExceeded);
  }
  {
    // A byte now and then is no answer.
    const Peer drips([](int fd) {
      while (::send(fd, "y", 1, MSG_NOSIGNAL) == 1) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    });
    EXPECT_EQ(Exchange(drips.port(), "hello", 50).status().code(), Code::kDeadlineExceeded);
  }
  {
    // Nor is a request that nobody takes: more than what the kernel keeps of it.
    std::promise<void> over;
    const Peer deaf([&over](int) { over.get_future().wait(); });
    EXPECT_EQ(Exchange(deaf.port(), std::string(64 << 20, 'y'), 50).status().code(), Code::kDeadlineExceeded);
    over.set_value();
  }
}

TEST(LoopbackTest, WhatHasNoEndIsLeft) {
  const Peer endless([](int fd) {
    const std::string piece(65536, 'y');
    while (::send(fd, piece.data(), piece.size(), MSG_NOSIGNAL) > 0) {
    }
  });
  EXPECT_EQ(Exchange(endless.port(), "hello", 60'000).status().code(), Code::kResourceExhausted);
}

TEST(LoopbackTest, APortIsFreeUntilSomebodyListens) {
  const auto port = FreePort();
  ASSERT_TRUE(port.ok());
  EXPECT_EQ(Connect(*port).status().code(), Code::kUnavailable);
  EXPECT_EQ(Exchange(*port, "hello", 60'000).status().code(), Code::kUnavailable);
}

}  // namespace
}  // namespace tdbg::service

// Times and ends of connections, without a network but loopback. What the two servers make of it:
// tests/cli/test_http.py.
#include "http/server.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <functional>
#include <string>
#include <string_view>
#include <thread>

#include "base/posix.h"
#include "http/response.h"

namespace tdbg::http {
namespace {

using std::chrono::milliseconds;
using Shared = std::shared_ptr<Connection>;

/// A server of one door whose visitors a test chooses, on a thread of its own.
class ServerTest : public testing::Test {
 protected:
  void Serve(milliseconds idle, std::function<void(Shared)> visit) {
    Door door;
    door.limits.idle = idle;
    door.limits.connections = 2;
    door.visit = std::move(visit);
    const auto opened = server_->Open(std::move(door));
    ASSERT_TRUE(opened.ok()) << opened.status().ToString();
    port_ = *opened;
    thread_ = std::thread([this] { server_->Serve(); });
  }
  void TearDown() override {
    server_->Stop();
    if (thread_.joinable()) thread_.join();
  }
  base::UniqueFd Client(std::string_view says) const {
    base::UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port_);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
    EXPECT_EQ(::send(fd.get(), says.data(), says.size(), MSG_NOSIGNAL), static_cast<ssize_t>(says.size()));
    return fd;
  }
  /// What comes until the server closes.
  static std::string Rest(const base::UniqueFd& fd) {
    std::string all;
    char piece[4096];
    for (ssize_t came; (came = ::recv(fd.get(), piece, sizeof(piece), 0)) > 0;)
      all.append(piece, static_cast<size_t>(came));
    return all;
  }

  std::unique_ptr<Server> server_ = Server::Create();
  std::thread thread_;
  uint16_t port_ = 0;
};

constexpr std::string_view kRequest = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";

TEST_F(ServerTest, HalfARequestEndsAfterItsTime) {
  Progress head = Progress::kMore;
  Serve(milliseconds(50), [this, &head](Shared connection) {
    connection->ReadHead([this, &head, connection](Progress progress) {
      head = progress;
      connection->Close();
      server_->Stop();
    });
  });
  const base::UniqueFd client = Client(kRequest.substr(0, 20));
  EXPECT_EQ(Rest(client), "");
  thread_.join();
  EXPECT_EQ(head, Progress::kGone);
}

TEST_F(ServerTest, AnAnswerMayTakeLongerThanARequest) {
  std::thread answering;
  Serve(milliseconds(50), [&answering](Shared connection) {
    connection->ReadHead([&answering, connection](Progress) {
      connection->ReadBody([&answering, connection](Progress) {
        answering = std::thread([connection] {
          std::this_thread::sleep_for(milliseconds(200));
          connection->Run([connection] {
            connection->Write(ResponseHead(200, {}, false, 2), "ok",
                              [connection](bool) { connection->Close(); });
          });
        });
      });
    });
  });
  EXPECT_TRUE(Rest(Client(kRequest)).ends_with("\r\n\r\nok"));
  answering.join();
}

TEST_F(ServerTest, EachRequestHasATimeOfItsOwn) {
  Progress second = Progress::kMore;
  Serve(milliseconds(600), [this, &second](Shared connection) {
    connection->ReadHead([this, &second, connection](Progress) {
      connection->ReadBody([](Progress) {});
      server_->After(milliseconds(450), [this, &second, connection] {
        connection->Write("answer", "", [this, &second, connection](bool) {
          connection->ReadHead([this, &second, connection](Progress progress) {
            second = progress;
            server_->Stop();
          });
        });
      });
    });
  });
  const base::UniqueFd client = Client(kRequest);
  char answer[6];
  ASSERT_EQ(::recv(client.get(), answer, 6, MSG_WAITALL), 6);
  ASSERT_EQ(::send(client.get(), kRequest.data(), 10, MSG_NOSIGNAL), 10);
  std::this_thread::sleep_for(milliseconds(300));  // past the end of the first one's time
  const std::string_view rest = kRequest.substr(10);
  ASSERT_EQ(::send(client.get(), rest.data(), rest.size(), MSG_NOSIGNAL), static_cast<ssize_t>(rest.size()));
  thread_.join();
  EXPECT_EQ(second, Progress::kThere);
}

TEST_F(ServerTest, WhoListensIsNotIdleAndItsEndIsSeen) {
  bool closed = false;
  Serve(milliseconds(50), [this, &closed](Shared connection) {
    connection->Write("first ", "", [this, &closed, connection](bool) {
      connection->AwaitClose([this, &closed, connection] {
        closed = true;
        connection->Close();
        server_->Stop();
      });
      server_->After(milliseconds(200), [connection] { connection->Write("", "second", [](bool) {}); });
    });
  });
  const base::UniqueFd client = Client("whatever");
  std::string said;
  char piece[64];
  while (said.size() < 12) {
    const ssize_t came = ::recv(client.get(), piece, sizeof(piece), 0);
    ASSERT_GT(came, 0) << said;
    said.append(piece, static_cast<size_t>(came));
  }
  EXPECT_EQ(said, "first second");
  ::shutdown(client.get(), SHUT_RDWR);
  thread_.join();
  EXPECT_TRUE(closed);
}

TEST_F(ServerTest, WhoTakesNoAnswerIsClosed) {
  bool out = true;
  Serve(milliseconds(100), [this, &out](Shared connection) {
    connection->Write("", std::string(64 << 20, 'y'), [this, &out, connection](bool ok) {
      out = ok;
      server_->Stop();
    });
  });
  const base::UniqueFd client = Client("");
  thread_.join();
  EXPECT_FALSE(out);
}

TEST_F(ServerTest, OneMoreThanThereMayBeIsClosedUntilOneHasGone) {
  Serve(milliseconds(60'000), [](Shared connection) {
    connection->Write("in", "", [connection](bool) { connection->AwaitClose([connection] {}); });
  });
  base::UniqueFd first = Client(""), second = Client("");
  char in[2];
  EXPECT_EQ(::recv(first.get(), in, 2, MSG_WAITALL), 2);
  EXPECT_EQ(::recv(second.get(), in, 2, MSG_WAITALL), 2);
  EXPECT_EQ(Rest(Client("")), "");
  first.reset();
  ssize_t came = 0;
  while (came != 2) came = ::recv(Client("").get(), in, 2, MSG_WAITALL);
  EXPECT_EQ(came, 2);
}

TEST_F(ServerTest, WhatItHoldsGoesWithIt) {
  const auto held = std::make_shared<int>(0);
  Serve(milliseconds(60'000),
        [held](Shared connection) { connection->ReadHead([held, connection](Progress) {}); });
  const base::UniqueFd client = Client("GET");
  server_->After(milliseconds(0), [] {});
  server_->After(std::chrono::hours(1), [held] {});
  TearDown();
  server_.reset();
  EXPECT_EQ(held.use_count(), 1);
  server_ = Server::Create();
}

TEST_F(ServerTest, AWrongAddressAndAPortThatIsTakenAreToldApart) {
  Serve(milliseconds(1000), [](Shared) {});
  Door door;
  door.port = port_;
  EXPECT_EQ(server_->Open(door).status().code(), Code::kUnavailable);
  door.address = "localhost";
  EXPECT_EQ(server_->Open(door).status().code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace tdbg::http

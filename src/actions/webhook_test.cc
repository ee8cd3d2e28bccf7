// tdbg-webhook against a server that really listens.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <deque>
#include <mutex>
#include <thread>

#include "actions/actions.h"
#include "base/companion.h"
#include "base/posix.h"
#include "base/testing.h"

namespace tdbg::actions {
namespace {

using testing::HasSubstr;

/// Answers requests on a free loopback port with the given status codes, the last one for ever.
class Server {
 public:
  explicit Server(std::deque<int> answers) : answers_(std::move(answers)) {
    listener_ = base::UniqueFd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    EXPECT_EQ(::bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(::listen(listener_.get(), 8), 0);
    ::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { Serve(); });
  }
  ~Server() {
    stop_ = true;
    thread_.join();
  }
  std::string Url(const std::string& path) const {
    return "http://127.0.0.1:" + std::to_string(port_) + path;
  }
  std::vector<std::string> requests() {
    const std::lock_guard lock(mutex_);
    return requests_;
  }

 private:
  void Serve() {
    while (!stop_) {
      pollfd source{listener_.get(), POLLIN, 0};
      if (::poll(&source, 1, 20) <= 0) continue;
      const base::UniqueFd client(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (client.ok()) Answer(client.get());
    }
  }

  void Answer(int fd) {
    std::string request;
    char buffer[4096];
    size_t expected = std::string::npos;
    while (request.size() < expected) {
      const ssize_t got = ::read(fd, buffer, sizeof(buffer));
      if (got <= 0) break;
      request.append(buffer, static_cast<size_t>(got));
      const size_t head = request.find("\r\n\r\n");
      const size_t length = request.find("Content-Length: ");
      if (head != std::string::npos && length != std::string::npos) {
        expected = head + 4 + static_cast<size_t>(std::atol(request.c_str() + length + 16));
      }
    }
    int status;
    {
      const std::lock_guard lock(mutex_);
      requests_.push_back(request);
      status = answers_.front();
      if (answers_.size() > 1) answers_.pop_front();
    }
    const std::string reply =
        "HTTP/1.1 " + std::to_string(status) + " x\r\nContent-Length: 5\r\nConnection: close\r\n\r\nreply";
    (void)!::write(fd, reply.data(), reply.size());
  }

  base::UniqueFd listener_;
  int port_ = 0;
  std::mutex mutex_;
  std::deque<int> answers_;            // guarded
  std::vector<std::string> requests_;  // guarded
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

class WebhookServerTest : public testing::Test {
 protected:
  void SetUp() override {
    if (base::FindCompanion("tdbg-webhook").find('/') == std::string::npos) {
      GTEST_SKIP() << "tdbg-webhook is not built (TDBG_CLI is off)";
    }
    ::setenv("no_proxy", "127.0.0.1", 1);
  }
  Status Post(const std::string& url) {
    auto webhook = MakeWebhook(url, {3, 10, 2000, ""});
    if (!webhook.ok()) return webhook.status();
    Notice notice;
    notice.json = R"({"rule":"VanishingGradient","text":"é\n"})";
    return (*webhook)->Perform(notice);
  }
};

TEST_F(WebhookServerTest, PostsTheEventAsJson) {
  Server server({200});
  TDBG_ASSERT_OK(Post(server.Url("/services/x?y=1")));
  ASSERT_EQ(server.requests().size(), 1u);
  const std::string request = server.requests()[0];
  EXPECT_TRUE(request.starts_with("POST /services/x?y=1 HTTP/1.1\r\n")) << request;
  EXPECT_THAT(request, HasSubstr("Content-Type: application/json\r\n"));
  EXPECT_TRUE(request.ends_with("\r\n\r\n{\"rule\":\"VanishingGradient\",\"text\":\"é\\n\"}")) << request;
}

TEST_F(WebhookServerTest, TwoFailuresAndThenSuccessIsSuccess) {
  Server server({500, 503, 204});
  TDBG_EXPECT_OK(Post(server.Url("/")));
  EXPECT_EQ(server.requests().size(), 3u);
}

TEST_F(WebhookServerTest, ThreeFailuresAreAFailureThatSaysWhy) {
  Server server({500});
  const Status status = Post(server.Url("/"));
  EXPECT_THAT(status.message(), HasSubstr("not delivered after 3 tries: the server answered 500: reply"));
  EXPECT_EQ(server.requests().size(), 3u);
}

TEST_F(WebhookServerTest, ARefusalIsNotRepeated) {
  Server server({404});
  EXPECT_THAT(Post(server.Url("/")).message(),
              HasSubstr("not delivered after 1 try: the server answered 404"));
  EXPECT_EQ(server.requests().size(), 1u);
}

TEST_F(WebhookServerTest, NobodyListeningIsAFailure) {
  std::string url;
  {
    Server server({200});
    url = server.Url("/");
  }
  EXPECT_THAT(Post(url).message(), HasSubstr("not delivered after 3 tries"));
}

}  // namespace
}  // namespace tdbg::actions

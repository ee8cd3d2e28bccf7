#include "http/request.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "http/response.h"

namespace tdbg::http {
namespace {

/// Feeds it a text, so many bytes at a time, and parses after each.
Progress Feed(Request* request, std::string_view text, Part part, size_t at_once) {
  Progress progress = request->Parse(part);
  while (progress == Progress::kMore && !text.empty()) {
    const std::span<char> room = request->Room();
    if (room.empty()) return Progress::kHeadTooLong;
    const size_t bytes = std::min({at_once, room.size(), text.size()});
    std::copy_n(text.begin(), bytes, room.begin());
    request->Came(bytes);
    text.remove_prefix(bytes);
    progress = request->Parse(part);
  }
  return progress;
}

TEST(RequestTest, PiecesOfAnySizeAreTheSameRequest) {
  const std::string text =
      "POST /path?x=y HTTP/1.1\r\nHost: localhost\r\nX-One: 1\r\nx-one: 2\r\nContent-Length: 5\r\n\r\nhello";
  for (size_t at_once = 1; at_once <= text.size(); ++at_once) {
    Request request(1000, 5);
    ASSERT_EQ(Feed(&request, text, Part::kWhole, at_once), Progress::kThere) << at_once;
    EXPECT_EQ(request.method(), "POST");
    EXPECT_EQ(request.target(), "/path?x=y");
    EXPECT_EQ(request.Header("X-ONE"), "1");
    EXPECT_EQ(request.Count("x-one"), 2u);
    EXPECT_EQ(request.Header("none"), "");
    EXPECT_EQ(request.body(), "hello");
    EXPECT_TRUE(request.keep_alive());
  }
}

TEST(RequestTest, OfAHeadTheBodyIsLeftAndOfARequestTheNextOne) {
  Request request(1000, 100);
  const std::string one = "POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\n";
  ASSERT_EQ(Feed(&request, one + "abcGET /second HTTP/1.0\r\n\r\n", Part::kHead, 1000), Progress::kThere);
  EXPECT_EQ(request.content_length(), 3u);
  EXPECT_FALSE(request.chunked());
  EXPECT_EQ(request.body(), "");
  ASSERT_EQ(request.Parse(Part::kWhole), Progress::kThere);
  EXPECT_EQ(request.body(), "abc");
  request.Begin();
  ASSERT_EQ(request.Parse(Part::kWhole), Progress::kThere);
  EXPECT_EQ(request.target(), "/second");
  EXPECT_FALSE(request.keep_alive());
  request.Begin();
  EXPECT_EQ(request.Parse(Part::kHead), Progress::kMore);
  EXPECT_EQ(request.End(), Progress::kGone);
}

TEST(RequestTest, LimitsAreOfTheHeadAndOfTheBody) {
  const std::string filler(1000, 'y');
  struct {
    std::string text;
    Progress wanted;
  } const cases[] = {
      {"GET / HTTP/1.1\r\nX: " + filler + "\r\n\r\n", Progress::kHeadTooLong},
      {"GET /" + filler + " HTTP/1.1\r\n\r\n", Progress::kHeadTooLong},
      {"GET / HTTP/1.1\r\nContent-Length: 11\r\n\r\n", Progress::kBodyTooLong},
      {"GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nb\r\nhello world\r\n0\r\n\r\n",
       Progress::kBodyTooLong},
      {"GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n6\r\nhello \r\n5\r\nworld\r\n0\r\n\r\n",
       Progress::kBodyTooLong},
      {"GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n5\r\nworld\r\n0\r\n\r\n",
       Progress::kThere},
      {"GET / HTTP/1.1\r\nContent-Length: 10\r\n\r\nhelloworld", Progress::kThere},
      {"GET / HTTP/1.1\r\nContent-Length: x\r\n\r\n", Progress::kMalformed},
      {"\x16\x03\x01", Progress::kMalformed},
  };
  for (const auto& [text, wanted] : cases) {
    for (const size_t at_once : {1, 100, 10'000}) {
      Request request(500, 10);
      EXPECT_EQ(Feed(&request, text, Part::kWhole, at_once), wanted) << text << at_once;
    }
  }
}

TEST(RequestTest, AFieldThatTheParserCannotCountIsTooLong) {
  for (const std::string& field : {"X: " + std::string(70'000, 'y'), std::string(70'000, 'x') + ": y"}) {
    Request request(1 << 20, 0);
    EXPECT_EQ(Feed(&request, "GET / HTTP/1.1\r\n" + field + "\r\n\r\n", Part::kWhole, 1 << 16),
              Progress::kHeadTooLong);
  }
}

TEST(RequestTest, WhatIsCutOffIsNoRequest) {
  for (const char* text :
       {"G", "GET / HTTP/1.1\r\nHost: x\r\n", "POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nab"}) {
    Request request(500, 10);
    ASSERT_EQ(Feed(&request, text, Part::kWhole, 100), Progress::kMore);
    EXPECT_EQ(request.End(), Progress::kMalformed) << text;
  }
}

TEST(ResponseTest, AHeadIsLinesAndAValueAddsNone) {
  EXPECT_EQ(ResponseHead(200, {{"A", "b"}}, true, 12),
            "HTTP/1.1 200 OK\r\nA: b\r\nContent-Length: 12\r\n\r\n");
  EXPECT_EQ(ResponseHead(404, {{"A", "b\r\nC: d"}}, false, std::nullopt),
            "HTTP/1.1 404 Not Found\r\nA: b  C: d\r\nConnection: close\r\n\r\n");
}

}  // namespace
}  // namespace tdbg::http

#include "http/request.h"

#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/read_size.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <stdexcept>

namespace tdbg::http {
namespace {

namespace beast = boost::beast;
using Error = beast::http::error;

// Behind a header there may be the beginning of a body.
constexpr size_t kBehindHead = 64 << 10;
constexpr size_t kMostAtOnce = 64 << 10;

std::string_view View(beast::string_view text) { return {text.data(), text.size()}; }
beast::string_view BeastView(std::string_view text) { return {text.data(), text.size()}; }

Progress ProgressOf(const beast::error_code& error) {
  if (error == Error::body_limit) return Progress::kBodyTooLong;
  if (error == Error::header_limit) return Progress::kHeadTooLong;
  return Progress::kMalformed;
}

}  // namespace

struct Request::Parsing {
  Parsing(uint32_t head, uint64_t body) : most_head(head), most_body(body), buffer(head + kBehindHead) {}

  bool Has(Part part) const { return part == Part::kHead ? parser->is_header_done() : parser->is_done(); }
  const beast::http::request<beast::http::string_body>& message() const { return parser->get(); }

  const uint32_t most_head;
  const uint64_t most_body;
  beast::flat_buffer buffer;
  std::optional<beast::http::request_parser<beast::http::string_body>> parser;
};

Request::Request(uint32_t most_head_bytes, uint64_t most_body_bytes)
    : parsing_(std::make_unique<Parsing>(most_head_bytes, most_body_bytes)) {
  Begin();
}
Request::~Request() = default;

std::string_view Request::method() const { return View(parsing_->message().method_string()); }
std::string_view Request::target() const { return View(parsing_->message().target()); }
std::string_view Request::Header(std::string_view name) const {
  return View(parsing_->message()[BeastView(name)]);
}
size_t Request::Count(std::string_view name) const { return parsing_->message().count(BeastView(name)); }
bool Request::keep_alive() const { return parsing_->message().keep_alive(); }
bool Request::chunked() const { return parsing_->parser->chunked(); }
std::optional<uint64_t> Request::content_length() const {
  const auto length = parsing_->parser->content_length();
  return length ? std::optional<uint64_t>(*length) : std::nullopt;
}
std::string_view Request::body() const { return parsing_->message().body(); }

void Request::Begin() {
  parsing_->parser.emplace();
  parsing_->parser->header_limit(parsing_->most_head);
  parsing_->parser->body_limit(parsing_->most_body);
}

Progress Request::Parse(Part part) {
  auto& parser = *parsing_->parser;
  auto& buffer = parsing_->buffer;
  // Of a head that is waited for, the body stays in the buffer.
  parser.eager(part == Part::kWhole);
  while (!parsing_->Has(part)) {
    if (buffer.size() == 0) return Progress::kMore;
    beast::error_code error;
    try {
      buffer.consume(parser.put(buffer.data(), error));
    } catch (const std::length_error&) {
      return Progress::kHeadTooLong;  // a field of more than 65,535 bytes
    }
    if (error == Error::need_more) return Progress::kMore;
    if (error) return ProgressOf(error);
  }
  return Progress::kThere;
}

std::span<char> Request::Room() {
  const size_t size = beast::read_size(parsing_->buffer, kMostAtOnce);
  if (size == 0) return {};
  const auto room = parsing_->buffer.prepare(size);
  return {static_cast<char*>(room.data()), room.size()};
}
void Request::Came(size_t bytes) { parsing_->buffer.commit(bytes); }

Progress Request::End() {
  if (!parsing_->parser->got_some()) return Progress::kGone;
  beast::error_code error;
  parsing_->parser->put_eof(error);
  return error ? ProgressOf(error) : Progress::kThere;
}

}  // namespace tdbg::http

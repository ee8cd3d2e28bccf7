// A request that arrives in pieces: Boost's parser, fed by hand.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace tdbg::http {

/// How far reading has come.
enum class Progress {
  kMore,         ///< bytes are missing
  kThere,        ///< what was asked for is there
  kHeadTooLong,  ///< so are these four: nothing that follows is to be taken for a request
  kBodyTooLong,
  kMalformed,  ///< no HTTP, or the client stopped in the middle of it
  kGone,       ///< closed between two requests, the connection lost, or its time over
};

/// The part of a request that is waited for.
enum class Part { kHead, kWhole };

/// One request after the other, of one connection. Views are valid until Begin.
class Request {
 public:
  Request(uint32_t most_head_bytes, uint64_t most_body_bytes);
  ~Request();

  // Of a request whose head is there, or whose body is too long.
  std::string_view method() const;
  std::string_view target() const;
  /// \param name  in any case. Empty: there is none; of several the first.
  std::string_view Header(std::string_view name) const;
  size_t Count(std::string_view name) const;
  bool keep_alive() const;  ///< whether its client wants the connection kept
  bool chunked() const;
  std::optional<uint64_t> content_length() const;
  std::string_view body() const;  ///< of a whole request

  /// The next request. What came behind the last one are its first bytes.
  void Begin();
  /// Takes what has come; kMore: Room is to be filled.
  Progress Parse(Part part);
  /// Where bytes are to be put, valid until Came. Empty: too many are there already.
  std::span<char> Room();
  void Came(size_t bytes);
  /// After the last byte.
  Progress End();

 private:
  struct Parsing;
  std::unique_ptr<Parsing> parsing_;
};

}  // namespace tdbg::http

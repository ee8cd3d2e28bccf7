// Regular expressions as users write them (Python's re, in PCRE2), bounded on hostile patterns and texts.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "tdbg/status.h"

namespace tdbg::base {

class Regex {
 public:
  /// \error kInvalidArgument  names the pattern, PCRE2's complaint and the offset.
  static Result<Regex> Compile(std::string_view pattern);

  /// Searched, not anchored (like re.search). A text on which the pattern exceeds its match limit does
  /// not match; `*gave_up`, where given, is set then.
  /// \threadsafety const calls may run concurrently.
  bool Search(std::string_view text, bool* gave_up = nullptr) const;
  const std::string& pattern() const;

  Regex(Regex&&) noexcept;
  Regex& operator=(Regex&&) noexcept;
  Regex(const Regex&);  // shares the compiled program
  Regex& operator=(const Regex&);
  ~Regex();

 private:
  struct Program;
  explicit Regex(std::shared_ptr<const Program> program);
  std::shared_ptr<const Program> program_;
};

}  // namespace tdbg::base

#include "base/regex.h"

#include <fmt/format.h>
#include <pcre2.h>

#include "base/first_group.h"

namespace tdbg::base {
namespace {

// Ends (a+)+$ on hostile text after some 30 us; honest patterns on tensor names stay below a hundred.
constexpr uint32_t kMatchLimit = 10000;
constexpr uint32_t kHeapLimitKib = 4096;  // of the interpreter, where the JIT is not to be had
constexpr size_t kMaxPatternBytes = 64 << 10;

template <auto Free>
struct Freer {
  template <typename T>
  void operator()(T* p) const {
    Free(p);
  }
};
using Code2 = std::unique_ptr<pcre2_code, Freer<pcre2_code_free>>;
using MatchContext = std::unique_ptr<pcre2_match_context, Freer<pcre2_match_context_free>>;
using CompileContext = std::unique_ptr<pcre2_compile_context, Freer<pcre2_compile_context_free>>;
using MatchData = std::unique_ptr<pcre2_match_data, Freer<pcre2_match_data_free>>;

}  // namespace

struct CompiledPattern {
  std::string pattern;
  Code2 code;
  MatchContext limits;
};
struct Regex::Program : CompiledPattern {};

namespace {

Status CompileInto(std::string_view pattern, CompiledPattern* program) {
  program->pattern = pattern;
  const CompileContext context(pcre2_compile_context_create(nullptr));
  program->limits.reset(pcre2_match_context_create(nullptr));
  if (!context || !program->limits) return ResourceExhausted("no memory to compile a regular expression");
  pcre2_set_max_pattern_length(context.get(), kMaxPatternBytes);
  pcre2_set_match_limit(program->limits.get(), kMatchLimit);
  pcre2_set_heap_limit(program->limits.get(), kHeapLimitKib);

  // UCP, since \w and \d are Unicode's in Python too. \C would look inside a character, which Python cannot.
  const uint32_t options = PCRE2_UTF | PCRE2_MATCH_INVALID_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C;
  int error = 0;
  PCRE2_SIZE offset = 0;
  program->code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(), options,
                                    &error, &offset, context.get()));
  if (!program->code) {
    char complaint[256] = "";
    pcre2_get_error_message(error, reinterpret_cast<PCRE2_UCHAR*>(complaint), sizeof(complaint));
    return InvalidArgument(
        fmt::format("regular expression '{}': {} at offset {}", pattern.substr(0, 200), complaint, offset));
  }
  // A refusal (no executable memory under a hardened kernel) only costs speed: pcre2_match interprets then.
  (void)pcre2_jit_compile(program->code.get(), PCRE2_JIT_COMPLETE);
  return OkStatus();
}

int Match(const CompiledPattern& program, std::string_view text, pcre2_match_data* data) {
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.empty() ? "" : text.data());
  const int rc = pcre2_match(program.code.get(), subject, text.size(), 0, 0, data, program.limits.get());
  // The JIT's 32 KiB stack can run out long before the limit on match steps; the interpreter's heap does not.
  if (rc != PCRE2_ERROR_JIT_STACKLIMIT) return rc;
  return pcre2_match(program.code.get(), subject, text.size(), 0, PCRE2_NO_JIT, data, program.limits.get());
}

}  // namespace

Result<Regex> Regex::Compile(std::string_view pattern) {
  auto program = std::make_shared<Program>();
  TDBG_RETURN_IF_ERROR(CompileInto(pattern, program.get()));
  return Regex(std::move(program));
}

bool Regex::Search(std::string_view text, bool* gave_up) const {
  if (gave_up) *gave_up = false;
  // One pair of offsets, asked for and not read: a match needs room for one, whatever the pattern captures.
  const MatchData data(pcre2_match_data_create(1, nullptr));
  if (!data) {
    if (gave_up) *gave_up = true;
    return false;
  }
  const int rc = Match(*program_, text, data.get());
  if (rc >= 0) return true;  // 0: matched, with more groups than pairs
  if (gave_up && rc != PCRE2_ERROR_NOMATCH) *gave_up = true;
  return false;
}

const std::string& Regex::pattern() const { return program_->pattern; }

Regex::Regex(std::shared_ptr<const Program> program) : program_(std::move(program)) {}
// A moved-from Regex keeps the program: sharing costs one count, and an empty one would crash in Search.
Regex::Regex(Regex&& other) noexcept : program_(other.program_) {}
Regex& Regex::operator=(Regex&& other) noexcept {
  program_ = other.program_;
  return *this;
}
Regex::Regex(const Regex&) = default;
Regex& Regex::operator=(const Regex&) = default;
Regex::~Regex() = default;

Result<FirstGroup> FirstGroup::Compile(std::string_view pattern) {
  auto compiled = std::make_shared<CompiledPattern>();
  TDBG_RETURN_IF_ERROR(CompileInto(pattern, compiled.get()));
  return FirstGroup(std::move(compiled));
}

std::optional<std::string> FirstGroup::Find(std::string_view text) const {
  // Room for the whole match and for one group: the others are not asked for.
  const MatchData data(pcre2_match_data_create(2, nullptr));
  if (!data) return std::nullopt;
  const int rc = Match(*pattern_, text, data.get());
  // 0: there are more groups than pairs. 1: no group, or the last that took part is the match itself.
  if (rc < 0 || rc == 1) return std::nullopt;
  const PCRE2_SIZE* const ends = pcre2_get_ovector_pointer(data.get());
  if (ends[2] == PCRE2_UNSET || ends[3] < ends[2]) return std::nullopt;
  return std::string(text.substr(ends[2], ends[3] - ends[2]));
}

}  // namespace tdbg::base

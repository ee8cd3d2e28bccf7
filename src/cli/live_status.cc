#include "cli/live_status.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "base/posix.h"
#include "base/text.h"
#include "cli/output.h"
#include "cli/terminal.h"

namespace tdbg::cli {
namespace {

// With a shorter window the number flickers with every step that takes a little longer.
constexpr int64_t kRateWindowNanos = 2'000'000'000;
// From this pause on the line says so: a hanging data loader looks like a slow step otherwise.
constexpr int64_t kPauseNanos = 10'000'000'000;

std::string_view StateWord(rules::RuleState state) {
  switch (state) {
    case rules::RuleState::kInProgress:
      return "ok so far";
    case rules::RuleState::kNoIssuesFound:
      return "no issues";
    case rules::RuleState::kIssuesFound:
      return "ISSUE";
    case rules::RuleState::kError:
      return "error";
    case rules::RuleState::kStopped:
      return "stopped";
  }
  return "";
}

// False: it leads to a file that ends in an unfinished line, the script's as a rule. True of all that is no
// file, since there it cannot be seen.
bool EndsInALine(int fd) {
  struct stat file;
  if (::fstat(fd, &file) != 0 || !S_ISREG(file.st_mode) || file.st_size == 0) return true;
  const base::UniqueFd reading = base::OpenFd(fmt::format("/proc/self/fd/{}", fd).c_str(), O_RDONLY);
  char last = '\n';
  return !reading.ok() || ::pread(reading.get(), &last, 1, file.st_size - 1) != 1 || last == '\n';
}

}  // namespace

void LiveStatus::Update(const watch::Progress& progress) {
  const std::lock_guard guard(mutex_);
  any_ = true;
  step_ = progress.step;
  steps_seen_ = progress.steps_seen;
  loss_ = progress.loss;
  bytes_ = progress.bytes;
  rules_.clear();
  if (!progress.statuses) return;
  for (const rules::RuleStatus& status : *progress.statuses) rules_.emplace_back(status.name, status.state);
}

std::string LiveStatus::Line(int64_t monotonic_nanos) {
  const std::lock_guard guard(mutex_);
  if (!any_ || step_.empty()) return " tdbg  waiting for the first step";
  if (rate_nanos_ == 0) {
    rate_nanos_ = monotonic_nanos;
    steps_at_rate_ = steps_seen_;
  } else if (monotonic_nanos - rate_nanos_ >= kRateWindowNanos) {
    steps_per_second_ = static_cast<double>(steps_seen_ - steps_at_rate_) * 1e9 /
                        static_cast<double>(monotonic_nanos - rate_nanos_);
    rate_nanos_ = monotonic_nanos;
    steps_at_rate_ = steps_seen_;
  }
  if (change_nanos_ == 0 || steps_at_change_ != steps_seen_) {
    steps_at_change_ = steps_seen_;
    change_nanos_ = monotonic_nanos;
  }
  const int64_t pause_nanos = monotonic_nanos - change_nanos_;
  std::string line = " tdbg  " + step_;
  if (pause_nanos >= kPauseNanos)
    line += fmt::format("  no step for {} s", pause_nanos / 1'000'000'000);
  else if (steps_per_second_ > 0)
    line += fmt::format("  {:.1f} steps/s", steps_per_second_);
  if (loss_) line += std::isnan(*loss_) ? "  loss NaN" : fmt::format("  loss {:.4g}", *loss_);
  line += "  " + base::FormatBytes(bytes_);
  for (const auto& [name, state] : rules_)
    line += fmt::format("  {}: {}", base::Printable(name), StateWord(state));
  return line;
}

std::string FoundLine(const watch::Found& found, const Terminal& terminal) {
  constexpr std::string_view kWord = "ISSUE";
  const std::string begin = fmt::format("tdbg: {}  ", Paint(terminal, Colour::kRed, kWord));
  const std::string text = base::Printable(found.text);
  if (!terminal.is_terminal) return begin + text;  // one line, for those who search
  constexpr int kIndent = 13;
  return begin + Wrapped(text, kIndent, std::clamp(terminal.columns, 2 * kIndent, kTextColumns));
}

void TellFound(const watch::Found& found) {
  const Terminal terminal = Terminal::Of(STDERR_FILENO);
  const std::string fresh = EndsInALine(STDERR_FILENO) ? FreshLine(terminal) : "\n";
  WriteProgress(fresh + FoundLine(found, terminal) + "\n");
}

}  // namespace tdbg::cli

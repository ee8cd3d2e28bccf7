#include "cli/rehearsal.h"

#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <utility>

#include "base/clock.h"
#include "base/durations.h"
#include "base/file.h"
#include "jobs/heartbeat.h"

namespace tdbg::cli {

std::function<bool()> ReclaimDue(const Rehearsal& rehearsal, const jobs::PreparedAttempt& prepared) {
  if (!rehearsal.is_on() || rehearsal.left == 0) return {};
  if (rehearsal.every_millis >= 0) {
    return [due = base::SystemClock().MonotonicNanos() + base::NanosOfMillis(rehearsal.every_millis)] {
      return base::SystemClock().MonotonicNanos() >= due;
    };
  }
  const auto heartbeat = std::make_shared<jobs::Heartbeat>(prepared.run_directory, prepared.attempt);
  return [heartbeat, first = int64_t{-1}, every = rehearsal.every_steps]() mutable {
    const int64_t step = heartbeat->Step();
    if (first < 0) first = step;
    return first >= 0 && step >= first + every;
  };
}

Scratch::Scratch(const jobs::PreparedAttempt& prepared, std::map<std::string, std::string>* environment)
    : path_(base::JoinPath(prepared.run_directory, fmt::format("{}/tmp", prepared.attempt))) {
  if (base::LocalFileSystem().CreateDirectories(path_).ok())
    (*environment)["TMPDIR"] = path_;
  else
    path_.clear();
}

Scratch::~Scratch() {
  std::error_code ignored;
  if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
}

Scratch& Scratch::operator=(Scratch&& other) noexcept {
  std::swap(path_, other.path_);
  return *this;
}

std::string LossText(const Rehearsal& rehearsal) {
  if (!rehearsal.is_on()) return "";
  return rehearsal.wipe ? "; its predecessor's $TMPDIR is wiped"
                        : "; its predecessor's $TMPDIR is wiped, all else is kept";
}

}  // namespace tdbg::cli

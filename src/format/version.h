// The version every file of a run carries. docs/format.md is the specification.
#pragma once

#include <cstdint>
#include <string_view>

namespace tdbg::format {

inline constexpr uint16_t kMajor = 1;  ///< a reader refuses a newer one
inline constexpr uint16_t kMinor = 2;  ///< a reader ignores what it does not know

// Names in a run directory: <run>/<attempt>/<worker>/...
inline constexpr std::string_view kRunFile = "run.json";
inline constexpr std::string_view kPlanFile = "plan.json";
inline constexpr std::string_view kControlFile = "control";
inline constexpr std::string_view kEventsFile = "events.jsonl";
inline constexpr std::string_view kMutedFile = "muted.json";  ///< what its user has muted
/// Held by a launcher for as long as its job lives.
inline constexpr std::string_view kLauncherLockFile = "launcher.lock";
inline constexpr std::string_view kAttemptFile = "attempt.json";
inline constexpr std::string_view kWorkerFile = "worker.json";
inline constexpr std::string_view kLockFile = "lock";
inline constexpr std::string_view kJournalFile = "journal";
inline constexpr std::string_view kDoorbellFile = "doorbell";
inline constexpr std::string_view kSegmentsDir = "segments";
inline constexpr std::string_view kSegmentSuffix = ".safetensors";

}  // namespace tdbg::format

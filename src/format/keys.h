// What a value belongs to: a tensor, a step, a place inside the step; and how that is spelled in a segment.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tdbg::format {

/// smdebug's modes. Stored; never renumber.
enum class Mode : uint8_t { kTrain = 1, kEval = 2, kPredict = 3, kGlobal = 4 };
std::string_view ModeName(Mode mode);                     ///< "TRAIN"
std::optional<Mode> ModeFromName(std::string_view name);  ///< any case

/// A named place inside a step. Stored; never renumber.
enum class Point : uint16_t {
  kNone = 0,
  kEnd = 1,         ///< final weights, recorded when the run ends, outside steps()
  kBeforeClip = 2,  ///< gradients before clip_grad_norm_ / clip_grad_value_
  kAfterClip = 3,
};
std::string_view PointName(Point point);  ///< "end", "before_clip", "after_clip"; "" for kNone
std::optional<Point> PointFromName(std::string_view name);

/// Sub-key of a value inside its step.
struct SubKey {
  uint16_t sub = 0;  ///< 0: the step's own value; n+1: micro-step or inner evaluation n
  Point point = Point::kNone;
  friend bool operator==(const SubKey&, const SubKey&) = default;
};

/// `name@step[.sub[.point]]`; sub is written as n (of "n+1") or `-` when only a point follows.
/// The tensor name may itself hold '@' and '.': parsed from the right, at the last '@'.
std::string RawKey(std::string_view tensor_name, int64_t global_step, SubKey sub);
struct ParsedRawKey {
  std::string_view tensor_name;  ///< borrows the key
  int64_t global_step = 0;
  SubKey sub;
};
std::optional<ParsedRawKey> ParseRawKey(std::string_view key);

}  // namespace tdbg::format

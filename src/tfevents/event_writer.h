// Events as TensorBoard and smdebug write them: protocol buffers, framed as records.
//
// Field numbers are TensorFlow's (event.proto, summary.proto, tensor.proto); smdebug's messages are the same
// on the wire.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tdbg/tensor.h"
#include "tfevents/event.h"
#include "tfevents/record.h"

namespace tdbg::tfevents {

/// Appends one record to the bytes of a file.
void AppendRecord(std::string_view payload, Footer footer, std::string* file);

/// What a TensorBoard file begins with, and who wrote it. \param wall_seconds  since the Unix epoch, here and
/// below
std::string FileVersionEvent(double wall_seconds, std::string_view writer);
/// Does a file that begins with these bytes begin with a FileVersionEvent of this writer?
bool IsWrittenBy(std::string_view head, std::string_view writer);
/// The job starts again at `step`: readers drop what earlier files of the directory hold from there on.
std::string SessionStartEvent(double wall_seconds, int64_t step);

/// An event that holds any number of values of one step.
class SummaryEvent {
 public:
  SummaryEvent(double wall_seconds, int64_t step) : wall_seconds_(wall_seconds), step_(step) {}
  void AddScalar(std::string_view tag, double value);  ///< stored as float32, as TensorBoard has it
  /// Bucket i counts the values in (limits[i - 1], limits[i]]; limits ascend.
  void AddHistogram(std::string_view tag, const HistogramProto& histogram);
  bool empty() const { return summary_.empty(); }
  std::string Payload() const;

 private:
  double wall_seconds_;
  int64_t step_;
  std::string summary_;
};

/// One record of smdebug's `events/`: an event with one value, a tensor. The elements themselves go between
/// `before` and `after` (smdebug's footer is a constant, so nobody has to walk over them here).
struct TensorRecord {
  std::string before, after;
  uint64_t bytes = 0;  ///< of the whole record, content included
};

/// \param shape    of the content; none: a scalar
/// \param dtype    a type that TensorFlow has: not one of the float8 UZ types
/// \param plugins  (name, content) pairs of the metadata, in that order
/// \param content_bytes  how many bytes of C-ordered elements will follow
TensorRecord FrameTensor(double wall_seconds, int64_t step, std::string_view tag, DType dtype,
                         std::span<const int64_t> shape, uint64_t content_bytes,
                         std::span<const std::pair<std::string, std::string>> plugins);
/// The same for a list of UTF-8 texts, which lie in the record itself: nothing goes between.
TensorRecord FrameTexts(double wall_seconds, int64_t step, std::string_view tag,
                        std::span<const std::string> texts,
                        std::span<const std::pair<std::string, std::string>> plugins);

}  // namespace tdbg::tfevents

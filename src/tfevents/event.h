// The protocol-buffer messages inside records: Event, Summary, TensorProto, as far as TensorBoard's and
// smdebug's files use them. Fields nobody here reads are skipped; a field of the wrong wire type is as if it
// were not there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "tdbg/status.h"
#include "tdbg/tensor.h"

namespace tdbg::tfevents {

using Bytes = std::span<const std::byte>;

/// What lies in one record. Borrows the payload.
struct Event {
  double wall_time = 0;  ///< seconds since the epoch
  int64_t step = 0;
  std::string_view file_version;  ///< "brain.Event:2" in the first record of TensorBoard's files
  std::vector<Bytes> values;      ///< each for DecodeSummaryValue; empty if it is not a summary
};

/// \error kDataLoss  not a protocol buffer, or cut short.
Result<Event> DecodeEvent(Bytes payload);

enum class ValueKind : uint8_t { kNone = 0, kSimple = 1, kTensor = 2, kHistogram = 3, kOther = 4 };

/// One `Summary.Value`. Borrows the payload.
struct SummaryValue {
  std::string_view tag;  ///< the tensor's name
  ValueKind kind = ValueKind::kNone;
  float simple_value = 0;
  Bytes message;  ///< kTensor: for DecodeTensor; kHistogram: for DecodeHistogramProto
  std::vector<std::pair<std::string_view, std::string_view>> plugins;  ///< (name, content)
};

/// \error kDataLoss
Result<SummaryValue> DecodeSummaryValue(Bytes message);

/// A tensor as it was stored. `bytes` and `strings` borrow the payload, except where the producer spelled the
/// elements one by one (`int_val` and its like): those lie in `values` and `bytes` is empty.
struct TensorProto {
  int type = 0;                   ///< TensorFlow's DataType, as found
  DType dtype = DType::kInvalid;  ///< kText for text (`strings`)
  std::vector<int64_t> shape;
  Bytes bytes;  ///< C order, little-endian; product(shape) elements
  std::vector<std::byte> values;
  std::vector<std::string_view> strings;
};

/// \error kDataLoss       not a protocol buffer; more or fewer bytes than its shape and type ask for
/// \error kUnimplemented  a type we have no counterpart for (says which)
Result<TensorProto> DecodeTensor(Bytes message);

/// TensorFlow's `DataType` as ours; kInvalid where there is no counterpart. Reference types (+100) are their
/// base's.
DType DTypeOfTensorflow(int type);

struct HistogramProto {
  double min = 0, max = 0, num = 0, sum = 0, sum_squares = 0;
  std::vector<double> limits, counts;  ///< `bucket_limit` (right edges) and `bucket`
};
/// \error kDataLoss
Result<HistogramProto> DecodeHistogramProto(Bytes message);

}  // namespace tdbg::tfevents

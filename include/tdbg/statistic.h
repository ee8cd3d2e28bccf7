// Derived statistics: numbers per unit, channel or token that rules need and that a tensor's summary does not
// hold.
//
// They are computed in the training process, in the step in which the tensor is there, and recorded as small
// tensors beside it, so that the tensor itself need not be kept. docs/statistics.md lists them with their
// formulas.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tdbg/status.h"
#include "tdbg/tensor.h"

namespace tdbg {

/// One entry of the closed catalogue, with its parameters. What has other parameters is another statistic.
struct Statistic {
  enum class Kind : uint8_t {
    kCountAbove,   ///< count_above(t): per unit, elements with x > t
    kCountWithin,  ///< count_within(a,b): per unit, elements with a < x < b
    kSums,         ///< sums(axis): per index of that axis (negative: from the last), the sum in float64
    kValueCounts,  ///< value_counts(v,...): for each value, elements equal to it
  };

  Kind kind = Kind::kCountAbove;
  std::vector<double> parameters = {};  ///< finite

  /// "count_above(0)": the same text for the same statistic, in plans and in names.
  std::string Id() const;
  /// \error kInvalidArgument  not in the catalogue, or its parameters are not; says what is accepted
  static Result<Statistic> FromId(std::string_view id);
  /// The axis along which a tensor of this rank gets one entry per index; -1 for none, where it needs one.
  /// `unit_axis` is the adaptor's (TensorSpec::unit_axis).
  int AxisOf(int unit_axis, size_t rank) const;
  /// One entry per index of an axis (all but value_counts)?
  bool per_unit() const { return kind != Kind::kValueCounts; }
  friend bool operator==(const Statistic&, const Statistic&) = default;
};

/// Name under which a statistic is recorded: "statistic/count_above(0)/relu_output_0".
std::string StatisticTensorName(std::string_view statistic_id, std::string_view tensor);
struct StatisticTensor {
  std::string_view id, tensor;
};
/// The parts of such a name, borrowed from it; nothing for any other name.
std::optional<StatisticTensor> ParseStatisticTensorName(std::string_view name);
/// TensorInfo::kind of what is recorded so, and the collection that lists it (no other selection of tensors
/// does).
inline constexpr std::string_view kStatisticKind = "statistic";
inline constexpr std::string_view kStatisticsCollection = "statistics";

/// One statistic of one tensor at one step.
struct StatisticValue {
  uint64_t elements = 0;            ///< that each entry was taken over
  uint64_t samples = 0;             ///< extent of the tensor's first axis: images, sequences; 1 for rank 0
  std::vector<double> values = {};  ///< per unit, or per value; counts are exact

  friend bool operator==(const StatisticValue&, const StatisticValue&) = default;
};

/// Appends the value as it is recorded, a tensor of rank 1: elements, samples, values. Counts are int32
/// (int64 where a tensor has 2^31 elements or more), sums float64. Returns the element type; the length is 2
/// + values.
DType AppendStatistic(const Statistic& statistic, const StatisticValue& value, std::vector<std::byte>* bytes);
/// \error kDataLoss  no such tensor
Result<StatisticValue> DecodeStatistic(const TensorView& recorded);

}  // namespace tdbg

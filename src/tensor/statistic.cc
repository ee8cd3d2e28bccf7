#include "tdbg/statistic.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/text.h"

namespace tdbg {
namespace {

constexpr std::string_view kPrefix = "statistic/";

struct Entry {
  Statistic::Kind kind;
  std::string_view name;
  std::string_view form;
  size_t least, most;  // parameters
};

constexpr auto kCatalogue = std::to_array<Entry>({
    {Statistic::Kind::kCountAbove, "count_above", "count_above(threshold)", 1, 1},
    {Statistic::Kind::kCountWithin, "count_within", "count_within(low,high), low < high", 2, 2},
    {Statistic::Kind::kSums, "sums", "sums(axis)", 1, 1},
    {Statistic::Kind::kValueCounts, "value_counts", "value_counts(value,...), up to 1024 values", 1, 1024},
});

std::string Catalogue() {
  std::string text;
  for (const Entry& entry : kCatalogue) text += (text.empty() ? "" : "; ") + std::string(entry.form);
  return text;
}

Status Refused(std::string_view id, std::string_view why) {
  constexpr size_t kShown = 60;  // a list of values may be as long as a file
  const std::string_view more = id.size() > kShown ? "..." : "";
  return InvalidArgument(
      fmt::format("statistic \"{}{}\": {}; there are {}", id.substr(0, kShown), more, why, Catalogue()));
}

template <typename T>
void Append(const StatisticValue& value, std::vector<std::byte>* out) {
  const size_t before = out->size();
  out->resize(before + (2 + value.values.size()) * sizeof(T));
  const auto put = [&](size_t i, auto number) {
    const T stored = static_cast<T>(number);
    std::memcpy(out->data() + before + i * sizeof(T), &stored, sizeof stored);
  };
  put(0, value.elements);
  put(1, value.samples);
  for (size_t i = 0; i < value.values.size(); ++i) put(2 + i, value.values[i]);
}

template <typename T>
StatisticValue Decode(const TensorView& recorded) {
  const auto get = [&](int64_t i) {
    T stored;
    std::memcpy(&stored,
                static_cast<const std::byte*>(recorded.data) + static_cast<size_t>(i) * sizeof stored,
                sizeof stored);
    return stored;
  };
  StatisticValue value;
  value.elements = static_cast<uint64_t>(get(0));
  value.samples = static_cast<uint64_t>(get(1));
  for (int64_t i = 2; i < recorded.shape[0]; ++i) value.values.push_back(static_cast<double>(get(i)));
  return value;
}

}  // namespace

std::string Statistic::Id() const {
  std::string text;
  for (const Entry& entry : kCatalogue) {
    if (entry.kind == kind) text = entry.name;
  }
  for (size_t i = 0; i < parameters.size(); ++i) {
    text += fmt::format("{}{}", i == 0 ? '(' : ',', parameters[i] + 0.0);  // -0 is 0
  }
  return text + ")";
}

Result<Statistic> Statistic::FromId(std::string_view id) {
  const size_t open = id.find('(');
  if (open == std::string_view::npos || !id.ends_with(')')) return Refused(id, "not a name with parameters");
  const Entry* found = nullptr;
  for (const Entry& entry : kCatalogue) {
    if (entry.name == base::Trim(id.substr(0, open))) found = &entry;
  }
  if (found == nullptr) return Refused(id, "not in the catalogue");
  Statistic statistic;
  statistic.kind = found->kind;
  for (const std::string& text : base::SplitList(id.substr(open + 1, id.size() - open - 2))) {
    const auto number = base::ParseDouble(text);
    if (!number || !std::isfinite(*number)) return Refused(id, fmt::format("\"{}\" is not a number", text));
    statistic.parameters.push_back(*number + 0.0);
  }
  const auto& p = statistic.parameters;
  if (p.size() < found->least || p.size() > found->most)
    return Refused(id, fmt::format("{} parameters", p.size()));
  if (statistic.kind == Kind::kCountWithin && !(p[0] < p[1]))
    return Refused(id, "nothing lies between these");
  if (statistic.kind == Kind::kSums && (p[0] != std::floor(p[0]) || std::abs(p[0]) > 64)) {
    return Refused(id, "not an axis");
  }
  return statistic;
}

int Statistic::AxisOf(int unit_axis, size_t rank) const {
  const int r = static_cast<int>(rank);
  int axis = unit_axis;
  if (kind == Kind::kValueCounts) return -1;
  if (kind == Kind::kSums) {
    axis = static_cast<int>(parameters[0]);
    if (axis < 0) axis += r;
  }
  return axis >= 0 && axis < r ? axis : -1;
}

std::string StatisticTensorName(std::string_view statistic_id, std::string_view tensor) {
  return fmt::format("{}{}/{}", kPrefix, statistic_id, tensor);
}

std::optional<StatisticTensor> ParseStatisticTensorName(std::string_view name) {
  if (!name.starts_with(kPrefix)) return std::nullopt;
  name.remove_prefix(kPrefix.size());
  const size_t end = name.find(")/");  // no id holds a slash
  if (end == std::string_view::npos) return std::nullopt;
  return StatisticTensor{name.substr(0, end + 1), name.substr(end + 2)};
}

DType AppendStatistic(const Statistic& statistic, const StatisticValue& value,
                      std::vector<std::byte>* bytes) {
  constexpr auto kLargest = static_cast<uint64_t>(std::numeric_limits<int32_t>::max());
  if (statistic.kind == Statistic::Kind::kSums) {
    Append<double>(value, bytes);
    return DType::kFloat64;
  }
  if (value.elements > kLargest || value.samples > kLargest) {
    Append<int64_t>(value, bytes);
    return DType::kInt64;
  }
  Append<int32_t>(value, bytes);
  return DType::kInt32;
}

Result<StatisticValue> DecodeStatistic(const TensorView& recorded) {
  if (recorded.shape.size() == 1 && recorded.shape[0] >= 2 && recorded.is_contiguous()) {
    if (recorded.dtype == DType::kInt32) return Decode<int32_t>(recorded);
    if (recorded.dtype == DType::kInt64) return Decode<int64_t>(recorded);
    if (recorded.dtype == DType::kFloat64) return Decode<double>(recorded);
  }
  return Status(Code::kDataLoss, fmt::format("not a statistic: {} of rank {}", DTypeName(recorded.dtype),
                                             recorded.shape.size()));
}

}  // namespace tdbg

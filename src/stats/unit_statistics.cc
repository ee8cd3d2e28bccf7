#include "stats/unit_statistics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include "base/stable_sort.h"
#include "stats/floating_point_mode.h"
#include "stats/kernels.h"
#include "stats/unit_kernels.h"
#include "tensor/strided.h"

namespace tdbg::stats {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

/// above < x && x <= at_most
struct Range {
  double above = 0, at_most = 0;
};

/// Of a double, the same as of any float: x > t and x > floor(t) are one condition for floats x, and so are x
/// <= t and x <= floor(t).
float FloatBelow(double t) {
  constexpr float kLargest = std::numeric_limits<float>::max();
  if (t >= kInf) return std::numeric_limits<float>::infinity();
  if (t >= static_cast<double>(kLargest)) return kLargest;
  if (t < -static_cast<double>(kLargest)) return -std::numeric_limits<float>::infinity();
  const auto f = static_cast<float>(t);
  return static_cast<double>(f) > t ? std::nextafterf(f, -std::numeric_limits<float>::infinity()) : f;
}

/// A view as [outer, units, inner] over its memory: axes in descending stride, those of stride 0 as factors.
struct UnitWalk {
  const std::byte* data = nullptr;
  AxisList axes;  // of the elements that are read, the unit axis among them
  uint64_t multiplicity = 1;
  UnitBlock block;
  bool dense = true;      // the walk is C order without gaps
  bool reversed = false;  // units come last first
  int64_t repeat = 1;     // the only unit stands for so many
};

UnitWalk MakeUnitWalk(const TensorView& x, int axis) {
  const size_t rank = x.shape.size();
  const auto item = static_cast<int64_t>(ItemSize(x.dtype));
  UnitWalk walk;
  walk.data = static_cast<const std::byte*>(x.data);
  struct Given {
    Axis axis;
    bool unit;
  };
  std::vector<Given> given;  // ranks are small; few of these calls are made in a step
  int64_t dense_stride = 1;
  for (size_t i = rank; i-- > 0;) {
    Given g{{x.shape[i], x.strides.empty() ? dense_stride : x.strides[i]}, static_cast<int>(i) == axis};
    dense_stride *= x.shape[i];
    if (g.axis.length == 1) continue;
    if (g.axis.stride == 0) {
      if (g.unit) {
        walk.repeat = g.axis.length;
      } else {
        walk.multiplicity *= static_cast<uint64_t>(g.axis.length);
      }
      continue;
    }
    if (g.axis.stride < 0) {
      walk.data += g.axis.stride * (g.axis.length - 1) * item;
      g.axis.stride = -g.axis.stride;
      walk.reversed |= g.unit;
    }
    given.push_back(g);
  }
  base::StableSort(&given, [](const Given& a, const Given& b) { return a.axis.stride > b.axis.stride; });
  bool past_unit = std::none_of(given.begin(), given.end(), [](const Given& g) { return g.unit; });
  if (past_unit) walk.block = {1, 1, 1};
  int64_t expected = 1;
  for (size_t i = given.size(); i-- > 0;) {
    walk.dense &= given[i].axis.stride == expected;
    expected = given[i].axis.stride * given[i].axis.length;
  }
  for (const Given& g : given) {
    const auto length = static_cast<size_t>(g.axis.length);
    if (g.unit) {
      walk.block.units = length;
      past_unit = true;
    } else if (past_unit) {
      walk.block.inner *= length;
    } else {
      walk.block.outer *= length;
    }
    walk.axes.push_back(g.axis);
  }
  return walk;
}

}  // namespace

struct UnitStatistics::Scratch {
  alignas(64) int64_t columns[kUnitColumns];
  alignas(64) double sum_columns[kUnitColumns];
  alignas(64) float as_float[kChunk];
  alignas(64) double as_double[kChunk];
  alignas(64) std::byte gathered[kChunk * 8];
  std::vector<int64_t> counts;
};

namespace {

/// Hands a walk's elements to f(const float* or const double*, block, first unit), in blocks that lie dense
/// in memory.
template <class Scratch, typename F>
void ForEachBlock(const UnitWalk& walk, DType dtype, Scratch* scratch, F&& f) {
  const size_t item = ItemSize(dtype);
  const bool aligned = reinterpret_cast<uintptr_t>(walk.data) % item == 0;
  const UnitBlock whole = walk.block;
  if (walk.dense && aligned && dtype == DType::kFloat32) {
    return f(reinterpret_cast<const float*>(walk.data), whole, size_t{0});
  }
  if (walk.dense && aligned && dtype == DType::kFloat64) {
    return f(reinterpret_cast<const double*>(walk.data), whole, size_t{0});
  }

  RunReader reader(walk.data, walk.axes, item);
  const std::byte* dense = walk.data;
  const auto next = [&](size_t n) -> const std::byte* {
    if (walk.dense && aligned) {
      const std::byte* const at = dense;
      dense += n * item;
      return at;
    }
    (void)reader.Read(scratch->gathered, n);
    return scratch->gathered;
  };
  const auto convert = [&](size_t n, UnitBlock block, size_t first_unit) {
    const std::byte* const at = next(n);
    const auto via_float = [&](Source source) {
      ToFloat(source, at, n, scratch->as_float);
      f(static_cast<const float*>(scratch->as_float), block, first_unit);
    };
    const auto via_double = [&](WideSource source) {
      ToDouble(source, at, n, scratch->as_double);
      f(static_cast<const double*>(scratch->as_double), block, first_unit);
    };
    switch (dtype) {
      case DType::kFloat32:
        return f(reinterpret_cast<const float*>(at), block, first_unit);
      case DType::kFloat64:
        return f(reinterpret_cast<const double*>(at), block, first_unit);
      case DType::kBool:
        return via_float(Source::kBool);
      case DType::kUInt8:
        return via_float(Source::kU8);
      case DType::kInt8:
        return via_float(Source::kI8);
      case DType::kUInt16:
        return via_float(Source::kU16);
      case DType::kInt16:
        return via_float(Source::kI16);
      case DType::kFloat16:
        return via_float(Source::kF16);
      case DType::kBFloat16:
        return via_float(Source::kBF16);
      case DType::kUInt32:
        return via_double(WideSource::kU32);
      case DType::kInt32:
        return via_double(WideSource::kI32);
      case DType::kUInt64:
        return via_double(WideSource::kU64);
      case DType::kInt64:
        return via_double(WideSource::kI64);
      default:
        return;  // refused before any memory is read
    }
  };

  const size_t plane = whole.units * whole.inner;
  if (plane <= kChunk) {
    const size_t most = kChunk / plane;
    for (size_t o = 0; o < whole.outer; o += most) {
      const size_t rows = std::min(most, whole.outer - o);
      convert(rows * plane, {rows, whole.units, whole.inner}, 0);
    }
  } else if (whole.inner <= kChunk) {
    const size_t most = kChunk / whole.inner;
    for (size_t o = 0; o < whole.outer; ++o) {
      for (size_t u = 0; u < whole.units; u += most) {
        const size_t units = std::min(most, whole.units - u);
        convert(units * whole.inner, {1, units, whole.inner}, u);
      }
    }
  } else {
    for (size_t o = 0; o < whole.outer; ++o) {
      for (size_t u = 0; u < whole.units; ++u) {
        for (size_t i = 0; i < whole.inner; i += kChunk) {
          const size_t n = std::min(kChunk, whole.inner - i);
          convert(n, {1, 1, n}, u);
        }
      }
    }
  }
}

}  // namespace

UnitStatistics::UnitStatistics() : scratch_(new Scratch()) {}
UnitStatistics::~UnitStatistics() = default;
UnitStatistics::UnitStatistics(UnitStatistics&&) noexcept = default;
UnitStatistics& UnitStatistics::operator=(UnitStatistics&&) noexcept = default;

Status UnitStatistics::Compute(const Statistic& statistic, const TensorView& x, int unit_axis,
                               StatisticValue* out) {
  using Kind = Statistic::Kind;
  if (!HasStatistics(x.dtype)) {
    return Unimplemented("no statistics for dtype " + std::string(DTypeName(x.dtype)));
  }
  const size_t rank = x.shape.size();
  const int axis = statistic.AxisOf(unit_axis, rank);
  if (statistic.per_unit() && axis < 0) {
    return FailedPrecondition(statistic.Id() + ": a tensor of rank " + std::to_string(rank) +
                              " has no such axis");
  }
  const std::vector<double>& p = statistic.parameters;
  const size_t units = axis < 0 ? 1 : static_cast<size_t>(x.shape[static_cast<size_t>(axis)]);
  out->samples = rank == 0 ? 1 : static_cast<uint64_t>(x.shape[0]);
  out->elements = units == 0 ? 0 : static_cast<uint64_t>(x.element_count()) / units;
  out->values.assign(axis < 0 ? p.size() : units, 0.0);
  if (x.element_count() == 0) return OkStatus();

  const FloatingPointMode mode(false);
  const UnitWalk walk = MakeUnitWalk(x, axis);
  Scratch* const s = scratch_.get();
  const auto times = static_cast<double>(walk.multiplicity);
  if (statistic.kind == Kind::kSums) {
    ForEachBlock(walk, x.dtype, s, [&](const auto* data, UnitBlock block, size_t first) {
      SumUnits(data, block, s->sum_columns, out->values.data() + first);
    });
    for (double& sum : out->values) sum *= times;
  } else {
    const auto count = [&](const Range& range, size_t base) {
      ForEachBlock(walk, x.dtype, s, [&](const auto* data, UnitBlock block, size_t first) {
        int64_t* const to = s->counts.data() + base + first;
        if constexpr (std::is_same_v<decltype(data), const float*>) {
          CountBetween(data, block, FloatBelow(range.above), FloatBelow(range.at_most), s->columns, to);
        } else {
          CountBetween(data, block, range.above, range.at_most, s->columns, to);
        }
      });
    };
    s->counts.assign(out->values.size(), 0);
    if (statistic.kind == Kind::kCountAbove) {
      count({p[0], kInf}, 0);
    } else if (statistic.kind == Kind::kCountWithin) {
      count({p[0], std::nextafter(p[1], -kInf)}, 0);
    } else {
      for (size_t i = 0; i < p.size(); ++i) count({std::nextafter(p[i], -kInf), p[i]}, i);
    }
    for (size_t i = 0; i < s->counts.size(); ++i) out->values[i] = static_cast<double>(s->counts[i]) * times;
  }
  if (walk.repeat > 1) std::fill(out->values.begin() + 1, out->values.end(), out->values[0]);
  if (walk.reversed) std::reverse(out->values.begin(), out->values.end());
  return OkStatus();
}

}  // namespace tdbg::stats

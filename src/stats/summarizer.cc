// Decides which kernel sees which block, and puts their answers together.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

#include "stats/counters.h"
#include "stats/floating_point_mode.h"
#include "stats/kernels.h"
#include "stats/moments.h"
#include "tdbg/summary.h"
#include "tensor/strided.h"

namespace tdbg {
namespace {

using namespace stats;  // NOLINT: this file is the room's front door

// Below this many elements folding 2 x 65,536 counters costs more than pairs save.
constexpr int64_t kPairsFrom = 64 * 1024;
// And below this many the fixed cost of slices is larger than that of one increment each.
constexpr int64_t kSlicesFrom = 192;
// Before 32-bit counters may wrap, whatever is in them goes to the histogram.
constexpr uint64_t kSpillAfter = uint64_t{1} << 31;

constexpr double kInf = std::numeric_limits<double>::infinity();

double FirstFiniteOr(const float* x, size_t n, double otherwise) {
  for (size_t i = 0; i < n; ++i) {
    if (std::isfinite(x[i])) return x[i];
  }
  return otherwise;
}
double FirstFiniteOr(const double* x, size_t n, double otherwise) {
  for (size_t i = 0; i < n; ++i) {
    if (std::isfinite(x[i])) return x[i];
  }
  return otherwise;
}

// A power of two near 1 / x, for x > 0; always normal, and so is its inverse.
double ReciprocalPowerOfTwo(double x, int limit) {
  return std::ldexp(1.0, std::clamp(-std::ilogb(x), -limit, limit));
}

// Whether the pivot's distance from the mean, squared, is more than `limit` variances: a float sum
// of squares has then lost log2(limit) of its 24 bits to the pivot.
bool PivotIsFar(const Partial& p, double n, double limit) {
  const double central = p.s2 - p.s1 * p.s1 / n;
  return p.s1 * p.s1 / n > limit * std::max(central, 0.0);
}

// The mean of a block's finite elements, of which there is one, in units of 1 / scale. Summed about a
// pivot that is 1e10 times too far away it is mostly rounding error; between min and max it is not.
double MeanOf(const Partial& p, double pivot, double n, double scale) {
  return std::clamp(pivot + p.s1 / n, p.min * scale, p.max * scale);
}

struct Totals {
  uint64_t elements = 0;
  uint64_t nan = 0, pos_inf = 0, neg_inf = 0, zero = 0;
  double min = kInf, max = -kInf, abs_min_nonzero = kInf, abs_max = 0;
  double l1 = 0;
  Moments moments;

  // `n` elements that `p` is about.
  void Add(const Partial& p, size_t n, double pivot) {
    elements += n;
    nan += p.nan;
    pos_inf += p.pos_inf;
    neg_inf += p.neg_inf;
    zero += p.zero;
    min = std::min(min, p.min);
    max = std::max(max, p.max);
    abs_min_nonzero = std::min(abs_min_nonzero, p.abs_min_nonzero);
    abs_max = std::max(abs_max, p.abs_max);
    l1 += p.l1;
    const auto finite = static_cast<double>(n - p.nan - p.pos_inf - p.neg_inf);
    moments = MergeMoments(moments, MomentsAbout(pivot, finite, p.s1, p.s2, p.s3, p.s4));
  }
};

}  // namespace

struct Summarizer::Scratch {
  const bool have_slices = HaveSliceCounter();
  SliceCounter slices{};
  std::unique_ptr<PairCounter> pairs;  // half a megabyte, made when needed: never where there are slices
  DoubleCounter doubles{};
  FloatCounter floats{};
  alignas(64) float as_float[kChunk];
  alignas(64) double as_double[kChunk];
  alignas(64) std::byte gathered[kChunk * 8];
  Histogram spilled;
  bool in_use = false;
};

namespace {

// The element types that the fast kernel reads as they are.
struct Float32 {
  using Word = float;
  static constexpr auto kFast = FastF32;
  static constexpr auto kAbsMax = AbsMaxF32;
};
struct BFloat16 {
  using Word = uint16_t;
  static constexpr auto kFast = FastBF16;
  static constexpr auto kAbsMax = AbsMaxBF16;
  static constexpr Source kSource = Source::kBF16;
};
struct Float16 {
  using Word = uint16_t;
  static constexpr auto kFast = FastF16;
  static constexpr auto kAbsMax = AbsMaxF16;
  static constexpr Source kSource = Source::kF16;
};

// One tensor's way through the kernels. `Tables` is Summarizer::Scratch, which has no name out here.
template <class Tables>
class Pass {
 public:
  Pass(Tables* tables, bool histogram, int64_t elements, double scale)
      : t_(tables),
        histogram_(histogram),
        use_slices_(histogram && tables->have_slices && elements >= kSlicesFrom),
        use_pairs_(histogram && !tables->have_slices && elements >= kPairsFrom),
        wide_scale_(scale) {
    if (use_pairs_ && !tables->pairs) tables->pairs = std::make_unique<PairCounter>();
  }

  const Totals& totals() const { return totals_; }

  void Dense(DType dtype, const std::byte* data, size_t n) {
    switch (dtype) {
      case DType::kFloat32:
        return Floats<Float32>(reinterpret_cast<const float*>(data), n);
      case DType::kBFloat16:
        return Floats<BFloat16>(reinterpret_cast<const uint16_t*>(data), n);
      case DType::kFloat16:
        return Floats<Float16>(reinterpret_cast<const uint16_t*>(data), n);
      case DType::kFloat64:
        return Doubles(reinterpret_cast<const double*>(data), n);
      case DType::kBool:
        return ViaFloat(Source::kBool, data, n, 1);
      case DType::kUInt8:
        return ViaFloat(Source::kU8, data, n, 1);
      case DType::kInt8:
        return ViaFloat(Source::kI8, data, n, 1);
      case DType::kUInt16:
        return ViaFloat(Source::kU16, data, n, 2);
      case DType::kInt16:
        return ViaFloat(Source::kI16, data, n, 2);
      case DType::kUInt32:
        return ViaDouble(WideSource::kU32, data, n, 4);
      case DType::kInt32:
        return ViaDouble(WideSource::kI32, data, n, 4);
      case DType::kUInt64:
        return ViaDouble(WideSource::kU64, data, n, 8);
      case DType::kInt64:
        return ViaDouble(WideSource::kI64, data, n, 8);
      default:
        return;  // refused before any memory is read
    }
  }

  void TakeHistogram(uint64_t times, Histogram* h) {
    Take(times, h);
    if (!t_->spilled.empty()) {
      *h = MergeHistograms(*h, t_->spilled);
      t_->spilled.clear();
    }
  }

  void SpillIfDue(uint64_t times) {
    if (!histogram_ || counted_ < kSpillAfter) return;
    Histogram h;
    Take(times, &h);
    t_->spilled = MergeHistograms(t_->spilled, h);
    counted_ = 0;
  }

 private:
  void Take(uint64_t times, Histogram* h) {
    h->clear();
    if (totals_.abs_max == 0) return;
    if (wide_) {
      TakeDoubles(&t_->doubles, totals_.abs_min_nonzero, totals_.abs_max, times, h);
      return;
    }
    if (use_slices_) Fold(&t_->slices, &t_->floats);
    if (use_pairs_) {
      Fold(t_->pairs.get(), static_cast<float>(totals_.abs_min_nonzero), static_cast<float>(totals_.abs_max),
           &t_->floats);
    }
    TakeFloats(&t_->floats, static_cast<float>(totals_.abs_min_nonzero), static_cast<float>(totals_.abs_max),
               times, h);
  }

  void ViaFloat(Source source, const std::byte* data, size_t n, size_t item_size) {
    for (size_t i = 0; i < n; i += kChunk) {
      const size_t m = std::min(kChunk, n - i);
      ToFloat(source, data + i * item_size, m, t_->as_float);
      Floats<Float32>(t_->as_float, m);
    }
  }

  void ViaDouble(WideSource source, const std::byte* data, size_t n, size_t item_size) {
    for (size_t i = 0; i < n; i += kChunk) {
      const size_t m = std::min(kChunk, n - i);
      ToDouble(source, data + i * item_size, m, t_->as_double);
      Doubles(t_->as_double, m);
    }
  }

  void Doubles(const double* x, size_t n) {
    wide_ = true;
    while (n != 0) {
      const size_t m = std::min(have_pivot_ ? kSuperBlock : kChunk, n);
      if (!have_pivot_) pivot_ = FirstFiniteOr(x, m, 0.0) * wide_scale_;
      const auto sum = [&](double pivot, Partial* out) {
        if (wide_scale_ == 1.0 && FastF64(x, m, pivot, out)) return;
        ExactF64(x, m, pivot, wide_scale_, out);
      };
      Partial p;
      sum(pivot_, &p);
      TakeBlock(&p, m, 0x1p26, sum);
      if (histogram_) CountDoubles(x, m, p.abs_min_nonzero < 0x1p-1022, &t_->doubles);
      counted_ += m;
      x += m;
      n -= m;
    }
  }

  // Takes a block's answer, or has its sums computed again about its mean; moves the pivot there.
  template <typename Again>
  void TakeBlock(Partial* p, size_t m, double limit, Again again) {
    const auto finite = static_cast<double>(m - p->nan - p->pos_inf - p->neg_inf);
    if (finite != 0) {
      if (PivotIsFar(*p, finite, limit)) {
        pivot_ = MeanOf(*p, pivot_, finite, wide_scale_);
        *p = Partial();
        again(pivot_, p);
      }
      have_pivot_ = true;
    }
    totals_.Add(*p, m, pivot_);
    if (finite != 0) pivot_ = MeanOf(*p, pivot_, finite, wide_scale_);
  }

  template <class Type>
  const float* Widened(const typename Type::Word* x, size_t n) {
    if constexpr (std::is_same_v<typename Type::Word, float>) {
      return x;
    } else {
      ToFloat(Type::kSource, x, n, t_->as_float);
      return t_->as_float;
    }
  }

  template <class Type>
  void Floats(const typename Type::Word* x, size_t n) {
    if (!have_pivot_ && n > kChunk) Scout<Type>(x, std::min(n, kSuperBlock));
    while (n != 0) {
      SetScale();
      const bool exact = !have_pivot_ || !have_scale_ || met_nonfinite_;
      const size_t m = std::min(exact ? kChunk : kSuperBlock, n);
      if (exact) {
        ExactFloats(Widened<Type>(x, m), m, histogram_);
      } else {
        FastFloats<Type>(x, m);
      }
      counted_ += m;
      x += m;
      n -= m;
    }
  }

  // Enough of a look ahead over the first block to begin with the fast kernel, which then looks at how good
  // the pivot and the scale were: a few elements, or all of them where those are zeros. Not if one is not
  // finite.
  template <class Type>
  void Scout(const typename Type::Word* x, size_t n) {
    std::array<float, 9> sample;
    float largest = 0;
    for (size_t i = 0; i < sample.size(); ++i) {
      sample[i] = *Widened<Type>(x + i * (n - 1) / (sample.size() - 1), 1);
      if (!std::isfinite(sample[i])) return;
      largest = std::max(largest, std::fabs(sample[i]));
    }
    // The largest of all is rarely more than 8 times the largest of a few; where it is, those above the
    // window are counted one by one. A scale is a power of two and rounds nothing, so that it need not be a
    // good one.
    const float abs_max = largest != 0 ? 8 * largest : Type::kAbsMax(x, n);
    if (!std::isfinite(abs_max)) return;
    scale_for_ = abs_max;
    SetScale();
    if (!have_scale_) return;
    // The median of a few: one far outlier among them, and their mean would be a bad pivot for all others.
    std::nth_element(sample.begin(), sample.begin() + sample.size() / 2, sample.end());
    pivot_ = sample[sample.size() / 2];
    have_pivot_ = true;
  }

  void ExactFloats(const float* x, size_t m, bool count) {
    if (!have_pivot_) pivot_ = FirstFiniteOr(x, m, 0.0);
    Partial p;
    ExactF32(x, m, pivot_, &p);
    TakeBlock(&p, m, 0x1p20, [&](double pivot, Partial* again) { ExactF32(x, m, pivot, again); });
    if (count) CountExact(x, m, p);
    met_nonfinite_ = p.nan + p.pos_inf + p.neg_inf != 0;
    scale_for_ = p.abs_max;
  }

  // A block of any values, about which `p` tells.
  void CountExact(const float* x, size_t m, const Partial& p) {
    if (p.abs_max == 0) return;
    if (!use_slices_ || plain_blocks_ > 0) {
      plain_blocks_ -= plain_blocks_ > 0 ? 1 : 0;
      CountFloats(x, m, p.abs_min_nonzero < 0x1p-126, &t_->floats);
      return;
    }
    SetWindow(p.abs_max);
    t_->floats.outside_count = 0;
    CountInWindow(x, m, &t_->slices, &t_->floats);
    ReviewWindow(m, p.abs_max);
  }

  void SetWindow(double abs_max) {
    if (have_window_) return;
    MoveWindow(abs_max);
  }

  void MoveWindow(double abs_max) {
    have_window_ = true;
    t_->slices.base = WindowBase(static_cast<float>(abs_max), SliceCounter::kWindow);
    if (use_pairs_) t_->pairs->base = WindowBase(static_cast<float>(abs_max), PairCounter::kWindow);
  }

  // For the next block, if there is one: of a small tensor this would be a tenth of the work.
  void SetScale() {
    const double abs_max = std::exchange(scale_for_, 0);
    if (abs_max == 0) return;
    // Outside this range a sum of |x|, which is not scaled, might overflow or lose subnormals.
    have_scale_ = abs_max > 0x1p-64 && abs_max < 0x1p100;
    if (!have_scale_) return;
    scale_ = static_cast<float>(ReciprocalPowerOfTwo(abs_max, 100));
    SetWindow(abs_max);
  }

  template <class Type>
  void FastFloats(const typename Type::Word* x, size_t m) {
    const bool window = (use_slices_ || use_pairs_) && have_window_ && plain_blocks_ == 0;
    if (plain_blocks_ > 0) --plain_blocks_;
    t_->floats.outside_count = 0;
    auto pivot = static_cast<float>(pivot_);
    Partial p;
    bool all_finite = true;
    const size_t done =
        Type::kFast(x, m, pivot, scale_, expect_zeros_, window && use_pairs_ ? t_->pairs.get() : nullptr,
                    window && use_slices_ ? &t_->slices : nullptr, &t_->floats, &p, &all_finite);
    expect_zeros_ = p.zero != 0;
    if (histogram_) {
      if (!window) CountChunks<Type>(x, done, !(p.abs_min_nonzero >= 0x1p-126) || !all_finite);
      CountChunks<Type>(x + done, m - done, true);
      if (window) ReviewWindow(done, p.abs_max);
    }
    const bool in_range = p.abs_max == 0 || (p.abs_max < 0x1p100 && p.abs_max > 0x1p-64);
    if (!all_finite || !in_range) {
      for (size_t i = 0; i < m; i += kChunk) {
        const size_t k = std::min(kChunk, m - i);
        ExactFloats(Widened<Type>(x + i, k), k, false);
      }
      met_nonfinite_ = met_nonfinite_ || !all_finite;
      return;
    }
    const double reach = p.abs_max * scale_;
    if (done != 0 && p.abs_max != 0 &&
        (reach > 0x1p20 || reach < 0x1p-20 || PivotIsFar(p, static_cast<double>(done), 16))) {
      scale_for_ = p.abs_max;
      SetScale();
      pivot = static_cast<float>(MeanOf(p, pivot, static_cast<double>(done), 1.0));
      p = Partial();
      Type::kFast(x, m, pivot, scale_, expect_zeros_, nullptr, nullptr, nullptr, &p, &all_finite);
    }
    if (done != m) {
      const float* tail = Widened<Type>(x + done, m - done);
      ExactF32(tail, m - done, pivot, &p);
    }
    totals_.Add(p, m, pivot);
    const auto finite = static_cast<double>(m - p.nan - p.pos_inf - p.neg_inf);
    pivot_ = MeanOf(p, pivot, finite, 1.0);
    if (done != 0) scale_for_ = p.abs_max;
  }

  template <class Type>
  void CountChunks(const typename Type::Word* x, size_t n, bool with_subnormals) {
    for (size_t i = 0; i < n; i += kChunk) {
      const size_t k = std::min(kChunk, n - i);
      CountFloats(Widened<Type>(x + i, k), k, with_subnormals, &t_->floats);
    }
  }

  // Amid a tensor, of whose range its last block is not yet a part.
  void FoldPairs() { Fold(t_->pairs.get(), 0, std::numeric_limits<float>::max(), &t_->floats); }

  // A window pays while nearly everything is inside it. One that has become a bad one is moved, pairs at most
  // every eighth block since a fold costs as much as half of one; data too wide for any window is counted one
  // by one for a while.
  void ReviewWindow(size_t n, double abs_max) {
    ++blocks_since_fold_;
    if (use_pairs_ && t_->pairs->elements >= PairCounter::kFoldAfter) FoldPairs();
    if (t_->slices.counted >= SliceCounter::kFoldAfter) Fold(&t_->slices, &t_->floats);
    if (t_->floats.outside_count < n / 8) return;
    plain_blocks_ = 16;
    if (blocks_since_fold_ < (use_slices_ ? 2 : 8) || !std::isfinite(abs_max) || abs_max == 0) return;
    if (use_slices_) Fold(&t_->slices, &t_->floats);
    if (use_pairs_) FoldPairs();
    MoveWindow(abs_max);
    blocks_since_fold_ = 0;
    plain_blocks_ = 0;
  }

  Tables* t_;
  const bool histogram_;
  const bool use_slices_;
  const bool use_pairs_;
  const double wide_scale_;
  Totals totals_;
  double pivot_ = 0;
  float scale_ = 1;
  double scale_for_ = 0;  // the largest magnitude that scale_ is to be made for; 0: it stays
  bool wide_ = false;
  bool have_pivot_ = false;
  bool have_scale_ = false;
  bool have_window_ = false;
  bool met_nonfinite_ = false;
  bool expect_zeros_ = false;  // the block before had some
  int plain_blocks_ = 0;
  int blocks_since_fold_ = 0;
  uint64_t counted_ = 0;
};

void Fill(const Totals& t, uint64_t times, double scale, Summary* s) {
  *s = Summary();
  s->count = t.elements * times;
  s->nan_count = t.nan * times;
  s->pos_inf_count = t.pos_inf * times;
  s->neg_inf_count = t.neg_inf * times;
  s->zero_count = t.zero * times;
  if (s->finite_count() == 0) return;
  const Moments& m = t.moments;
  const double unit = 1.0 / scale;
  // -0.0 + 0.0 is +0.0: which zero comes first would otherwise depend on the vector width.
  s->min = t.min + 0.0;
  s->max = t.max + 0.0;
  s->abs_min = t.zero != 0 ? 0.0 : t.abs_min_nonzero;
  s->abs_max = t.abs_max;
  const double variance = m.m2 / m.n;
  s->mean = m.mean * unit;
  s->variance = variance * unit * unit;
  s->m3 = m.m3 / m.n * unit * unit * unit;
  s->m4 = m.m4 / m.n * unit * unit * unit * unit;
  s->l1 = t.l1 * unit * static_cast<double>(times);
  // No sum of squares is kept: n (variance + mean^2) is one, and its two terms cannot cancel.
  s->l2 = std::sqrt(m.n * static_cast<double>(times)) * std::sqrt(variance + m.mean * m.mean) * unit;
}

}  // namespace

Summarizer::Summarizer() : scratch_(new Scratch()) {}
Summarizer::~Summarizer() = default;
Summarizer::Summarizer(Summarizer&&) noexcept = default;
Summarizer& Summarizer::operator=(Summarizer&&) noexcept = default;

Status Summarizer::Summarize(const TensorView& x, Summary* summary, Histogram* histogram) {
  if (!HasStatistics(x.dtype)) {
    return Unimplemented("no statistics for dtype " + std::string(DTypeName(x.dtype)));
  }
  *summary = Summary();
  if (histogram != nullptr) histogram->clear();
  if (x.element_count() == 0) return OkStatus();

  // There was no memory for the histogram of an earlier tensor: what the counters hold is not this one's.
  if (std::exchange(scratch_->in_use, true)) {
    std::destroy_at(scratch_.get());
    std::construct_at(scratch_.get())->in_use = true;
  }
  UnorderedWalk walk;
  if (x.strides.empty()) {  // most tensors, and of small ones the walk would be a good part
    walk.data = static_cast<const std::byte*>(x.data);
    walk.axes.push_back({x.element_count(), 1});
  } else {
    walk = MakeUnorderedWalk(x);
  }
  const size_t item_size = ItemSize(x.dtype);
  const int64_t elements = walk.element_count();
  const auto times = static_cast<uint64_t>(walk.multiplicity);
  // A kernel's loads may be unaligned to the vector, not to the element: C++ forbids it.
  const bool aligned = reinterpret_cast<uintptr_t>(walk.data) % item_size == 0;
  const FloatingPointMode mode(x.dtype != DType::kFloat64);

  const auto run = [&](Pass<Scratch>* pass) {
    if (walk.contiguous() && aligned) {
      constexpr int64_t kStretch = int64_t{1} << 30;
      for (int64_t i = 0; i < elements; i += kStretch) {
        pass->Dense(x.dtype, walk.data + static_cast<size_t>(i) * item_size,
                    static_cast<size_t>(std::min(kStretch, elements - i)));
        pass->SpillIfDue(times);
      }
      return;
    }
    RunReader reader(walk.data, walk.axes, item_size);
    while (const size_t n = reader.Read(scratch_->gathered, kChunk)) {
      pass->Dense(x.dtype, scratch_->gathered, n);
      pass->SpillIfDue(times);
    }
  };

  Pass<Scratch> pass(scratch_.get(), histogram != nullptr, elements, 1.0);
  run(&pass);
  if (histogram != nullptr) pass.TakeHistogram(times, histogram);
  scratch_->in_use = false;
  const double abs_max = pass.totals().abs_max;
  if (x.dtype == DType::kFloat64 && abs_max != 0 && (abs_max > 0x1p240 || abs_max < 0x1p-240)) {
    // Fourth powers of these leave the range of a double; in a unit near their own they do not.
    const double scale = ReciprocalPowerOfTwo(abs_max, 1022);
    Pass<Scratch> again(scratch_.get(), false, elements, scale);
    run(&again);
    Fill(again.totals(), times, scale, summary);
    return OkStatus();
  }
  Fill(pass.totals(), times, 1.0, summary);
  return OkStatus();
}

}  // namespace tdbg

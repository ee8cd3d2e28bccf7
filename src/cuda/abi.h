// What the host and the kernels agree on: every byte that passes between them, and how a launch is made.
//
// Compiled for the host, for the device and, in tests, for the host in the device's place; hence no header
// but <cstdint> and nothing that allocates. A change of anything here is a change of kAbiVersion; the
// committed image says for which version it was made (image.h).
#pragma once

#include <cstdint>

namespace tdbg::cuda {

inline constexpr uint32_t kAbiVersion = 2;

// ---- Geometry
// ----------------------------------------------------------------------------------------------------

inline constexpr uint32_t kThreads = 256;  ///< of every block of every kernel; no dynamic shared memory
inline constexpr uint32_t kWarps = kThreads / 32;
/// Elements that one block summarises: 240 a thread, so that a float32 accumulator of four sees at most 60
/// additions; a multiple of 16 bytes in every element type.
inline constexpr uint32_t kChunk = kThreads * 240;
/// Pointers that travel as a kernel argument. 4,096 bytes of arguments are what every driver takes (32,764
/// only from CUDA 12.1 on, and a module with such a kernel is refused whole by the others); a plan of more
/// tensors is several launches.
inline constexpr uint32_t kPointers = 448;
/// Elements of one tensor: counters are of 32 bits. What is larger is passed as several tensors and merged
/// (`Merge`, `MergeHistograms`).
inline constexpr uint64_t kMaxElements = 0xffffffffu;
/// Bytes of a tensor that travels as it is (kValues): a loss, a scalar, `found_inf`.
inline constexpr uint32_t kMaxValueBytes = 256;

// ---- Element types
// -----------------------------------------------------------------------------------------------

/// tdbg::DType's numbers (tdbg/tensor.h), by which `Tensor::dtype` names a type.
///
/// Statistics are those of stats::Summarizer of the same elements. float8 (which that refuses) means the
/// values of Float8ToFloat; complex types mean |x|, as stats is given it (tensor/magnitude.h). No statistics
/// of anything else.
enum ElementCode : uint32_t {
  kBool = 1,
  kUInt8 = 2,
  kInt8 = 3,
  kUInt16 = 4,
  kInt16 = 5,
  kUInt32 = 6,
  kInt32 = 7,
  kUInt64 = 8,
  kInt64 = 9,
  kFloat16 = 10,
  kBFloat16 = 11,
  kFloat32 = 12,
  kFloat64 = 13,
  kComplex64 = 14,
  kComplex128 = 15,
  kFloat8E4M3FN = 16,
  kFloat8E5M2 = 17,
  kFloat8E4M3FNUZ = 18,
  kFloat8E5M2FNUZ = 19,
};

/// Types of one kind are summarised by one kernel: what a block needs decides how many of them a
/// multiprocessor holds.
enum class Family : uint32_t {
  kFloat = 0,   ///< float32
  kHalf = 1,    ///< bfloat16, float16
  kByte = 2,    ///< all types of one byte: a chunk is its 256 counts
  kDouble = 3,  ///< everything else: summed in float64
};
inline constexpr uint32_t kFamilies = 4;

constexpr bool IsSummarized(uint32_t code) { return code >= kBool && code <= kFloat8E5M2FNUZ; }
/// \pre IsSummarized(code)
constexpr Family FamilyOf(uint32_t code) {
  switch (code) {
    case kFloat32:
      return Family::kFloat;
    case kFloat16:
    case kBFloat16:
      return Family::kHalf;
    case kBool:
    case kUInt8:
    case kInt8:
    case kFloat8E4M3FN:
    case kFloat8E5M2:
    case kFloat8E4M3FNUZ:
    case kFloat8E5M2FNUZ:
      return Family::kByte;
    default:
      return Family::kDouble;
  }
}
constexpr uint32_t ItemBytes(uint32_t code) {
  switch (code) {
    case kUInt16:
    case kInt16:
    case kFloat16:
    case kBFloat16:
      return 2;
    case kUInt32:
    case kInt32:
    case kFloat32:
      return 4;
    case kUInt64:
    case kInt64:
    case kFloat64:
    case kComplex64:
      return 8;
    case kComplex128:
      return 16;
    default:
      return FamilyOf(code) == Family::kByte ? 1 : 0;
  }
}

// ---- Histograms
// --------------------------------------------------------------------------------------------------

/// A histogram is counted in bins, one for each bucket that a type can have, in ascending order of buckets:
/// the negative ones by falling magnitude, then the positive ones. tdbg/summary.h says which bucket a value
/// has; k = 4e + m.
///
/// Float32, and whatever widens to it, has 149 octaves more below 1 than doubles of its range need: k from
/// -596 to 511.
struct Bins {
  int32_t smallest_k;
  uint32_t of_a_sign;  ///< bins of the negative values; as many of the positive
  uint32_t padded;     ///< bins in memory, a multiple of 32
  uint32_t masks;      ///< words in front of them: a bit for each 32 bins, set where one of them is not 0

  constexpr uint32_t words() const { return masks + padded; }
  constexpr uint32_t bin_of(bool negative, int32_t k) const {
    const auto i = static_cast<uint32_t>(k - smallest_k);
    return negative ? of_a_sign - 1 - i : of_a_sign + i;
  }
  /// Summary.h's number of the bucket.
  constexpr int32_t bucket_of(uint32_t bin) const {
    return bin < of_a_sign ? -(smallest_k + static_cast<int32_t>(of_a_sign - 1 - bin) + 4301)
                           : smallest_k + static_cast<int32_t>(bin - of_a_sign) + 4301;
  }
};
inline constexpr Bins kNarrowBins = {4 * -149, 4 * (149 + 128), 2240, 4};
inline constexpr Bins kWideBins = {4 * -1074, 4 * (1074 + 1024), 16800, 20};
constexpr const Bins& BinsOf(uint32_t code) {
  return code == kFloat64 || code == kComplex64 || code == kComplex128 ? kWideBins : kNarrowBins;
}

// ---- What is on the device
// ---------------------------------------------------------------------------------------

enum TensorFlag : uint32_t {
  kStatistics = 1,  ///< a row
  kHistogram = 2,   ///< and its buckets; with kStatistics only
  kValues = 4,      ///< the elements themselves, of at most kMaxValueBytes; alone or with a row
};

/// One tensor of a plan: dense in memory, in any order of axes. At any address that its type may have (a
/// view's, too).
struct Tensor {
  uint64_t n;              ///< elements; 0 is fine
  uint32_t code;           ///< ElementCode
  uint32_t flags;          ///< TensorFlag
  uint32_t first_partial;  ///< its chunks' partials are next to each other
  uint32_t chunks;         ///< ChunksOf(n)
  uint32_t table;          ///< kHistogram: first word of its masks and bins in Plan::tables
  uint32_t values;         ///< kValues: first byte in a slot's values, a multiple of 16
};
/// At least one: an empty tensor and one of a few values have a block that says so.
constexpr uint32_t ChunksOf(uint64_t n) {
  return n == 0 ? 1 : static_cast<uint32_t>((n + kChunk - 1) / kChunk);
}

/// What one block of `summarize` does.
struct Chunk {
  uint32_t tensor;  ///< of the plan
  uint32_t index;   ///< of the tensor's chunks
};

/// What a chunk came to, or chunks together (device/merge.cuh). Moments are central sums of x / 2^exponent.
struct Partial {
  double mean, m2, m3, m4, l1;
  double min, max, abs_min, abs_max;  ///< of the finite elements, in their own unit
  uint32_t finite, nan, pos_inf, neg_inf, zero;
  int16_t exponent;
  uint16_t redone;   ///< chunks that were summed again, in float64
  uint32_t present;  ///< 0: the tensor's pointer was null
  uint32_t arrived;  ///< of a group's first: how many of its chunks are there so far; 0 between steps
};

/// A derived statistic (tdbg/statistic.h) of a dense tensor seen as [outer, units, inner]: per unit the sum,
/// or how many elements x have above < x <= at_most. 64-bit integers are rounded to double first.
/// value_counts is one of these with units = 1 for each of its values: above = nextafter(v, -inf), at_most =
/// v.
struct Derived {
  uint64_t outer, units, inner;  ///< outer * units * inner elements, up to kMaxElements
  double above, at_most;
  uint32_t tensor;      ///< of the plan: pointer and type
  uint32_t kind;        ///< DerivedKind
  uint32_t result;      ///< first double of its `units` in a slot's derived values
  uint32_t first_part;  ///< of Plan::parts: `slices` rows of `units`
  uint32_t slices;      ///< pieces of its outer and inner extents, summed in their order
  uint32_t outer_a_slice, inner_a_slice;
  uint32_t units_a_block;
};
enum DerivedKind : uint32_t { kSums = 0, kCounts = 1 };
/// What one block of `derive` does.
struct Tile {
  uint32_t derived;
  uint32_t slice;
  uint64_t first_unit;
};

/// The device's own state of a plan. All 0 at first.
struct State {
  uint64_t delivered;  ///< slots written so far: the next has sequence `delivered + 1`
  uint32_t buckets;    ///< packed into the slot under way
  uint32_t arrived;    ///< blocks of `deliver` that are through
};

/// The same argument of every kernel of a plan; all addresses are the device's. layout.h fills it in.
struct Plan {
  const Tensor* tensors;
  const Chunk* chunks;
  const Derived* derived;
  const Tile* tiles;
  Partial* partials;
  uint32_t* tables;       ///< masks and bins; 0 between steps
  unsigned char* values;  ///< of kValues, on their way into the slot
  double* parts;          ///< of derived statistics
  State* state;
  unsigned char* ring;  ///< `slots` slots in pinned, mapped host memory
  uint64_t slot_bytes;
  uint32_t slots;
  uint32_t tensor_count;
  uint32_t derived_count;
  uint32_t derived_values;   ///< doubles of all derived statistics
  uint32_t value_bytes;      ///< of all kValues
  uint32_t bucket_capacity;  ///< of a slot
  uint32_t table_words;
  uint32_t padding;
};

/// The tensors of one launch: of tensor `first_tensor + i`. Null: absent in this step, its row says so.
struct Pointers {
  const void* p[kPointers];
};

/// What is different in each launch of a plan's step.
struct Launch {
  uint32_t first_tensor;  ///< that pointers.p[0] is
  uint32_t first_block;   ///< of Plan::chunks (summarize) or Plan::tiles (derive) that block 0 does
  uint32_t begins;        ///< 1 in the first launch of a step: marks the slot as being written
  uint32_t padding;
};

// ---- What arrives
// ------------------------------------------------------------------------------------------------

/// A slot: SlotHeader, Row[tensors], double[derived_values], bytes of values, Bucket[buckets]; offsets below.
///
/// How the host reads one: wait until `sequence` (acquire) is the number that is due, copy what is wanted
/// out, fence (acquire), then compare `begun` with it. Not equal: the device went once around the ring and
/// was writing here again (captured graphs replay without asking); the copy is worthless and the steps
/// between are lost, to be counted. The n-th step that the device carries out has sequence n and lies in slot
/// (n - 1) % slots.
struct SlotHeader {
  uint64_t sequence;  ///< written last, with a system-wide fence before it; 0: never
  uint64_t begun;     ///< the sequence of what is, or was, written into this slot
  uint64_t tag;       ///< `deliver`'s argument: what the host calls the step, or the captured graph
  uint64_t clock;     ///< the device's %globaltimer at the end, ns
  uint32_t version;   ///< kAbiVersion
  uint32_t tensors;   ///< rows
  uint32_t buckets;   ///< of all tensors; more than the capacity: some rows say kBucketsLost
  uint32_t padding[5];
};

enum RowFlag : uint32_t {
  kPresent = 1,
  kBucketsLost = 2,  ///< no room in the slot: the row is right, `bucket_count` too, the buckets are not there
};

/// The columns of tdbg::Summary, in its order and with its meaning: without finite elements the doubles are
/// NaN; an empty tensor has counts of 0. Of an absent tensor everything is 0. Without kStatistics only
/// `flags` and `count` mean anything.
struct Row {
  uint64_t count, nan_count, pos_inf_count, neg_inf_count, zero_count;
  double min, max, mean, variance, m3, m4, l1, l2, abs_min, abs_max;
  uint32_t first_bucket;   ///< of the slot's; where depends on which block came first
  uint32_t bucket_count;   ///< ascending by bucket, counts > 0
  uint32_t flags;          ///< RowFlag
  uint32_t redone_chunks;  ///< that were summed twice: NaN, infinities, far-off magnitudes
};

/// tdbg::HistogramBucket.
struct Bucket {
  int32_t bucket;
  uint32_t count;
};

constexpr uint64_t RowsAt() { return sizeof(SlotHeader); }
constexpr uint64_t DerivedAt(uint64_t tensors) { return RowsAt() + tensors * sizeof(Row); }
constexpr uint64_t ValuesAt(uint64_t tensors, uint64_t derived_values) {
  return (DerivedAt(tensors) + derived_values * sizeof(double) + 15) / 16 * 16;
}
constexpr uint64_t BucketsAt(uint64_t tensors, uint64_t derived_values, uint64_t value_bytes) {
  return ValuesAt(tensors, derived_values) + (value_bytes + 15) / 16 * 16;
}
constexpr uint64_t SlotBytes(uint64_t tensors, uint64_t derived_values, uint64_t value_bytes,
                             uint64_t bucket_capacity) {
  return (BucketsAt(tensors, derived_values, value_bytes) + bucket_capacity * sizeof(Bucket) + 255) / 256 *
         256;
}

// ---- Kernels
// -----------------------------------------------------------------------------------------------------

/// Arguments in their order, as cuLaunchKernel's kernelParams; every block is kThreads x 1 x 1 with no
/// dynamic shared memory, and every grid g x 1 x 1.
///
///   kSummarize[family]  Pointers, Plan, Launch      g: chunks of the launch
///   kDerive             Pointers, Plan, Launch      g: tiles of the launch
///   kDeliver            Plan, uint64_t tag          g: max(1, tensor_count)
///   kReset              Plan                        g: 1 to 256, as wide as one likes
///   kReadOnly           const void*, uint64_t bytes, uint32_t*   what memory can do, for benchmarks; g: any
///
/// A step is the launches of layout.h in their order, on ONE stream, and kDeliver last. Nothing else is
/// needed: no copy, no event, no argument that counts (the sequence is the device's). So the same launches
/// can be captured into a CUDA graph, and each replay delivers by itself; pointers are what they were at the
/// capture. Two streams, or a capture and eager steps that may overlap, need a plan each.
///
/// A launch that failed: what was launched before it has counted into the tables without a delivery. Launch
/// kReset before the plan is used again; the step has no sequence. Launches that were captured and never
/// replayed have done nothing.
inline constexpr const char* kSummarize[kFamilies] = {"tdbg_summarize_float", "tdbg_summarize_half",
                                                      "tdbg_summarize_byte", "tdbg_summarize_double"};
inline constexpr const char* kDerive = "tdbg_derive";
inline constexpr const char* kDeliver = "tdbg_deliver";
inline constexpr const char* kReset = "tdbg_reset";
inline constexpr const char* kReadOnly = "tdbg_read_only";

static_assert(sizeof(Tensor) == 32 && sizeof(Chunk) == 8 && sizeof(Partial) == 104 && sizeof(Derived) == 72 &&
              sizeof(Tile) == 16);
static_assert(sizeof(State) == 16 && sizeof(Plan) == 120 && sizeof(Launch) == 16);
static_assert(sizeof(SlotHeader) == 64 && sizeof(Row) == 136 && sizeof(Bucket) == 8);
static_assert(sizeof(Pointers) + sizeof(Plan) + sizeof(Launch) <= 4096);
static_assert(kNarrowBins.padded >= 2 * kNarrowBins.of_a_sign &&
              kNarrowBins.masks * 32 >= kNarrowBins.padded / 32);
static_assert(kWideBins.padded >= 2 * kWideBins.of_a_sign && kWideBins.masks * 32 >= kWideBins.padded / 32);

}  // namespace tdbg::cuda

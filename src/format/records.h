// What a training process says about a step, independent of the file it lies in: the payloads that the
// journal frames and that segments lay out as columns. docs/format.md names every field as it is here.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "format/keys.h"
#include "tdbg/status.h"
#include "tdbg/summary.h"
#include "tdbg/tensor.h"

namespace tdbg::format {

/// Index of a tensor definition inside one worker of one attempt, dense from 0 in order of definition.
using TensorId = uint32_t;

/// Everything about a tensor that does not change from step to step. Written once when the name is first
/// seen; a change of dtype or shape is a new definition (a new id) under the same name.
struct TensorDef {
  TensorId id = 0;
  std::string name;        ///< canonical, smdebug's: "gradient/Net_conv1.weight"
  std::string short_name;  ///< "conv1.weight"; may be empty
  std::string kind;  ///< weight bias gradient loss output input optimizer scalar label ... ; what an adaptor
                     ///< says it is
  std::string module_kind;               ///< relu tanh sigmoid conv linear attention ...; empty if none
  std::vector<std::string> collections;  ///< resolved by the plan when the name was first seen, sorted
  std::vector<std::string> aliases;      ///< other names of the same storage (tied weights)
  DType dtype = DType::kInvalid;
  std::vector<int64_t> shape;  ///< as first seen; outputs may vary from step to step: see variable_shape
  bool variable_shape = false;
  int32_t unit_axis = -1;  ///< axis of units (channels, features); -1 if not known
  /// This worker has a part of the tensor (FSDP): `shape` of it from `part_begin` on, an index per axis of
  /// `whole_shape`. Both empty: it has all of it.
  std::vector<int64_t> whole_shape, part_begin;

  std::string ToJson() const;
  static Result<TensorDef> FromJson(std::string_view json);
};

/// One summary of one tensor. 152 bytes, stored as it is in the journal; columns in a segment.
struct SummaryRow {
  uint32_t tensor = 0;  ///< TensorId
  uint16_t sub = 0;     ///< SubKey::sub
  uint16_t point = 0;   ///< SubKey::point
  uint64_t count = 0;
  uint64_t nan_count = 0;
  uint64_t pos_inf_count = 0;
  uint64_t neg_inf_count = 0;
  uint64_t zero_count = 0;
  double min = 0, max = 0, mean = 0, variance = 0, m3 = 0, m4 = 0, l1 = 0, l2 = 0, abs_min = 0, abs_max = 0;
  uint32_t histogram_offset = 0;  ///< into the histogram bytes of the same record (journal) or segment
  uint32_t histogram_bytes = 0;   ///< EncodeHistogram's form; 0: no histogram was kept
  uint32_t level = 0;  ///< 0: one step. Higher levels (older rows merged) come with a later minor version
  uint32_t flags = 0;  ///< kRow...
  uint64_t reserved = 0;
};
static_assert(sizeof(SummaryRow) == 152);
inline constexpr uint32_t kRowHistogramShed = 1;    ///< it was due and did not fit
inline constexpr uint32_t kRowHistogramNotDue = 2;  ///< kept of this tensor, at other steps

SummaryRow ToRow(TensorId tensor, SubKey sub, const Summary& summary);
Summary FromRow(const SummaryRow& row);

/// One number of a numeric series (context such as a learning rate, a user's metric). 24 bytes.
struct ScalarRow {
  uint32_t tensor = 0;  ///< id of a TensorDef of kind "scalar"
  uint16_t sub = 0;
  uint16_t point = 0;
  double value = 0;
  uint64_t reserved = 0;
};
static_assert(sizeof(ScalarRow) == 24);

/// Makes a step visible. Fixed 64 bytes.
struct Commit {
  int64_t global_step = 0;  ///< kOutside: the last step before it
  int64_t mode_step = 0;
  int64_t wall_nanos = 0;
  int64_t monotonic_nanos = 0;
  uint32_t flags = 0;  ///< kCommit...
  uint16_t mode = 4;   ///< Mode
  uint16_t reserved16 = 0;
  uint32_t summary_rows = 0, scalar_rows = 0, raw_tensors = 0,
           shed = 0;  ///< what the step holds; what was dropped of it
  uint64_t reserved = 0;
};
static_assert(sizeof(Commit) == 64);
inline constexpr uint32_t kCommitSkipped = 1;  ///< AMP skipped the update: gradients are not judged
inline constexpr uint32_t kCommitOutside =
    2;  ///< not a step: the values recorded when the run ended (Point::kEnd)

/// Describes one raw tensor; its bytes follow, C order, 64-byte aligned in the journal.
struct RawHeader {
  uint32_t tensor = 0;
  uint16_t sub = 0;
  uint16_t point = 0;
  uint16_t dtype = 0;  ///< DType
  uint16_t rank = 0;   ///< <= kMaxRank; a tensor of higher rank is kept flattened and counted as unsupported
  uint32_t reserved32 = 0;
  int64_t shape[13] = {};
};
inline constexpr int kMaxRank = 13;
static_assert(sizeof(RawHeader) == 120);

/// Why something that was due is not there. Stored; never renumber. Texts in DropCauseText.
enum class DropCause : uint8_t {
  kRepeatedKey = 0,  ///< two values for one key of a step, the last is kept; the journal has no slot above 11
  kJournalFull = 1,  ///< the drain could not keep up and the policy is drop_raw
  kStepTooLarge = 2,   ///< one step's raw tensors exceed the journal
  kDiskFull = 3,       ///< ENOSPC, quota, file-size limit
  kDirectoryGone = 4,  ///< the run directory vanished or became read-only
  kIoError = 5,
  kBudget = 6,        ///< the budget in bytes thinned it
  kUnsupported = 7,   ///< a dtype, layout or device we cannot read
  kAdaptorError = 8,  ///< an exception in an adaptor
  kDeviceLate = 9,    ///< a device copy did not complete in time
  kDamaged = 10,      ///< found on reading: a checksum did not match
  kCrashed = 11,      ///< uncommitted when the process died
};
inline constexpr int kDropCauses = 12;
std::string_view DropCauseName(DropCause cause);  ///< "journal_full"
std::string_view DropCauseText(DropCause cause);  ///< one sentence: what happened and what to do

/// What was dropped. Kinds are shed in this order: raw, histogram, summary.
enum class DropKind : uint8_t { kRaw = 1, kHistogram = 2, kSummary = 3, kStep = 4 };
std::string_view DropKindName(DropKind kind);

/// One counter: (cause, kind) with the steps it spans. 48 bytes.
struct Drop {
  uint8_t cause = 0, kind = 0;
  uint16_t reserved16 = 0;
  uint32_t reserved32 = 0;
  uint64_t count = 0;  ///< tensors (or steps, for kStep)
  uint64_t bytes = 0;
  int64_t first_step = -1, last_step = -1;
  uint64_t reserved = 0;
};
static_assert(sizeof(Drop) == 48);

/// Structured context, written only when it changes: holds from `global_step` on.
struct ContextRecord {
  int64_t global_step = 0;
  std::string topic;  ///< "optimizer", "requires_grad", "environment", ...
  std::string json;
};
/// {"global_step":..., "topic":..., "value": <json>}: a kContext payload, and an item of a segment's
/// "context". A value that is no JSON, or nests deeper than kMaxValueDepth, becomes a string.
std::string ContextToJson(const ContextRecord& record);
Result<ContextRecord> ContextFromJson(std::string_view json);

}  // namespace tdbg::format

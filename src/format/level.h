// A file of coarse rows: 16 rows of one level merged into one of the next. docs/format.md, "Levels".
//
//   <worker>/levels/<level>-<first step>-<last step>.safetensors
//
//   group/    one row a group of steps, in order
//   summary/  as in a segment: one row for each tensor, place and mode of a group; the first group/rows
//             belong to the first group, and so on
//   over/     the same rows: over how many steps they tell, of how many something is to be said, and where
//   drawn/    the same rows: of each statistic that is drawn its extremes, its first and its last value
//
// Metadata (all strings): "tdbg" = JSON object {format, kind:"level", run, attempt, worker, writer_id, level,
// tensors:[TensorDef...], checksums:{key: hash}}; "tdbg_hash" as in a segment.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "format/columns.h"
#include "format/json_fields.h"
#include "format/records.h"
#include "tdbg/status.h"
#include "tdbg/summary.h"

namespace tdbg::format {

inline constexpr std::string_view kLevelsDir = "levels";
/// What a compactor writes is of this minor version of the format; what the training writes knows nothing of
/// it.
inline constexpr uint16_t kLevelsMinor = 3;
/// Held while somebody writes there; empty.
inline constexpr std::string_view kLevelsLockFile = "lock";
/// So many rows become one.
inline constexpr int kLevelRows = 16;
/// A file holds no higher one: 16^9 steps are more than there will be.
inline constexpr uint32_t kMaxLevel = 9;
/// Level 1 has no histograms: by default 16 steps have one or two, so it would only repeat them.
inline constexpr uint32_t kFirstLevelWithHistograms = 2;

// Of each: its name (the key is "<prefix>/<name>"), its type, what it says.
// clang-format off
#define TDBG_GROUP_COLUMNS(X)                                                                     \
  X(step_first, int64_t,  "the first global step that it tells of")                               \
  X(step_last,  int64_t,  "the last global step that it tells of")                                \
  X(steps,      uint64_t, "how many steps that is")                                               \
  X(wall_first, int64_t,  "when the first of them was committed, by the wall clock")              \
  X(wall_last,  int64_t,  "when the last of them was committed")                                  \
  X(shed,       uint64_t, "what was dropped of them")                                             \
  X(skipped,    uint64_t, "in how many of them AMP skipped the update")                           \
  X(rows,       uint64_t, "its rows of `summary/`, `over/` and `drawn/`")

// Places (`_at`) are steps, counted from the row's `summary/step_first`; 2^32 - 1: there is none.
#define TDBG_OVER_COLUMNS(X)                                                                      \
  X(mode,             uint16_t, "1 TRAIN, 2 EVAL, 3 PREDICT, 4 GLOBAL: of all its steps")         \
  X(rows,             uint32_t, "of how many rows of level 0 it is made; of the group's other steps they are missing") \
  X(nan_rows,         uint32_t, "of how many of them an element is NaN")                          \
  X(infinite_rows,    uint32_t, "of how many of them an element is infinite")                     \
  X(zero_rows,        uint32_t, "of how many of them all elements are zero")                      \
  X(nan_at,           uint32_t, "the first of those with a NaN")                                  \
  X(pos_inf_at,       uint32_t, "the first with +infinity")                                       \
  X(neg_inf_at,       uint32_t, "the first with -infinity")                                       \
  X(none_finite_at,   uint32_t, "the first with no finite element: its statistics are NaN")       \
  X(first_finite_at,  uint32_t, "the first with a finite element: the `_first` of `drawn/` are its") \
  X(last_finite_at,   uint32_t, "the last with a finite element: the `_last` of `drawn/` are its")

/// Of single rows, from the columns of summary/.
#define TDBG_DRAWN_STATISTICS(X)                                                                  \
  X(mean_abs,        "`l1` divided by the number of finite elements")                             \
  X(l2,              "`l2`")                                                                      \
  X(abs_max,         "`abs_max`")                                                                 \
  X(std,             "root of `variance`")                                                        \
  X(mean,            "`mean`")                                                                    \
  X(min,             "`min`")                                                                     \
  X(max,             "`max`")                                                                     \
  X(zero_share,      "`zero_count` divided by `count`")                                           \
  X(nonfinite_share, "elements that are not finite divided by `count`")
// clang-format on

enum class DrawnStatistic : uint8_t {
#define TDBG_DRAWN(name, ...) k_##name,
  TDBG_DRAWN_STATISTICS(TDBG_DRAWN)
#undef TDBG_DRAWN
};
inline constexpr auto kDrawnNames = std::to_array<std::string_view>({
#define TDBG_DRAWN(name, ...) #name,
    TDBG_DRAWN_STATISTICS(TDBG_DRAWN)
#undef TDBG_DRAWN
});
inline constexpr size_t kDrawnStatistics = kDrawnNames.size();
std::optional<DrawnStatistic> FindDrawn(std::string_view name);
/// Of one row; NaN where it has no finite element.
double DrawnValue(DrawnStatistic statistic, const Summary& row);

/// A flag of a commit, beside kCommitSkipped and kCommitOutside: its rows, or some of them, were dropped
/// because coarse rows tell of the step.
inline constexpr uint32_t kCommitThinned = 4;

/// No such step.
inline constexpr uint32_t kNowhere = ~uint32_t{0};

struct LevelGroup {
#define TDBG_COLUMN(name, type, ...) type name = 0;
  TDBG_GROUP_COLUMNS(TDBG_COLUMN)
#undef TDBG_COLUMN
};

/// One column for each of the lists above.
template <template <typename> typename Of>
struct GroupColumns {
#define TDBG_COLUMN(name, type, ...) Of<type> name{};
  TDBG_GROUP_COLUMNS(TDBG_COLUMN)
#undef TDBG_COLUMN
};
template <template <typename> typename Of>
struct OverColumns {
#define TDBG_COLUMN(name, type, ...) Of<type> name{};
  TDBG_OVER_COLUMNS(TDBG_COLUMN)
#undef TDBG_COLUMN
};
template <template <typename> typename Of>
struct DrawnColumns {
  Of<double> least{}, greatest{}, first{}, last{};  ///< of the finite values; least > greatest where none is
  Of<uint32_t> least_at{}, greatest_at{};           ///< where the first of them lies
};

/// What the metadata says.
struct LevelMeta {
  std::string run_id, worker;
  int64_t attempt = 0;
  uint64_t writer_id = 0;
  uint32_t level = 0;
  std::vector<TensorDef> tensors;  ///< those that have a row, with the ids that the rows have
};

/// A file's rows, as they are gathered.
template <typename T>
using LevelVector = std::vector<T>;
struct LevelContent {
  LevelMeta meta;
  GroupColumns<LevelVector> groups;
  SummaryColumns<LevelVector> summaries;
  OverColumns<LevelVector> over;
  std::array<DrawnColumns<LevelVector>, kDrawnStatistics> drawn;
  std::vector<uint8_t> histograms;
};
/// The whole file. \pre columns of one prefix are equally long, and group/rows add up to the others' length
std::string EncodeLevel(const LevelContent& content);

/// Calls f(key, column...) for each column of all lists, in the order in which docs/format.md has them.
template <typename F, typename... Of>
void ForEachLevelColumn(F&& f, Of&&... of) {
#define TDBG_COLUMN(name, ...) f(std::string_view("group/" #name), of.groups.name...);
  TDBG_GROUP_COLUMNS(TDBG_COLUMN)
#undef TDBG_COLUMN
#define TDBG_COLUMN(name, ...) f(std::string_view("summary/" #name), of.summaries.name...);
  TDBG_SUMMARY_COLUMNS(TDBG_COLUMN)
#undef TDBG_COLUMN
#define TDBG_COLUMN(name, ...) f(std::string_view("over/" #name), of.over.name...);
  TDBG_OVER_COLUMNS(TDBG_COLUMN)
#undef TDBG_COLUMN
  size_t at = 0;
#define TDBG_DRAWN(name, ...)                                                      \
  f(std::string_view("drawn/" #name "_least"), of.drawn[at].least...);             \
  f(std::string_view("drawn/" #name "_greatest"), of.drawn[at].greatest...);       \
  f(std::string_view("drawn/" #name "_first"), of.drawn[at].first...);             \
  f(std::string_view("drawn/" #name "_last"), of.drawn[at].last...);               \
  f(std::string_view("drawn/" #name "_least_at"), of.drawn[at].least_at...);       \
  f(std::string_view("drawn/" #name "_greatest_at"), of.drawn[at].greatest_at...); \
  ++at;
  TDBG_DRAWN_STATISTICS(TDBG_DRAWN)
#undef TDBG_DRAWN
}

/// "1-<20 digits>-<20 digits>.safetensors" and back.
struct LevelFileName {
  uint32_t level = 0;
  int64_t first_step = 0, last_step = 0;

  std::string ToString() const;
  static std::optional<LevelFileName> Parse(std::string_view name);
};

/// \param json  the metadata "tdbg"
/// \error kDataLoss; kUnimplemented  a newer major version
Result<LevelMeta> ParseLevelMeta(const Json& json, std::string_view file_name);

}  // namespace tdbg::format

// The plan: what is captured, decided before training starts and stored as plan.json.
//
// Resolving a user's configuration into a plan is done by the command line (or attach's helper process);
// the training process only reads the result. Pure: no I/O, no clock.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tdbg/statistic.h"
#include "tdbg/status.h"

namespace tdbg::plan {

inline constexpr int kModes = 5;  ///< indexed by the mode's number 1..4 (smdebug's); 0 unused

/// smdebug's SaveConfigMode, on the mode's own step:
///   due(s) = s in steps, or (start <= s < end and s % interval == 0).
struct Schedule {
  int64_t interval = 500;  ///< >= 1
  int64_t start = 0;
  int64_t end = -1;                 ///< exclusive; -1: never ends; 0: off
  std::vector<int64_t> steps = {};  ///< sorted
  bool Due(int64_t mode_step) const;
  friend bool operator==(const Schedule&, const Schedule&) = default;
};

/// One collection of the plan. A tensor belongs to it if its kind is listed, its name is listed, a regex
/// matches its name (searched), or the adaptor says so.
struct CollectionPlan {
  std::string name;
  std::vector<std::string> include_regex = {};
  /// KIND, KIND:MODULE_KIND ("output:relu"), "*" (everything), "@COLLECTION" (members of an earlier one),
  /// KIND?REGEX (name of a tensor of that kind whose module's kind is not known), ?REGEX (kind not known).
  std::vector<std::string> kinds = {};
  std::vector<std::string> tensor_names = {};
  bool keep = false;                         ///< its tensors are captured (else it is only a label)
  bool summaries = true;                     ///< kept: statistics at summaries_every
  bool histogram = true;                     ///< with the statistics, at histograms_every
  std::optional<Schedule> raw[kModes] = {};  ///< the steps that are saved; nothing: never
  bool raw_values = true;                    ///< kept: the tensor itself, at the steps that are saved
  bool summaries_when_saved = false;         ///< kept: statistics at the steps that are saved
  int64_t raw_max_elements = -1;             ///< values of tensors with at most so many elements; -1: of all
  std::vector<std::string> reductions =
      {};                   ///< smdebug's, explicitly asked for ("abs_mean"); answered from statistics
  bool save_shape = false;  ///< smdebug's: the shape is asked for, at the steps that are saved
  std::vector<Statistic> statistics =
      {};  ///< kept: derived ones, at summaries_every, with or without summaries
};

/// A histogram doubles what a pass over a tensor costs and triples what is written of it, and hardly anybody
/// looks at every one.
inline constexpr int64_t kHistogramsEvery = 10;

/// "5%" is 0.05; "none" is 0: no limit. Nothing: it is neither.
std::optional<double> ParseOverhead(std::string_view text);
inline constexpr char kOverheadAccepted[] = "a share of a step's time up to 100% (\"5%\"), or \"none\"";

struct Plan {
  int64_t summaries_every = 1;  ///< in steps of the mode; 0: off
  /// Interval in steps of the mode, for tensors with 256 elements or more; 0: none. Between these steps a
  /// tensor gets one when its numbers leave their recent range (src/capture/recent_range.h).
  int64_t histograms_every = kHistogramsEvery;
  bool context = true;
  std::string step_by = "optimizer";   ///< or "forward" (smdebug's), or "call" (tdbg.step())
  std::string when_full = "drop_raw";  ///< or "block"
  uint64_t journal_bytes = 256u << 20;
  std::string journal_directory;  ///< empty: in the run directory
  uint64_t budget_bytes = 8ull << 30;
  /// What black boxes (the step in which something became NaN or infinite) may take on the disk, in bytes;
  /// 0: none is written, and nothing is held for one.
  uint64_t black_box_bytes = 2ull << 30;
  /// What looking at tensors may take of a training's time, 0.05 being 5 %; 0: no limit.
  double overhead = 0.05;
  int64_t flight = 0;            ///< steps whose gradients a black box has beside its own; 0: none
  int64_t verify_every = 0;      ///< TRAIN steps of which one is executed again and compared; 0: never
  int64_t include_workers = -1;  ///< -1: all; 0: only rank 0 (smdebug's "one")
  int64_t shap_rows = 0;         ///< rows of which a boosting library computes SHAP values; 0: all
  bool record_end = true;        ///< final weights at point "end"
  bool allow_stop = true;
  /// A step in which something was due and nothing came is a step all the same. Off, as with smdebug: it
  /// is not.
  bool empty_steps = true;
  std::vector<CollectionPlan> collections;  ///< built-in ones first, then the user's

  std::string ToJson() const;
  /// \error kInvalidArgument, kUnimplemented (newer major)
  static Result<Plan> FromJson(std::string_view json);
  /// What `tdbg run` uses when nothing is configured: statistics of weights, biases, gradients, buffers,
  /// losses, metrics at every step, context, no raw tensors.
  static Plan Default();
};

/// What the plan says of one tensor, computed once when its name is first seen.
/// Bits are schedule groups of the CompiledPlan: group 0 is "statistics at summaries_every", kHistogramGroup
/// (plan/groups.h) "histograms at histograms_every", others are distinct save schedules.
struct TensorPlan {
  uint64_t summary_groups = 0;
  uint64_t raw_groups = 0;
  uint64_t histogram_groups = 0;         ///< with statistics that are due; 0: never
  std::vector<std::string> collections;  ///< sorted
  std::vector<Statistic> statistics;     ///< due with group 0, each once
  bool wanted() const { return (summary_groups | raw_groups) != 0 || !statistics.empty(); }
};

/// What the plan needs to know of a tensor.
struct TensorFacts {
  std::string_view name;
  std::string_view kind;
  std::string_view module_kind;
  const std::vector<std::string>* collections = nullptr;  ///< explicit memberships; may be null
  int64_t element_count = 0;
};

/// A plan with its regexes compiled and its schedules numbered.
class CompiledPlan {
 public:
  /// \error kInvalidArgument  names the collection and the regex; more than 61 distinct schedules
  static Result<CompiledPlan> Compile(Plan plan);
  const Plan& plan() const { return plan_; }
  TensorPlan Resolve(const TensorFacts& facts) const;
  /// Mask of the groups due at this step of this mode: one evaluation per distinct schedule, none per tensor.
  uint64_t DueGroups(int mode, int64_t mode_step) const;

 private:
  CompiledPlan() = default;
  struct Rep;
  Plan plan_;
  std::shared_ptr<const Rep> rep_;
};

}  // namespace tdbg::plan

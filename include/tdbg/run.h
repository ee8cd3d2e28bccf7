// Writing a run: what an adaptor, or a hand-written C++ training loop, calls. Start here to capture.
//
//   auto run = tdbg::Run::Open({.directory = "runs/a"});
//   auto w = run->Define({.name = "weight/fc", .kind = "weight", .dtype = DType::kFloat32,
//                         .shape = {128, 64}});
//   for (...) {
//     if (run->BeginStep(ModeKey::kTrain)) run->Put(w, view_of_fc);
//     ... update ...
//     run->EndStep();
//   }
//   run->End("completed");
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tdbg/dropped.h"
#include "tdbg/mode.h"
#include "tdbg/statistic.h"
#include "tdbg/status.h"
#include "tdbg/summary.h"
#include "tdbg/tensor.h"

namespace tdbg {

struct RunOptions {
  /// The run directory; created if it is not there. An existing run gets a further attempt.
  /// Empty means $TDBG_RUN, and if that is unset an error.
  std::string directory = {};
  /// plan.json's text. Empty: DIRECTORY/plan.json if there, else the default plan.
  std::string plan_json = {};
  int64_t rank = 0;
  int64_t world_size = 1;
  int64_t attempt = -1;  ///< -1: $TDBG_ATTEMPT, else the next one
  /// Global step at which this attempt begins: its steps replace those of earlier attempts from there on. 0
  /// without `step_base_from`: it is not stated, and the attempt begins behind all that earlier attempts have
  /// reached. All workers of an attempt begin where the first of them did: what another one states is not
  /// used then, and said on stderr and in its worker.json.
  int64_t step_base = 0;
  /// (mode, its own step at which this attempt begins). Without: TRAIN's is step_base, the others' 0.
  /// Not looked at where the attempt's beginning is not stated.
  std::vector<std::pair<ModeKey, int64_t>> mode_step_bases = {};
  /// Who says so, for people: "script", "metadata.json", "optimizer". Empty: nobody did.
  std::string step_base_from = {};
  /// How often the optimizer had been stepped when this attempt began; -1: not known. What a later attempt
  /// that goes by its optimizer counts from.
  int64_t optimizer_step = -1;
  std::string adaptor = {};  ///< "torch 2.13.0"
  std::vector<std::string> command = {};
  /// A second, unrelated training of the same command finds the worker's lock held: open "<directory>-2"
  /// instead of failing.
  bool sibling_if_locked = true;
  /// Where to begin looking: n > 1 passes over the directory and its siblings below "<directory>-n". A
  /// process that trains a second time begins at 2, so that its runs are numbered from the directory that was
  /// asked for (x-2, x-3), whatever the runs beside it belong to.
  int first_sibling = 1;
  /// The directory may hold other files, as smdebug's out_dir may. Else one that is no run is refused.
  bool among_other_files = false;
};

/// What an adaptor knows about a tensor when it first sees it.
struct TensorSpec {
  std::string name;  ///< canonical; UTF-8 without NUL
  std::string short_name = {};
  std::string kind = {};         ///< weight bias gradient loss output input optimizer scalar label prediction
  std::string module_kind = {};  ///< relu tanh sigmoid conv linear attention ...
  DType dtype = DType::kInvalid;
  std::vector<int64_t> shape = {};
  bool variable_shape = false;  ///< shape may differ from step to step (outputs)
  int unit_axis = -1;
  std::vector<std::string> aliases = {};
  std::vector<std::string> collections =
      {};  ///< the adaptor's or user's explicit memberships, on top of the plan's
  /// A script hands it over by name, where it wants it kept: its values are recorded at every Put, whatever
  /// the plan says (include_workers excepted).
  bool always = false;
  /// The worker has a part of the tensor: `shape` of it, which begins at `part_begin` in `whole_shape` (an
  /// index per axis). Readers take the parts of all workers together. Both empty: it has all of it.
  std::vector<int64_t> whole_shape = {};
  std::vector<int64_t> part_begin = {};
};

/// Place inside the step (docs/format.md): micro-step n is `sub = n + 1`; 0 is the step itself.
enum class StepPoint : uint16_t { kNone = 0, kEnd = 1, kBeforeClip = 2, kAfterClip = 3 };
struct Place {
  uint16_t sub = 0;
  StepPoint point = StepPoint::kNone;
};

/// What somebody asks of a running job: `tdbg stop`, `tdbg capture`, a rule with the action `stop`.
struct Request {
  std::string action;  ///< "stop", "capture" (what is to be captured is arranged already), "checkpoint"
  std::string json;    ///< all of it: docs/format.md, "The control file"
};

/// A run open for writing by one worker.
///
/// Never fails into training: after Open, whatever goes wrong is counted, reported once on stderr and in the
/// run, and the calls return quickly. Attached views are read during the call and not kept.
/// \threadsafety Internally locked: several training threads may call; the order of their calls is the order
/// kept. fork(): the child's copy is inert (its calls do nothing).
class Run {
 public:
  using Id = uint32_t;
  static constexpr Id kNotWanted = 0xffffffff;
  static constexpr uint8_t kWorthALook = 2;  ///< PutMany's `unchanged`

  /// \error kInvalidArgument (plan), kResourceExhausted (no room), kFailedPrecondition (locked),
  /// kUnimplemented
  static Result<std::unique_ptr<Run>> Open(const RunOptions& options);
  /// The attempt in which a worker of this rank would record if it opened the run now; -1: its place is
  /// taken, and it would get a run beside that one. Nothing is made or locked. `directory` is RunOptions'
  /// one.
  /// \error kInvalidArgument: no directory is said, or $TDBG_ATTEMPT is no number
  static Result<int64_t> NextAttempt(const std::string& directory, int64_t rank);
  ~Run();  ///< ends with reason "closed" unless End was called

  const std::string& directory() const;  ///< the run's, "-2" included
  int64_t attempt() const;
  /// Who says where the attempt begins: RunOptions::step_base_from, or what the first of its workers took;
  /// "behind" where it is not stated and earlier attempts have steps.
  const std::string& step_base_from() const;
  std::string plan_json() const;  ///< the plan that this run obeys

  /// How many threads of the calling thread's OpenMP team large batches of statistics may use (1 until
  /// called). Pass what the framework itself uses; without libgomp in the process nothing changes.
  /// $TDBG_STATS_THREADS wins.
  void ShareThreads(int threads);

  /// Does the plan ever want a tensor of this description? Lets an adaptor hook only what is asked for.
  bool Wants(const TensorSpec& spec) const;
  /// Registers a tensor, once. kNotWanted if the plan never wants it (Put with it does nothing).
  /// Again with the same name: the same id, or a new one if dtype or shape changed.
  Id Define(const TensorSpec& spec);
  /// A numeric series: context (learning rate, loss scale) or a user's metric.
  Id DefineScalar(std::string_view name, std::string_view collection = {});

  /// Opens the next step of `mode`. True if anything is due in it; where false, gathering tensors is a waste
  /// (Put would ignore them). Cost where nothing is due: a few instructions, whatever the model.
  bool BeginStep(ModeKey mode);
  /// From the next step on, statistics are due only at those steps of a mode that `every` divides (with
  /// the plan's own interval), at steps at which values are due, and while a request for more holds. For a
  /// caller that has measured that more would take too much of the training's time. The run says so.
  void LookEvery(int64_t every);
  /// Is anything of this tensor (statistics or raw bytes) due in the open step?
  bool Due(Id id) const;
  /// Statistics and, where due, the raw bytes. Outside an open step it belongs to the next one.
  void Put(Id id, const TensorView& view, Place place = {});
  /// The batched form: tensors of defined dtype and shape, C order, in host memory.
  /// \pre ids.size() == data.size(); data[i] null means "absent this step" and is skipped.
  /// \return whether anything that it looked at (or said again) is NaN or infinite: known for free, of what
  ///   has statistics at this step only.
  /// \param unchanged  empty, or one for each id. 1: its values are those of the last PutMany that said
  ///   of it whether it had changed; kWorthALook: nothing says that they are others, and it is looked at all
  ///   the same if there is time for it (docs/configuration.md, `overhead`). Else 0. Its statistics are then
  ///   said again without a look; raw bytes that are due are put down as ever, derived statistics take their
  ///   look, and so does a histogram that is due where the last look made none. data[i] may be null then: no
  ///   look, no bytes, and no histogram that would need a look. What such a call found is remembered: 200
  ///   bytes a tensor, and its histogram.
  bool PutMany(std::span<const Id> ids, std::span<const void* const> data, Place place = {},
               std::span<const uint8_t> unchanged = {});
  /// Statistics of a tensor of `elements`, of which all that are not in `values` are 0. Those that are there
  /// are each in it once. Raw bytes are not taken of it (PutRaw), nor derived statistics.
  void PutSparse(Id id, const TensorView& values, uint64_t elements, Place place = {});
  /// Are raw bytes of this tensor due at that step of the mode? For whoever has to fetch them ahead of it.
  bool RawDue(Id id, ModeKey mode, int64_t mode_step) const;
  /// Statistics computed elsewhere (a device). `histogram`: recorded where Put would take one; null: none was
  /// taken.
  void PutSummary(Id id, const Summary& summary, std::span<const HistogramBucket> histogram,
                  Place place = {});
  /// The raw bytes, where they are due, of a tensor whose statistics are put by PutSummary.
  void PutRaw(Id id, const TensorView& view, Place place = {});
  /// The derived statistics that are due of a tensor whenever its statistics are. Put and PutMany compute
  /// them; for a tensor whose statistics are computed elsewhere they are put one by one.
  std::vector<Statistic> Statistics(Id id) const;
  void PutStatistic(Id id, const Statistic& statistic, const StatisticValue& value, Place place = {});
  void PutScalar(Id id, double value, Place place = {});
  /// Structured context; written only if it differs from the last of its topic. `json` is an object.
  void PutContext(std::string_view topic, std::string_view json);

  /// Makes the step visible; when it returns the step survives the death of this process.
  /// \param skipped  the optimizer's update was skipped (AMP).
  /// Returns the global step that was closed (-1 if none was open).
  int64_t EndStep(bool skipped = false);
  /// Takes the open step back, because what was to be recorded failed: the next step gets its number. If
  /// something was already put into it, the step stays, and this is EndStep.
  void CancelStep();
  /// The open step is none after all: the training ended before an update came of it. Tensors that were put
  /// into it are not recorded, scalars at the end (point kEnd).
  void LeaveStep();
  int64_t global_step() const;  ///< of the open step, or of the last closed one; -1 before the first
  int64_t mode_step(ModeKey mode) const;

  /// Values recorded when the run ends (final weights): Put calls after this belong to point kEnd.
  void BeginEnd();
  /// Says goodbye: seals everything. `reason`: completed, exception, signal, stopped, closed. Of a long
  /// `message` the first 2,000 bytes or so are kept. Waits for the disk up to 30 s (a second where it
  /// refuses); what is not sealed by then is in the journal, what is not synced is synced while the process
  /// lives, or written by the kernel.
  void End(std::string_view reason, std::string_view message = {});

  /// The next request that is due at this step, if any. To be asked for after EndStep; the loop that is asked
  /// to stop ends the run with reason "stopped". Costs one load when there is none.
  std::optional<Request> TakeRequest();

  /// As a request for more would: statistics and, with `raw`, values of these collections' tensors in each of
  /// the next `steps` steps, whatever the schedules say. Only of tensors that the plan wants at all; what was
  /// asked for before no longer holds. \return how many tensors that are by now
  uint64_t CaptureMore(std::vector<std::string> collections, int64_t steps, bool raw);
  /// Counts what an adaptor could not capture, and says it once. `cause`: "adaptor_error", "unsupported",
  /// "device_late"; anything else is counted as an adaptor_error that names it.
  void CountDropped(std::string_view cause, uint64_t tensors, std::string_view detail);
  std::vector<DroppedInfo> dropped() const;
  /// Rows recorded so far: {steps, summaries, scalars, raw tensors, bytes sealed, summaries that were
  /// repeated}.
  struct Counters {
    uint64_t steps = 0, summaries = 0, scalars = 0, raws = 0, bytes_sealed = 0, repeats = 0;
  };
  Counters counters() const;
  /// After fork() in the child, or when an adaptor gives up: every call becomes a no-op; files are left
  /// alone.
  void Abandon();

 private:
  struct Impl;
  explicit Run(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tdbg

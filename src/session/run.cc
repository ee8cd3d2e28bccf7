#include "tdbg/run.h"

#include <fmt/format.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <exception>
#include <mutex>
#include <nlohmann/json.hpp>

#include "base/below.h"
#include "base/process.h"
#include "base/text.h"
#include "capture/recorder.h"
#include "capture/writer_sink.h"
#include "format/drop_details.h"
#include "session/claim.h"
#include "session/control.h"
#include "session/fork_guard.h"
#include "session/notices.h"
#include "store/writer/worker_writer.h"

namespace tdbg {
namespace {

using session::TellOnce;

constexpr int64_t kEndTimeoutNanos = 30'000'000'000;
constexpr uint64_t kStepsBetweenLooks = 256;      // at the writer's troubles
constexpr int64_t kMaxSteps = 1'000'000'000;      // of a request for more detail
constexpr uint64_t kIdleJournalBytes = 1u << 20;  // of a worker that captures nothing

/// $TDBG_STATS_THREADS, or what the caller offers.
int StatisticsThreads(int offered) {
  if (const char* text = ::getenv("TDBG_STATS_THREADS")) {
    if (const auto n = base::ParseInt(text); n && *n >= 1) return static_cast<int>(std::min<int64_t>(*n, 64));
    TellOnce("stats_threads",
             fmt::format("TDBG_STATS_THREADS=\"{}\" is not a number of threads; ignored", text));
  }
  return offered;
}

/// $TDBG_OVERHEAD in place of the plan's; no limit where there are several workers: each would measure for
/// itself and look at other steps than the others, and ranks could not be compared.
void DecideOverhead(int64_t world_size, plan::Plan* plan) {
  if (world_size > 1) {
    plan->overhead = 0;
    return;
  }
  const char* const text = ::getenv("TDBG_OVERHEAD");
  if (text == nullptr || *text == 0) return;
  if (const auto share = plan::ParseOverhead(text)) {
    plan->overhead = *share;
  } else {
    TellOnce("overhead", fmt::format("TDBG_OVERHEAD=\"{}\": expected {}; ignored", base::ToValidUtf8(text),
                                     plan::kOverheadAccepted));
  }
}

capture::RecorderOptions RecorderOptionsFor(const session::Claim& claim, bool inert) {
  capture::RecorderOptions options;
  options.first_step = claim.step_base;
  options.first_mode_steps = claim.mode_step_bases;
  options.inert = inert;
  return options;
}

std::optional<format::DropCause> CauseFromName(std::string_view name) {
  for (int i = 0; i < format::kDropCauses; ++i) {
    const auto cause = static_cast<format::DropCause>(i);
    if (format::DropCauseName(cause) == name) return cause;
  }
  return std::nullopt;
}

/// What a worker says at its end, in no more bytes than the journal keeps room for. Of a long message the
/// beginning is kept: `what` of a framework's exception may be a page, and its first lines say what it is.
std::string EndJson(std::string_view reason, std::string_view message, int64_t global_step, uint64_t steps) {
  constexpr size_t kMaxReasonBytes = 64;
  nlohmann::json json = {{"reason", base::ToValidUtf8(reason.substr(0, kMaxReasonBytes))},
                         {"global_step", global_step},
                         {"steps", steps}};
  message = message.substr(0, store::kMaxEndBytes);
  for (;; message = message.substr(0, message.size() * 3 / 4)) {  // escaped, a byte may become six
    json["message"] = base::ToValidUtf8(message);
    std::string text = json.dump();
    if (text.size() <= store::kMaxEndBytes) return text;
  }
}

DroppedInfo ToInfo(const format::Drop& drop, const format::DropDetails& details, const std::string& worker) {
  DroppedInfo info;
  const auto cause = static_cast<format::DropCause>(drop.cause);
  info.worker = worker;
  info.cause = format::DropCauseName(cause);
  info.kind = format::DropKindName(static_cast<format::DropKind>(drop.kind));
  info.text = details.Sentence(cause, static_cast<format::DropKind>(drop.kind));
  info.count = drop.count;
  info.bytes = drop.bytes;
  info.first_step = drop.first_step;
  info.last_step = drop.last_step;
  return info;
}

}  // namespace

struct Run::Impl final : session::ForkListener {
  Impl(session::Claim claim_in, std::unique_ptr<store::WorkerWriter> writer_in, plan::CompiledPlan plan,
       std::unique_ptr<session::Control> control_in, bool captures_nothing)
      : claim(std::move(claim_in)),
        allow_stop(plan.plan().allow_stop),
        writer(std::move(writer_in)),
        sink(writer.get()),
        control(std::move(control_in)),
        recorder(std::move(plan), &sink, RecorderOptionsFor(claim, captures_nothing)) {
    recorder.ShareThreads(StatisticsThreads(1));
    session::AddForkListener(this);
  }
  ~Impl() override { session::RemoveForkListener(this); }

  void OnForkedChild() noexcept override { Abandon(); }

  void Abandon() noexcept {
    inert.store(true, std::memory_order_relaxed);
    abandoned.store(true, std::memory_order_relaxed);
    writer->Abandon();
  }

  /// Under the lock, unless the run has ended or belongs to the parent process, whose other threads may have
  /// held the lock at the fork. Nothing that goes wrong inside comes out.
  template <typename R, typename Body>
  R Locked(R otherwise, Body body) {
    if (inert.load(std::memory_order_relaxed)) return otherwise;
    const std::lock_guard guard(mutex);
    if (inert.load(std::memory_order_relaxed)) return otherwise;
    try {
      return body();
    } catch (const std::exception& e) {  // std::bad_alloc is what can be
      writer->CountDropped(format::DropCause::kAdaptorError, format::DropKind::kSummary,
                           recorder.global_step(), 1, 0);
      recorder.Explain(format::DropCause::kAdaptorError, format::DropKind::kSummary, e.what());
      TellOnce("exception", fmt::format("capturing failed and goes on with the next tensor: {}", e.what()));
    }
    return otherwise;
  }
  template <typename Body>
  void Do(Body body) {
    Locked(0, [&] {
      body();
      return 0;
    });
  }

  void TellTroubles() {
    const Status error = writer->last_error();
    if (!error.ok()) {
      TellOnce("writer", fmt::format("{}; training goes on ({})", error.message(), claim.directory));
    }
    for (const format::Drop& drop : writer->dropped()) {
      const auto cause = static_cast<format::DropCause>(drop.cause);
      const auto kind = static_cast<format::DropKind>(drop.kind);
      if (cause == format::DropCause::kIoError) recorder.Explain(cause, kind, error.message());
      TellOnce(format::DropCauseName(cause),
               fmt::format("not everything is kept, since step {}: {} Dropped so far: {} {} ({})",
                           drop.first_step, recorder.drop_details().Sentence(cause, kind), drop.count,
                           format::DropKindName(kind), claim.directory));
    }
  }

  uint64_t CaptureMore(const std::string& request) {
    const auto json = nlohmann::json::parse(request, nullptr, /*allow_exceptions=*/false);
    std::vector<std::string> collections;
    if (const auto it = json.find("collections"); it != json.end() && it->is_array()) {
      for (const auto& name : *it) {
        if (name.is_string()) collections.push_back(name.get<std::string>());
      }
    }
    const auto steps = json.find("steps");
    const auto raw = json.find("raw");
    const int64_t n = steps != json.end() && steps->is_number_integer() ? steps->get<int64_t>() : 0;
    return CaptureMore(std::move(collections), n, raw != json.end() && *raw == true);
  }
  uint64_t CaptureMore(std::vector<std::string> collections, int64_t steps, bool raw) {
    return recorder.CaptureMore(std::move(collections), std::clamp<int64_t>(steps, 0, kMaxSteps), raw);
  }

  const session::Claim claim;
  const bool allow_stop;

  mutable std::mutex mutex;  // guards the rest
  std::unique_ptr<store::WorkerWriter> writer;
  capture::WriterSink sink;
  std::unique_ptr<session::Control> control;
  capture::Recorder recorder;

  std::atomic<bool> inert{false};      // ended or abandoned: calls do nothing
  std::atomic<bool> abandoned{false};  // not even the destructor may touch anything
};

Run::Run(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Run::~Run() {
  if (impl_ == nullptr) return;
  End("closed");
  // Joining threads that fork() did not copy would hang; closing the parent's files would harm it.
  if (impl_->abandoned.load(std::memory_order_relaxed)) (void)impl_.release();
}

Result<std::unique_ptr<Run>> Run::Open(const RunOptions& options) {
  base::FileSystem& files = base::LocalFileSystem();
  const base::Clock& clock = base::SystemClock();
  if (options.rank < 0 || options.world_size < 1) {
    return InvalidArgument(fmt::format("rank {} of {}: not a rank", options.rank, options.world_size));
  }
  TDBG_ASSIGN_OR_RETURN(session::Claim claim, session::ClaimDirectory(options, files, clock));
  DecideOverhead(options.world_size, &claim.plan);
  TDBG_ASSIGN_OR_RETURN(plan::CompiledPlan plan, plan::CompiledPlan::Compile(claim.plan));
  const bool captures_nothing = claim.plan.include_workers >= 0 && claim.plan.include_workers != options.rank;

  store::WriterOptions writer_options;
  writer_options.files = &base::FilesBelow(files, claim.directory);
  writer_options.worker_directory = claim.worker_directory;
  writer_options.journal_path = claim.journal_path;
  writer_options.worker.worker = claim.worker;
  writer_options.worker.rank = options.rank;
  writer_options.worker.world_size = options.world_size;
  writer_options.worker.step_base = claim.step_base;
  writer_options.worker.step_base_from = claim.step_base_from;
  for (const auto& [mode, step] : claim.mode_step_bases)
    writer_options.worker.mode_step_bases[std::string(format::ModeName(static_cast<format::Mode>(mode)))] =
        step;
  writer_options.worker.step_base_said = claim.step_base_said;
  if (options.optimizer_step >= 0) writer_options.worker.optimizer_step = options.optimizer_step;
  writer_options.worker.pid = static_cast<uint32_t>(::getpid());
  writer_options.worker.host = base::HostName();
  writer_options.worker.boot_id = base::BootId();
  writer_options.worker.started_wall_nanos = clock.WallNanos();
  writer_options.worker.adaptor = options.adaptor;
  writer_options.run_id = claim.run_id;
  writer_options.attempt = claim.attempt;
  writer_options.earlier_directories = claim.earlier;
  writer_options.when_full =
      claim.plan.when_full == "block" ? store::WhenFull::kBlock : store::WhenFull::kDropRaw;
  writer_options.journal_bytes =
      captures_nothing ? std::min(kIdleJournalBytes, claim.plan.journal_bytes) : claim.plan.journal_bytes;
  writer_options.budget_bytes = claim.plan.budget_bytes;
  TDBG_ASSIGN_OR_RETURN(std::unique_ptr<store::WorkerWriter> writer,
                        store::WorkerWriter::Open(writer_options));
  claim.opening.reset();

  auto control = session::Control::Open(
      files, base::JoinPath(claim.directory, std::string(format::kControlFile)), claim.attempt);
  if (!control.ok()) {  // a run that cannot be stopped from outside is better than none
    TellOnce("control", control.status().message());
    control = std::unique_ptr<session::Control>();
  }
  auto impl = std::make_unique<Impl>(std::move(claim), std::move(writer), std::move(plan),
                                     *std::move(control), captures_nothing);
  return std::unique_ptr<Run>(new Run(std::move(impl)));
}

Result<int64_t> Run::NextAttempt(const std::string& directory, int64_t rank) {
  return session::NextAttempt(directory, rank, base::LocalFileSystem());
}

const std::string& Run::directory() const { return impl_->claim.directory; }
const std::string& Run::step_base_from() const { return impl_->claim.step_base_from; }
int64_t Run::attempt() const { return impl_->claim.attempt; }
std::string Run::plan_json() const { return impl_->claim.plan.ToJson(); }

void Run::ShareThreads(int threads) {
  impl_->Do([&] { impl_->recorder.ShareThreads(StatisticsThreads(threads)); });
}

bool Run::Wants(const TensorSpec& spec) const {
  return impl_->Locked(false, [&] { return impl_->recorder.Wants(spec); });
}

Run::Id Run::Define(const TensorSpec& spec) {
  return impl_->Locked(kNotWanted, [&] { return impl_->recorder.Define(spec); });
}

Run::Id Run::DefineScalar(std::string_view name, std::string_view collection) {
  return impl_->Locked(kNotWanted, [&] { return impl_->recorder.DefineScalar(name, collection); });
}

bool Run::BeginStep(ModeKey mode) {
  return impl_->Locked(false, [&] { return impl_->recorder.BeginStep(mode); });
}

void Run::LookEvery(int64_t every) {
  impl_->Do([&] { impl_->recorder.LookEvery(every); });
}

bool Run::Due(Id id) const {
  return impl_->Locked(false, [&] { return impl_->recorder.Due(id); });
}

void Run::Put(Id id, const TensorView& view, Place place) {
  impl_->Do([&] { impl_->recorder.Put(id, view, place); });
}

bool Run::PutMany(std::span<const Id> ids, std::span<const void* const> data, Place place,
                  std::span<const uint8_t> unchanged) {
  return impl_->Locked(false, [&] { return impl_->recorder.PutMany(ids, data, place, unchanged); });
}

void Run::PutSparse(Id id, const TensorView& values, uint64_t elements, Place place) {
  impl_->Do([&] { impl_->recorder.PutSparse(id, values, elements, place); });
}

bool Run::RawDue(Id id, ModeKey mode, int64_t mode_step) const {
  return impl_->Locked(false, [&] { return impl_->recorder.RawDue(id, mode, mode_step); });
}

void Run::PutSummary(Id id, const Summary& summary, std::span<const HistogramBucket> histogram, Place place) {
  impl_->Do([&] { impl_->recorder.PutSummary(id, summary, histogram, place); });
}

void Run::PutRaw(Id id, const TensorView& view, Place place) {
  impl_->Do([&] { impl_->recorder.PutRaw(id, view, place); });
}

std::vector<Statistic> Run::Statistics(Id id) const {
  return impl_->Locked(std::vector<Statistic>(), [&] { return impl_->recorder.Statistics(id); });
}

void Run::PutStatistic(Id id, const Statistic& statistic, const StatisticValue& value, Place place) {
  impl_->Do([&] { impl_->recorder.PutStatistic(id, statistic, value, place); });
}

void Run::PutScalar(Id id, double value, Place place) {
  impl_->Do([&] { impl_->recorder.PutScalar(id, value, place); });
}

void Run::PutContext(std::string_view topic, std::string_view json) {
  impl_->Do([&] { impl_->recorder.PutContext(topic, json); });
}

int64_t Run::EndStep(bool skipped) {
  return impl_->Locked(int64_t{-1}, [&] {
    const int64_t closed = impl_->recorder.EndStep(skipped);
    if (impl_->recorder.counters().steps % kStepsBetweenLooks == 1) impl_->TellTroubles();
    return closed;
  });
}

void Run::CancelStep() {
  impl_->Do([&] { impl_->recorder.CancelStep(); });
}

void Run::LeaveStep() {
  impl_->Do([&] { impl_->recorder.LeaveStep(); });
}

int64_t Run::global_step() const {
  if (impl_->abandoned.load(std::memory_order_relaxed)) return -1;
  const std::lock_guard guard(impl_->mutex);
  return impl_->recorder.global_step();
}

int64_t Run::mode_step(ModeKey mode) const {
  if (impl_->abandoned.load(std::memory_order_relaxed)) return -1;
  const std::lock_guard guard(impl_->mutex);
  return impl_->recorder.mode_step(mode);
}

void Run::BeginEnd() {
  impl_->Do([&] { impl_->recorder.BeginEnd(); });
}

void Run::End(std::string_view reason, std::string_view message) {
  impl_->Do([&] {
    impl_->TellTroubles();  // what it finds out is in the run, too
    impl_->recorder.FinishEnd();
    impl_->writer->End(
        EndJson(reason, message, impl_->recorder.global_step(), impl_->recorder.counters().steps),
        kEndTimeoutNanos);
    // Another training may have been started in the place of a directory that was removed: that one goes on.
    if (impl_->writer->InPlace()) {
      session::LeaveWord(impl_->claim, reason,
                         base::FilesBelow(base::LocalFileSystem(), impl_->claim.directory));
    }
    impl_->TellTroubles();
    impl_->inert.store(true, std::memory_order_relaxed);
    // Only now, because who finds the lock free must also find the word of the end.
    impl_->writer->Close();
  });
}

std::optional<Request> Run::TakeRequest() {
  return impl_->Locked(std::optional<Request>(), [&]() -> std::optional<Request> {
    if (impl_->control == nullptr) return std::nullopt;
    const int64_t step = impl_->recorder.global_step();
    while (auto request = impl_->control->Take(step)) {
      const bool refused = request->action == "stop" && !impl_->allow_stop;
      nlohmann::json ack = {{"id", request->id}, {"action", request->action}, {"step", step}};
      if (refused) ack["refused"] = "the plan says allow_stop: false";
      if (request->action == "capture") ack["tensors"] = impl_->CaptureMore(request->json);
      impl_->writer->AppendAck(step, ack.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
      impl_->recorder.ForceCommit();
      if (!refused) return Request{request->action, request->json};
    }
    return std::nullopt;
  });
}

uint64_t Run::CaptureMore(std::vector<std::string> collections, int64_t steps, bool raw) {
  return impl_->Locked(uint64_t{0}, [&] { return impl_->CaptureMore(std::move(collections), steps, raw); });
}

void Run::CountDropped(std::string_view cause_name, uint64_t tensors, std::string_view detail) {
  impl_->Do([&] {
    const auto known = CauseFromName(cause_name);
    const format::DropCause cause = known.value_or(format::DropCause::kAdaptorError);
    impl_->writer->CountDropped(cause, format::DropKind::kSummary, impl_->recorder.global_step(), tensors, 0);
    const std::string what =
        known ? std::string(detail)
              : fmt::format("{} (counted under a cause that is none: '{}')", detail, cause_name);
    impl_->recorder.Explain(cause, format::DropKind::kSummary, what);
    format::DropDetails said;  // this one, whatever came before it
    said.Add(cause, format::DropKind::kSummary, what);
    TellOnce(known ? format::DropCauseName(cause) : "unknown_cause",
             said.Sentence(cause, format::DropKind::kSummary));
  });
}

std::vector<DroppedInfo> Run::dropped() const {
  std::vector<DroppedInfo> infos;
  if (impl_->abandoned.load(std::memory_order_relaxed)) return infos;
  const std::lock_guard guard(impl_->mutex);
  for (const format::Drop& drop : impl_->writer->dropped())
    infos.push_back(ToInfo(drop, impl_->recorder.drop_details(), impl_->claim.worker));
  return infos;
}

Run::Counters Run::counters() const {
  if (impl_->abandoned.load(std::memory_order_relaxed)) return {};
  const std::lock_guard guard(impl_->mutex);
  Counters counters = impl_->recorder.counters();
  counters.bytes_sealed = impl_->writer->bytes_sealed();
  return counters;
}

void Run::Abandon() { impl_->Abandon(); }

}  // namespace tdbg

// tdbg._trial: tdbg/trial.h for Python. Forwards, and nothing else; what users call is python/tdbg/reading.
#include "tdbg/trial.h"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include "arrays.h"
#include "errors.h"
#include "event_files.h"
#include "format/columns.h"
#include "trial/access.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

using tdbg::ModeKey;
using tdbg::StepInfo;
using tdbg::StepKind;
using tdbg::Summary;
using tdbg::TensorValue;
using tdbg::python::ArrayOf;
using tdbg::python::Throw;
using tdbg::python::ValueOrThrow;

/// A Trial belongs to one thread at a time, and calls release the GIL: so each takes this lock. It is taken
/// without the GIL and given back before the GIL is asked for, so that neither waits for the other.
struct PyTrial {
  std::unique_ptr<tdbg::Trial> trial;
  std::mutex mutex;

  template <typename F>
  auto With(F&& f) {
    const nb::gil_scoped_release unlocked;
    const std::lock_guard guard(mutex);
    return f(*trial);
  }
};

struct PyCursor {
  PyTrial* trial;  // kept alive by keep_alive
  tdbg::Cursor cursor;
};

template <typename T>
auto Array1D(std::vector<T> values) {
  auto* const owner = new std::vector<T>(std::move(values));
  const nb::capsule keeper(owner, [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
  return nb::ndarray<nb::numpy, T, nb::ndim<1>>(owner->data(), {owner->size()}, keeper);
}

/// (mode, kind, incomplete, begin, end)
using FilterArgs = std::tuple<int, int, bool, int64_t, int64_t>;
tdbg::StepFilter FilterOf(const FilterArgs& args) {
  return {.mode = static_cast<ModeKey>(std::get<0>(args)),
          .kind = static_cast<StepKind>(std::get<1>(args)),
          .incomplete = std::get<2>(args),
          .begin = std::get<3>(args),
          .end = std::get<4>(args)};
}
tdbg::TensorFilter TensorFilterOf(const std::string& regex, const std::string& collection,
                                  std::optional<int64_t> global_step, const FilterArgs& steps) {
  return {.regex = regex, .collection = collection, .global_step = global_step, .steps = FilterOf(steps)};
}

/// The global step that a caller means by a step of `asked`'s mode, if it can be read: it is there, within
/// bounds, and for smdebug's calls (kSaved) saved and complete. Otherwise kNotFound, without a reason: who
/// wants one puts the questions one by one. So a value costs Python one call, where asking first costs four.
tdbg::Result<int64_t> ReadableStep(const tdbg::Trial& trial, int64_t step, const tdbg::StepFilter& asked) {
  const std::optional<int64_t> at = trial.global_step(asked.mode, step);
  if (!at || *at < asked.begin || *at >= asked.end) return tdbg::NotFound("no such step");
  if (asked.kind == StepKind::kSaved && trial.step_state(step, asked) != tdbg::StepState::kAvailable)
    return tdbg::NotFound("not saved");
  return *at;
}

/// The same, where something of that kind is kept of the tensor.
tdbg::Result<int64_t> KeptStep(const tdbg::Trial& trial, const std::string& name, int64_t step,
                               const tdbg::StepFilter& asked, const std::string& worker) {
  TDBG_ASSIGN_OR_RETURN(const int64_t at, ReadableStep(trial, step, asked));
  TDBG_ASSIGN_OR_RETURN(const bool kept, trial.is_kept(name, at, asked.kind, worker));
  if (!kept) return tdbg::NotFound("nothing of that kind is kept");
  return at;
}

nb::tuple HistogramOf(const tdbg::Histogram& histogram) {
  std::vector<double> lower, upper, middle;
  std::vector<uint64_t> count;
  for (const tdbg::HistogramBucket& bucket : histogram) {
    lower.push_back(tdbg::BucketLower(bucket.bucket));
    upper.push_back(tdbg::BucketUpper(bucket.bucket));
    middle.push_back(tdbg::BucketValue(bucket.bucket));
    count.push_back(bucket.count);
  }
  return nb::make_tuple(Array1D(std::move(lower)), Array1D(std::move(upper)), Array1D(std::move(middle)),
                        Array1D(std::move(count)));
}

const char* StateName(tdbg::RunState state) {
  switch (state) {
    case tdbg::RunState::kWaiting:
      return "waiting";
    case tdbg::RunState::kRunning:
      return "running";
    case tdbg::RunState::kEnded:
      return "ended";
    case tdbg::RunState::kCrashed:
      return "crashed";
  }
  return "unknown";
}

/// ((name, dtype, statistic), ...) of a run's summaries, in the format's order; statistic is "" where the
/// column only says whose row it is.
nb::tuple SummaryColumns() {
  nb::list columns;
  for (const tdbg::format::Column& column : tdbg::format::kSummaryColumns) {
    columns.append(nb::make_tuple(column.name, tdbg::DTypeName(column.dtype),
                                  column.is_statistic ? column.says : std::string_view()));
  }
  return nb::tuple(columns);
}

void BindRecords(nb::module_& m) {
  m.def("summary_columns", &SummaryColumns);
  nb::class_<StepInfo>(m, "StepInfo")
      .def_ro("global_step", &StepInfo::global_step)
      .def_prop_ro("mode", [](const StepInfo& s) { return static_cast<int>(s.mode); })
      .def_ro("mode_step", &StepInfo::mode_step)
      .def_ro("wall_nanos", &StepInfo::wall_nanos)
      .def_ro("raw_values", &StepInfo::raw_values)
      .def_ro("summaries", &StepInfo::summaries)
      .def_ro("skipped", &StepInfo::skipped)
      .def_ro("complete", &StepInfo::complete);
  nb::class_<Summary>(m, "Summary")
#define TDBG_COLUMN(name, ...) .def_ro(#name, &Summary::name)
      TDBG_STATISTICS(TDBG_COLUMN)
#undef TDBG_COLUMN
          .def_prop_ro("mean_abs", &Summary::mean_abs)
          .def_prop_ro("finite_count", &Summary::finite_count)
          .def_prop_ro("numpy_mean", &tdbg::NumpyMean)
          .def_prop_ro("numpy_min", &tdbg::NumpyMin)
          .def_prop_ro("numpy_max", &tdbg::NumpyMax);
  nb::class_<tdbg::WorkerEnd>(m, "WorkerEnd")
      .def_ro("worker", &tdbg::WorkerEnd::worker)
      .def_ro("reason", &tdbg::WorkerEnd::reason)
      .def_ro("message", &tdbg::WorkerEnd::message)
      .def_ro("last_step", &tdbg::WorkerEnd::last_step)
      .def("__repr__", [](const tdbg::WorkerEnd& e) {
        const std::string said = e.message.empty() ? e.reason : e.message;
        return "WorkerEnd(" + e.worker + ", after step " + std::to_string(e.last_step) + ": " +
               (e.reason.empty() ? "gone without a goodbye" : said) + ")";
      });
  nb::class_<tdbg::DroppedInfo>(m, "DroppedInfo")
      .def_ro("worker", &tdbg::DroppedInfo::worker)
      .def_ro("cause", &tdbg::DroppedInfo::cause)
      .def_ro("kind", &tdbg::DroppedInfo::kind)
      .def_ro("text", &tdbg::DroppedInfo::text)
      .def_ro("count", &tdbg::DroppedInfo::count)
      .def_ro("bytes", &tdbg::DroppedInfo::bytes)
      .def_ro("first_step", &tdbg::DroppedInfo::first_step)
      .def_ro("last_step", &tdbg::DroppedInfo::last_step)
      .def("__repr__", [](const tdbg::DroppedInfo& l) {
        return "Dropped(" + l.worker + ": " + std::to_string(l.count) + " " + l.kind + ", " + l.cause +
               ", steps " + std::to_string(l.first_step) + " to " + std::to_string(l.last_step) + ")";
      });
  nb::class_<tdbg::TensorInfo>(m, "TensorInfo")
      .def_ro("name", &tdbg::TensorInfo::name)
      .def_ro("short_name", &tdbg::TensorInfo::short_name)
      .def_ro("kind", &tdbg::TensorInfo::kind)
      .def_ro("module_kind", &tdbg::TensorInfo::module_kind)
      .def_ro("collections", &tdbg::TensorInfo::collections)
      .def_ro("aliases", &tdbg::TensorInfo::aliases)
      .def_prop_ro("dtype", [](const tdbg::TensorInfo& t) { return std::string(tdbg::DTypeName(t.dtype)); })
      .def_ro("shape", &tdbg::TensorInfo::shape)
      .def_ro("unit_axis", &tdbg::TensorInfo::unit_axis)
      .def_ro("in_parts", &tdbg::TensorInfo::in_parts)
      .def_ro("order", &tdbg::TensorInfo::order);
  nb::class_<tdbg::SaveSchedule>(m, "SaveSchedule")
      .def_ro("save_interval", &tdbg::SaveSchedule::save_interval)
      .def_ro("start_step", &tdbg::SaveSchedule::start_step)
      .def_ro("end_step", &tdbg::SaveSchedule::end_step)
      .def_ro("save_steps", &tdbg::SaveSchedule::save_steps);
  nb::class_<tdbg::CollectionInfo>(m, "CollectionInfo")
      .def_ro("name", &tdbg::CollectionInfo::name)
      .def_ro("include_regex", &tdbg::CollectionInfo::include_regex)
      .def_ro("tensor_names", &tdbg::CollectionInfo::tensor_names)
      .def_ro("reductions", &tdbg::CollectionInfo::reductions)
      .def_ro("save_raw", &tdbg::CollectionInfo::save_raw)
      .def_ro("save_shape", &tdbg::CollectionInfo::save_shape)
      .def_ro("save_histogram", &tdbg::CollectionInfo::save_histogram)
      .def("save",
           [](const tdbg::CollectionInfo& c, int mode) { return c.save[mode < 0 || mode > 4 ? 0 : mode]; });
}

void BindTrial(nb::module_& m) {
  using tdbg::Trial;
  nb::class_<PyTrial>(m, "Trial")
      .def_prop_ro("path", [](PyTrial& t) { return t.trial->path(); })
      .def_prop_ro("name", [](PyTrial& t) { return t.trial->name(); })
      .def("refresh", [](PyTrial& t) { return ValueOrThrow(t.With([](Trial& x) { return x.Refresh(); })); })
      .def(
          "show_up_to",
          [](PyTrial& t, int64_t attempt) {
            t.With([attempt](Trial& x) {
              tdbg::TrialAccess(x).ShowUpTo(attempt);
              return 0;
            });
          },
          "attempt"_a, "Later attempts take no part in the trial's answers from here on.")
      .def("state", [](PyTrial& t) { return StateName(t.With([](Trial& x) { return x.state(); })); })
      .def("loaded_all_steps",
           [](PyTrial& t) { return t.With([](Trial& x) { return x.loaded_all_steps(); }); })
      .def("attempts", [](PyTrial& t) { return t.With([](Trial& x) { return x.attempts(); }); })
      .def("workers", [](PyTrial& t) { return t.With([](Trial& x) { return x.workers(); }); })
      .def("modes",
           [](PyTrial& t) {
             std::vector<int> modes;
             for (const ModeKey mode : t.With([](Trial& x) { return x.modes(); }))
               modes.push_back(static_cast<int>(mode));
             return modes;
           })
      .def("worker_ends", [](PyTrial& t) { return t.With([](Trial& x) { return x.worker_ends(); }); })
      .def("dropped", [](PyTrial& t) { return t.With([](Trial& x) { return x.dropped(); }); })
      .def("damage", [](PyTrial& t) { return t.With([](Trial& x) { return x.damage(); }); })
      .def("bytes_on_disk", [](PyTrial& t) { return t.With([](Trial& x) { return x.bytes_on_disk(); }); })
      .def("last_seen_step", [](PyTrial& t) { return t.With([](Trial& x) { return x.last_seen_step(); }); })
      .def("last_seen_wall_nanos",
           [](PyTrial& t) { return t.With([](Trial& x) { return x.last_seen_wall_nanos(); }); })
      .def("world_size", [](PyTrial& t) { return t.With([](Trial& x) { return x.world_size(); }); })
      .def("last_complete_step",
           [](PyTrial& t) { return t.With([](Trial& x) { return x.last_complete_step(); }); })
      .def(
          "wait_for_change",
          [](PyTrial& t, int64_t timeout_millis) {
            return t.With([&](Trial& x) { return x.WaitForChange(timeout_millis); });
          },
          "timeout_millis"_a)
      .def(
          "steps",
          [](PyTrial& t, const FilterArgs& filter) {
            return t.With([&](Trial& x) { return x.steps(FilterOf(filter)); });
          },
          "filter"_a)
      .def(
          "step_state",
          [](PyTrial& t, int64_t step, const FilterArgs& filter) {
            return static_cast<int>(t.With([&](Trial& x) { return x.step_state(step, FilterOf(filter)); }));
          },
          "step"_a, "filter"_a)
      .def(
          "step_workers",
          [](PyTrial& t, int64_t step) { return t.With([&](Trial& x) { return x.step_workers(step); }); },
          "global_step"_a)
      .def(
          "missing_workers",
          [](PyTrial& t, int64_t step) { return t.With([&](Trial& x) { return x.missing_workers(step); }); },
          "global_step"_a)
      .def("collections", [](PyTrial& t) { return t.With([](Trial& x) { return x.collections(); }); })
      .def(
          "step", [](PyTrial& t, int64_t step) { return t.With([&](Trial& x) { return x.step(step); }); },
          "global_step"_a)
      .def(
          "global_step",
          [](PyTrial& t, int mode, int64_t step) {
            return t.With([&](Trial& x) { return x.global_step(static_cast<ModeKey>(mode), step); });
          },
          "mode"_a, "mode_step"_a)
      .def(
          "tensor_names",
          [](PyTrial& t, const std::string& regex, const std::string& collection,
             std::optional<int64_t> global_step, const FilterArgs& steps) {
            return ValueOrThrow(t.With([&](Trial& x) {
              return x.tensor_names(TensorFilterOf(regex, collection, global_step, steps));
            }));
          },
          "regex"_a, "collection"_a, "global_step"_a, "filter"_a)
      .def(
          "tensor",
          [](PyTrial& t, const std::string& name) {
            return ValueOrThrow(t.With([&](Trial& x) { return x.tensor(name); }));
          },
          "name"_a)
      .def(
          "tensor_steps",
          [](PyTrial& t, const std::string& name, const FilterArgs& filter, const std::string& worker) {
            return ValueOrThrow(
                t.With([&](Trial& x) { return x.tensor_steps(name, FilterOf(filter), worker); }));
          },
          "name"_a, "filter"_a, "worker"_a)
      .def(
          "is_kept",
          [](PyTrial& t, const std::string& name, int64_t step, int kind, const std::string& worker) {
            return ValueOrThrow(
                t.With([&](Trial& x) { return x.is_kept(name, step, static_cast<StepKind>(kind), worker); }));
          },
          "name"_a, "global_step"_a, "kind"_a, "worker"_a)
      .def(
          "tensor_workers",
          [](PyTrial& t, const std::string& name, int64_t step, int kind) {
            return ValueOrThrow(
                t.With([&](Trial& x) { return x.tensor_workers(name, step, static_cast<StepKind>(kind)); }));
          },
          "name"_a, "global_step"_a, "kind"_a)
      .def(
          "mapped",
          [](PyTrial& t, const std::string& name, int64_t step, const FilterArgs& asked,
             const std::string& worker) {
            return ArrayOf(ValueOrThrow(t.With([&](Trial& x) -> tdbg::Result<TensorValue> {
              TDBG_ASSIGN_OR_RETURN(const int64_t at, KeptStep(x, name, step, FilterOf(asked), worker));
              return x.slice(name, at, {}, worker);
            })));
          },
          "name"_a, "step"_a, "asked"_a, "worker"_a)
      .def(
          "shape",
          [](PyTrial& t, const std::string& name, int64_t step, const FilterArgs& asked,
             const std::string& worker) {
            return ValueOrThrow(t.With([&](Trial& x) -> tdbg::Result<std::vector<int64_t>> {
              TDBG_ASSIGN_OR_RETURN(const int64_t at, KeptStep(x, name, step, FilterOf(asked), worker));
              return x.shape(name, at, worker);
            }));
          },
          "name"_a, "step"_a, "asked"_a, "worker"_a)
      .def(
          "saved_reductions",
          [](PyTrial& t, const std::string& name, int64_t step, const FilterArgs& asked,
             const std::string& worker) {
            nb::list out;
            for (tdbg::Reduction& r :
                 ValueOrThrow(t.With([&](Trial& x) -> tdbg::Result<std::vector<tdbg::Reduction>> {
                   TDBG_ASSIGN_OR_RETURN(const int64_t at, KeptStep(x, name, step, FilterOf(asked), worker));
                   return x.saved_reductions(name, at, worker);
                 })))
              out.append(nb::make_tuple(r.name, ArrayOf(std::move(r.value))));
            return out;
          },
          "name"_a, "step"_a, "asked"_a, "worker"_a)
      .def(
          "reduction",
          [](PyTrial& t, const std::string& name, int64_t step, const FilterArgs& asked,
             const std::string& reduction, const std::string& worker) {
            return ArrayOf(ValueOrThrow(t.With([&](Trial& x) -> tdbg::Result<TensorValue> {
              TDBG_ASSIGN_OR_RETURN(const int64_t at, KeptStep(x, name, step, FilterOf(asked), worker));
              return x.reduction(name, at, reduction, worker);
            })));
          },
          "name"_a, "step"_a, "asked"_a, "reduction"_a, "worker"_a)
      .def(
          "frame",
          [](PyTrial& t, const std::string& regex, const std::string& collection,
             const std::vector<std::string>& names, const FilterArgs& steps,
             const std::vector<std::string>& fields, const std::string& worker) {
            tdbg::TensorFilter filter = TensorFilterOf(regex, collection, {}, steps);
            filter.names = names;
            tdbg::Frame frame =
                ValueOrThrow(t.With([&](Trial& x) { return x.frame(filter, fields, worker); }));
            std::vector<uint8_t> modes;
            modes.reserve(frame.mode.size());
            for (const ModeKey mode : frame.mode) modes.push_back(static_cast<uint8_t>(mode));
            nb::list values;
            for (std::vector<double>& column : frame.values) values.append(Array1D(std::move(column)));
            return nb::make_tuple(frame.names, frame.workers, Array1D(std::move(frame.tensor)),
                                  Array1D(std::move(frame.worker)), Array1D(std::move(frame.step)),
                                  Array1D(std::move(modes)), Array1D(std::move(frame.mode_step)), values);
          },
          "regex"_a, "collection"_a, "names"_a, "filter"_a, "fields"_a, "worker"_a)
      .def(
          "value",
          [](PyTrial& t, const std::string& name, int64_t step, const FilterArgs& asked,
             const std::string& worker) {
            return ArrayOf(ValueOrThrow(t.With([&](Trial& x) -> tdbg::Result<TensorValue> {
              TDBG_ASSIGN_OR_RETURN(const int64_t at, KeptStep(x, name, step, FilterOf(asked), worker));
              return x.value(name, at, worker);
            })));
          },
          "name"_a, "step"_a, "asked"_a, "worker"_a)
      .def(
          "final_value",
          [](PyTrial& t, const std::string& name, const std::string& worker) {
            return ArrayOf(ValueOrThrow(t.With([&](Trial& x) { return x.final_value(name, worker); })));
          },
          "name"_a, "worker"_a)
      .def(
          "summary",
          [](PyTrial& t, const std::string& name, int64_t step, const FilterArgs& asked,
             const std::string& worker) {
            return ValueOrThrow(t.With([&](Trial& x) -> tdbg::Result<Summary> {
              TDBG_ASSIGN_OR_RETURN(const int64_t at, ReadableStep(x, step, FilterOf(asked)));
              return x.summary(name, at, worker);
            }));
          },
          "name"_a, "step"_a, "asked"_a, "worker"_a)
      .def(
          "statistic",
          [](PyTrial& t, const std::string& name, int64_t step, const FilterArgs& asked,
             const std::string& id, const std::string& worker) {
            const tdbg::StatisticValue value =
                ValueOrThrow(t.With([&](Trial& x) -> tdbg::Result<tdbg::StatisticValue> {
                  TDBG_ASSIGN_OR_RETURN(const int64_t at, ReadableStep(x, step, FilterOf(asked)));
                  return x.statistic(name, id, at, worker);
                }));
            return nb::make_tuple(value.values, value.elements, value.samples);
          },
          "name"_a, "step"_a, "asked"_a, "statistic"_a, "worker"_a)
      .def(
          "statistics",
          [](PyTrial& t, const std::string& name) {
            return ValueOrThrow(t.With([&](Trial& x) { return x.statistics(name); }));
          },
          "name"_a)
      .def(
          "final_summary",
          [](PyTrial& t, const std::string& name, const std::string& worker) {
            return ValueOrThrow(t.With([&](Trial& x) { return x.final_summary(name, worker); }));
          },
          "name"_a, "worker"_a)
      .def(
          "histogram",
          [](PyTrial& t, const std::string& name, int64_t step, const FilterArgs& asked,
             const std::string& worker) {
            return HistogramOf(ValueOrThrow(t.With([&](Trial& x) -> tdbg::Result<tdbg::Histogram> {
              TDBG_ASSIGN_OR_RETURN(const int64_t at, ReadableStep(x, step, FilterOf(asked)));
              return x.histogram(name, at, worker);
            })));
          },
          "name"_a, "step"_a, "asked"_a, "worker"_a)
      .def(
          "quantile",
          [](PyTrial& t, const std::string& name, int64_t step, const FilterArgs& asked, double q,
             const std::string& worker) {
            return ValueOrThrow(t.With([&](Trial& x) -> tdbg::Result<double> {
              TDBG_ASSIGN_OR_RETURN(const int64_t at, ReadableStep(x, step, FilterOf(asked)));
              TDBG_ASSIGN_OR_RETURN(const Summary summary, x.summary(name, at, worker));
              TDBG_ASSIGN_OR_RETURN(const tdbg::Histogram histogram, x.histogram(name, at, worker));
              return tdbg::Quantile(summary, histogram, q);
            }));
          },
          "name"_a, "step"_a, "asked"_a, "q"_a, "worker"_a)
      .def(
          "scalar",
          [](PyTrial& t, const std::string& name, int64_t step, const FilterArgs& asked,
             const std::string& worker) {
            return ValueOrThrow(t.With([&](Trial& x) -> tdbg::Result<double> {
              TDBG_ASSIGN_OR_RETURN(const int64_t at, ReadableStep(x, step, FilterOf(asked)));
              return x.scalar(name, at, worker);
            }));
          },
          "name"_a, "step"_a, "asked"_a, "worker"_a)
      .def(
          "series",
          [](PyTrial& t, const std::string& name, const std::string& field, const std::string& worker) {
            auto series = ValueOrThrow(t.With([&](Trial& x) { return x.series(name, field, worker); }));
            return nb::make_tuple(Array1D(std::move(series.steps)), Array1D(std::move(series.values)));
          },
          "name"_a, "field"_a, "worker"_a)
      .def(
          "context",
          [](PyTrial& t, const std::string& topic, int64_t step) {
            return t.With([&](Trial& x) { return x.context(topic, step); });
          },
          "topic"_a, "global_step"_a)
      .def(
          "contexts",
          [](PyTrial& t, const std::string& topic) {
            return t.With([&](Trial& x) {
              std::vector<std::tuple<std::string, int64_t, int64_t, std::string>> found;
              const tdbg::TrialAccess access(x);
              for (const auto& [worker, record] : access.ContextsOf(topic)) {
                const auto& who = access.workers()[worker];
                found.emplace_back(who.name, who.attempt, record->global_step, record->json);
              }
              return found;
            });
          },
          "topic"_a, "Every record of the topic: (worker, attempt, global step, JSON).")
      .def("cursor", [](PyTrial& t) { return PyCursor{&t, t.trial->cursor()}; }, nb::keep_alive<0, 1>());

  nb::class_<PyCursor>(m, "Cursor")
      // None: no step yet. Python's own loop around it is what lets ctrl-C in.
      .def(
          "next",
          [](PyCursor& c, int64_t timeout_millis) -> std::optional<StepInfo> {
            auto next = c.trial->With([&](Trial&) { return c.cursor.Next(timeout_millis); });
            if (!next.ok() && next.status().code() == tdbg::Code::kUnavailable) return std::nullopt;
            return ValueOrThrow(std::move(next));
          },
          "timeout_millis"_a);

  m.def(
      "open",
      [](const std::string& path, int64_t attempt, int64_t wait_millis) {
        tdbg::Result<std::unique_ptr<Trial>> opened = [&] {
          const nb::gil_scoped_release unlocked;
          return Trial::Open(path, {.attempt = attempt, .wait_millis = wait_millis});
        }();
        auto trial = std::make_unique<PyTrial>();
        trial->trial = ValueOrThrow(std::move(opened));
        return trial.release();
      },
      nb::rv_policy::take_ownership, "path"_a, "attempt"_a, "wait_millis"_a);
}

}  // namespace

NB_MODULE(_trial, m) {
  BindRecords(m);
  BindTrial(m);
  tdbg::python::BindEventFiles(m);
}

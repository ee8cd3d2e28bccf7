// tdbg._capture: tdbg/run.h for Python. The only module of ours that a training process loads.
//
// Forwards, and nothing else. What arrives by the thousand (put_many) arrives as lists of addresses: an
// ndarray per tensor costs 2,300 ns, an address 5.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <variant>
#include <vector>

#include "base/bus_guard.h"
#include "base/redact.h"
#include "comparison.h"
#include "device_lane.h"
#include "fingerprint.h"
#include "forecast.h"
#include "graph_capture.h"
#include "integers.h"
#include "plan/hook_config.h"
#include "summaries.h"
#include "tdbg/run.h"
#include "tensor_mark.h"
#include "torch_tensors.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

using tdbg::DType;
using tdbg::ModeKey;
using tdbg::Place;
using tdbg::Run;
using tdbg::StepPoint;
using tdbg::TensorSpec;
using tdbg::TensorView;
using tdbg::python::Fingerprint;
using tdbg::python::FingerprintIfThere;
using tdbg::python::Forecast;
using tdbg::python::Integers;
using tdbg::python::LookAgain;
using tdbg::python::NumberCopy;
using tdbg::python::ParameterBatch;
using tdbg::python::TensorMark;
using tdbg::python::TensorReader;
using tdbg::python::TensorSlot;

/// The one place where a Status becomes an exception.
struct CaptureError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

template <typename T>
T ValueOrThrow(tdbg::Result<T> result) {
  if (!result.ok()) throw CaptureError(result.status().message());
  return *std::move(result);
}

DType DTypeOf(const std::string& name) {
  const auto dtype = tdbg::DTypeFromName(name);
  if (!dtype) throw nb::value_error(("unknown dtype \"" + name + "\"").c_str());
  return *dtype;
}

DType DTypeOf(const std::variant<std::string, int>& dtype) {
  if (const auto* name = std::get_if<std::string>(&dtype)) return DTypeOf(*name);
  return static_cast<DType>(std::get<int>(dtype));
}

Place PlaceOf(int sub, int point) { return {static_cast<uint16_t>(sub), static_cast<StepPoint>(point)}; }

ModeKey ModeOf(int mode) {
  if (mode < 1 || mode > 4) throw nb::value_error("mode is 1 (TRAIN), 2 (EVAL), 3 (PREDICT) or 4 (GLOBAL)");
  return static_cast<ModeKey>(mode);
}

std::unique_ptr<Run> Open(std::string directory, std::string plan_json, int64_t rank, int64_t world_size,
                          int64_t attempt, int64_t step_base, std::string adaptor,
                          std::vector<std::string> command, bool sibling_if_locked, bool among_other_files,
                          const std::vector<std::pair<int, int64_t>>& mode_step_bases, int first_sibling,
                          std::string step_base_from, int64_t optimizer_step) {
  tdbg::RunOptions options;
  options.directory = std::move(directory);
  options.plan_json = std::move(plan_json);
  options.rank = rank;
  options.world_size = world_size;
  options.attempt = attempt;
  options.step_base = step_base;
  options.adaptor = std::move(adaptor);
  options.command = std::move(command);
  options.sibling_if_locked = sibling_if_locked;
  options.among_other_files = among_other_files;
  options.first_sibling = first_sibling;
  options.step_base_from = std::move(step_base_from);
  options.optimizer_step = optimizer_step;
  for (const auto& [mode, base] : mode_step_bases) options.mode_step_bases.emplace_back(ModeOf(mode), base);
  auto run = [&] {
    nb::gil_scoped_release unlocked;  // populates the journal
    return Run::Open(options);
  }();
  return ValueOrThrow(std::move(run));
}

bool Wants(const Run& run, std::string name, std::string kind, std::string module_kind, int64_t element_count,
           std::vector<std::string> collections) {
  TensorSpec spec;
  spec.name = std::move(name);
  spec.kind = std::move(kind);
  spec.module_kind = std::move(module_kind);
  spec.shape = {element_count};
  spec.collections = std::move(collections);
  return run.Wants(spec);
}

uint32_t Define(Run& run, std::string name, std::string short_name, std::string kind, std::string module_kind,
                const std::string& dtype, std::vector<int64_t> shape, bool variable_shape, int unit_axis,
                std::vector<std::string> aliases, std::vector<std::string> collections, bool always,
                std::vector<int64_t> whole_shape, std::vector<int64_t> part_begin) {
  TensorSpec spec;
  spec.name = std::move(name);
  spec.short_name = std::move(short_name);
  spec.kind = std::move(kind);
  spec.module_kind = std::move(module_kind);
  spec.dtype = DTypeOf(dtype);
  spec.shape = std::move(shape);
  spec.variable_shape = variable_shape;
  spec.unit_axis = unit_axis;
  spec.aliases = std::move(aliases);
  spec.collections = std::move(collections);
  spec.always = always;
  spec.whole_shape = std::move(whole_shape);
  spec.part_begin = std::move(part_begin);
  return run.Define(spec);
}

bool PutMany(Run& run, nb::handle ids_object, nb::handle ptrs_object, int sub, int point,
             nb::handle unchanged_object) {
  static_assert(sizeof(uintptr_t) == sizeof(const void*));
  const std::vector<uint32_t> ids = Integers<uint32_t>(ids_object);
  const std::vector<uint64_t> ptrs = Integers<uint64_t>(ptrs_object);
  std::vector<uint8_t> unchanged;
  if (!unchanged_object.is_none()) unchanged = Integers<uint8_t>(unchanged_object);
  if (ids.size() != ptrs.size()) throw nb::value_error("put_many: as many addresses as ids, please");
  if (!unchanged_object.is_none() && unchanged.size() != ids.size())
    throw nb::value_error("put_many: as many truth values as ids, please");
  nb::gil_scoped_release unlocked;
  return run.PutMany(ids, {reinterpret_cast<const void* const*>(ptrs.data()), ptrs.size()},
                     PlaceOf(sub, point), unchanged);
}

bool PutBatch(Run& run, const ParameterBatch& batch, nb::handle more_ids, nb::handle more_addresses, int sub,
              int point) {
  return batch.Put(&run, Integers<uint32_t>(more_ids), Integers<uint64_t>(more_addresses),
                   PlaceOf(sub, point));
}

void PutPtr(Run& run, uint32_t id, uint64_t ptr, const std::variant<std::string, int>& dtype,
            const std::vector<int64_t>& shape, const std::vector<int64_t>& strides, int sub, int point) {
  const TensorView view{reinterpret_cast<const void*>(ptr), DTypeOf(dtype), shape, strides};
  nb::gil_scoped_release unlocked;
  run.Put(id, view, PlaceOf(sub, point));
}

void PutSparse(Run& run, uint32_t id, uint64_t ptr, const std::variant<std::string, int>& dtype,
               int64_t values, uint64_t elements, int sub, int point) {
  const TensorView view{reinterpret_cast<const void*>(ptr), DTypeOf(dtype), {&values, 1}, {}};
  nb::gil_scoped_release unlocked;
  run.PutSparse(id, view, elements, PlaceOf(sub, point));
}

void PutRaw(Run& run, uint32_t id, uint64_t ptr, const std::variant<std::string, int>& dtype,
            const std::vector<int64_t>& shape, const std::vector<int64_t>& strides, int sub, int point) {
  const TensorView view{reinterpret_cast<const void*>(ptr), DTypeOf(dtype), shape, strides};
  nb::gil_scoped_release unlocked;
  run.PutRaw(id, view, PlaceOf(sub, point));
}

void PutArray(Run& run, uint32_t id, const nb::ndarray<nb::ro>& array, int sub, int point) {
  if (array.device_type() != nb::device::cpu::value) throw nb::value_error("put_array: not in host memory");
  const size_t rank = array.ndim();
  std::vector<int64_t> shape(rank), strides(rank);
  for (size_t i = 0; i < rank; ++i) {
    shape[i] = static_cast<int64_t>(array.shape(i));
    strides[i] = array.stride(i);
  }
  const TensorView view{array.data(), tdbg::python::DTypeOf(array.dtype()), shape, strides};
  nb::gil_scoped_release unlocked;
  run.Put(id, view, PlaceOf(sub, point));
}

using SummaryTable = nb::ndarray<nb::ro, const double, nb::shape<-1, tdbg::python::kSummaryNumbers>,
                                 nb::c_contig, nb::device::cpu>;

void PutSummaries(Run& run, nb::handle ids_object, const SummaryTable& table, int sub, int point) {
  const std::vector<uint32_t> ids = Integers<uint32_t>(ids_object);
  if (ids.size() != table.shape(0)) throw nb::value_error("put_summaries: as many rows as ids, please");
  nb::gil_scoped_release unlocked;
  for (size_t i = 0; i < ids.size(); ++i) {
    const double* numbers = table.data() + tdbg::python::kSummaryNumbers * i;
    run.PutSummary(ids[i], tdbg::python::SummaryOf(numbers), {}, PlaceOf(sub, point));
  }
}

/// {"id", "kind", "parameters", "axis"}: what a device's lane needs to compute them itself.
nb::list Statistics(const Run& run, uint32_t id, int unit_axis, size_t rank) {
  constexpr const char* kKinds[] = {"count_above", "count_within", "sums", "value_counts"};
  nb::list out;
  for (const tdbg::Statistic& statistic : run.Statistics(id)) {
    nb::dict d;
    d["id"] = statistic.Id();
    d["kind"] = kKinds[static_cast<size_t>(statistic.kind)];
    d["parameters"] = statistic.parameters;
    d["axis"] = statistic.AxisOf(unit_axis, rank);
    out.append(d);
  }
  return out;
}

void PutStatistic(Run& run, uint32_t id, const std::string& statistic_id, uint64_t elements, uint64_t samples,
                  std::vector<double> values, int sub, int point) {
  const auto statistic = ValueOrThrow(tdbg::Statistic::FromId(statistic_id));
  run.PutStatistic(id, statistic, {elements, samples, std::move(values)}, PlaceOf(sub, point));
}

void PutScalars(Run& run, nb::handle ids_object, const std::vector<double>& values, int sub) {
  const std::vector<uint32_t> ids = Integers<uint32_t>(ids_object);
  if (ids.size() != values.size()) throw nb::value_error("put_scalars: as many values as ids, please");
  for (size_t i = 0; i < ids.size(); ++i) run.PutScalar(ids[i], values[i], PlaceOf(sub, 0));
}

void BindTensors(nb::module_& m) {
  nb::class_<TensorReader>(m, "TensorReader", "Reads tensors of a framework through DLPack's exchange table.")
      .def(nb::init<nb::type_object, nb::type_object>(), "tensor_type"_a, "parameter_type"_a)
      .def(
          "batch",
          [](const TensorReader& reader, nb::handle tensor) -> std::optional<std::pair<int64_t, uint32_t>> {
            const auto dense = reader.Dense(tensor);
            if (!dense) return std::nullopt;
            const auto& [rows, bytes] = *dense;
            return std::pair(rows, Fingerprint(reinterpret_cast<uintptr_t>(bytes.data()), bytes.size()));
          },
          "tensor"_a, "(length of the first axis, fingerprint), or None: no host tensor in C order.")
      .def(
          "number", [](const TensorReader& reader, nb::handle tensor) { return reader.Number(tensor); },
          "tensor"_a, "A NumberCopy of a host tensor of no axes and floating point, or None.");
  nb::class_<NumberCopy>(m, "NumberCopy", "The value that a tensor of one element had.")
      .def_prop_ro("dtype", [](const NumberCopy& n) { return std::string(tdbg::DTypeName(n.dtype)); })
      .def_prop_ro(
          "address", [](const NumberCopy& n) { return reinterpret_cast<uintptr_t>(n.bytes); },
          "Of its bytes. Good as long as the object lives.")
      .def_prop_ro("value", &NumberCopy::value)
      .def_prop_ro("bytes", [](const NumberCopy& n) {
        return nb::bytes(reinterpret_cast<const char*>(n.bytes), n.size());
      });
  nb::class_<ParameterBatch>(m, "ParameterBatch", "Where an optimizer's parameters and their gradients are.")
      .def(
          "__init__",
          [](ParameterBatch* self, const TensorReader* reader, nb::list parameters, nb::handle weight_ids,
             nb::handle gradient_ids) {
            new (self) ParameterBatch(reader, std::move(parameters), Integers<uint32_t>(weight_ids),
                                      Integers<uint32_t>(gradient_ids));
          },
          "reader"_a, "parameters"_a, "weight_ids"_a, "gradient_ids"_a, nb::keep_alive<1, 2>())
      .def_prop_ro_static("ODD", [](nb::handle) { return ParameterBatch::kOdd; })
      .def_prop_ro_static("MOVED", [](nb::handle) { return ParameterBatch::kMoved; })
      .def("gather", &ParameterBatch::Gather, "parameters"_a)
      .def("absent", &ParameterBatch::absent)
      .def_prop_ro("ids", [](const ParameterBatch& b) { return b.ids(); })
      .def_prop_ro("addresses", [](const ParameterBatch& b) {
        std::vector<uintptr_t> out;
        for (const void* a : b.addresses()) out.push_back(reinterpret_cast<uintptr_t>(a));
        return out;
      });
  nb::class_<TensorMark>(m, "TensorMark", "What is known of the tensor at one place of a model.")
      .def(nb::init<uint32_t>(), "turn"_a)
      .def(
          "expect",
          [](TensorMark& mark, const TensorReader& reader, nb::handle tensor, uint32_t id) {
            return mark.Expect(reader, tensor, id);
          },
          "reader"_a, "tensor"_a, "id"_a,
          "Tensors like this one are recorded as `id`. False: it cannot be read here.")
      .def("forget", &TensorMark::Forget,
           "What comes next counts as changed. Was anything seen since the last time?");
  m.attr("WORTH_A_LOOK") = Run::kWorthALook;  // of `unchanged`: look at it all the same, if there is time
  m.def("look_again", &LookAgain, "reader"_a, "marks"_a, "tensors"_a, "call"_a, "every"_a,
        "(ids, addresses, is each unchanged?; positions of what needs another way)");
  nb::class_<TensorSlot>(m, "TensorSlot",
                         "A name whose tensors arrive one by one, such as a module's output.")
      .def(nb::init<const TensorReader*>(), "reader"_a, nb::keep_alive<1, 2>())
      .def("remember", &TensorSlot::Remember, "id"_a, "tensor"_a)
      .def(
          "match",
          [](TensorSlot& slot, nb::handle tensor) {
            uint32_t id;
            TensorView view;
            return slot.Match(tensor, &id, &view) ? std::optional(id) : std::nullopt;
          },
          "tensor"_a, "The id under which put_tensor would record it, or None.");
}

std::pair<std::string, std::vector<std::string>> ParseHook(const std::string& text, const std::string& source,
                                                           const std::string& framework) {
  const nlohmann::json document = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (document.is_discarded()) throw nb::value_error((source + ": not JSON").c_str());
  std::vector<std::string> warnings;
  const auto hook = ValueOrThrow(tdbg::plan::ParseSmdebugConfig(document, {source}, framework, &warnings));
  return {tdbg::plan::HookToJson(hook).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace),
          warnings};
}

std::string HookDefaults(const std::string& framework) {
  return tdbg::plan::HookToJson(ValueOrThrow(tdbg::plan::DefaultHook(framework))).dump();
}

std::string HookPlan(const std::string& hook_json, const std::string& plan_json) {
  tdbg::plan::Plan plan = tdbg::plan::EmptyPlan();
  if (!plan_json.empty()) plan = ValueOrThrow(tdbg::plan::Plan::FromJson(plan_json));
  const auto hook = ValueOrThrow(tdbg::plan::HookFromJson(hook_json));
  if (const tdbg::Status status = tdbg::plan::ApplyHook(hook, &plan); !status.ok())
    throw CaptureError(status.message());
  return plan.ToJson();
}

nb::list Dropped(const Run& run) {
  nb::list out;
  for (const tdbg::DroppedInfo& drop : run.dropped()) {
    nb::dict d;
    d["worker"] = drop.worker;
    d["cause"] = drop.cause;
    d["kind"] = drop.kind;
    d["text"] = drop.text;
    d["count"] = drop.count;
    d["bytes"] = drop.bytes;
    d["first_step"] = drop.first_step;
    d["last_step"] = drop.last_step;
    out.append(d);
  }
  return out;
}

nb::dict Counters(const Run& run) {
  const Run::Counters c = run.counters();
  nb::dict d;
  d["steps"] = c.steps;
  d["summaries"] = c.summaries;
  d["scalars"] = c.scalars;
  d["raws"] = c.raws;
  d["bytes_sealed"] = c.bytes_sealed;
  d["repeats"] = c.repeats;
  return d;
}

}  // namespace

NB_MODULE(_capture, m) {
  nb::set_leak_warnings(
      false);  // a Run that the interpreter drops at exit is no leak worth a training's stderr
  m.attr("__version__") = TDBG_VERSION;
  nb::exception<CaptureError>(m, "Error", PyExc_RuntimeError);
  m.def("fingerprint", &Fingerprint, "pointer"_a, "bytes"_a,
        "Mark of host memory; see the batch_fingerprint series. The caller keeps the memory alive.");
  m.def("fingerprint_if_there", &FingerprintIfThere, "pointer"_a, "bytes"_a,
        "The same of mapped memory, whose file may have been cut short; None where its end is gone.");
  m.def(
      "compare_elements",
      [](int measure, double width, uintptr_t given, uintptr_t target, bool is_double, int64_t rows,
         int64_t columns, std::pair<int64_t, int64_t> given_strides,
         std::pair<int64_t, int64_t> target_strides) {
        return tdbg::python::CompareElements(static_cast<tdbg::python::Measure>(measure), width,
                                             {given, is_double, given_strides.first, given_strides.second},
                                             {target, is_double, target_strides.first, target_strides.second},
                                             rows, columns);
      },
      "measure"_a, "width"_a, "given"_a, "target"_a, "is_double"_a, "rows"_a, "columns"_a, "given_strides"_a,
      "target_strides"_a,
      "Rows by columns in host memory: [mean, std, between of targets, the same of predictions, correlation, "
      "guess, loss].");
  m.def(
      "compare_classes",
      [](uintptr_t logits, bool is_double, int64_t rows, int64_t classes, std::pair<int64_t, int64_t> strides,
         uintptr_t labels, int64_t label_stride, int64_t ignored, bool whole) {
        return tdbg::python::CompareClasses({logits, is_double, strides.first, strides.second}, rows, classes,
                                            labels, label_stride, ignored, whole);
      },
      "logits"_a, "is_double"_a, "rows"_a, "classes"_a, "strides"_a, "labels"_a, "label_stride"_a,
      "ignored"_a, "whole"_a,
      "Rows by classes in host memory: [between, std of logits], and where all labels are classes [between "
      "of "
      "targets, correlation, guess, loss] of probabilities; [] of fewer than two rows.");
  m.def(
      "is_readable",
      [](uintptr_t pointer, uint64_t bytes) {
        return tdbg::base::IsReadable(reinterpret_cast<const std::byte*>(pointer), bytes);
      },
      "pointer"_a, "bytes"_a, nb::call_guard<nb::gil_scoped_release>(),
      "Can all of it be read without a signal? Takes about as long as reading it.");
  m.def(
      "redacted", [](std::string_view text) { return tdbg::base::RedactText(text); }, "text"_a,
      "Without what looks like a secret in it: the rule by which logs are masked.");
  BindTensors(m);
  tdbg::python::BindGraphCapture(&m);
  tdbg::python::BindDeviceLane(&m);
  m.def("hook_defaults", &HookDefaults, "framework"_a, "A hook of smdebug with nothing configured, as JSON.");
  m.def("parse_hook", &ParseHook, "text"_a, "source"_a, "framework"_a,
        "smdebug's configuration file: (the hook as JSON, warnings). ValueError where it is no JSON.");
  m.def("hook_plan", &HookPlan, "hook_json"_a, "plan_json"_a = "",
        "What a hook saves, on top of a plan (none: nothing of its own): plan.json's text.");
  nb::class_<Forecast>(
      m, "Forecast",
      "What will be due in a step, before the run has begun it, by a plan (plan.json's text). It may "
      "say yes where the run says no, never the other way round.")
      .def(
          "__init__",
          [](Forecast* self, const std::string& plan_json) {
            new (self) Forecast(ValueOrThrow(Forecast::FromPlan(plan_json)));
          },
          "plan_json"_a)
      .def_rw("more", &Forecast::more, "A request for more detail holds: everything may be due.")
      .def_rw("look_every", &Forecast::look_every, "As Run.look_every was told.")
      .def_prop_ro("always", &Forecast::always, "Statistics are taken in every step of every mode.")
      .def(
          "due",
          [](const Forecast& f, int mode, int64_t step) {
            return f.Due(static_cast<int>(ModeOf(mode)), step);
          },
          "mode"_a, "mode_step"_a, "Is anything due in this step of this mode?")
      .def(
          "raw_due",
          [](const Forecast& f, int mode, int64_t step) {
            return f.RawDue(static_cast<int>(ModeOf(mode)), step);
          },
          "mode"_a, "mode_step"_a, "Are raw values of any collection?");
  nb::class_<Run>(m, "Run")
      .def_static("open", &Open, "directory"_a = "", "plan_json"_a = "", "rank"_a = 0, "world_size"_a = 1,
                  "attempt"_a = -1, "step_base"_a = 0, "adaptor"_a = "",
                  "command"_a = std::vector<std::string>(), "sibling_if_locked"_a = true,
                  "among_other_files"_a = false, "mode_step_bases"_a = std::vector<std::pair<int, int64_t>>(),
                  "first_sibling"_a = 1, "step_base_from"_a = "", "optimizer_step"_a = -1)
      .def_prop_ro_static("NOT_WANTED", [](nb::handle) { return Run::kNotWanted; })
      .def_prop_ro("directory", [](const Run& r) { return r.directory(); })
      .def_prop_ro("attempt", [](const Run& r) { return r.attempt(); })
      .def_prop_ro("step_base_from", [](const Run& r) { return r.step_base_from(); })
      .def_static(
          "next_attempt",
          [](const std::string& directory, int64_t rank) {
            return ValueOrThrow(Run::NextAttempt(directory, rank));
          },
          "directory"_a = "", "rank"_a = 0,
          "The attempt in which this worker would record if it opened the run now; -1: beside that run.")
      .def_prop_ro("global_step", [](const Run& r) { return r.global_step(); })
      .def("share_threads", &Run::ShareThreads, "threads"_a)
      .def(
          "mode_step", [](const Run& r, int mode) { return r.mode_step(ModeOf(mode)); }, "mode"_a)
      .def("plan", [](const Run& r) { return r.plan_json(); })
      .def("wants", &Wants, "name"_a, "kind"_a, "module_kind"_a = "", "element_count"_a = 0,
           "collections"_a = std::vector<std::string>())
      .def("define", &Define, "name"_a, "short_name"_a, "kind"_a, "module_kind"_a, "dtype"_a, "shape"_a,
           "variable_shape"_a = false, "unit_axis"_a = -1, "aliases"_a = std::vector<std::string>(),
           "collections"_a = std::vector<std::string>(), "always"_a = false,
           "whole_shape"_a = std::vector<int64_t>(), "part_begin"_a = std::vector<int64_t>())
      .def(
          "define_scalar",
          [](Run& r, const std::string& name, const std::string& collection) {
            return r.DefineScalar(name, collection);
          },
          "name"_a, "collection"_a = "")
      .def("look_every", &Run::LookEvery, "every"_a,
           "Statistics at one step in so many, from the next one on: more would take too much of the "
           "training's time.")
      .def(
          "begin_step", [](Run& r, int mode) { return r.BeginStep(ModeOf(mode)); }, "mode"_a)
      .def(
          "due", [](const Run& r, uint32_t id) { return r.Due(id); }, "id"_a)
      .def(
          "raw_due",
          [](const Run& r, uint32_t id, int mode, int64_t mode_step) {
            return r.RawDue(id, ModeOf(mode), mode_step);
          },
          "id"_a, "mode"_a, "mode_step"_a, "Are raw values of it due at that step of the mode?")
      .def("put_rows", &tdbg::python::PutRows, "rows"_a, "What a DeviceLane took of a batch.")
      .def("put_many", &PutMany, "ids"_a, "ptrs"_a, "sub"_a = 0, "point"_a = 0, "unchanged"_a = nb::none(),
           "`unchanged`: one truth value for each id; tdbg/run.h says what it promises. Was anything that it "
           "looked at NaN or "
           "infinite?")
      .def("put_batch", &PutBatch, "batch"_a, "ids"_a, "ptrs"_a, "sub"_a = 0, "point"_a = 0)
      .def(
          "put_tensor",
          [](Run& r, TensorSlot& slot, nb::handle tensor, int sub) {
            return slot.Put(&r, tensor, PlaceOf(sub, 0));
          },
          "slot"_a, "tensor"_a, "sub"_a = 0)
      .def("put_ptr", &PutPtr, "id"_a, "ptr"_a, "dtype"_a, "shape"_a, "strides"_a, "sub"_a = 0, "point"_a = 0)
      .def("put_sparse", &PutSparse, "id"_a, "ptr"_a, "dtype"_a, "values"_a, "elements"_a, "sub"_a = 0,
           "point"_a = 0,
           "A tensor of so many elements, of which all but these `values` (in C order, each once) are 0.")
      .def("put_raw", &PutRaw, "id"_a, "ptr"_a, "dtype"_a, "shape"_a, "strides"_a, "sub"_a = 0, "point"_a = 0,
           "The bytes alone, where they are due, of a tensor whose statistics came from a device.")
      .def("put_array", &PutArray, "id"_a, "array"_a, "sub"_a = 0, "point"_a = 0)
      .def("put_summaries", &PutSummaries, "ids"_a, "summaries"_a, "sub"_a = 0, "point"_a = 0)
      .def("statistics", &Statistics, "id"_a, "unit_axis"_a, "rank"_a)
      .def("put_statistic", &PutStatistic, "id"_a, "statistic"_a, "elements"_a, "samples"_a, "values"_a,
           "sub"_a = 0, "point"_a = 0)
      .def("put_scalars", &PutScalars, "ids"_a, "values"_a, "sub"_a = 0)
      .def(
          "put_context",
          [](Run& r, const std::string& topic, const std::string& json) { r.PutContext(topic, json); },
          "topic"_a, "json"_a)
      .def("end_step", &Run::EndStep, "skipped"_a = false, nb::call_guard<nb::gil_scoped_release>())
      .def("cancel_step", &Run::CancelStep,
           "The open step is none after all, where nothing was put in it; its number is the next one's.")
      .def("leave_step", &Run::LeaveStep,
           "The open step is none, as no update came of it: its tensors are not recorded, its scalars are "
           "the end's.")
      .def("begin_end", &Run::BeginEnd)
      .def(
          "end",
          [](Run& r, const std::string& reason, const std::string& message) {
            nb::gil_scoped_release unlocked;  // waits for the drain
            r.End(reason, message);
          },
          "reason"_a, "message"_a = "")
      .def(
          "take_request",
          [](Run& r) -> std::optional<std::string> {
            auto request = r.TakeRequest();
            if (!request) return std::nullopt;
            return std::move(request->json);
          },
          "The next request that is due at this step, as JSON (docs/format.md, the control file), or None.")
      .def(
          "capture_more", &Run::CaptureMore, "collections"_a, "steps"_a, "raw"_a = false,
          "Records these collections' tensors in each of the next `steps` steps, whatever the schedules say.")
      .def(
          "count_dropped",
          [](Run& r, const std::string& cause, uint64_t tensors, const std::string& detail) {
            r.CountDropped(cause, tensors, detail);
          },
          "cause"_a, "tensors"_a, "detail"_a = "")
      .def("dropped", &Dropped)
      .def("counters", &Counters)
      .def("abandon", &Run::Abandon);
}

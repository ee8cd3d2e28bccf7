#include "event_files.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "arrays.h"
#include "compat/smdebug/reader/record_reader.h"
#include "compat/smdebug/reader/root.h"
#include "compat/smdebug/writer/run_directory.h"
#include "errors.h"
#include "tfevents/event_writer.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace tdbg::python {
namespace {

using compat::smdebug::RecordReader;
using compat::smdebug::Root;
using smdebug::StepFiles;

/// One event file, record by record, without its index.
class EventFile {
 public:
  EventFile(Root root, std::string name)
      : root_(std::make_unique<Root>(std::move(root))), name_(std::move(name)), records_(*root_) {}

  static EventFile Open(const std::string& path) {
    const std::filesystem::path file(path);
    const std::string folder = file.parent_path().empty() ? "." : file.parent_path().string();
    return EventFile(ValueOrThrow(Root::Open(folder)), file.filename().string());
  }

  /// (name, step, array, dtype, mode, mode_step, wall time), or None at the end.
  nb::object Next() {
    const uint64_t bytes = ValueOrThrow(records_.BytesAt(name_, offset_));
    if (bytes == 0) return nb::none();
    auto record = ValueOrThrow(records_.Read(name_, offset_, bytes));
    offset_ += bytes;
    TensorValue value;
    value.owner = record.value.owner;
    value.data = record.value.bytes.data();
    value.dtype = record.value.dtype;
    value.shape = std::move(record.value.shape);
    const nb::tuple array = ArrayOf(std::move(value));
    return nb::make_tuple(record.tag, record.step, array[0], array[1], static_cast<int>(record.mode),
                          record.mode_step, record.wall_time);
  }

 private:
  std::unique_ptr<Root> root_;  // the reader borrows it
  std::string name_;
  RecordReader records_;
  uint64_t offset_ = 0;
};

StepFiles OpenStep(const std::string& directory, int64_t step, const std::string& worker) {
  auto run = ValueOrThrow(smdebug::RunDirectory::Create(directory));
  return ValueOrThrow(run.OpenStep(step, 4, step, worker, 0));
}

bool PutTensor(StepFiles& files, const std::string& name, uintptr_t data, const std::string& dtype,
               const std::vector<int64_t>& shape) {
  const auto type = DTypeFromName(dtype);
  if (!type) throw nb::type_error(("no dtype of a tensor: " + dtype).c_str());
  const TensorView view{reinterpret_cast<const void*>(data), *type, shape, {}};
  return ValueOrThrow(files.AddTensor(name, view));
}

nb::bytes RecordOf(const tfevents::SummaryEvent& event) {
  std::string file;
  tfevents::AppendRecord(event.Payload(), tfevents::Footer::kPayloadCrc, &file);
  return nb::bytes(file.data(), file.size());
}

}  // namespace

void BindEventFiles(nb::module_& m) {
  nb::class_<EventFile>(m, "EventFile")
      .def_static("open", &EventFile::Open, "path"_a)
      .def("next", &EventFile::Next);

  nb::class_<StepFiles>(m, "StepFiles")
      .def_static("open", &OpenStep, "directory"_a, "step"_a, "worker"_a)
      .def(
          "set_moment",
          [](StepFiles& f, int mode, int64_t mode_step, double wall_seconds, bool indexed) {
            f.SetMoment({mode, mode_step, wall_seconds, indexed});
          },
          "mode"_a, "mode_step"_a, "wall_seconds"_a, "indexed"_a)
      .def("put", &PutTensor, "name"_a, "ptr"_a, "dtype"_a, "shape"_a)
      .def(
          "put_texts",
          [](StepFiles& f, const std::string& name, const std::vector<std::string>& texts) {
            return ValueOrThrow(f.AddTexts(name, texts));
          },
          "name"_a, "texts"_a)
      .def(
          "put_shape",
          [](StepFiles& f, const std::string& name, const std::string& original_name,
             const std::vector<int64_t>& shape) { f.AddShape(name, original_name, shape); },
          "name"_a, "original_name"_a, "shape"_a)
      .def_prop_ro("event_path", &StepFiles::event_path)
      .def("close", [](StepFiles& f) { ThrowIfError(f.Close()); });

  // Records of TensorBoard's files, framed.
  m.def(
      "scalar_record",
      [](double wall_seconds, int64_t step, const std::string& tag, double value) {
        tfevents::SummaryEvent event(wall_seconds, step);
        event.AddScalar(tag, value);
        return RecordOf(event);
      },
      "wall_seconds"_a, "step"_a, "tag"_a, "value"_a);
  m.def(
      "histogram_record",
      [](double wall_seconds, int64_t step, const std::string& tag, const std::vector<double>& moments,
         const std::vector<double>& limits, const std::vector<double>& counts) {
        if (moments.size() != 5) throw nb::value_error("moments: min, max, num, sum, sum of squares");
        tfevents::SummaryEvent event(wall_seconds, step);
        event.AddHistogram(tag, {moments[0], moments[1], moments[2], moments[3], moments[4], limits, counts});
        return RecordOf(event);
      },
      "wall_seconds"_a, "step"_a, "tag"_a, "moments"_a, "limits"_a, "counts"_a);
}

}  // namespace tdbg::python

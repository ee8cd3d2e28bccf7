#include "ship/tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "ship/output.h"
#include "trial/elements.h"
#include "trial/mode_name.h"

namespace tdbg::ship {
namespace {

StepFilter FilterOf(const Choice::Options& choice, StepKind kind) {
  StepFilter filter;
  filter.kind = kind;
  filter.begin = choice.begin;
  if (choice.end >= 0) filter.end = choice.end;
  return filter;
}

TensorFilter TensorsOf(const Choice::Options& choice, StepKind kind) {
  TensorFilter filter;
  filter.regex = choice.regex;
  filter.collection = choice.collection;
  filter.steps = FilterOf(choice, kind);
  return filter;
}

// RFC 4180.
std::string Quoted(std::string_view text) {
  if (text.find_first_of(",\"\r\n") == std::string_view::npos) return std::string(text);
  std::string out = "\"";
  for (const char c : text) {
    out += c;
    if (c == '"') out += c;
  }
  return out + "\"";
}

std::string Number(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  return fmt::format("{}", value);
}

/// The chosen rows of a run's statistics.
struct Rows {
  Frame frame;
  std::vector<size_t> chosen;
};

/// \param names  none: of all
Result<Rows> RowsOf(const Trial& trial, const TableOptions& options, std::vector<std::string> names = {}) {
  Rows rows;
  TensorFilter tensors = TensorsOf(options.choice, StepKind::kAny);
  tensors.names = std::move(names);
  const std::vector<std::string>& fields = options.fields.empty() ? DefaultFields() : options.fields;
  TDBG_ASSIGN_OR_RETURN(
      rows.frame, trial.frame(tensors, fields, options.choice.worker.empty() ? "*" : options.choice.worker));
  for (size_t i = 0; i < rows.frame.step.size(); ++i) {
    if (rows.frame.mode_step[i] % options.choice.every == 0) rows.chosen.push_back(i);
  }
  return rows;
}

/// One kept value: where it is, before it is read.
struct KeptValue {
  std::string name;
  StepInfo step;
  std::string worker;
};

Result<std::vector<KeptValue>> KeptValues(const Trial& trial, const TableOptions& options) {
  TDBG_ASSIGN_OR_RETURN(const std::vector<std::string> names,
                        trial.tensor_names(TensorsOf(options.choice, StepKind::kRaw)));
  std::vector<KeptValue> values;
  for (const std::string& name : names) {
    TDBG_ASSIGN_OR_RETURN(
        const std::vector<int64_t> steps,
        trial.tensor_steps(name, FilterOf(options.choice, StepKind::kRaw), options.choice.worker));
    for (const int64_t global_step : steps) {
      const auto step = trial.step(global_step);
      if (!step || step->mode_step % options.choice.every != 0) continue;
      TDBG_ASSIGN_OR_RETURN(const std::vector<std::string> workers,
                            trial.tensor_workers(name, global_step, StepKind::kRaw));
      for (const std::string& worker : workers) {
        if (options.choice.worker.empty() || options.choice.worker == worker)
          values.push_back({name, *step, worker});
      }
    }
  }
  return values;
}

/// Counts what goes by, and looks up after each part of it: a value, a series, a tensor.
class Counter {
 public:
  Counter(const TableProgress& progress, size_t parts) : progress_(&progress), parts_(parts) {}
  void See(int64_t step) {
    if (steps_.empty() || *steps_.rbegin() != step) steps_.insert(step);
  }
  Status Look() {
    ++done_;
    return *progress_ ? (*progress_)(done_, parts_) : OkStatus();
  }
  Status operator()(int64_t step) {
    See(step);
    return Look();
  }
  int64_t steps() const { return static_cast<int64_t>(steps_.size()); }

 private:
  const TableProgress* progress_;
  const size_t parts_;
  size_t done_ = 0;
  std::set<int64_t> steps_;
};

std::string RowHead(int64_t step, ModeKey mode, int64_t mode_step, std::string_view worker,
                    std::string_view tensor) {
  return fmt::format("{},{},{},{},{}", step, ModeName(mode), mode_step, Quoted(worker), Quoted(tensor));
}

constexpr std::string_view kHeadColumns = "global_step,mode,mode_step,worker,tensor";

Status WriteText(std::string* text, size_t at_least, OutputFile& file) {
  if (text->size() < at_least) return OkStatus();
  TDBG_RETURN_IF_ERROR(file.Write(std::as_bytes(std::span(*text))));
  text->clear();
  return OkStatus();
}

Result<Shipped> WriteCsvOfValues(const Trial& trial, const TableOptions& options, OutputFile& file,
                                 const TableProgress& progress) {
  TDBG_ASSIGN_OR_RETURN(const std::vector<KeptValue> values, KeptValues(trial, options));
  std::string text = fmt::format("{},index,value\n", kHeadColumns);
  Counter counter(progress, values.size());
  uint64_t rows = 0;
  Status lost;
  for (const KeptValue& kept : values) {
    const auto stored = trial.value(kept.name, kept.step.global_step, kept.worker);
    if (stored.status().code() == Code::kDataLoss) {  // the others are as good as ever
      lost = stored.status();
      TDBG_RETURN_IF_ERROR(counter.Look());
      continue;
    }
    TDBG_RETURN_IF_ERROR(stored.status());
    const TensorValue& value = *stored;
    const std::string head =
        RowHead(kept.step.global_step, kept.step.mode, kept.step.mode_step, kept.worker, kept.name);
    const int64_t elements = value.view.element_count();
    for (int64_t i = 0; i < elements; ++i) {
      const auto element = ElementAsDouble(value, static_cast<size_t>(i));
      if (!element) {
        return InvalidArgument(
            fmt::format("{}: {} values are no plain numbers; --to npz or safetensors keeps them", kept.name,
                        DTypeName(value.dtype)));
      }
      text += fmt::format("{},{},{}\n", head, i, Number(*element));
      TDBG_RETURN_IF_ERROR(WriteText(&text, kBufferBytes, file));
    }
    rows += static_cast<uint64_t>(elements);
    TDBG_RETURN_IF_ERROR(counter(kept.step.global_step));
  }
  if (trial.damage().empty()) TDBG_RETURN_IF_ERROR(lost);  // else the trial names it
  TDBG_RETURN_IF_ERROR(WriteText(&text, 0, file));
  return Shipped{counter.steps(), file.bytes(), {{"rows", rows}}};
}

}  // namespace

const std::vector<std::string>& DefaultFields() {
  static const std::vector<std::string> fields = {
      "value",      "count", "nan_count", "pos_inf_count", "neg_inf_count",
      "zero_count", "min",   "max",       "mean",          "std",
      "mean_abs",   "l1",    "l2",        "abs_min",       "abs_max"};
  return fields;
}

bool IsOurCsv(const std::string& path) {
  return HeadOf(path, kHeadColumns.size() + 1) == std::string(kHeadColumns) + ",";
}

Result<Shipped> WriteCsv(const Trial& trial, const TableOptions& options, OutputFile& file,
                         const TableProgress& progress) {
  TDBG_RETURN_IF_ERROR(Choice::Make(options.choice).status());
  if (options.raw) return WriteCsvOfValues(trial, options, file, progress);
  TDBG_ASSIGN_OR_RETURN(const std::vector<std::string> names,
                        trial.tensor_names(TensorsOf(options.choice, StepKind::kAny)));
  TableOptions one = options;
  if (one.fields.empty()) one.fields = DefaultFields();
  std::string text(kHeadColumns);
  for (const std::string& field : one.fields) text += "," + field;
  text += "\n";
  Counter counter(progress, names.size());
  uint64_t count = 0;
  // A tensor at a time: what is in memory is its rows, not the run's.
  for (size_t i = 0; i < std::max<size_t>(names.size(), 1); ++i) {
    // Without any, for the errors: a worker or a field that is not there.
    const std::vector<std::string> name(
        names.begin() + static_cast<ptrdiff_t>(i),
        names.begin() + static_cast<ptrdiff_t>(std::min(i + 1, names.size())));
    TDBG_ASSIGN_OR_RETURN(const Rows rows, RowsOf(trial, one, name));
    const Frame& frame = rows.frame;
    for (const size_t row : rows.chosen) {
      text += RowHead(frame.step[row], frame.mode[row], frame.mode_step[row],
                      frame.workers[frame.worker[row]], frame.names[frame.tensor[row]]);
      for (const std::vector<double>& column : frame.values) text += "," + Number(column[row]);
      text += "\n";
      TDBG_RETURN_IF_ERROR(WriteText(&text, kBufferBytes, file));
      counter.See(frame.step[row]);
    }
    count += rows.chosen.size();
    TDBG_RETURN_IF_ERROR(counter.Look());
  }
  TDBG_RETURN_IF_ERROR(WriteText(&text, 0, file));
  return Shipped{counter.steps(), file.bytes(), {{"rows", count}}};
}

namespace {

constexpr char kWriterKey[] = "writer", kWriterName[] = "tdbg";

std::unique_ptr<Archive> MakeArchive(ArchiveFormat format, OutputFile& file, uint64_t space,
                                     const Trial& trial) {
  if (format == ArchiveFormat::kNpz) return MakeNpz(file);
  return MakeSafetensors(file, space, {{"run", trial.name()}, {kWriterKey, kWriterName}});
}

std::string Prefix(const std::string& worker, bool several) { return several ? worker + "/" : std::string(); }

Result<Shipped> ArchiveValues(const Trial& trial, const TableOptions& options, ArchiveFormat format,
                              OutputFile& file, const TableProgress& progress) {
  TDBG_ASSIGN_OR_RETURN(const std::vector<KeptValue> values, KeptValues(trial, options));
  const bool several = std::any_of(values.begin(), values.end(),
                                   [&](const KeptValue& v) { return v.worker != values.front().worker; });
  const auto name_of = [&](const KeptValue& v) {
    return fmt::format("{}{}@{}", Prefix(v.worker, several), v.name, v.step.global_step);
  };
  uint64_t space = 0;
  for (const KeptValue& kept : values) {
    TDBG_ASSIGN_OR_RETURN(const std::vector<int64_t> shape,
                          trial.shape(kept.name, kept.step.global_step, kept.worker));
    space += SafetensorsHeaderSpace(name_of(kept), shape.size() + 1);
  }
  const std::unique_ptr<Archive> archive = MakeArchive(format, file, space, trial);
  Counter counter(progress, values.size());
  Status lost;
  for (const KeptValue& kept : values) {
    const auto stored = trial.value(kept.name, kept.step.global_step, kept.worker);
    if (stored.status().code() == Code::kDataLoss) {  // the others are as good as ever
      lost = stored.status();
      TDBG_RETURN_IF_ERROR(counter.Look());
      continue;
    }
    TDBG_RETURN_IF_ERROR(stored.status());
    const TensorValue& value = *stored;
    TDBG_RETURN_IF_ERROR(archive->Add(name_of(kept), value.view));
    TDBG_RETURN_IF_ERROR(counter(kept.step.global_step));
  }
  if (trial.damage().empty()) TDBG_RETURN_IF_ERROR(lost);  // else the trial names it
  TDBG_RETURN_IF_ERROR(archive->Finish());
  return Shipped{counter.steps(), file.bytes(), {{"arrays", archive->count()}}};
}

}  // namespace

bool IsOurArchive(const std::string& path, ArchiveFormat format) {
  return format == ArchiveFormat::kNpz ? IsOurNpz(path)
                                       : HasSafetensorsMetadata(path, kWriterKey, kWriterName);
}

Result<Shipped> WriteArchive(const Trial& trial, const TableOptions& options, ArchiveFormat format,
                             OutputFile& file, const TableProgress& progress) {
  TDBG_RETURN_IF_ERROR(Choice::Make(options.choice).status());
  if (options.raw) return ArchiveValues(trial, options, format, file, progress);
  TDBG_ASSIGN_OR_RETURN(const Rows rows, RowsOf(trial, options));
  const Frame& frame = rows.frame;
  // By tensor and worker; the rows of each stay in the order of their steps.
  std::map<std::pair<uint32_t, uint32_t>, std::vector<size_t>> series;
  std::set<uint32_t> workers;
  for (const size_t i : rows.chosen) {
    series[{frame.tensor[i], frame.worker[i]}].push_back(i);
    workers.insert(frame.worker[i]);
  }
  const auto name_of = [&](const std::pair<uint32_t, uint32_t>& key, const std::string& field) {
    return Prefix(frame.workers[key.second], workers.size() > 1) + frame.names[key.first] + "/" + field;
  };
  uint64_t space = 0;
  for (const auto& [key, unused] : series) {
    space += SafetensorsHeaderSpace(name_of(key, "global_step"), 1);
    for (const std::string& field : frame.fields) space += SafetensorsHeaderSpace(name_of(key, field), 1);
  }
  const std::unique_ptr<Archive> archive = MakeArchive(format, file, space, trial);
  Counter counter(progress, series.size());
  std::set<int64_t> steps;
  for (const auto& [key, items] : series) {
    const int64_t length[] = {static_cast<int64_t>(items.size())};
    std::vector<int64_t> numbers;
    for (const size_t i : items) numbers.push_back(frame.step[i]);
    steps.insert(numbers.begin(), numbers.end());
    TDBG_RETURN_IF_ERROR(
        archive->Add(name_of(key, "global_step"), {numbers.data(), DType::kInt64, length, {}}));
    std::vector<double> column(items.size());
    for (size_t c = 0; c < frame.fields.size(); ++c) {
      for (size_t k = 0; k < items.size(); ++k) column[k] = frame.values[c][items[k]];
      TDBG_RETURN_IF_ERROR(
          archive->Add(name_of(key, frame.fields[c]), {column.data(), DType::kFloat64, length, {}}));
    }
    TDBG_RETURN_IF_ERROR(counter(numbers.front()));
  }
  TDBG_RETURN_IF_ERROR(archive->Finish());
  return Shipped{static_cast<int64_t>(steps.size()), file.bytes(), {{"arrays", archive->count()}}};
}

}  // namespace tdbg::ship

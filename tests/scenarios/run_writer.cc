#include "run_writer.h"

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/file.h"
#include "format/run_files.h"
#include "plan/config.h"
#include "rules/engine.h"

namespace tdbg::scenarios {
namespace {

struct Elements {
  std::vector<std::byte> bytes;
  std::vector<int64_t> shape;
  DType dtype = DType::kFloat64;
  TensorView View() const { return {bytes.data(), dtype, shape}; }
};

template <typename T>
void Append(T value, Elements* to) {
  const auto* const bytes = reinterpret_cast<const std::byte*>(&value);
  to->bytes.insert(to->bytes.end(), bytes, bytes + sizeof value);
}

// Doubles unless the scenario names a type, so that its thresholds can be exact.
Result<Elements> ElementsOf(const Assignment& assignment, const Tensor& tensor, int64_t mode_step) {
  const DType dtype = tensor.dtype;
  Elements elements;
  elements.dtype = dtype;
  size_t width = 0;
  for (const Value& value : assignment.values) width = std::max(width, value.text.size());
  for (const Value& value : assignment.values) {
    const double number = value.At(mode_step);
    if (dtype == DType::kText) {
      for (size_t i = 0; i < width; ++i)
        Append(static_cast<uint32_t>(i < value.text.size() ? value.text[i] : 0), &elements);
    } else if (dtype == DType::kInt64) {
      Append(static_cast<int64_t>(number), &elements);
    } else if (dtype == DType::kFloat32) {
      Append(static_cast<float>(number), &elements);
    } else if (dtype == DType::kComplex64) {
      Append(static_cast<float>(number), &elements);
      Append(0.0f, &elements);
    } else {
      Append(number, &elements);
    }
  }
  const auto count = static_cast<int64_t>(assignment.values.size());
  elements.shape = {count};
  if (assignment.columns > 0) elements.shape = {count / assignment.columns, assignment.columns};
  const std::vector<int64_t>& shape = assignment.shape.empty() ? tensor.shape : assignment.shape;
  if (!shape.empty()) elements.shape = shape;
  if (std::accumulate(elements.shape.begin(), elements.shape.end(), int64_t{1}, std::multiplies<>()) != count)
    return InvalidArgument("as many values as the shape has elements, please: " + assignment.tensor);
  if (dtype == DType::kText) elements.shape.push_back(static_cast<int64_t>(width));
  return elements;
}

// What `tdbg run` would have laid out.
Status WritePlan(const std::string& directory, const Scenario& scenario) {
  const auto document = nlohmann::json::parse(scenario.config, nullptr, false);
  if (document.is_discarded()) return InvalidArgument("plan: not JSON: " + scenario.config);
  TDBG_ASSIGN_OR_RETURN(const plan::Config config, plan::ParseConfig(document, {"plan"}));
  plan::RuleConfig rule;
  rule.rule = scenario.rule;
  rule.parameters = scenario.parameters;
  TDBG_ASSIGN_OR_RETURN(const auto engine, rules::Engine::Create({rule}));
  TDBG_ASSIGN_OR_RETURN(const plan::Plan plan, plan::ResolvePlan(config, engine->Needs()));
  return base::LocalFileSystem().WriteFileAtomic(base::JoinPath(directory, "plan.json"), plan.ToJson());
}

}  // namespace

Result<std::unique_ptr<RunWriter>> RunWriter::Create(const std::string& directory, const Scenario& scenario) {
  base::FileSystem& files = base::LocalFileSystem();
  std::unique_ptr<RunWriter> run(new RunWriter);
  run->tensors_ = scenario.tensors;
  const std::string attempt_directory = base::JoinPath(directory, "0");
  TDBG_RETURN_IF_ERROR(files.CreateDirectories(attempt_directory));
  format::RunInfo info;
  info.id = "0123456789abcdef0123456789abcdef";
  info.name = base::BaseName(directory);
  info.tdbg_version = "scenario";
  info.created_wall_nanos = 1'700'000'000'000'000'000;
  TDBG_RETURN_IF_ERROR(files.WriteFileAtomic(base::JoinPath(directory, "run.json"), info.ToJson()));
  if (!scenario.config.empty()) TDBG_RETURN_IF_ERROR(WritePlan(directory, scenario));
  format::AttemptInfo attempt;
  attempt.world_size = scenario.workers;
  attempt.started_wall_nanos = info.created_wall_nanos;
  TDBG_RETURN_IF_ERROR(
      files.WriteFileAtomic(base::JoinPath(attempt_directory, "attempt.json"), attempt.ToJson()));
  for (int64_t rank = 0; rank < scenario.workers; ++rank) {
    store::WriterOptions options;
    options.worker.worker = "worker_" + std::to_string(rank);
    options.worker.rank = rank;
    options.worker_directory = base::JoinPath(attempt_directory, options.worker.worker);
    options.journal_path = base::JoinPath(options.worker_directory, "journal");
    options.run_id = info.id;
    // Large enough that blocking is rare, small enough that allocating it is not what a test waits for.
    options.journal_bytes = 4u << 20;
    options.durable = false;
    options.when_full = store::WhenFull::kBlock;  // a test that is fast must not lose what a slow one keeps
    TDBG_RETURN_IF_ERROR(files.CreateDirectories(options.worker_directory));
    auto writer = store::WorkerWriter::Open(std::move(options));
    if (!writer.ok()) return writer.status();
    for (size_t i = 0; i < scenario.tensors.size(); ++i) {
      const Tensor& tensor = scenario.tensors[i];
      format::TensorDef def;
      def.id = static_cast<format::TensorId>(i);
      def.name = tensor.name;
      def.kind = tensor.scalar ? "scalar" : tensor.kind;
      def.module_kind = tensor.module_kind;
      def.collections = tensor.collections;
      // Most tensors of a training are; scenarios that name another type want that one.
      def.dtype = tensor.scalar || tensor.dtype != DType::kFloat64 ? tensor.dtype : DType::kFloat32;
      def.shape = tensor.shape;
      def.variable_shape = !tensor.scalar;
      def.unit_axis = tensor.unit_axis;
      (*writer)->AppendTensorDef(def);
      run->ids_[tensor.name] = def.id;
    }
    auto next = static_cast<format::TensorId>(scenario.tensors.size());
    for (const Tensor& tensor : scenario.tensors) {
      for (const std::string& id : tensor.statistics) {
        format::TensorDef def;
        def.id = next++;
        def.name = StatisticTensorName(id, tensor.name);
        def.kind = kStatisticKind;
        def.dtype = DType::kInt32;
        def.shape = {2};
        def.variable_shape = true;
        (*writer)->AppendTensorDef(def);
        run->ids_[def.name] = def.id;
      }
    }
    run->workers_.push_back(*std::move(writer));
  }
  return run;
}

Status RunWriter::Write(int64_t worker, const Step& step) {
  store::WorkerWriter& writer = *workers_[static_cast<size_t>(worker)];
  std::vector<format::SummaryRow> rows;
  std::vector<format::ScalarRow> scalars;
  std::vector<uint8_t> histograms;
  // Workers may be written by threads of their own; 350 KiB of scratch is too much for every call.
  thread_local Summarizer summarizer;
  thread_local Histogram histogram;
  for (const Assignment& assignment : step.assignments) {
    if (assignment.worker >= 0 && assignment.worker != worker) continue;
    const auto found = ids_.find(assignment.tensor);
    if (found == ids_.end()) return InvalidArgument("no such tensor in the scenario: " + assignment.tensor);
    if (tensors_[found->second].scalar) {
      format::ScalarRow row;
      row.tensor = found->second;
      row.sub = assignment.sub;
      row.value = assignment.values.at(0).At(step.mode_step);
      scalars.push_back(row);
      continue;
    }
    if (assignment.statistic) {
      const Statistic& statistic = *assignment.statistic;
      StatisticValue recorded{assignment.per, assignment.samples, {}};
      for (const Value& value : assignment.values) recorded.values.push_back(value.At(step.mode_step));
      std::vector<std::byte> bytes;
      const DType dtype = AppendStatistic(statistic, recorded, &bytes);
      const int64_t length[] = {static_cast<int64_t>(2 + recorded.values.size())};
      writer.AppendRaw(step.global_step, ids_.at(StatisticTensorName(statistic.Id(), assignment.tensor)),
                       {assignment.sub, format::Point::kNone}, {bytes.data(), dtype, length, {}},
                       format::DropKind::kSummary);
      continue;
    }
    const Tensor& tensor = tensors_[found->second];
    TDBG_ASSIGN_OR_RETURN(const Elements elements, ElementsOf(assignment, tensor, step.mode_step));
    const format::SubKey sub{assignment.sub, format::Point::kNone};
    if (step.raw) writer.AppendRaw(step.global_step, found->second, sub, elements.View());
    if (!HasStatistics(elements.dtype)) continue;
    Summary summary;
    TDBG_RETURN_IF_ERROR(summarizer.Summarize(elements.View(), &summary, &histogram));
    rows.push_back(format::ToRow(found->second, sub, summary));
    if (assignment.values.size() >= 256) {  // of smaller tensors a run has none
      rows.back().histogram_offset = static_cast<uint32_t>(histograms.size());
      EncodeHistogram(histogram, &histograms);
      rows.back().histogram_bytes = static_cast<uint32_t>(histograms.size() - rows.back().histogram_offset);
    }
  }
  writer.AppendSummaries(step.global_step, rows, histograms);
  if (!scalars.empty()) writer.AppendScalars(step.global_step, scalars);
  if (step.shed) {
    writer.CountDropped(format::DropCause::kJournalFull, format::DropKind::kSummary, step.global_step, 1,
                        152);
  }
  if (step.raw_shed)
    writer.CountDropped(format::DropCause::kJournalFull, format::DropKind::kRaw, step.global_step, 1, 4096);
  for (const auto& [topic, json] : step.context) writer.AppendContext({step.global_step, topic, json});
  format::Commit commit;
  commit.global_step = step.global_step;
  commit.mode_step = step.mode_step;
  commit.mode = static_cast<uint16_t>(step.mode);
  commit.wall_nanos = 1'700'000'000'000'000'000 + step.wall_millis * 1'000'000;
  commit.monotonic_nanos = step.global_step * 1'000'000;
  if (step.skipped) commit.flags |= format::kCommitSkipped;
  writer.Commit(commit);
  return OkStatus();
}

void RunWriter::End() {
  for (const auto& writer : workers_) writer->End(R"({"reason":"completed"})", 10'000'000'000);
  workers_.clear();
}

namespace {

Status WriteSteps(const Scenario& scenario, const std::vector<Step>& steps, const std::string& directory) {
  TDBG_ASSIGN_OR_RETURN(const std::unique_ptr<RunWriter> writer, RunWriter::Create(directory, scenario));
  for (const Step& step : steps) {
    for (int64_t worker = 0; worker < scenario.workers; ++worker)
      TDBG_RETURN_IF_ERROR(writer->Write(worker, step));
  }
  writer->End();
  return OkStatus();
}

}  // namespace

Status WriteOther(const Scenario& scenario, const std::string& directory) {
  if (scenario.other_steps.empty()) return OkStatus();
  return WriteSteps(scenario, scenario.other_steps, directory.substr(0, directory.rfind('/')) + "/other");
}

Status WriteRuns(const Scenario& scenario, const std::string& directory) {
  TDBG_RETURN_IF_ERROR(WriteOther(scenario, directory));
  return WriteSteps(scenario, scenario.steps, directory);
}

}  // namespace tdbg::scenarios

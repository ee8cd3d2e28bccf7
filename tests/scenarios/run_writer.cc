#include "run_writer.h"

#include "base/file.h"
#include "format/run_files.h"

namespace tdbg::scenarios {

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
      def.collections = tensor.collections;
      def.dtype = tensor.scalar ? DType::kFloat64 : DType::kFloat32;
      def.variable_shape = !tensor.scalar;
      (*writer)->AppendTensorDef(def);
      run->ids_[tensor.name] = def.id;
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
    // Doubles, so that a scenario's thresholds can be exact.
    std::vector<double> values;
    for (const Value& value : assignment.values) values.push_back(value.At(step.mode_step));
    const int64_t shape[] = {static_cast<int64_t>(values.size())};
    Summary summary;
    TDBG_RETURN_IF_ERROR(summarizer.Summarize({values.data(), DType::kFloat64, shape}, &summary, &histogram));
    const format::SubKey sub{assignment.sub, format::Point::kNone};
    rows.push_back(format::ToRow(found->second, sub, summary));
    if (values.size() >= 256) {  // of smaller tensors a run has none
      rows.back().histogram_offset = static_cast<uint32_t>(histograms.size());
      EncodeHistogram(histogram, &histograms);
      rows.back().histogram_bytes = static_cast<uint32_t>(histograms.size() - rows.back().histogram_offset);
    }
    if (step.raw)
      writer.AppendRaw(step.global_step, found->second, sub, {values.data(), DType::kFloat64, shape});
  }
  writer.AppendSummaries(step.global_step, rows, histograms);
  if (!scalars.empty()) writer.AppendScalars(step.global_step, scalars);
  if (step.shed) {
    writer.CountLoss(format::LossCause::kJournalFull, format::LossKind::kSummary, step.global_step, 1, 152);
  }
  if (step.raw_shed)
    writer.CountLoss(format::LossCause::kJournalFull, format::LossKind::kRaw, step.global_step, 1, 4096);
  format::Commit commit;
  commit.global_step = step.global_step;
  commit.mode_step = step.mode_step;
  commit.mode = static_cast<uint16_t>(step.mode);
  commit.wall_nanos = 1'700'000'000'000'000'000 + step.global_step * 1'000'000;
  commit.monotonic_nanos = step.global_step * 1'000'000;
  if (step.skipped) commit.flags |= format::kCommitSkipped;
  writer.Commit(commit);
  return OkStatus();
}

void RunWriter::End() {
  for (const auto& writer : workers_) writer->End(R"({"reason":"completed"})", 10'000'000'000);
  workers_.clear();
}

}  // namespace tdbg::scenarios

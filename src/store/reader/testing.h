// For tests of the reading side: a worker whose every value is a function of tensor and step.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/testing.h"
#include "format/segment.h"
#include "format/segment_index.h"
#include "store/reader/worker_reader.h"
#include "store/writer/testing_options.h"
#include "tdbg/statistic.h"

namespace tdbg::store {

/// Writes a worker. Tensor 0 ... n-1 have summaries ("tensor/0" ...), n is the scalar "lr".
class WorkerFixture {
 public:
  struct Options {
    int tensors = 3;
    size_t raw_elements = 16;      ///< 0: no raw tensors
    int64_t histograms_every = 1;  ///< 0: none
    uint64_t segment_bytes = 0;
    uint64_t journal_bytes = 1 << 20;
    WhenFull when_full = WhenFull::kBlock;
    std::string worker = "worker_0";
    int64_t rank = 0;
    std::optional<int64_t> world_size = {}, step_base = {};  ///< as its own file says
  };

  WorkerFixture(std::string directory, Options options)
      : directory_(std::move(directory)), options_(options) {
    std::filesystem::create_directories(directory_);
    WriterOptions w = TestOptions(directory_);
    w.worker.worker = options.worker;
    w.worker.rank = options.rank;
    w.worker.world_size = options.world_size;
    w.worker.step_base = options.step_base;
    w.when_full = options.when_full;
    w.journal_bytes = options.journal_bytes;
    w.segment_bytes = options.segment_bytes;
    w.durable = false;
    auto opened = WorkerWriter::Open(w);
    EXPECT_TRUE(opened.ok()) << opened.status().ToString();
    writer = std::move(*opened);
    for (int t = 0; t < options.tensors; ++t) writer->AppendTensorDef(Definition(t));
    format::TensorDef lr;
    lr.id = static_cast<uint32_t>(options.tensors);
    lr.name = "lr";
    lr.kind = "scalar";
    lr.dtype = DType::kFloat64;
    writer->AppendTensorDef(lr);
  }

  static format::TensorDef Definition(int t) {
    format::TensorDef def;
    def.id = static_cast<uint32_t>(t);
    def.name = "tensor/" + std::to_string(t);
    def.short_name = "t" + std::to_string(t);
    def.kind = "weight";
    def.collections = {t == 0 ? "losses" : "weights"};
    def.dtype = DType::kFloat32;
    def.shape = {4, 4};
    return def;
  }
  static double Mean(int tensor, int64_t step) { return static_cast<double>(step) * 10 + tensor; }
  static float Element(int tensor, int64_t step, size_t i) {
    return static_cast<float>(tensor * 1000 + step + static_cast<int64_t>(i));
  }
  static double Rate(int64_t step) { return 1.0 / static_cast<double>(step + 1); }
  static Histogram HistogramAt(int tensor, int64_t step) {
    return {{BucketOf(-1.0 - tensor), 3}, {BucketOf(2.0 + static_cast<double>(step)), 5}};
  }
  static Summary SummaryAt(int tensor, int64_t step) {
    Summary s;
    s.count = 16;
    s.nan_count = static_cast<uint64_t>(step % 3);
    s.zero_count = 1;
    s.min = Mean(tensor, step) - 1;
    s.max = Mean(tensor, step) + 1;
    s.mean = Mean(tensor, step);
    s.variance = 0.25;
    s.m3 = 0;
    s.m4 = 0.1;
    s.l1 = 16 * std::fabs(s.mean);
    s.l2 = 4 * std::fabs(s.mean);
    s.abs_min = 0;
    s.abs_max = std::fabs(s.max);
    return s;
  }

  void Append(int64_t step, format::SubKey sub = {}) {
    std::vector<format::SummaryRow> rows;
    std::vector<uint8_t> bytes;
    for (int t = 0; t < options_.tensors; ++t) {
      rows.push_back(format::ToRow(static_cast<uint32_t>(t), sub, SummaryAt(t, step)));
      if (options_.histograms_every == 0) continue;
      if (step % options_.histograms_every != 0) {
        rows.back().flags = format::kRowHistogramNotDue;
        continue;
      }
      rows.back().histogram_offset = static_cast<uint32_t>(bytes.size());
      EncodeHistogram(HistogramAt(t, step), &bytes);
      rows.back().histogram_bytes = static_cast<uint32_t>(bytes.size()) - rows.back().histogram_offset;
    }
    writer->AppendSummaries(step, rows, bytes);
    format::ScalarRow lr;
    lr.tensor = static_cast<uint32_t>(options_.tensors);
    lr.sub = sub.sub;
    lr.point = static_cast<uint16_t>(sub.point);
    lr.value = Rate(step);
    writer->AppendScalars(step, {&lr, 1});
    if (options_.raw_elements == 0) return;
    for (int t = 0; t < options_.tensors; ++t) {
      std::vector<float> values(options_.raw_elements);
      for (size_t i = 0; i < values.size(); ++i) values[i] = Element(t, step, i);
      const int64_t shape[] = {static_cast<int64_t>(values.size())};
      writer->AppendRaw(step, static_cast<uint32_t>(t), sub, {values.data(), DType::kFloat32, shape, {}});
    }
  }
  /// Defines a derived statistic of a tensor, and returns its id.
  uint32_t DefineStatistic(int tensor, const std::string& statistic_id) {
    format::TensorDef def;
    def.id = static_cast<uint32_t>(options_.tensors + ++derived_);
    def.name = StatisticTensorName(statistic_id, Definition(tensor).name);
    def.kind = kStatisticKind;
    def.dtype = DType::kInt32;
    def.shape = {2};
    def.variable_shape = true;
    writer->AppendTensorDef(def);
    return def.id;
  }
  void AppendStatistic(int64_t step, uint32_t id, const std::string& statistic_id,
                       const StatisticValue& value, format::SubKey sub = {}) {
    std::vector<std::byte> bytes;
    const DType dtype = tdbg::AppendStatistic(*Statistic::FromId(statistic_id), value, &bytes);
    const int64_t shape[] = {static_cast<int64_t>(2 + value.values.size())};
    writer->AppendRaw(step, id, sub, {bytes.data(), dtype, shape, {}}, format::DropKind::kSummary);
  }
  void Step(int64_t step, format::Mode mode = format::Mode::kTrain, uint32_t flags = 0) {
    Append(step);
    format::Commit commit;
    commit.global_step = step;
    commit.mode_step = step;
    commit.mode = static_cast<uint16_t>(mode);
    commit.flags = flags;
    commit.wall_nanos = 1'700'000'000'000'000'000 + step;
    writer->Commit(commit);
  }
  void Steps(int64_t first, int64_t end) {
    for (int64_t s = first; s < end; ++s) Step(s);
  }
  /// Final values, outside steps.
  void Final(int64_t last_step) {
    Append(last_step, {0, format::Point::kEnd});
    format::Commit commit;
    commit.global_step = last_step;
    commit.flags = format::kCommitOutside;
    writer->Commit(commit);
  }
  void End() { writer->End(R"({"reason":"done"})", 10'000'000'000); }
  void Close() { writer.reset(); }
  const std::string& directory() const { return directory_; }

  std::unique_ptr<WorkerWriter> writer;

 private:
  std::string directory_;
  Options options_;
  int derived_ = 0;
};

/// What is readable must be right; returns how many summaries, scalars and raw values were.
struct Checked {
  size_t commits = 0, summaries = 0, histograms = 0, scalars = 0, raws = 0, refused = 0;
};
inline Checked CheckEverything(WorkerReader& reader, const WorkerFixture::Options& options) {
  Checked out;
  out.commits = reader.commits().size();
  for (const format::TensorDef& def : reader.tensors()) {
    const bool scalar = def.name == "lr";
    const int t = scalar ? options.tensors : std::atoi(def.name.c_str() + 7);
    if (!scalar) {
      EXPECT_EQ(def.name, WorkerFixture::Definition(t).name);
    }
    for (const auto& ref : reader.RowsOf(def.id)) {
      reader.Prepare(ref.batch, ref.row, ref.row + 1);
      const SummaryBatch& batch = reader.summaries()[ref.batch];
      if (batch.damaged != 0) {
        ++out.refused;
        continue;
      }
      const int64_t step = batch.step_last[ref.row];
      EXPECT_EQ(ref.global_step, step);
      EXPECT_EQ(ref.sub,
                (format::SubKey{batch.sub[ref.row], static_cast<format::Point>(batch.point[ref.row])}));
      EXPECT_EQ(batch.tensor[ref.row], def.id);
      const auto at_step = reader.RowsAt(def.id, step);
      EXPECT_TRUE(std::any_of(at_step.begin(), at_step.end(),
                              [&](const auto& r) { return r.batch == ref.batch && r.row == ref.row; }));
      const Summary got = batch.at(ref.row), want = WorkerFixture::SummaryAt(t, step);
      EXPECT_EQ(std::memcmp(&got, &want, sizeof(got)), 0) << def.name << " at " << step;
      ++out.summaries;
      const auto histogram = reader.HistogramOf(ref);
      if (histogram.ok()) {
        EXPECT_EQ(*histogram, WorkerFixture::HistogramAt(t, step));
        ++out.histograms;
      } else if (histogram.status().code() == Code::kDataLoss) {
        ++out.refused;
      }
    }
    for (const auto& point : reader.ScalarsOf(def.id)) {
      EXPECT_EQ(point.value, WorkerFixture::Rate(point.global_step));
      const auto at_step = reader.ScalarsAt(point.global_step);
      EXPECT_TRUE(std::any_of(at_step.begin(), at_step.end(), [&](const auto& s) {
        return s.tensor == def.id && s.sub == point.sub && s.value == point.value;
      }));
      ++out.scalars;
    }
    for (const RawRef& ref : reader.RawsOf(def.id)) {
      const auto value = reader.ReadRaw(ref);
      if (!value.ok()) {
        ++out.refused;
        continue;
      }
      EXPECT_EQ(value->bytes.size(), options.raw_elements * sizeof(float));
      EXPECT_EQ(value->shape, std::vector<int64_t>{static_cast<int64_t>(options.raw_elements)});
      const auto at_step = reader.RawsAt(def.id, ref.global_step);
      EXPECT_TRUE(std::any_of(at_step.begin(), at_step.end(),
                              [&](const RawRef& r) { return r.sub == ref.sub && r.entry == ref.entry; }));
      for (size_t i = 0; i < options.raw_elements; ++i) {
        float element = 0;
        std::memcpy(&element, value->bytes.data() + i * sizeof(float), sizeof(float));
        EXPECT_EQ(element, WorkerFixture::Element(t, ref.global_step, i))
            << def.name << " at " << ref.global_step;
      }
      ++out.raws;
    }
  }
  return out;
}

/// Paths of the published segments of a worker, in order.
inline std::vector<std::string> SegmentsOf(const std::string& directory) {
  std::vector<std::string> out;
  if (!std::filesystem::exists(directory + "/segments")) return out;
  for (const auto& entry : std::filesystem::directory_iterator(directory + "/segments")) {
    if (entry.path().filename().string()[0] != '.') out.push_back(entry.path().string());
  }
  std::sort(out.begin(), out.end());
  return out;
}

/// The same segment as a writer of format 1.0 would have left it: without an index.
inline std::string WithoutIndex(const std::string& segment) {
  const auto header = format::DecodeSegmentHeader(std::as_bytes(std::span(segment)), segment.size());
  EXPECT_TRUE(header.ok());
  std::vector<format::SegmentEntry> entries = header->entries;
  EXPECT_EQ(entries.back().key, format::kIndexKey);
  entries.pop_back();
  return format::EncodeSegmentHeader(entries, header->tdbg_json) +
         segment.substr(header->data_offset, entries.back().end);
}

}  // namespace tdbg::store

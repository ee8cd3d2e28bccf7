// For tests: a worker's directory with verbs.
#pragma once

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "store/writer/testing.h"
#include "store/writer/testing_options.h"
#include "store/writer/worker_writer.h"

namespace tdbg::store {

using format::DropCause;
using format::DropKind;

inline uint64_t Lost(const std::vector<format::Drop>& dropped, DropCause cause, DropKind kind) {
  for (const format::Drop& drop : dropped) {
    if (drop.cause == static_cast<uint8_t>(cause) && drop.kind == static_cast<uint8_t>(kind))
      return drop.count;
  }
  return 0;
}

inline bool Eventually(const std::function<bool()>& condition) {
  for (int i = 0; i < 1000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

class WorkerWriterTest : public testing::Test {
 protected:
  void Open() {
    auto writer = WorkerWriter::Open(options_);
    ASSERT_TRUE(writer.ok()) << writer.status().ToString();
    writer_ = *std::move(writer);
  }
  void Define(uint32_t id, const std::string& name) {
    format::TensorDef def;
    def.id = id;
    def.name = name;
    def.dtype = DType::kFloat32;
    writer_->AppendTensorDef(def);
  }
  // Floats that depend on (tensor, step), so that a misplaced value is a wrong one.
  static std::string Values(uint32_t tensor, int64_t step, size_t count) {
    std::string bytes(count * 4, '\0');
    std::mt19937 random(static_cast<uint32_t>(step * 1000 + tensor));
    for (size_t i = 0; i < count; ++i) {
      const auto value = static_cast<float>(random());
      std::memcpy(bytes.data() + i * 4, &value, 4);
    }
    return bytes;
  }
  bool Raw(int64_t step, uint32_t tensor, const std::string& bytes) {
    const int64_t shape[] = {static_cast<int64_t>(bytes.size() / 4)};
    return writer_->AppendRaw(step, tensor, {}, {bytes.data(), DType::kFloat32, shape, {}});
  }
  void Row(int64_t step, uint32_t tensor, const std::string& histogram = "") {
    format::SummaryRow row;
    row.tensor = tensor;
    row.count = static_cast<uint64_t>(step) * 7 + tensor;
    row.mean = static_cast<double>(step) + 0.5;
    row.histogram_bytes = static_cast<uint32_t>(histogram.size());
    writer_->AppendSummaries(step, {&row, 1},
                             {reinterpret_cast<const uint8_t*>(histogram.data()), histogram.size()});
  }
  /// Steps with values of tensor 0 until one is lost because the directory is gone. \return how many were
  /// committed
  int64_t CommitUntilDirectoryGone() {
    Define(0, "w");
    const std::string values = Values(0, 0, 50'000);
    int64_t s = 0;
    EXPECT_TRUE(Eventually([&] {
      Raw(s, 0, values);
      Commit(s++);
      return Lost(writer_->dropped(), DropCause::kDirectoryGone, DropKind::kRaw) > 0;
    }));
    return s;
  }
  void Commit(int64_t step) {
    format::Commit commit;
    commit.global_step = commit.mode_step = step;
    commit.mode = 1;
    commit.wall_nanos = 1'000 + step;
    writer_->Commit(commit);
  }
  /// A worker that was given far more than its budget, a megabyte.
  void UseUpTheBudget() {
    options_.budget_bytes = 1 << 20;
    Open();
    Define(0, "w");
    const std::string values = Values(0, 0, 2'000);
    for (int64_t s = 0; s < 2000; ++s) {
      Raw(s, 0, values);
      Row(s, 0, std::string(400, 'h'));
      Commit(s);
    }
  }
  /// A field of the journal's header.
  template <typename T>
  T Header(size_t offset) {
    return base::Load<T>(base::Slurp(options_.journal_path).data() + offset);
  }
  bool AllIsSealed() {
    return Header<uint64_t>(offsetof(format::JournalHeader, sealed_pos)) ==
           Header<uint64_t>(offsetof(format::JournalHeader, committed_pos));
  }
  /// All segments' bytes.
  std::string Segments() const {
    std::string bytes;
    for (const auto& entry : std::filesystem::directory_iterator(options_.worker_directory + "/segments"))
      bytes += base::Slurp(entry.path().string());
    return bytes;
  }
  /// On a full disk: until the drain has found it full, the journal is what is.
  uint64_t LostSteps() const {
    const auto dropped = writer_->dropped();
    return Lost(dropped, DropCause::kDiskFull, DropKind::kStep) +
           Lost(dropped, DropCause::kJournalFull, DropKind::kStep);
  }
  bool RingIsReleased() {
    struct stat info{};
    ::stat(options_.journal_path.c_str(), &info);
    return info.st_blocks * 512 < 64 << 10;
  }
  // While the drain works, a segment may appear between our look at the folder and our look at the journal.
  Decoded Read() {
    for (int attempt = 0;; ++attempt) {
      try {
        return DecodeWorker(options_.worker_directory, options_.journal_path);
      } catch (const std::runtime_error&) {
        if (attempt == 100) throw;
      }
    }
  }

  base::ScratchDirectory scratch_;
  WriterOptions options_ = TestOptions(scratch_.path());
  FaultyFileSystem faulty_;
  std::unique_ptr<WorkerWriter> writer_;
};

}  // namespace tdbg::store

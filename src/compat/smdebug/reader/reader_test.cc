// What a directory of smdebug's may hold besides what smdebug writes when all goes well.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <vector>

#include "base/bytes.h"
#include "compat/smdebug/reader/collections_file.h"
#include "compat/smdebug/reader/names.h"
#include "compat/smdebug/reader/run.h"
#include "compat/smdebug/reader/testing.h"

namespace tdbg::compat::smdebug {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

class SmdebugReader : public testing::Test {
 protected:
  SmdebugReader() : written_(scratch_ / "run") {}

  smdebug::Run& Opened() {
    auto run = smdebug::Run::Open(written_.path());
    EXPECT_TRUE(run.ok()) << run.status().ToString();
    run_ = *run;
    return *run_;
  }
  std::unique_ptr<store::WorkerReader> Worker(size_t index = 0) {
    auto reader = run_->OpenWorker(index);
    EXPECT_TRUE(reader->Refresh().ok());
    return reader;
  }
  /// The status of the only value's reading; what it says, the damage says too.
  Status ReadFirst() {
    Opened();
    const auto reader = Worker();
    const auto raws = reader->RawsOf(0);
    if (raws.empty()) return NotFound("no raw value");
    const Status status = reader->ReadRaw(raws.front()).status();
    EXPECT_THAT(reader->damage(), SizeIs(status.ok() ? 0 : 1));
    return status;
  }

  base::ScratchDirectory scratch_;
  RunForTest written_;
  std::shared_ptr<smdebug::Run> run_;
};

TEST(SmdebugNames, FilesAndWorkers) {
  const auto step = ParseStepFileName("000000000003_worker_0.json", ".json");
  ASSERT_TRUE(step);
  EXPECT_EQ(step->step, 3);
  EXPECT_EQ(step->worker, "worker_0");
  EXPECT_EQ(ParseStepFileName("-00000000001_worker_0.json", ".json")->step, -1);
  for (const char* name :
       {"stray.json", "3_.json", "_worker_0.json", "x3_worker_0.json", "3_worker_0.csv", "+3_w.json"}) {
    EXPECT_FALSE(ParseStepFileName(name, ".json")) << name;
  }
  EXPECT_EQ(DecodeWorker("worker_0"), "worker_0");
  EXPECT_EQ(DecodeWorker("_job-worker_replica-0_task-1_device-GPU-6"),
            "/job:worker/replica:0/task:1/device:GPU:6");
  EXPECT_EQ(ParseCollectionsFileName("worker_0_collections.json"), "worker_0");
  EXPECT_EQ(ParseCollectionsFileName("collections.json"), "");
  EXPECT_FALSE(ParseCollectionsFileName("worker_0_collections.ts"));
}

TEST(SmdebugNames, EventFilesStayBelow) {
  EXPECT_TRUE(IsEventFileName("events/000000000003/000000000003_worker_0.tfevents"));
  for (const char* name : {"", "/events/1/x", "events/../x", "events/1/..", "../events/1/x", "events//x",
                           "events/1", "events/1/x/y", "index/1/x", "events/./x"}) {
    EXPECT_FALSE(IsEventFileName(name)) << name;
  }
}

TEST(SmdebugNames, Reductions) {
  const auto plain = ParseReductionName("smdebug/reductions/mean/gradient/fc.weight");
  ASSERT_TRUE(plain);
  EXPECT_EQ(plain->tensor, "gradient/fc.weight");
  EXPECT_EQ(plain->operation, "mean");
  EXPECT_FALSE(plain->absolute);
  const auto absolute = ParseReductionName("smdebug/reductions/abs_l2/w");
  ASSERT_TRUE(absolute);
  EXPECT_EQ(absolute->operation, "l2");
  EXPECT_TRUE(absolute->absolute);
  for (const char* name :
       {"w", "smdebug/reductions/", "smdebug/reductions/mean", "smdebug/reductions/abs_/w"}) {
    EXPECT_FALSE(ParseReductionName(name)) << name;
  }
}

TEST_F(SmdebugReader, ReadsWhatIsThere) {
  written_.Step(0, {{"w", {1, 2, 3}}, {"gradient/w", {0, -4}}});
  written_.Step(1, {{"w", {4, 5, 6}}}, "worker_0", "EVAL", 0);
  EXPECT_FALSE(Opened().end_marker());
  const auto reader = Worker();
  EXPECT_TRUE(reader->alive());
  ASSERT_THAT(reader->commits(), SizeIs(2));
  EXPECT_EQ(reader->commits()[1].mode, 2);
  EXPECT_EQ(reader->commits()[1].mode_step, 0);
  ASSERT_THAT(reader->tensors(), SizeIs(2));
  EXPECT_THAT(reader->tensors()[1].collections, ElementsAre("gradients"));
  EXPECT_EQ(reader->tensors()[1].kind, "gradient");
  const auto value = reader->ReadRaw(reader->RawsOf(0)[1]);
  TDBG_ASSERT_OK(value);
  EXPECT_EQ(value->dtype, DType::kFloat32);
  EXPECT_THAT(value->shape, ElementsAre(3));
  EXPECT_EQ(reinterpret_cast<uintptr_t>(value->bytes.data()) % 16, 0u);
  EXPECT_EQ(base::Load<float>(value->bytes.data() + 8), 6);
  // Statistics are made when somebody comes for them.
  const auto rows = reader->RowsOf(1);
  ASSERT_THAT(rows, SizeIs(1));
  EXPECT_NE(reader->summaries()[rows[0].batch].unknown[rows[0].row], 0u);
  reader->Prepare(rows[0].batch, rows[0].row, rows[0].row + 1);
  const store::SummaryBatch& batch = reader->summaries()[rows[0].batch];
  EXPECT_EQ(batch.unknown[rows[0].row], 0u);
  EXPECT_EQ(batch.at(rows[0].row).l1, 4);
  EXPECT_EQ(batch.zero_count[rows[0].row], 1u);
}

TEST_F(SmdebugReader, ANameWithTwoUnderscoresInThePathIsNoDevice) {
  const RunForTest other(scratch_ / "my__run");
  other.Step(0, {{"w", {1}}});
  const auto run = smdebug::Run::Open(other.path());
  TDBG_ASSERT_OK(run);
  EXPECT_EQ((*run)->part(0).name(), "worker_0");
}

/// Of tensor 0's series.
std::vector<double> Means(const store::WorkerReader& reader, int64_t begin, int64_t end) {
  const auto series = reader.Series(0, begin, end, store::WorkerReader::kAllColumns);
  std::vector<double> means;
  for (const auto& row : series.rows) means.push_back(series.batches[row.batch].mean[row.row]);
  return means;
}

TEST_F(SmdebugReader, GrowsAndKeepsItsOrder) {
  written_.Step(5, {{"w", {5}}});
  smdebug::Run& run = Opened();
  const auto reader = Worker();
  EXPECT_THAT(reader->RawsOf(0), SizeIs(1));
  EXPECT_THAT(Means(*reader, 0, 100), ElementsAre(5));
  written_.Step(7, {{"w", {7}}, {"w2", {7}}});
  TDBG_ASSERT_OK(run.Refresh());
  EXPECT_TRUE(*reader->Refresh());
  EXPECT_FALSE(*reader->Refresh());
  EXPECT_THAT(reader->RawsOf(0), SizeIs(2));
  EXPECT_THAT(reader->RowsOf(1), SizeIs(1));
  EXPECT_THAT(Means(*reader, 6, 100), ElementsAre(7));
  EXPECT_THAT(Means(*reader, 0, 100), ElementsAre(5, 7));
  EXPECT_THAT(Means(*reader, 0, 7), ElementsAre(5));
  const uint64_t rewrites = reader->rewrites();
  written_.Step(6, {{"w", {6}}});  // late, as a copy of a directory may bring them
  TDBG_ASSERT_OK(run.Refresh());
  EXPECT_TRUE(*reader->Refresh());
  EXPECT_GT(reader->rewrites(), rewrites);
  const auto raws = reader->RawsOf(0);
  ASSERT_THAT(raws, SizeIs(3));
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(raws[i].global_step, static_cast<int64_t>(5 + i));
    const auto value = reader->ReadRaw(raws[i]);
    TDBG_ASSERT_OK(value);
    EXPECT_EQ(base::Load<float>(value->bytes.data()), static_cast<float>(5 + i));
  }
  EXPECT_THAT(Means(*reader, 0, 100), ElementsAre(5, 6, 7));
  EXPECT_THAT(reader->RowsOf(0), SizeIs(3));
  EXPECT_THAT(reader->RawsAt(0, 6), SizeIs(1));
  EXPECT_THAT(reader->RawsAt(1, 6), IsEmpty());
}

TEST_F(SmdebugReader, TheEndMarkerOfTheFirstIsNotTheLastOnesEnd) {
  written_.Step(0, {{"w", {1}}});
  written_.Step(0, {{"w", {1}}}, "worker_1");
  written_.Step(1, {{"w", {1}}});
  written_.End();
  smdebug::Run& run = Opened();
  const auto fast = Worker(0), slow = Worker(1);
  EXPECT_TRUE(fast->ended());
  EXPECT_FALSE(slow->ended());
  written_.Step(1, {{"w", {1}}}, "worker_1");
  TDBG_ASSERT_OK(run.Refresh());
  EXPECT_TRUE(*slow->Refresh());
  EXPECT_TRUE(slow->ended());
  EXPECT_THAT(slow->commits(), SizeIs(2));
}

// A script that names its writer itself: smdebug's reader knows the number of workers and not whose steps
// are.
TEST_F(SmdebugReader, EventFilesUnderAnotherNameThanTheCollectionsFilesAreThatWorkers) {
  smdebug::Run& run = Opened();
  EXPECT_EQ(run.part(0).name(), "worker_0");
  written_.Step(0, {{"w", {1}}}, "algo-1");
  written_.End();
  TDBG_ASSERT_OK(run.Refresh());
  EXPECT_EQ(run.world_size(), 1);
  EXPECT_EQ(run.part(0).name(), "algo-1");
  EXPECT_TRUE(run.ended(0));
}

TEST_F(SmdebugReader, SoTheyAreWhereTheCollectionsFileComesLast) {
  const std::string collections = written_.path() + "/collections/000000000/worker_0_collections.json";
  fs::rename(collections, written_.path() + "/kept");
  written_.Step(0, {{"w", {1}}}, "algo-1");
  written_.End();
  smdebug::Run& run = Opened();
  EXPECT_EQ(run.part(0).name(), "algo-1");
  fs::rename(written_.path() + "/kept", collections);
  TDBG_ASSERT_OK(run.Refresh());
  EXPECT_EQ(run.world_size(), 1);
  EXPECT_EQ(run.part(0).name(), "algo-1");
}

TEST_F(SmdebugReader, LeftoversAreNotRead) {
  written_.Step(0, {{"w", {1}}});
  base::Spill(written_.path() + "/index/000000000/000000000001_worker_0.json.tmp", "");
  base::Spill(written_.path() + "/claim.smd", "");
  EXPECT_THAT(Opened().damage(), IsEmpty());
  EXPECT_THAT(Worker()->commits(), SizeIs(1));
}

// smdebug opens its temporary file for appending.
TEST_F(SmdebugReader, OfTwoDocumentsInAnIndexFileTheLastCounts) {
  written_.Step(0, {{"w", {1}}});
  const std::string name = written_.path() + "/" + RunForTest::IndexName(0);
  base::Spill(name, R"({"meta": {"mode": "EVAL", "mode_step": 9}})" + base::Slurp(name));
  EXPECT_THAT(Opened().damage(), IsEmpty());
  ASSERT_THAT(Worker()->commits(), SizeIs(1));
  EXPECT_EQ(Worker()->commits()[0].mode, 1);
}

TEST_F(SmdebugReader, BadIndexFilesCostTheirStepAndAreNamed) {
  written_.Step(0, {{"w", {1}}});
  const auto index = [&](int64_t step, const std::string& text) {
    written_.Write(RunForTest::IndexName(step), text);
  };
  index(1, "");
  index(2, "{\"meta\"");
  index(3, "[1, 2]");
  index(4, R"({"tensor_payload": []})");
  index(5, R"({"meta": {"mode": "TRIAN", "mode_step": 1}})");
  index(6, R"({"meta": {"mode": "TRAIN", "mode_step": -1}})");
  index(7, R"({"meta": {"mode": "TRAIN", "mode_step": 1}, "tensor_payload": [{"tensorname": "w"}]})");
  index(
      8,
      R"({"meta": {"mode": "TRAIN", "mode_step": 1}, "tensor_payload": [{"tensorname": 3, "start_idx": 0, "length": 1}]})");
  index(
      9,
      R"({"meta": {"mode": "TRAIN", "mode_step": 1}, "tensor_payload": [{"tensorname": "w", "start_idx": -1, "length": 1}]})");
  index(10, std::string(100, '['));
  index(11, R"({"meta": {"mode": "TRAIN", "mode_step": 1, "event_file_name": "../../etc/passwd"}})");
  index(12, R"({"meta": {"mode": "TRAIN", "mode_step": 1, "event_file_name": "/events/1/x"}})");
  // A key in which a bit was flipped.
  const std::string meta = R"({"meta": {"mode": "TRAIN", "mode_step": 1)";
  const std::string in_a_file =
      meta + R"(, "event_file_name": "events/000000000000/000000000000_worker_0.tfevents"})";
  const std::string tensor = R"({"tensorname": "w", "start_idx": 0, "length": 90})";
  const std::string shape = R"({"tensorname": "w", "originalname": "w", "shape": [1]})";
  index(13, in_a_file + R"(, "uensor_payload": [)" + tensor + R"(], "shape_payload": []})");
  index(14, in_a_file + R"(, "uensor_payload": [)" + tensor + R"(], "shape_payload": [)" + shape + "]}");
  index(15, meta + R"(}, "tensor_payload": [], "shape_pay,oad": [)" + shape + "]}");
  index(16, in_a_file + R"(, "tensor_payload": [)" + tensor + R"(], "shape_pay,oad": [)" + shape + "]}");
  index(
      17,
      meta +
          R"(}, "tensor_payload": [], "shape_payload": [{"tensorname": "w", "orifinalname": "w", "shape": [1]}]})");
  index(18, meta + R"(}, "tensor_payload": 3})");
  written_.Write("index/000000000/stray.json", "{}");
  written_.Write("index/000000000/-00000000001_worker_0.json", "{}");
  const auto damage = Opened().damage();
  EXPECT_THAT(damage, SizeIs(20));
  EXPECT_THAT(Worker()->commits(), SizeIs(1));
  for (const store::Damage& item : damage) EXPECT_THAT(item.file, HasSubstr("index/000000000/"));
  // One that becomes good is taken in, and is damage no more.
  written_.Step(2, {{"w", {1}}});
  EXPECT_TRUE(*run_->Refresh());
  EXPECT_THAT(run_->damage(), SizeIs(19));
}

TEST_F(SmdebugReader, AnIndexWithoutOneOfItsListsIsOfAnOlderWriter) {
  written_.Step(0, {{"w", {1}}});
  const std::string name = written_.path() + "/" + RunForTest::IndexName(0);
  std::string text = base::Slurp(name);
  text.replace(text.find(R"(, "shape_payload": [])"), 21, "");
  base::Spill(name, text);
  EXPECT_THAT(Opened().damage(), IsEmpty());
  EXPECT_THAT(Worker()->commits(), SizeIs(1));
}

TEST_F(SmdebugReader, AnIndexThatPointsBeyondItsFile) {
  written_.Step(0, {{"w", {1}}});
  for (const char* where :
       {R"("start_idx": 1000000, "length": 90)", R"("start_idx": 0, "length": 1099511627776)",
        R"("start_idx": 18446744073709551615, "length": 18446744073709551615)",
        R"("start_idx": 0, "length": 3)", R"("start_idx": 0, "length": 0)"}) {
    written_.Index(0, RunForTest::EventName(0), std::string(R"({"tensorname": "w", )") + where + "}");
    EXPECT_EQ(ReadFirst().code(), Code::kDataLoss) << where;
  }
}

TEST_F(SmdebugReader, TruncatedAndMissingEventFiles) {
  written_.Step(0, {{"w", {1, 2, 3, 4}}});
  const std::string name = written_.path() + "/" + RunForTest::EventName(0);
  const std::string whole = base::Slurp(name);
  for (const size_t kept : {size_t{0}, size_t{1}, size_t{12}, whole.size() - 1}) {
    base::Spill(name, whole.substr(0, kept));
    EXPECT_EQ(ReadFirst().code(), Code::kDataLoss) << kept;
  }
  fs::remove(name);
  EXPECT_EQ(ReadFirst().code(), Code::kNotFound);
}

TEST_F(SmdebugReader, ARecordOfAnotherTensorIsNotTaken) {
  written_.Step(0, {{"w", {1}}, {"gradient/w", {2}}});
  const std::string record = tfevents::FloatRecordForTest("other", 0, {1});
  written_.Write(RunForTest::EventName(0), record);
  written_.Index(0, RunForTest::EventName(0),
                 fmt::format(R"({{"tensorname": "w", "start_idx": 0, "length": {}}})", record.size()));
  const Status status = ReadFirst();
  EXPECT_EQ(status.code(), Code::kDataLoss);
  EXPECT_THAT(status.message(), HasSubstr("'other'"));
}

TEST_F(SmdebugReader, LinksThatLeadOutOfTheDirectory) {
  written_.Step(0, {{"w", {1}}});
  const std::string event = written_.path() + "/" + RunForTest::EventName(0);
  fs::rename(event, scratch_ / "outside");
  fs::create_symlink(scratch_ / "outside", event);
  EXPECT_EQ(ReadFirst().code(), Code::kInvalidArgument);
  // Inside it a link is as good as a file.
  fs::rename(scratch_ / "outside", written_.path() + "/events/elsewhere");
  fs::remove(event);
  fs::create_symlink("../elsewhere", event);
  TDBG_EXPECT_OK(ReadFirst());
  // The folder of a step may be a link, too.
  fs::remove(event);
  fs::remove(written_.path() + "/events/000000000000");
  fs::create_directory(scratch_ / "folder");
  fs::rename(written_.path() + "/events/elsewhere", scratch_ / "folder/000000000000_worker_0.tfevents");
  fs::create_directory_symlink(scratch_ / "folder", written_.path() + "/events/000000000000");
  EXPECT_EQ(ReadFirst().code(), Code::kInvalidArgument);
}

// Opening a pipe waits for its other end.
TEST_F(SmdebugReader, APipeInPlaceOfAnEventFile) {
  written_.Step(0, {{"w", {1}}});
  const std::string event = written_.path() + "/" + RunForTest::EventName(0);
  fs::remove(event);
  ASSERT_EQ(::mkfifo(event.c_str(), 0600), 0);
  EXPECT_EQ(ReadFirst().code(), Code::kInvalidArgument);
}

TEST_F(SmdebugReader, SaysWhatSavedReductionsDoNot) {
  written_.Step(0, {{"smdebug/reductions/mean/w", {2}}, {"smdebug/reductions/abs_mean/w", {3}}});
  Opened();
  const auto reader = Worker();
  ASSERT_THAT(reader->tensors(), SizeIs(1));
  EXPECT_EQ(reader->tensors()[0].name, "w");
  EXPECT_THAT(reader->RawsOf(0), IsEmpty());
  const auto reductions = reader->ReductionsOf(0, 0);
  ASSERT_THAT(reductions, SizeIs(2));
  EXPECT_EQ(reductions[1].name, "mean");
  EXPECT_TRUE(reductions[1].absolute);
  reader->Prepare(0, 0, 1);
  const store::SummaryBatch& batch = reader->summaries()[0];
  EXPECT_EQ(batch.mean[0], 2);
  EXPECT_EQ(batch.mean_abs[0], 3);
  const auto bit = [](format::SummaryColumn column) { return format::ColumnBit(column); };
  EXPECT_EQ(batch.unknown[0] & bit(format::SummaryColumn::k_mean), 0u);
  EXPECT_EQ(batch.unknown[0] & bit(format::SummaryColumn::k_nan_count), 0u);
  EXPECT_EQ(batch.unknown[0] & store::kMeanAbsUnknown, 0u);
  for (const auto column :
       {format::SummaryColumn::k_count, format::SummaryColumn::k_zero_count, format::SummaryColumn::k_min,
        format::SummaryColumn::k_variance, format::SummaryColumn::k_l1}) {
    EXPECT_NE(batch.unknown[0] & bit(column), 0u) << format::ColumnOf(column).name;
  }
  const auto series = reader->Series(0, 0, 1, store::WorkerReader::kAllColumns);
  ASSERT_THAT(series.rows, SizeIs(1));
  const store::SummaryBatch& own = series.batches[series.rows[0].batch];
  EXPECT_EQ(own.mean[series.rows[0].row], 2);
  EXPECT_EQ(own.unknown[series.rows[0].row], batch.unknown[0]);
}

TEST_F(SmdebugReader, AReductionThatIsNaNIsOneNaNAtLeast) {
  written_.Step(0, {{"smdebug/reductions/mean/w", {std::numeric_limits<float>::quiet_NaN()}}});
  Opened();
  const auto reader = Worker();
  reader->Prepare(0, 0, 1);
  const store::SummaryBatch& batch = reader->summaries()[0];
  EXPECT_EQ(batch.nan_count[0], 1u);
  EXPECT_EQ(batch.unknown[0] & format::ColumnBit(format::SummaryColumn::k_nan_count), 0u);
  EXPECT_NE(batch.unknown[0] & format::ColumnBit(format::SummaryColumn::k_mean), 0u);
}

TEST(SmdebugCollections, WhatAFileMayHold) {
  const auto file = DecodeCollectionsFile(
      R"({"collections": {"a": {"include_regex": false, "tensor_names": ["x"], "reduction_config":
         {"save_raw_tensor": false, "save_shape": true, "reductions": "mean,abs_l1_norm"}}, "b": {"include_regex": ["^y", "("]}},
         "_meta": {"num_workers": 3, "more": 1}, "unknown": {}})");
  TDBG_ASSERT_OK(file);
  EXPECT_EQ(file->num_workers, 3);
  EXPECT_THAT(file->collections[0].reductions, ElementsAre("mean", "abs_l1_norm"));
  EXPECT_FALSE(file->collections[0].save_raw);
  Collections collections;
  EXPECT_THAT(collections.Add(*file), SizeIs(1));  // "(" is no pattern, and is said
  EXPECT_THAT(collections.Of("x"), ElementsAre("a"));
  EXPECT_THAT(collections.Of("yes"), ElementsAre("b"));
  for (const char* bad : {"", "x", "[]", "{}", R"({"collections": []})", R"({"collections": {"a": 1}})",
                          R"({"collections": {"a": {"tensor_names": [1]}}})",
                          R"({"collections": {}, "_meta": {"num_workers": 0}})",
                          R"({"collections": {}, "_meta": {"num_workers": 4611686018427387904}})"}) {
    EXPECT_EQ(DecodeCollectionsFile(bad).status().code(), Code::kDataLoss) << bad;
  }
}

/// A run whose writers were killed, or are slow: its files are as old as one says.
class SmdebugKilled : public SmdebugReader {
 protected:
  static constexpr int kMinute = 60;

  /// The index file of each step, `ages` seconds ago; everything else as old as the oldest.
  void Age(const std::vector<int>& ages) {
    const auto now = fs::file_time_type::clock::now();
    std::vector<fs::path> paths{written_.path()};
    for (const auto& entry : fs::recursive_directory_iterator(written_.path())) paths.push_back(entry.path());
    const auto oldest = now - std::chrono::seconds(*std::max_element(ages.begin(), ages.end()));
    for (const fs::path& path : paths) fs::last_write_time(path, oldest);
    for (size_t step = 0; step < ages.size(); ++step) {
      const fs::path index = fs::path(written_.path()) / RunForTest::IndexName(static_cast<int64_t>(step));
      fs::last_write_time(index, now - std::chrono::seconds(ages[step]));
    }
  }
  bool AliveAfter(const std::vector<int>& ages) {
    for (size_t step = 0; step < ages.size(); ++step) written_.Step(static_cast<int64_t>(step), {{"w", {1}}});
    Age(ages);
    Opened();
    return Worker()->alive();
  }
  /// An event file without index: `whole` records of one element, then some bytes of another.
  void Leave(int64_t step, int whole, size_t cut, const std::string& suffix = ".tmp") {
    std::string bytes;
    for (int i = 0; i < whole; ++i) {
      bytes += tfevents::FloatRecordForTest("w" + std::to_string(i), step, {static_cast<float>(i)});
    }
    bytes += tfevents::FloatRecordForTest("lost", step, {1}).substr(0, cut);
    written_.Write(RunForTest::EventName(step) + suffix, bytes);
    if (suffix == ".tmp") written_.Write(RunForTest::IndexName(step) + suffix, "");
  }
};

TEST_F(SmdebugKilled, IsTakenForDeadAfterManyOfItsPauses) {
  EXPECT_TRUE(AliveAfter({17 * kMinute, 16 * kMinute, 15 * kMinute}));
  EXPECT_FALSE(AliveAfter({27 * kMinute, 26 * kMinute, 25 * kMinute}));
}
TEST_F(SmdebugKilled, ButNotBeforeTenMinutes) {
  EXPECT_TRUE(AliveAfter({9 * kMinute + 2, 9 * kMinute + 1, 9 * kMinute}));
  EXPECT_FALSE(AliveAfter({11 * kMinute + 2, 11 * kMinute + 1, 11 * kMinute}));
}
TEST_F(SmdebugKilled, AndNotBeforeSixHoursWhereItsPaceIsNotKnown) {
  EXPECT_TRUE(AliveAfter({350 * kMinute}));
  EXPECT_FALSE(AliveAfter({361 * kMinute}));
}

TEST_F(SmdebugKilled, WhatComesAllTheSameIsTakenIn) {
  ASSERT_FALSE(AliveAfter({363 * kMinute, 362 * kMinute, 361 * kMinute}));
  const auto reader = Worker();
  written_.Step(3, {{"w", {7}}});
  TDBG_ASSERT_OK(run_->Refresh());
  EXPECT_TRUE(*reader->Refresh());
  EXPECT_TRUE(reader->alive());
  EXPECT_THAT(reader->commits(), SizeIs(4));
}

TEST_F(SmdebugKilled, WholeRecordsOfTheStepThatWasOpenAreRead) {
  Leave(1, 2, 30);
  ASSERT_FALSE(AliveAfter({361 * kMinute}));
  const auto reader = Worker();
  ASSERT_THAT(reader->commits(), SizeIs(2));
  EXPECT_EQ(reader->commits()[1].global_step, 1);
  ASSERT_THAT(reader->tensors(), SizeIs(3));
  const auto value = reader->ReadRaw(reader->RawsOf(2).front());
  TDBG_ASSERT_OK(value);
  EXPECT_EQ(base::Load<float>(value->bytes.data()), 1);
  ASSERT_THAT(run_->damage(), SizeIs(1));
  EXPECT_EQ(run_->damage()[0].file, RunForTest::EventName(1) + ".tmp");
  EXPECT_THAT(run_->damage()[0].what, HasSubstr("2 whole records; then"));
}

TEST_F(SmdebugKilled, SoAreThoseOfAnEventFileThatHasNoIndex) {
  Leave(1, 2, 0, "");
  ASSERT_FALSE(AliveAfter({361 * kMinute}));
  EXPECT_THAT(Worker()->commits(), SizeIs(2));
  EXPECT_THAT(run_->damage()[0].what, HasSubstr("2 whole records, and nothing tells"));
}

TEST_F(SmdebugKilled, WhileItMayGoOnWritingNothingIsTouched) {
  Leave(1, 2, 30);
  ASSERT_TRUE(AliveAfter({kMinute}));
  EXPECT_THAT(Worker()->commits(), SizeIs(1));
  EXPECT_THAT(run_->damage(), IsEmpty());
}

TEST_F(SmdebugKilled, AfterTheEndOfAllLeftoversAreReadAtOnce) {
  written_.Step(0, {{"w", {1}}});
  Leave(1, 1, 0);
  written_.End();
  Opened();
  EXPECT_THAT(Worker()->commits(), SizeIs(2));
}

TEST_F(SmdebugKilled, WithoutAWholeRecordThereIsNoStep) {
  Leave(1, 0, 20);
  ASSERT_FALSE(AliveAfter({361 * kMinute}));
  EXPECT_THAT(Worker()->commits(), SizeIs(1));
  EXPECT_THAT(run_->damage()[0].what, HasSubstr("0 whole records"));
}

TEST_F(SmdebugKilled, ARecordThatClaimsMoreThanOneCanHaveCostsNoMemory) {
  const auto head = tfevents::EncodeRecordHeader(uint64_t{6} << 30);
  const std::string name = RunForTest::EventName(1) + ".tmp";
  written_.Write(name, std::string(reinterpret_cast<const char*>(head.data()), head.size()));
  fs::resize_file(fs::path(written_.path()) / name, uint64_t{8} << 30);  // sparse
  ASSERT_FALSE(AliveAfter({361 * kMinute}));
  EXPECT_THAT(Worker()->commits(), SizeIs(1));
  EXPECT_THAT(run_->damage()[0].what, HasSubstr("less than 2 GiB"));
}

TEST_F(SmdebugKilled, OfAWorkerThatNothingElseTellsOfNothingIsRead) {
  Leave(1, 1, 0);
  written_.Write("events/000000000001/000000000001_stranger.tfevents",
                 tfevents::FloatRecordForTest("x", 1, {1}));
  written_.Write("events/000000000001/000000000002_worker_0.tfevents",
                 tfevents::FloatRecordForTest("x", 1, {1}));
  ASSERT_FALSE(AliveAfter({361 * kMinute}));
  EXPECT_EQ(run_->worker_count(), 1u);
  EXPECT_THAT(Worker()->commits(), SizeIs(2));
}

TEST_F(SmdebugKilled, AnIndexThatComesLaterReplacesWhatWasSalvaged) {
  Leave(1, 2, 30);
  ASSERT_FALSE(AliveAfter({361 * kMinute}));
  const auto reader = Worker();
  written_.Step(1, {{"w", {5}}, {"w0", {6}}});
  TDBG_ASSERT_OK(run_->Refresh());
  TDBG_ASSERT_OK(reader->Refresh());
  ASSERT_THAT(reader->commits(), SizeIs(2));
  EXPECT_THAT(run_->damage(), IsEmpty());
  ASSERT_THAT(reader->RawsOf(0), SizeIs(2));
  const auto value = reader->ReadRaw(reader->RawsOf(0)[1]);
  TDBG_ASSERT_OK(value);
  EXPECT_EQ(base::Load<float>(value->bytes.data()), 5);
  EXPECT_THAT(reader->RawsOf(2), IsEmpty());  // it was only in what the killed writer had left
}

}  // namespace
}  // namespace tdbg::compat::smdebug

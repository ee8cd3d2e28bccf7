// What is written, as bytes and as our own reader finds it. That the real smdebug reads it is tested with the
// real one (tests/cli/test_export_smdebug.py, tests/python/smdebug/test_event_files.py).
#include "compat/smdebug/writer/run_directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/testing.h"
#include "compat/smdebug/writer/values.h"
#include "tfevents/event.h"
#include "tfevents/record.h"

namespace tdbg::smdebug {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using Json = nlohmann::json;

template <typename T>
std::vector<T> Elements(const ReadableValue& value) {
  std::vector<T> out(value.bytes().size() / sizeof(T));
  std::memcpy(out.data(), value.bytes().data(), value.bytes().size());
  return out;
}

template <typename T>
TensorView View(const std::vector<T>& values, DType dtype, const std::vector<int64_t>& shape) {
  return {values.data(), dtype, shape, {}};
}

TEST(SmdebugValues, BecomeTheNearestTypeThatItsReaderKnows) {
  const std::vector<int64_t> shape{2};
  const std::vector<int8_t> bytes{-1, 127};
  const auto widened = MakeReadable(View(bytes, DType::kInt8, shape));
  EXPECT_EQ(widened.dtype, DType::kInt32);
  EXPECT_THAT(Elements<int32_t>(widened), ElementsAre(-1, 127));
  const std::vector<uint32_t> words{1, 4'000'000'000u};
  EXPECT_THAT(Elements<int64_t>(MakeReadable(View(words, DType::kUInt32, shape))),
              ElementsAre(1, 4'000'000'000));
  const std::vector<uint16_t> bf16{0x3f80, 0xc000};  // 1, -2
  const auto floats = MakeReadable(View(bf16, DType::kBFloat16, shape));
  EXPECT_EQ(floats.dtype, DType::kFloat32);
  EXPECT_THAT(Elements<float>(floats), ElementsAre(1.0f, -2.0f));
}

TEST(SmdebugValues, Uint64BecomesFloatOnlyWhereAValueAsksForIt) {
  const std::vector<int64_t> shape{2};
  const std::vector<uint64_t> small{1, 2}, large{1, uint64_t{1} << 63};
  EXPECT_EQ(MakeReadable(View(small, DType::kUInt64, shape)).dtype, DType::kInt64);
  const auto floats = MakeReadable(View(large, DType::kUInt64, shape));
  EXPECT_EQ(floats.dtype, DType::kFloat64);
  EXPECT_THAT(Elements<double>(floats), ElementsAre(1.0, 9223372036854775808.0));
}

TEST(SmdebugValues, WhatIsReadableIsBorrowedAndStridesAreLaidOut) {
  const std::vector<float> values{0, 1, 2, 3, 4, 5};
  const std::vector<int64_t> shape{2, 3}, transposed{3, 2}, strides{1, 3};
  EXPECT_EQ(static_cast<const void*>(MakeReadable(View(values, DType::kFloat32, shape)).bytes().data()),
            values.data());
  const auto dense = MakeReadable({values.data(), DType::kFloat32, transposed, strides});
  EXPECT_THAT(Elements<float>(dense), ElementsAre(0, 3, 1, 4, 2, 5));
}

TEST(SmdebugValues, TextsAreUtf8) {
  const std::vector<uint32_t> points{'a', 0, 0xe9, 0x1f600};
  const std::vector<int64_t> shape{2, 2};
  EXPECT_THAT(TextsOf(View(points, DType::kText, shape)), ElementsAre("a", "\xc3\xa9\xf0\x9f\x98\x80"));
}

class SmdebugWriter : public testing::Test {
 protected:
  SmdebugWriter() : run_(*RunDirectory::Create(scratch_ / "run")) {}

  std::string Path(const std::string& relative) const { return run_.path() + "/" + relative; }
  Json Read(const std::string& relative) const { return Json::parse(base::Slurp(Path(relative))); }
  StepFiles Step(int64_t step, int mode = 1, int64_t mode_step = 0) {
    return *run_.OpenStep(step, mode, mode_step, "worker_0", 1.5);
  }
  void Put(StepFiles* files, const std::string& name, float value) {
    const auto put = files->AddTensor(name, {&value, DType::kFloat32, {}, {}});
    TDBG_ASSERT_OK(put);
    EXPECT_TRUE(*put);
  }

  base::ScratchDirectory scratch_;
  RunDirectory run_;
};

constexpr char kEvents[] = "events/000000001003/000000001003_worker_0.tfevents";
constexpr char kIndex[] = "index/000000001/000000001003_worker_0.json";

TEST_F(SmdebugWriter, AStepIsAnEventFileAndAnIndexThatLeadsIntoIt) {
  StepFiles files = Step(1003, 2, 7);
  Put(&files, "a", 1);
  Put(&files, "b", 2);
  TDBG_ASSERT_OK(files.AddReduction("abs_mean", "gradient/c:0", DType::kFloat32, 0.25));
  EXPECT_EQ(files.event_path(), Path(kEvents));
  EXPECT_FALSE(fs::exists(Path(kEvents)));
  TDBG_ASSERT_OK(files.Close());

  const Json index = Read(kIndex);
  EXPECT_EQ(index["meta"], (Json{{"mode", "EVAL"}, {"mode_step", 7}, {"event_file_name", kEvents}}));
  EXPECT_EQ(index["shape_payload"], Json::array());
  const std::string bytes = base::Slurp(Path(kEvents));
  std::vector<std::string> names;
  uint64_t end = 0;
  for (const Json& entry : index["tensor_payload"]) {
    names.push_back(entry["tensorname"]);
    EXPECT_EQ(entry["start_idx"], end);
    const uint64_t length = entry["length"];
    const auto record = tfevents::DecodeRecord(std::as_bytes(std::span(bytes)).subspan(end, length));
    TDBG_ASSERT_OK(record);
    EXPECT_EQ(record->footer, tfevents::Footer::kSmdebug);
    const auto event = tfevents::DecodeEvent(record->payload);
    TDBG_ASSERT_OK(event);
    EXPECT_EQ(event->step, 1003);
    EXPECT_EQ(event->wall_time, 1.5);
    const auto value = tfevents::DecodeSummaryValue(event->values.front());
    TDBG_ASSERT_OK(value);
    EXPECT_EQ(value->tag, names.back());
    EXPECT_THAT(value->plugins, ElementsAre(testing::Pair("mode_step", "7"), testing::Pair("mode", "2")));
    end += length;
  }
  EXPECT_EQ(end, bytes.size());
  EXPECT_THAT(names, ElementsAre("a", "b", "smdebug/reductions/abs_mean/gradient/c"));
}

TEST_F(SmdebugWriter, TheIndexHasTheMomentOfItsFirstRecord) {
  StepFiles files = Step(1003, 4, 0);
  files.SetMoment({.mode = 3, .mode_step = 5, .wall_seconds = 2});
  files.AddShape("s", "S:0", std::vector<int64_t>{2, 3});
  files.SetMoment({.mode = 1, .mode_step = 9, .wall_seconds = 3, .indexed = false});
  Put(&files, "hidden", 1);
  files.SetMoment({.mode = 2, .mode_step = 6, .wall_seconds = 3});
  Put(&files, "a", 1);
  TDBG_ASSERT_OK(files.Close());
  const Json index = Read(kIndex);
  EXPECT_EQ(index["meta"]["mode"], "EVAL");
  EXPECT_EQ(index["meta"]["mode_step"], 6);
  ASSERT_EQ(index["tensor_payload"].size(), 1u);
  EXPECT_GT(index["tensor_payload"][0]["start_idx"], 0);
  EXPECT_EQ(index["shape_payload"][0],
            (Json{{"tensorname", "s"}, {"originalname", "S:0"}, {"shape", {2, 3}}}));
}

TEST_F(SmdebugWriter, AStepOfShapesAloneHasNoEventFile) {
  StepFiles files = Step(1003, 3, 5);
  files.AddShape("s", "s", std::vector<int64_t>{});
  TDBG_ASSERT_OK(files.Close());
  EXPECT_FALSE(fs::exists(Path(kEvents)));
  EXPECT_EQ(Read(kIndex)["meta"], (Json{{"mode", "PREDICT"}, {"mode_step", 5}}));
}

TEST_F(SmdebugWriter, AStepOfNothingLeavesNothing) {
  StepFiles files = Step(1003);
  const auto put = files.AddTensor("empty", {nullptr, DType::kFloat32, std::vector<int64_t>{0, 3}, {}});
  TDBG_ASSERT_OK(put);
  EXPECT_FALSE(*put);
  EXPECT_FALSE(*files.AddTexts("texts", {}));
  TDBG_ASSERT_OK(files.Close());
  EXPECT_FALSE(fs::exists(Path(kIndex)));
  EXPECT_FALSE(fs::exists(Path("events/000000001003")));
}

TEST_F(SmdebugWriter, AStepThatIsDroppedNeverWas) {
  {
    StepFiles files = Step(1003);
    Put(&files, "a", 1);
  }
  for (const auto& entry : fs::recursive_directory_iterator(run_.path()))
    EXPECT_TRUE(entry.is_directory()) << entry;
}

TEST_F(SmdebugWriter, LargeContentsGoThroughUnchanged) {
  std::vector<float> values(300'000);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  StepFiles files = Step(1003);
  Put(&files, "before", 1);
  const std::vector<int64_t> shape{300, 1000};
  ASSERT_TRUE(*files.AddTensor("large", View(values, DType::kFloat32, shape)));
  Put(&files, "after", 2);
  TDBG_ASSERT_OK(files.Close());
  const std::string bytes = base::Slurp(Path(kEvents));
  const Json entry = Read(kIndex)["tensor_payload"][1];
  const auto record =
      tfevents::DecodeRecord(std::as_bytes(std::span(bytes)).subspan(entry["start_idx"], entry["length"]));
  TDBG_ASSERT_OK(record);
  const auto event = tfevents::DecodeEvent(record->payload);
  const auto value = tfevents::DecodeSummaryValue(event->values.front());
  const auto tensor = tfevents::DecodeTensor(value->message);
  TDBG_ASSERT_OK(tensor);
  EXPECT_THAT(tensor->shape, ElementsAre(300, 1000));
  ASSERT_EQ(tensor->bytes.size(), values.size() * sizeof(float));
  EXPECT_EQ(std::memcmp(tensor->bytes.data(), values.data(), tensor->bytes.size()), 0);
}

TEST_F(SmdebugWriter, StepsBelowZeroAreRefused) {
  EXPECT_THAT(run_.OpenStep(-1, 4, 0, "worker_0", 0).status().message(), HasSubstr("from 0"));
  EXPECT_FALSE(run_.OpenStep(0, 4, -1, "worker_0", 0).ok());
}

TEST_F(SmdebugWriter, ADevicesNameFitsIntoAFiles) {
  StepFiles files = *run_.OpenStep(3, 1, 3, "/replica:0/task:0/device:GPU:0", 0);
  Put(&files, "a", 1);
  TDBG_ASSERT_OK(files.Close());
  EXPECT_TRUE(fs::exists(Path("index/000000000/000000000003__replica-0_task-0_device-GPU-0.json")));
}

TEST_F(SmdebugWriter, CollectionsAreAsItsReaderWantsThem) {
  CollectionEntry entry, bare;
  entry.name = "mine";
  entry.include_regex = {"^a"};
  entry.tensor_names = {"a1"};
  entry.reductions = {"mean", "abs_l2_norm"};
  entry.modes[1].emplace().interval = 3;
  entry.modes[1]->steps = {7};
  bare.name = "bare";
  TDBG_ASSERT_OK(run_.WriteCollections("worker_0", {entry, bare}, 2));
  const Json document = Read("collections/000000000/worker_0_collections.json");
  EXPECT_EQ(document.size(), 2u);  // any other key at the top and it refuses the run
  EXPECT_EQ(document["_meta"], (Json{{"num_workers", 2}}));
  const Json& mine = document["collections"]["mine"];
  EXPECT_EQ(mine["reduction_config"]["reductions"], "mean,abs_l2_norm");
  EXPECT_EQ(mine["save_config"]["TRAIN"],
            (Json{{"save_interval", 3}, {"save_steps", {7}}, {"start_step", 0}, {"end_step", nullptr}}));
  EXPECT_EQ(mine["save_config"]["EVAL"]["save_interval"], 500);  // none may be null beside others
  EXPECT_TRUE(document["collections"]["bare"]["save_config"].is_null());
}

TEST_F(SmdebugWriter, RewindingTakesAwayTheEndAndWhatComesAfterTheStep) {
  for (const int64_t step : {5, 999, 1003}) {
    StepFiles files = Step(step);
    Put(&files, "a", 1);
    TDBG_ASSERT_OK(files.Close());
  }
  TDBG_ASSERT_OK(WriteEnd(run_.path()));
  TDBG_ASSERT_OK(run_.Rewind(999));
  EXPECT_FALSE(fs::exists(Path("training_job_end.ts")));
  EXPECT_TRUE(fs::exists(Path("index/000000000/000000000005_worker_0.json")));
  EXPECT_FALSE(fs::exists(Path("index/000000000/000000000999_worker_0.json")));
  EXPECT_FALSE(fs::exists(Path(kIndex)));
}

}  // namespace
}  // namespace tdbg::smdebug

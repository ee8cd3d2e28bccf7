// Every released minor leaves a tiny run behind that this version must open. They were written by
// make_golden.py, which shares no code with the reader.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/testing.h"
#include "store/reader/worker_reader.h"
#include "store/writer/worker_writer.h"

namespace tdbg {
extern const char* const kGoldenDirectory;  // of this clone (tdbg_path in cmake/rooms.cmake)

namespace {

using nlohmann::json;

std::string Hex(std::span<const std::byte> bytes) {
  std::string out;
  for (const std::byte b : bytes) {
    out += "0123456789abcdef"[static_cast<unsigned>(b) >> 4];
    out += "0123456789abcdef"[static_cast<unsigned>(b) & 15];
  }
  return out;
}

uint32_t IdOf(const store::WorkerReader& reader, const std::string& name) {
  for (uint32_t id = 0; id < reader.tensors().size(); ++id) {
    if (reader.tensors()[id].name == name) return id;
  }
  ADD_FAILURE() << "no tensor " << name;
  return 0;
}

void ExpectGolden(const std::string& worker, const json& expected, bool crashed_is_counted) {
  auto opened = store::WorkerReader::Open(worker);
  ASSERT_TRUE(opened.ok()) << opened.status().ToString();
  store::WorkerReader& reader = **opened;
  TDBG_ASSERT_OK(reader.Refresh());
  for (const store::Damage& damage : reader.damage()) ADD_FAILURE() << damage.file << ": " << damage.what;

  ASSERT_EQ(reader.commits().size(), expected["steps"].size());
  for (size_t i = 0; i < reader.commits().size(); ++i)
    EXPECT_EQ(reader.commits()[i].global_step, expected["steps"][i]);
  EXPECT_EQ(reader.commits()[1].flags, format::kCommitSkipped);
  EXPECT_EQ(reader.last_seen_step(), expected["last_seen_step"]);
  ASSERT_EQ(reader.tensors().size(), 4u);

  const uint32_t gradient = IdOf(reader, "gradient/Net_conv1.weight");
  EXPECT_EQ(reader.tensors()[gradient].short_name, "conv1.weight");
  EXPECT_EQ(reader.tensors()[gradient].unit_axis, 0);
  size_t raws = 0;
  for (const store::RawRef& ref : reader.RawsOf(gradient)) {
    const auto value = reader.ReadRaw(ref);
    TDBG_ASSERT_OK(value);
    ASSERT_EQ(value->bytes.size(), 24u);
    EXPECT_EQ(value->shape, (std::vector<int64_t>{2, 3}));
    for (size_t i = 0; i < 6; ++i) {
      float got;
      std::memcpy(&got, value->bytes.data() + 4 * i, 4);
      const double want = std::strtod(
          expected["gradient"][std::to_string(ref.global_step)][i].get<std::string>().c_str(), nullptr);
      EXPECT_TRUE(got == want || (std::isnan(got) && std::isnan(want))) << ref.global_step << " " << i;
    }
    ++raws;
  }
  EXPECT_EQ(raws, 3u);

  size_t rows = 0;
  for (const auto& ref : reader.RowsOf(gradient)) {
    reader.Prepare(ref.batch, ref.row, ref.row + 1);
    const store::SummaryBatch& batch = reader.summaries()[ref.batch];
    const std::string step = std::to_string(batch.step_first[ref.row]);
    const Summary s = batch.at(ref.row);
    EXPECT_EQ(s.mean, expected["gradient_mean"][step]);
    EXPECT_EQ(s.m4, expected["gradient_m4"][step]);
    EXPECT_EQ(s.nan_count, expected["gradient_nan_count"][step]);
    ++rows;
    const auto histogram = reader.HistogramOf(ref);
    const bool due = expected["histogram_total"].contains(step);
    EXPECT_EQ(batch.flags[ref.row], due ? 0 : format::kRowHistogramNotDue);
    if (!due) {
      EXPECT_EQ(histogram.status().code(), Code::kNotFound);
      continue;
    }
    TDBG_ASSERT_OK(histogram);
    uint64_t total = 0;
    for (const HistogramBucket& bucket : *histogram) total += bucket.count;
    EXPECT_EQ(total, expected["histogram_total"][step]);
  }
  EXPECT_EQ(rows, 3u);

  const auto complex = reader.RawsOf(IdOf(reader, "odd@name.5"));
  ASSERT_EQ(complex.size(), 1u);
  EXPECT_EQ(complex[0].sub, (format::SubKey{2, format::Point::kAfterClip}));
  EXPECT_EQ(complex[0].dtype, DType::kComplex64);
  EXPECT_EQ(json(Hex(reader.ReadRaw(complex[0])->bytes)), expected["complex_hex"]["0"]);
  const auto half = reader.RawsOf(IdOf(reader, "half"));
  ASSERT_EQ(half.size(), 1u);
  EXPECT_EQ(json(Hex(reader.ReadRaw(half[0])->bytes)), expected["half_hex"]["2"]);
  const auto lr = reader.ScalarsOf(IdOf(reader, "lr"));
  ASSERT_EQ(lr.size(), 2u);
  for (const auto& point : lr) EXPECT_EQ(point.value, expected["lr"][std::to_string(point.global_step)]);

  ASSERT_EQ(reader.context().size(), 1u);
  EXPECT_EQ(reader.context()[0].topic, "optimizer");
  EXPECT_EQ(reader.acks().size(), 1u);
  bool full = false, crashed = false;
  for (const format::Drop& drop : reader.dropped()) {
    full |= drop.cause == 1 && drop.kind == 1 && drop.count == 3;
    crashed |= drop.cause == static_cast<uint8_t>(format::DropCause::kCrashed) && drop.first_step == 3;
  }
  EXPECT_TRUE(full);
  EXPECT_EQ(crashed, crashed_is_counted);
}

class Golden : public testing::TestWithParam<const char*> {};

TEST_P(Golden, RunOpensAsItWasLeftAndSealed) {
  const std::string run = std::string(kGoldenDirectory) + "/" + GetParam();
  const json expected = json::parse(base::Slurp(run + "/expected.json"));
  ExpectGolden(run + "/0/worker_0", expected, false);

  const base::ScratchDirectory scratch;
  std::filesystem::copy(run + "/0/worker_0", scratch / "w", std::filesystem::copy_options::recursive);
  TDBG_ASSERT_OK(store::SealLeftovers(base::LocalFileSystem(), scratch / "w"));
  EXPECT_EQ(base::LocalFileSystem().List(scratch / "w/segments")->size(), 2u);
  ExpectGolden(scratch / "w", expected, true);
}

INSTANTIATE_TEST_SUITE_P(Released, Golden, testing::Values("v1.0", "v1.1", "v1.2"));

}  // namespace
}  // namespace tdbg

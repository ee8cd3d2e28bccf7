// What format/columns.h says of each column is so: what a segment without it is worth, and how its values
// merge.
#include "format/columns.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <random>

#include "store/reader/testing.h"

namespace tdbg::store {
namespace {

using format::Column;
using format::ColumnMerge;
using format::ColumnNeed;
using testing::HasSubstr;

/// The segment as a writer would have left it that does not know the column.
std::string WithoutColumn(const std::string& segment, std::string_view key) {
  const auto header = format::DecodeSegmentHeader(std::as_bytes(std::span(segment)), segment.size());
  EXPECT_TRUE(header.ok());
  std::vector<format::SegmentEntry> entries = header->entries;
  for (format::SegmentEntry& entry : entries) {
    if (entry.key == key) entry.key = "unknown/column";
  }
  return format::EncodeSegmentHeader(entries, header->tdbg_json) +
         segment.substr(header->data_offset, entries.back().end);
}

TEST(MissingColumn, CostsWhatTheListSaysAndNoMore) {
  const base::ScratchDirectory scratch;
  const std::string directory = scratch / "worker_0";
  WorkerFixture::Options options;
  options.tensors = 2;
  options.raw_elements = 4;
  {
    WorkerFixture worker(directory, options);
    worker.Steps(0, 3);
    worker.End();
  }
  std::filesystem::remove(directory + "/journal");
  const std::string path = SegmentsOf(directory).front();
  const std::string whole = WithoutIndex(base::Slurp(path));
  const auto check = [&](const std::string& segment, std::vector<Damage>* damage, uint64_t* damaged) {
    base::Spill(path, segment);
    auto reader = WorkerReader::Open(directory);
    EXPECT_TRUE(reader.ok()) << reader.status().ToString();
    EXPECT_TRUE((*reader)->Refresh().ok());
    const Checked checked = CheckEverything(**reader, options);
    damage->assign((*reader)->damage().begin(), (*reader)->damage().end());
    *damaged = (*reader)->summaries().empty() ? 0 : (*reader)->summaries()[0].damaged;
    return checked;
  };
  std::vector<Damage> damage;
  uint64_t damaged = 0;
  const Checked all = check(whole, &damage, &damaged);
  ASSERT_TRUE(damage.empty());
  ASSERT_TRUE(all.commits > 0 && all.summaries > 0 && all.scalars > 0 && all.raws > 0);

  const std::span<const Column> lists[] = {format::kStepColumns, format::kSummaryColumns,
                                           format::kScalarColumns};
  for (const std::span<const Column> columns : lists) {
    for (const Column& column : columns) {
      SCOPED_TRACE(std::string(column.key));
      const Checked got = check(WithoutColumn(whole, column.key), &damage, &damaged);
      const bool of_steps = column.key.starts_with("step/"), of_rows = column.key.starts_with("summary/");
      // A row of which a number is damaged is no evidence, so it is not counted among those that are right.
      const bool rows_whole = column.need == ColumnNeed::kOptional || !of_rows;
      const bool steps_whole = !of_steps || column.need != ColumnNeed::kKey;
      EXPECT_EQ(got.commits == all.commits, steps_whole);
      if (steps_whole) {
        EXPECT_EQ(got.raws, all.raws);
        EXPECT_EQ(got.summaries == all.summaries, rows_whole);
        EXPECT_EQ(got.scalars == all.scalars, !column.key.starts_with("scalar/"));
      }
      if (column.need == ColumnNeed::kOptional) {
        EXPECT_TRUE(damage.empty()) << damage[0].what;
        continue;
      }
      if (damage.empty()) {
        ADD_FAILURE() << "it costs something in silence";
        continue;
      }
      const bool is_named = std::any_of(damage.begin(), damage.end(), [&](const Damage& d) {
        return d.what == std::string(column.key) + ": missing";
      });
      EXPECT_TRUE(is_named || column.key == "step/global") << damage[0].what;
      if (of_rows && column.need == ColumnNeed::kRequired) {
        const auto place = static_cast<size_t>(&column - format::kSummaryColumns.data());
        EXPECT_EQ(damaged, uint64_t{1} << place);
      }
    }
  }
}

TEST(Merge, TakesEachStatisticAsTheListSays) {
  std::mt19937 random(5);
  std::normal_distribution<float> normal(0.5f, 3);
  Summarizer summarizer;
  for (int round = 0; round < 50; ++round) {
    std::vector<float> values(2 + random() % 400);
    for (float& value : values) value = random() % 7 == 0 ? 0 : normal(random);
    if (round % 3 == 0) values[0] = NAN, values[values.size() - 1] = INFINITY;
    const size_t cut = 1 + random() % (values.size() - 1);
    const auto summary_of = [&](size_t begin, size_t end) {
      const int64_t shape[] = {static_cast<int64_t>(end - begin)};
      Summary summary;
      EXPECT_TRUE(
          summarizer.Summarize({values.data() + begin, DType::kFloat32, shape, {}}, &summary, nullptr).ok());
      return summary;
    };
    const Summary a = summary_of(0, cut), b = summary_of(cut, values.size()),
                  all = summary_of(0, values.size());
    if (a.finite_count() == 0 || b.finite_count() == 0) continue;  // NaN, and nothing merges with it
    const Summary merged = Merge(a, b);
    const auto check = [&](std::string_view name, ColumnMerge how, double x, double y, double got,
                           double want) {
      SCOPED_TRACE(std::string(name));
      EXPECT_NEAR(got, want, 1e-4 * std::max(1.0, std::fabs(want)));
      switch (how) {
        case ColumnMerge::kSum:
          EXPECT_DOUBLE_EQ(got, x + y);
          break;
        case ColumnMerge::kLeast:
          EXPECT_EQ(got, std::min(x, y));
          break;
        case ColumnMerge::kGreatest:
          EXPECT_EQ(got, std::max(x, y));
          break;
        case ColumnMerge::kNorm:
          EXPECT_NEAR(got, std::hypot(x, y), 1e-9 * got);
          break;
        case ColumnMerge::kMoment:
          break;  // of the whole, which was compared
        default:
          ADD_FAILURE() << "no statistic merges like that";
      }
    };
#define TDBG_COLUMN(name, type, need, merge, says)                                           \
  check(#name, ColumnMerge::merge, static_cast<double>(a.name), static_cast<double>(b.name), \
        static_cast<double>(merged.name), static_cast<double>(all.name));
    TDBG_STATISTICS(TDBG_COLUMN)
#undef TDBG_COLUMN
  }
}

}  // namespace
}  // namespace tdbg::store

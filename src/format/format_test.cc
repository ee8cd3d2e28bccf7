#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "base/hash.h"
#include "format/events.h"
#include "format/journal.h"
#include "format/json_fields.h"
#include "format/keys.h"
#include "format/run_files.h"
#include "format/segment.h"

namespace tdbg::format {
namespace {

std::span<const std::byte> Bytes(const std::string& text) { return std::as_bytes(std::span(text)); }

TEST(RawKey, RoundTripsWithNamesThatHoldItsSeparators) {
  for (const char* name : {"w", "gradient/Net_conv1.weight", "a@b", "a@3", "x.1.end", "", "@"}) {
    for (const int64_t step : {int64_t{0}, int64_t{7}, std::numeric_limits<int64_t>::max(), int64_t{-1}}) {
      for (const SubKey sub : {SubKey{}, SubKey{1, Point::kNone}, SubKey{0, Point::kEnd},
                               SubKey{65535, Point::kAfterClip}, SubKey{3, static_cast<Point>(77)}}) {
        const std::string key = RawKey(name, step, sub);
        const auto parsed = ParseRawKey(key);
        ASSERT_TRUE(parsed) << key;
        EXPECT_EQ(parsed->tensor_name, name);
        EXPECT_EQ(parsed->global_step, step);
        EXPECT_EQ(parsed->sub, sub) << key;
      }
    }
  }
  EXPECT_EQ(RawKey("w", 5, {1, Point::kBeforeClip}), "w@5.0.before_clip");
  EXPECT_EQ(RawKey("w", 5, {0, Point::kEnd}), "w@5.-.end");
}

TEST(RawKey, OnlyTheOneSpellingIsAccepted) {
  for (const char* key :
       {"w", "w@", "w@x", "w@+1", "w@01", "w@ 1", "w@1.", "w@1.-", "w@1.-.", "w@1.-.nowhere", "w@1.0.end.x",
        "w@1.65535", "w@99999999999999999999", "w@1.-.2", "w@-0"}) {
    EXPECT_FALSE(ParseRawKey(key)) << key;
  }
}

TEST(Events, ALineOfOtherTypesThanTheDocumentedOnesIsNone) {
  for (const char* line :
       {"", "{", "[]", "{}", R"({"kind": 1})", R"({"attempt": 0})",
        R"({"kind": "job_ended", "exit_code": "x"})", R"({"kind": "job_ended", "exit_code": 1.5})",
        R"({"kind": "job_ended", "attempt": null})", R"({"kind": "job_ended", "stop": 3})",
        R"({"kind": "job_ended", "stopped_by": ["a"]})",
        R"({"kind": "job_ended", "wall_nanos": 9223372036854775808})",
        R"({"kind": "job_ended", "killed": "no"})", R"({"kind": "export_ended", "ok": 1})"}) {
    EXPECT_FALSE(ParseEvent(line)) << line;
  }
  EXPECT_TRUE(ParseEvent(R"({"kind": "of a newer tdbg", "wall_nanos": 5, "unheard of": [1, "x"]})"));
}

TEST(Events, AnOddLineCostsOnlyItself) {
  const std::string text =
      "{\"kind\": \"a\", \"n\": 1}\n{\"kind\": 2}\n\n{\"kind\": \"b\"}\n{\"kind\": \"torn";
  std::vector<std::string> kinds;
  ForEachEvent(text, "", [&](const std::string& kind, const Json&) { kinds.push_back(kind); });
  EXPECT_EQ(kinds, (std::vector<std::string>{"a", "b"}));
  kinds.clear();
  ForEachEvent(text, "\"b\"", [&](const std::string& kind, const Json&) { kinds.push_back(kind); });
  EXPECT_EQ(kinds, std::vector<std::string>{"b"});
}

TEST(Modes, AreReadInAnyCase) {
  EXPECT_EQ(ModeFromName("eval"), Mode::kEval);
  EXPECT_EQ(ModeFromName("GLOBAL"), Mode::kGlobal);
  EXPECT_FALSE(ModeFromName(""));
  EXPECT_EQ(ModeName(Mode::kPredict), "PREDICT");
}

TEST(TensorDef, RoundTripsAndForgivesWhatItDoesNotKnow) {
  TensorDef def;
  def.id = 7;
  def.name = "weight \"quoted\" \xc3\xa9";
  def.kind = "weight";
  def.collections = {"a", "b"};
  def.aliases = {"tied"};
  def.dtype = DType::kBFloat16;
  def.shape = {3, 0, 5};
  def.unit_axis = 1;
  def.variable_shape = true;
  const auto read = TensorDef::FromJson(def.ToJson());
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(read->ToJson(), def.ToJson());
  EXPECT_EQ(read->shape, def.shape);
  const auto future = TensorDef::FromJson(R"({"id":1,"name":"x","dtype":"float3","new":{"a":[1]}})");
  ASSERT_TRUE(future.ok());
  EXPECT_EQ(future->dtype, DType::kInvalid);
  for (const char* bad : {"", "[]", "{}", R"({"id":-1,"name":"x"})", R"({"id":1})",
                          R"({"id":1.5,"name":"x"})", R"({"id":1,"name":"x","shape":[-1]})"}) {
    EXPECT_FALSE(TensorDef::FromJson(bad).ok()) << bad;
  }
}

TEST(Context, KeepsWhatIsNotJsonAsText) {
  EXPECT_EQ(ContextFromJson(ContextToJson({5, "t", "{\"a\": 1}"}))->json, "{\"a\":1}");
  EXPECT_EQ(ContextFromJson(ContextToJson({5, "t", "{broken"}))->json, "\"{broken\"");
  const auto nested = [](size_t levels) { return std::string(levels, '[') + std::string(levels, ']'); };
  EXPECT_EQ(ContextFromJson(ContextToJson({5, "t", nested(60)}))->json, nested(60));
  EXPECT_EQ(ContextFromJson(ContextToJson({5, "t", nested(61)}))->json, "\"" + nested(61) + "\"");
  // As a tdbg wrote it that kept values of 64 levels.
  const std::string deep = "{\"global_step\":5,\"topic\":\"t\",\"value\":" + nested(64) + "}";
  EXPECT_EQ(ContextFromJson(deep)->json, nested(64));
  EXPECT_FALSE(IsJson(std::string(1000, '[') + std::string(1000, ']')));
}

TEST(Summary, SurvivesARow) {
  Summary s;
  s.count = 9;
  s.m4 = 0.25;
  const SummaryRow row = ToRow(3, {2, Point::kEnd}, s);
  EXPECT_EQ(row.sub, 2);
  EXPECT_EQ(FromRow(row).m4, 0.25);
  EXPECT_TRUE(std::isnan(FromRow(row).mean));
}

TEST(Dropped, EveryCauseAndKindHasANameAndASentence) {
  for (int cause = 0; cause < kDropCauses; ++cause) {
    EXPECT_NE(DropCauseName(static_cast<DropCause>(cause)), "unknown") << cause;
    EXPECT_TRUE(DropCauseText(static_cast<DropCause>(cause)).ends_with(".")) << cause;
  }
  EXPECT_EQ(DropKindName(DropKind::kStep), "step");
  EXPECT_EQ(DropCauseName(static_cast<DropCause>(200)), "unknown");
}

TEST(Record, AnyFlippedByteOfTheHeaderIsNoticed) {
  const RecordHeader header = MakeRecordHeader(RecordType::kScalars, 9, 640, 100, 3, 0x1234);
  EXPECT_TRUE(CheckRecordHeader(header, 640, 192).ok());
  EXPECT_FALSE(CheckRecordHeader(header, 640, 191).ok());
  EXPECT_FALSE(CheckRecordHeader(header, 704, 192).ok());
  for (size_t i = 0; i < sizeof(header); ++i) {
    RecordHeader damaged = header;
    reinterpret_cast<char*>(&damaged)[i] ^= 0x40;
    EXPECT_FALSE(CheckRecordHeader(damaged, 640, 1 << 20).ok()) << i;
  }
  const RecordHeader endless = MakeRecordHeader(RecordType::kScalars, 9, 640, ~uint64_t{0}, 3, 0);
  EXPECT_FALSE(CheckRecordHeader(endless, 640, 1 << 20).ok());
}

TEST(Record, ARawPayloadIsHashedInItsTwoParts) {
  std::string payload(kRawDataOffset + 8, '\0');
  RawHeader raw;
  raw.dtype = static_cast<uint16_t>(DType::kFloat32);
  raw.rank = 1;
  raw.shape[0] = 2;
  std::memcpy(payload.data(), &raw, sizeof(raw));
  const auto bytes = Bytes(payload);
  const RecordHeader header =
      MakeRecordHeader(RecordType::kRaw, 1, 0, payload.size(), 0, base::Hash64(bytes.subspan(kRawDataOffset)),
                       base::Hash64(bytes.first(kRawDataOffset)));
  EXPECT_TRUE(CheckPayload(header, bytes).ok());
  EXPECT_EQ(DecodeRaw(bytes)->data.size(), 8u);
  for (const size_t i : {size_t{0}, size_t{127}, size_t{128}, payload.size() - 1}) {
    std::string damaged = payload;
    damaged[i] ^= 1;
    EXPECT_FALSE(CheckPayload(header, Bytes(damaged)).ok()) << i;
  }
}

TEST(Record, RawShapesThatDoNotAddUpAreRefused) {
  const auto decode = [](uint16_t dtype, std::vector<int64_t> shape, size_t bytes) {
    RawHeader raw;
    raw.dtype = dtype;
    raw.rank = static_cast<uint16_t>(shape.size());
    for (size_t i = 0; i < shape.size() && i < 13; ++i) raw.shape[i] = shape[i];
    std::string payload(kRawDataOffset + bytes, '\0');
    std::memcpy(payload.data(), &raw, sizeof(raw));
    return DecodeRaw(Bytes(payload)).ok();
  };
  constexpr int64_t kHuge = int64_t{1} << 62;
  EXPECT_TRUE(decode(12, {2, 3}, 24));
  EXPECT_TRUE(decode(12, {}, 4));
  EXPECT_TRUE(decode(12, {kHuge, 0, kHuge}, 0) || true);  // refused or empty, never a crash
  EXPECT_FALSE(decode(12, {2, 3}, 20));
  EXPECT_FALSE(decode(12, {kHuge, 4}, 0));
  EXPECT_FALSE(decode(12, {-1}, 0));
  EXPECT_FALSE(decode(99, {1}, 1));
  EXPECT_FALSE(decode(12, std::vector<int64_t>(14, 1), 4));
}

TEST(Summaries, HistogramsOutOfBoundsAreRefused) {
  std::string payload(sizeof(SummariesHeader) + sizeof(SummaryRow) + 10, '\0');
  const SummariesHeader header{1, 0, 10};
  SummaryRow row;
  row.histogram_offset = 4;
  row.histogram_bytes = 6;
  std::memcpy(payload.data(), &header, sizeof(header));
  std::memcpy(payload.data() + sizeof(header), &row, sizeof(row));
  EXPECT_EQ(DecodeSummaries(Bytes(payload))->row_count, 1u);
  row.histogram_bytes = 7;
  std::memcpy(payload.data() + sizeof(header), &row, sizeof(row));
  EXPECT_FALSE(DecodeSummaries(Bytes(payload)).ok());
  const SummariesHeader many{~0u, 0, 10};
  std::memcpy(payload.data(), &many, sizeof(many));
  EXPECT_FALSE(DecodeSummaries(Bytes(payload)).ok());
}

std::vector<SegmentEntry> TwoEntries() {
  return {{"step/global", "I64", {2}, 0, 16}, {"w@\"1\"\n@0", "BF16", {3, 1}, 16, 22}};
}

TEST(Segment, HeaderRoundTripsAndDataAreAligned) {
  const std::string json = R"({"format":{"major":1,"minor":0},"text":"a\"b\\"})";
  const std::string header = EncodeSegmentHeader(TwoEntries(), json);
  EXPECT_EQ(header.size() % 64, 0u);
  const auto read = DecodeSegmentHeader(Bytes(header), header.size() + 22);
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  EXPECT_TRUE(read->hash_ok);
  EXPECT_EQ(read->tdbg_json, json);
  EXPECT_EQ(read->data_offset, header.size());
  ASSERT_EQ(read->entries.size(), 2u);
  EXPECT_EQ(read->entries[1].key, "w@\"1\"\n@0");
  EXPECT_EQ(read->entries[1].shape, (std::vector<int64_t>{3, 1}));
}

TEST(Segment, NoFlippedByteOfTheHeaderGoesUnnoticed) {
  const std::string header = EncodeSegmentHeader(TwoEntries(), R"({"format":{"major":1,"minor":0}})");
  for (size_t i = 0; i < header.size(); ++i) {
    std::string damaged = header;
    damaged[i] = static_cast<char>(damaged[i] ^ 0x02);
    const auto read = DecodeSegmentHeader(Bytes(damaged), header.size() + 22);
    EXPECT_FALSE(read.ok() && read->hash_ok && !read->tdbg_json.empty()) << i;
  }
  EXPECT_FALSE(DecodeSegmentHeader(Bytes(header), header.size() + 21).ok());
  EXPECT_FALSE(DecodeSegmentHeader(Bytes(header).first(20), header.size() + 22).ok());
}

TEST(Segment, ANewerMajorIsRefusedByNameAndAForeignFileIsRead) {
  const std::string newer = EncodeSegmentHeader(TwoEntries(), R"({"format":{"major":2,"minor":0}})");
  const auto refused = DecodeSegmentHeader(Bytes(newer), newer.size() + 22);
  EXPECT_EQ(refused.status().code(), Code::kUnimplemented);
  EXPECT_THAT(refused.status().message(), testing::HasSubstr("newer tdbg"));

  std::string foreign =
      R"({"b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]},"a":{"shape":[1],"data_offsets":[0,4],"dtype":"I32"}})";
  const uint64_t length = foreign.size();
  foreign.insert(0, reinterpret_cast<const char*>(&length), 8);
  const auto read = DecodeSegmentHeader(Bytes(foreign), foreign.size() + 8);
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  EXPECT_TRUE(read->hash_ok);
  EXPECT_EQ(read->tdbg_json, "");
  EXPECT_EQ(read->entries[0].key, "a");
}

TEST(Segment, HolesOverlapsAndImpossibleShapesAreRefused) {
  const auto decode = [](std::string json, uint64_t data) {
    const uint64_t length = json.size();
    json.insert(0, reinterpret_cast<const char*>(&length), 8);
    return DecodeSegmentHeader(Bytes(json), json.size() + data).ok();
  };
  EXPECT_TRUE(decode(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})", 4));
  EXPECT_FALSE(decode(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[1,5]}})", 5));
  EXPECT_FALSE(decode(R"({"a":{"dtype":"U8","shape":[3],"data_offsets":[0,4]}})", 4));
  EXPECT_FALSE(decode(R"({"a":{"dtype":"U8","shape":[4611686018427387904,8],"data_offsets":[0,0]}})", 0));
  EXPECT_FALSE(decode(R"({"a":{"dtype":"X9","shape":[4],"data_offsets":[0,4]}})", 4));
  EXPECT_FALSE(decode(R"({"a":{"dtype":"U8","shape":[4]}})", 4));
  EXPECT_FALSE(decode(R"({"a":{"dtype":"U8","shape":[-4],"data_offsets":[0,4]}})", 4));
  EXPECT_FALSE(decode(R"({"a":{"dtype":"U8","shape":[[4]],"data_offsets":[0,4]}})", 4));
  EXPECT_FALSE(decode(R"([1])", 0));
  EXPECT_FALSE(decode("", 0));
}

TEST(Segment, FileNamesAreParsedStrictly) {
  EXPECT_EQ(SegmentFileName(1, 12), "00000000000000000001-00000000000000000012.safetensors");
  EXPECT_EQ(ParseSegmentFileName(SegmentFileName(1, ~uint64_t{0}))->second, ~uint64_t{0});
  for (const char* name :
       {"", "1-2.safetensors", ".tmp-00000000000000000001-00000000000000000012.safetensors",
        "00000000000000000002-00000000000000000001.safetensors",
        "00000000000000000000-00000000000000000001.safetensors",
        "0000000000000000000x-00000000000000000001.safetensors"}) {
    EXPECT_FALSE(ParseSegmentFileName(name)) << name;
  }
}

TEST(RunFiles, RoundTrip) {
  RunInfo run;
  run.id = "ab";
  run.command = {"python", "train.py", "\xff"};  // an argument need not be UTF-8
  run.created_wall_nanos = 5;
  EXPECT_EQ(RunInfo::FromJson(run.ToJson())->command[1], "train.py");
  AttemptInfo attempt;
  attempt.attempt = 3;
  attempt.parent = 2;
  EXPECT_EQ(AttemptInfo::FromJson(attempt.ToJson())->parent, 2);
  EXPECT_EQ(AttemptInfo::FromJson(attempt.ToJson())->world_size, std::nullopt) << "a launcher does not know";
  attempt.world_size = 8;
  attempt.step_base = 0;
  EXPECT_EQ(AttemptInfo::FromJson(attempt.ToJson())->world_size, 8);
  EXPECT_EQ(AttemptInfo::FromJson(attempt.ToJson())->step_base, 0);
  attempt.world_size = int64_t{1} << 60;  // who walks through the ranks of that would not come back
  attempt.step_base = -1;
  EXPECT_EQ(AttemptInfo::FromJson(attempt.ToJson())->world_size, std::nullopt);
  EXPECT_EQ(AttemptInfo::FromJson(attempt.ToJson())->step_base, std::nullopt);
  WorkerInfo worker;
  worker.worker = "worker_0";
  worker.writer_id = (uint64_t{1} << 53) - 1;
  worker.pid = 4'000'000'000;
  worker.world_size = 4;
  const auto read = WorkerInfo::FromJson(worker.ToJson());
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(read->writer_id, worker.writer_id);
  EXPECT_EQ(read->pid, worker.pid);
  EXPECT_EQ(read->world_size, 4);
  EXPECT_EQ(read->step_base, std::nullopt);
}

TEST(RunFiles, ANewerMajorAndNoVersionAreDifferentThings) {
  EXPECT_EQ(RunInfo::FromJson(R"({"format":{"major":2,"minor":0},"id":"x"})").status().code(),
            Code::kUnimplemented);
  EXPECT_EQ(RunInfo::FromJson(R"({"id":"x"})").status().code(), Code::kDataLoss);
  EXPECT_TRUE(RunInfo::FromJson(R"({"format":{"major":1,"minor":9},"id":"x","new":[]})").ok());
}

TEST(Control, HalfALineWaitsAndABrokenOneDoesNotSilenceTheOthers) {
  const std::string page = EncodeControlPage();
  ASSERT_EQ(page.size(), kControlPageBytes);
  EXPECT_EQ(page.substr(0, 8), "TDBGCTRL");
  const auto requests = DecodeControlLines(
      "{\"id\":\"1\",\"action\":\"stop\",\"by\":\"user\",\"x\":1}\n{\"id\":\"2\",\n[]\n{\"id\":\"3\","
      "\"action\":\"capture\"}\n"
      "{\"id\":\"4\",\"action\":\"st");
  ASSERT_TRUE(requests.ok());
  ASSERT_EQ(requests->size(), 2u);
  EXPECT_EQ((*requests)[0].by, "user");
  EXPECT_THAT((*requests)[0].json, testing::HasSubstr("\"x\":1"));
  EXPECT_EQ((*requests)[1].id, "3");
  EXPECT_FALSE(DecodeControlLines(page).ok());
}

TEST(JournalHeader, IsCheckedBeforeItIsBelieved) {
  std::string page(kJournalHeaderBytes, '\0');
  auto* header = reinterpret_cast<JournalHeader*>(page.data());
  EXPECT_FALSE(CheckJournalHeader(Bytes(page), 1 << 20).ok());
  std::memcpy(header->magic, kJournalMagic, 8);
  header->major = 1;
  header->header_bytes = 4096;
  header->ring_bytes = 64 << 10;
  EXPECT_TRUE(CheckJournalHeader(Bytes(page), 68 << 10).ok());
  EXPECT_FALSE(CheckJournalHeader(Bytes(page), (68 << 10) - 1).ok());
  header->ring_bytes = ~uint64_t{63};
  EXPECT_FALSE(CheckJournalHeader(Bytes(page), 68 << 10).ok());
  header->major = 2;
  EXPECT_EQ(CheckJournalHeader(Bytes(page), 68 << 10).code(), Code::kUnimplemented);
}

}  // namespace
}  // namespace tdbg::format

#include "format/level.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "base/hash.h"
#include "base/stable_sort.h"
#include "format/segment.h"
#include "format/version.h"

namespace tdbg::format {
namespace {

struct Piece {
  std::string_view key;
  DType dtype = DType::kUInt8;
  std::span<const std::byte> bytes;
};

bool ParseNumber(std::string_view digits, int64_t* out) {
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), *out);
  return error == std::errc() && end == digits.data() + digits.size() && *out >= 0;
}

}  // namespace

std::optional<DrawnStatistic> FindDrawn(std::string_view name) {
  const auto at = std::find(kDrawnNames.begin(), kDrawnNames.end(), name);
  if (at == kDrawnNames.end()) return std::nullopt;
  return static_cast<DrawnStatistic>(at - kDrawnNames.begin());
}

double DrawnValue(DrawnStatistic statistic, const Summary& row) {
  const auto count = static_cast<double>(row.count);
  const auto nonfinite = static_cast<double>(row.nan_count + row.pos_inf_count + row.neg_inf_count);
  switch (statistic) {
    case DrawnStatistic::k_mean_abs:
      return row.l1 / (count - nonfinite);
    case DrawnStatistic::k_l2:
      return row.l2;
    case DrawnStatistic::k_abs_max:
      return row.abs_max;
    case DrawnStatistic::k_std:
      return std::sqrt(row.variance);
    case DrawnStatistic::k_mean:
      return row.mean;
    case DrawnStatistic::k_min:
      return row.min;
    case DrawnStatistic::k_max:
      return row.max;
    case DrawnStatistic::k_zero_share:
      return static_cast<double>(row.zero_count) / count;
    case DrawnStatistic::k_nonfinite_share:
      return nonfinite / count;
  }
  return Summary::kNaN;
}

std::string EncodeLevel(const LevelContent& content) {
  std::vector<Piece> pieces;
  ForEachLevelColumn(
      [&](std::string_view key, const auto& column) {
        using Item = typename std::decay_t<decltype(column)>::value_type;
        pieces.push_back({key, DTypeOf<Item>(), std::as_bytes(std::span(column))});
      },
      content);
  pieces.push_back({kHistogramsKey, DType::kUInt8, std::as_bytes(std::span(content.histograms))});
  // As in a segment: every entry then starts at a multiple of its own item.
  base::StableSort(&pieces,
                   [](const Piece& a, const Piece& b) { return ItemSize(a.dtype) > ItemSize(b.dtype); });
  std::vector<SegmentEntry> entries;
  Json checksums = Json::object();
  uint64_t at = 0;
  for (const Piece& piece : pieces) {
    SegmentEntry entry;
    entry.key = piece.key;
    entry.dtype = SegmentDType(piece.dtype);
    entry.shape = {static_cast<int64_t>(piece.bytes.size() / ItemSize(piece.dtype))};
    entry.begin = at;
    entry.end = at += piece.bytes.size();
    entries.push_back(std::move(entry));
    checksums[std::string(piece.key)] = base::Hex64(base::Hash64(piece.bytes));
  }
  const LevelMeta& meta = content.meta;
  Json tensors = Json::array();
  for (const TensorDef& def : meta.tensors) tensors.push_back(Json::parse(def.ToJson()));
  const Json json = {{"format", {{"major", kMajor}, {"minor", kLevelsMinor}}},
                     {"kind", "level"},
                     {"run", meta.run_id},
                     {"attempt", meta.attempt},
                     {"worker", meta.worker},
                     {"writer_id", meta.writer_id},
                     {"level", meta.level},
                     {"tensors", std::move(tensors)},
                     {"checksums", std::move(checksums)}};
  std::string file = EncodeSegmentHeader(entries, DumpJson(json));
  file.reserve(file.size() + at);
  for (const Piece& piece : pieces)
    file.append(reinterpret_cast<const char*>(piece.bytes.data()), piece.bytes.size());
  return file;
}

std::string LevelFileName::ToString() const {
  char name[64];
  std::snprintf(name, sizeof(name), "%u-%020lld-%020lld", level, static_cast<long long>(first_step),
                static_cast<long long>(last_step));
  return std::string(name) + std::string(kSegmentSuffix);
}

std::optional<LevelFileName> LevelFileName::Parse(std::string_view name) {
  constexpr size_t kDigits = 20;
  if (name.size() != 2 + kDigits + 1 + kDigits + kSegmentSuffix.size() || !name.ends_with(kSegmentSuffix) ||
      name[1] != '-' || name[2 + kDigits] != '-' || name[0] < '1' || name[0] > '0' + int{kMaxLevel}) {
    return std::nullopt;
  }
  LevelFileName parsed;
  parsed.level = static_cast<uint32_t>(name[0] - '0');
  if (!ParseNumber(name.substr(2, kDigits), &parsed.first_step) ||
      !ParseNumber(name.substr(3 + kDigits, kDigits), &parsed.last_step) ||
      parsed.first_step > parsed.last_step) {
    return std::nullopt;
  }
  return parsed;
}

Result<LevelMeta> ParseLevelMeta(const Json& json, std::string_view file_name) {
  TDBG_RETURN_IF_ERROR(CheckFormatVersion(json, "level"));
  LevelMeta meta;
  std::string kind;
  int64_t level = 0;
  if (!GetField(json, "kind", &kind) || kind != "level" || !GetField(json, "level", &level) || level < 1 ||
      level > int64_t{kMaxLevel}) {
    return DataLoss("level metadata: no level");
  }
  meta.level = static_cast<uint32_t>(level);
  const auto name = LevelFileName::Parse(file_name);
  if (!name || name->level != meta.level)
    return DataLoss("level metadata: the level is not that of the file's name");
  GetField(json, "run", &meta.run_id);
  GetField(json, "worker", &meta.worker);
  GetField(json, "attempt", &meta.attempt);
  int64_t writer = 0;
  if (GetField(json, "writer_id", &writer)) meta.writer_id = static_cast<uint64_t>(writer);
  const auto tensors = json.find("tensors");
  if (tensors == json.end() || !tensors->is_array()) return DataLoss("level metadata: no tensors");
  for (const Json& one : *tensors) {
    TDBG_ASSIGN_OR_RETURN(TensorDef def, TensorDef::FromJson(DumpJson(one)));
    meta.tensors.push_back(std::move(def));
  }
  return meta;
}

}  // namespace tdbg::format

#include "format/segment.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <cstring>

#include "base/bytes.h"
#include "base/hash.h"
#include "base/stable_sort.h"
#include "format/json_fields.h"
#include "format/version.h"
#include "tensor/safetensors_dtype.h"

namespace tdbg::format {
namespace {

constexpr uint64_t kDataAlignment = 64;
constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // what the safetensors library accepts
constexpr std::string_view kHashField = "\"tdbg_hash\":\"";
constexpr size_t kHashDigits = 16;
constexpr size_t kMaxEntryRank = 64;

struct Name {
  std::string_view name;
  uint64_t item_bytes;
};
// Every dtype of safetensors, so that foreign files open too.
constexpr std::array<Name, 18> kDTypes = {{{"BOOL", 1},
                                           {"U8", 1},
                                           {"I8", 1},
                                           {"F8_E5M2", 1},
                                           {"F8_E4M3", 1},
                                           {"F8_E8M0", 1},
                                           {"F8_E4M3FNUZ", 1},
                                           {"F8_E5M2FNUZ", 1},
                                           {"I16", 2},
                                           {"U16", 2},
                                           {"F16", 2},
                                           {"BF16", 2},
                                           {"I32", 4},
                                           {"U32", 4},
                                           {"F32", 4},
                                           {"C64", 8},
                                           {"F64", 8},
                                           {"I64", 8}}};

uint64_t ItemBytes(std::string_view name) {
  if (name == "U64") return 8;
  for (const Name& known : kDTypes) {
    if (known.name == name) return known.item_bytes;
  }
  return 0;
}

void AppendInt(int64_t value, std::string* out) {
  char digits[24];
  const auto end = std::to_chars(digits, digits + sizeof(digits), value).ptr;
  out->append(digits, end);
}

// The header is the largest JSON of a run, up to tens of megabytes. A DOM of it takes some ten times its
// size, so it is read as events.
class HeaderSax {
 public:
  HeaderSax(std::vector<SegmentEntry>* entries, std::string* tdbg_json, std::string* tdbg_hash)
      : entries_(entries), tdbg_json_(tdbg_json), tdbg_hash_(tdbg_hash) {}

  const std::string& error() const { return error_; }

  bool start_object(size_t) {
    if (array_) return Fail("an object inside an array");
    if (++depth_ > 2) return Fail("nested too deeply");
    if (depth_ == 2) {
      metadata_ = key_ == "__metadata__";
      if (!metadata_) {
        entries_->emplace_back();
        entries_->back().key = key_;
        offsets_ = 0;
        has_shape_ = false;
      }
    }
    return true;
  }
  bool end_object() {
    if (depth_ == 2 && !metadata_) {
      const SegmentEntry& entry = entries_->back();
      if (entry.dtype.empty() || !has_shape_ || offsets_ != 2)
        return Fail("'" + entry.key + "' is not complete");
    }
    --depth_;
    return true;
  }
  bool key(std::string& name) {
    (depth_ == 1 ? key_ : field_) = name;
    return true;
  }
  bool start_array(size_t) {
    if (depth_ != 2 || metadata_ || array_) return Fail("an array where none belongs");
    if (field_ != "shape" && field_ != "data_offsets") return Fail("unknown array '" + field_ + "'");
    array_ = true;
    if (field_ == "shape") has_shape_ = true;
    return true;
  }
  bool end_array() {
    array_ = false;
    return true;
  }
  bool string(std::string& value) {
    if (depth_ != 2 || array_) return Fail("text where none belongs");
    if (metadata_) {
      if (field_ == "tdbg") *tdbg_json_ = std::move(value);
      if (field_ == "tdbg_hash") *tdbg_hash_ = std::move(value);
      return true;
    }
    if (field_ == "dtype") entries_->back().dtype = std::move(value);
    return true;
  }
  bool number_unsigned(uint64_t value) {
    if (!array_) return Fail("a number where none belongs");
    SegmentEntry& entry = entries_->back();
    if (field_ == "shape") {
      if (value > static_cast<uint64_t>(INT64_MAX) || entry.shape.size() >= kMaxEntryRank)
        return Fail("shape");
      entry.shape.push_back(static_cast<int64_t>(value));
      return true;
    }
    if (offsets_ >= 2) return Fail("data_offsets");
    (offsets_++ == 0 ? entry.begin : entry.end) = value;
    return true;
  }
  bool number_integer(int64_t) { return Fail("a negative number"); }
  bool number_float(double, const std::string&) { return Fail("a fraction"); }
  bool boolean(bool) { return Fail("a boolean"); }
  bool null() { return Fail("null"); }
  bool binary(std::vector<uint8_t>&) { return Fail("binary"); }
  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception&) {
    return Fail("not JSON at byte " + std::to_string(position));
  }

 private:
  bool Fail(std::string what) {
    if (error_.empty()) error_ = std::move(what);
    return false;
  }

  std::vector<SegmentEntry>* entries_;
  std::string* tdbg_json_;
  std::string* tdbg_hash_;
  std::string error_, key_, field_;
  int depth_ = 0, offsets_ = 0;
  bool metadata_ = false, array_ = false, has_shape_ = false;
};

Status CheckEntries(std::span<const SegmentEntry> entries, uint64_t data_bytes) {
  uint64_t at = 0;
  for (const SegmentEntry& entry : entries) {
    const uint64_t item = ItemBytes(entry.dtype);
    if (item == 0) return Unimplemented("segment: '" + entry.key + "' has dtype " + entry.dtype);
    if (entry.begin != at || entry.end < entry.begin)
      return DataLoss("segment: '" + entry.key + "' leaves a hole");
    uint64_t bytes = item;
    bool empty = false;
    for (const int64_t extent : entry.shape) empty |= extent == 0;
    for (const int64_t extent : entry.shape) {
      if (!empty && __builtin_mul_overflow(bytes, static_cast<uint64_t>(extent), &bytes)) {
        return DataLoss("segment: '" + entry.key + "' has an impossible shape");
      }
    }
    if ((empty ? 0 : bytes) != entry.end - entry.begin) {
      return DataLoss("segment: '" + entry.key + "': shape and offsets do not agree");
    }
    at = entry.end;
  }
  if (at != data_bytes) {
    return DataLoss("segment: " + std::to_string(data_bytes) + " bytes of data where the header says " +
                    std::to_string(at));
  }
  return OkStatus();
}

// XXH3 of the text with the hash's own digits as '0'.
uint64_t HashWithZeros(std::string* text, size_t digits_at) {
  const std::string digits = text->substr(digits_at, kHashDigits);
  text->replace(digits_at, kHashDigits, kHashDigits, '0');
  const uint64_t hash = base::Hash64(std::as_bytes(std::span(*text)));
  text->replace(digits_at, kHashDigits, digits);
  return hash;
}

std::string Without(const HeaderCut& cut, std::string_view text) {
  std::string rest(text.substr(0, cut.begin));
  rest += cut.instead;
  rest += text.substr(cut.end);
  return rest;
}

Status CheckTdbgVersion(std::string_view tdbg_json) {
  // What this version writes, without a second pass over megabytes of JSON.
  static const std::string usual = "{\"format\":{\"major\":" + std::to_string(kMajor) + ",";
  if (tdbg_json.substr(0, usual.size()) == usual) return OkStatus();
  TDBG_ASSIGN_OR_RETURN(const Json json, ParseJsonObject(tdbg_json, "segment", kMaxMetadataDepth));
  return CheckFormatVersion(json, "segment");
}

}  // namespace

std::string_view SegmentDType(DType dtype) {
  if (dtype == DType::kText) return "U32";
  const std::string_view name = SafetensorsDType(dtype);
  return name.empty() ? "U8" : name;
}

std::string EncodeSegmentHeader(std::span<const SegmentEntry> entries, std::string_view tdbg_json) {
  std::string out;
  out.reserve(kSegmentLengthBytes + tdbg_json.size() * 5 / 4 + entries.size() * 120 + 256);
  out.append(kSegmentLengthBytes, '\0');
  out.append("{\"__metadata__\":{");
  out.append(kHashField);
  const size_t digits_at = out.size() - kSegmentLengthBytes;
  out.append(kHashDigits, '0');
  out.append("\",\"tdbg\":");
  AppendJsonString(tdbg_json, &out);
  out.push_back('}');
  for (const SegmentEntry& entry : entries) {
    out.push_back(',');
    AppendJsonString(entry.key, &out);
    out.append(":{\"dtype\":\"");
    out.append(entry.dtype);
    out.append("\",\"shape\":[");
    for (size_t i = 0; i < entry.shape.size(); ++i) {
      if (i != 0) out.push_back(',');
      AppendInt(entry.shape[i], &out);
    }
    out.append("],\"data_offsets\":[");
    AppendInt(static_cast<int64_t>(entry.begin), &out);
    out.push_back(',');
    AppendInt(static_cast<int64_t>(entry.end), &out);
    out.append("]}");
  }
  out.push_back('}');
  out.append(base::AlignUp(out.size(), kDataAlignment) - out.size(), ' ');
  base::Store<uint64_t>(out.data(), out.size() - kSegmentLengthBytes);
  const uint64_t hash = base::Hash64(std::as_bytes(std::span(out)).subspan(kSegmentLengthBytes));
  out.replace(kSegmentLengthBytes + digits_at, kHashDigits, base::Hex64(hash));
  return out;
}

Result<SegmentHeader> DecodeSegmentHeader(std::span<const std::byte> file_prefix, uint64_t file_bytes,
                                          const HeaderCut* cut) {
  if (file_prefix.size() < kSegmentLengthBytes || file_bytes < kSegmentLengthBytes) {
    return DataLoss("segment: shorter than its length field");
  }
  const auto length = base::Load<uint64_t>(file_prefix.data());
  if (length > kMaxHeaderBytes) return DataLoss("segment: header length");
  if (length > file_prefix.size() - kSegmentLengthBytes || length > file_bytes - kSegmentLengthBytes) {
    return DataLoss("segment: shorter than its header");
  }
  std::string text(reinterpret_cast<const char*>(file_prefix.data()) + kSegmentLengthBytes, length);

  SegmentHeader header;
  header.data_offset = kSegmentLengthBytes + length;
  std::string stored_hash;
  HeaderSax sax(&header.entries, &header.tdbg_json, &stored_hash);
  const bool is_json =
      cut == nullptr ? Json::sax_parse(text, &sax) : Json::sax_parse(Without(*cut, text), &sax);
  if (!is_json) return DataLoss("segment: header: " + sax.error());

  // safetensors does not ask for file order in the header; ours has it, a foreign file may not.
  base::StableSort(&header.entries, [](const SegmentEntry& a, const SegmentEntry& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.end < b.end;
  });
  if (!header.tdbg_json.empty() || !stored_hash.empty()) {
    const size_t field_at = text.find(kHashField);
    uint64_t expected = 0;
    header.hash_ok = field_at != std::string::npos &&
                     field_at + kHashField.size() + kHashDigits <= text.size() &&
                     base::ParseHex64(stored_hash, &expected) &&
                     HashWithZeros(&text, field_at + kHashField.size()) == expected;
    if (!header.tdbg_json.empty()) {
      const Status version = CheckTdbgVersion(header.tdbg_json);
      if (version.code() == Code::kUnimplemented) return version;
      if (!version.ok()) header.hash_ok = false;
    }
  }
  TDBG_RETURN_IF_ERROR(CheckEntries(header.entries, file_bytes - header.data_offset));
  return header;
}

std::string SegmentFileName(uint64_t first_sequence, uint64_t last_sequence) {
  char name[64];
  std::snprintf(name, sizeof(name), "%020llu-%020llu", static_cast<unsigned long long>(first_sequence),
                static_cast<unsigned long long>(last_sequence));
  return std::string(name) + std::string(kSegmentSuffix);
}

std::optional<std::pair<uint64_t, uint64_t>> ParseSegmentFileName(std::string_view name) {
  constexpr size_t kDigits = 20;
  if (name.size() != 2 * kDigits + 1 + kSegmentSuffix.size() || name[kDigits] != '-' ||
      !name.ends_with(kSegmentSuffix)) {
    return std::nullopt;
  }
  const auto parse = [](std::string_view digits, uint64_t* out) {
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), *out);
    return error == std::errc() && end == digits.data() + digits.size();
  };
  std::pair<uint64_t, uint64_t> range;
  if (!parse(name.substr(0, kDigits), &range.first) ||
      !parse(name.substr(kDigits + 1, kDigits), &range.second) || range.first == 0 ||
      range.first > range.second) {
    return std::nullopt;
  }
  return range;
}

}  // namespace tdbg::format

#include "format/json_fields.h"

#include <limits>

#include "format/version.h"

namespace tdbg::format {

bool IsJson(std::string_view text, int max_depth) {
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      if (++depth > max_depth) return false;
    } else if (c == '}' || c == ']') {
      --depth;
    }
  }
  return Json::accept(text.begin(), text.end());
}

Result<Json> ParseJsonObject(std::string_view text, std::string_view what, int max_depth) {
  if (!IsJson(text, max_depth)) return DataLoss(std::string(what) + ": not JSON");
  Json json = Json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return DataLoss(std::string(what) + ": not a JSON object");
  return json;
}

std::string DumpJson(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

void AppendJsonString(std::string_view text, std::string* out) {
  static constexpr char kHex[] = "0123456789abcdef";
  out->push_back('"');
  for (const char c : text) {
    switch (c) {
      case '"':
        out->append("\\\"");
        break;
      case '\\':
        out->append("\\\\");
        break;
      case '\n':
        out->append("\\n");
        break;
      case '\t':
        out->append("\\t");
        break;
      case '\r':
        out->append("\\r");
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20) {
          out->append("\\u00");
          out->push_back(kHex[(c >> 4) & 15]);
          out->push_back(kHex[c & 15]);
        } else {
          out->push_back(c);
        }
    }
  }
  out->push_back('"');
}

Json FormatVersionJson() { return Json{{"major", kMajor}, {"minor", kMinor}}; }

Status CheckFormatVersion(const Json& object, std::string_view what) {
  const auto it = object.find("format");
  int64_t major = 0;
  if (it == object.end() || !it->is_object() || !GetField(*it, "major", &major) || major < 1) {
    return DataLoss(std::string(what) + ": carries no format version");
  }
  if (major > kMajor) {
    return Unimplemented(std::string(what) + ": written in format " + std::to_string(major) +
                         ".x, and this tdbg reads up to " + std::to_string(kMajor) + ".x: use a newer tdbg");
  }
  return OkStatus();
}

namespace {
bool AsInt64(const Json& value, int64_t* out) {
  if (!value.is_number_integer()) return false;
  if (value.is_number_unsigned() &&
      value.get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
    return false;
  }
  *out = value.get<int64_t>();
  return true;
}
}  // namespace

bool GetField(const Json& object, const char* key, std::string* out) {
  const auto it = object.find(key);
  if (it == object.end() || !it->is_string()) return false;
  *out = it->get_ref<const std::string&>();
  return true;
}

bool GetField(const Json& object, const char* key, int64_t* out) {
  const auto it = object.find(key);
  return it != object.end() && AsInt64(*it, out);
}

bool GetField(const Json& object, const char* key, bool* out) {
  const auto it = object.find(key);
  if (it == object.end() || !it->is_boolean()) return false;
  *out = it->get<bool>();
  return true;
}

bool GetField(const Json& object, const char* key, std::vector<std::string>* out) {
  const auto it = object.find(key);
  if (it == object.end() || !it->is_array()) return false;
  std::vector<std::string> values;
  for (const Json& item : *it) {
    if (!item.is_string()) return false;
    values.push_back(item.get_ref<const std::string&>());
  }
  *out = std::move(values);
  return true;
}

bool GetField(const Json& object, const char* key, std::vector<int64_t>* out) {
  const auto it = object.find(key);
  if (it == object.end() || !it->is_array()) return false;
  std::vector<int64_t> values;
  for (const Json& item : *it) {
    int64_t value = 0;
    if (!AsInt64(item, &value)) return false;
    values.push_back(value);
  }
  *out = std::move(values);
  return true;
}

}  // namespace tdbg::format

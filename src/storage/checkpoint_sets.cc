#include "storage/checkpoint_sets.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <set>
#include <utility>

#include "base/sha256.h"
#include "base/text.h"
#include "format/json_fields.h"

namespace tdbg::storage {
namespace {

constexpr int kDigits = 8;
constexpr std::string_view kSuffix = ".json";
constexpr int kMajor = 1, kMinor = 0;

// JSON's strings are UTF-8, and a file's name is any bytes.
void PutText(format::Json* json, const char* key, const std::string& text) {
  if (base::IsValidName(text))
    (*json)[key] = text;
  else
    (*json)[std::string(key) + "_hex"] = base::HexOf(text);
}

bool GetText(const format::Json& json, const char* key, std::string* text) {
  if (format::GetField(json, key, text)) return true;
  std::string hex;
  if (!format::GetField(json, (std::string(key) + "_hex").c_str(), &hex) || hex.size() % 2 != 0) return false;
  constexpr std::string_view kHex = "0123456789abcdef";
  for (size_t i = 0; i < hex.size(); i += 2) {
    const size_t high = kHex.find(hex[i]), low = kHex.find(hex[i + 1]);
    if (high == std::string_view::npos || low == std::string_view::npos) return false;
    text->push_back(static_cast<char>(high << 4 | low));
  }
  return true;
}

bool IsSum(const std::string& text) {
  return text.size() == 64 && text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

bool IsName(const std::string& name) { return IsSafeName(name) && !name.starts_with(kRestoreMark); }

// Each entry of an array, which may be absent.
Status ForEach(const format::Json& json, const char* key,
               const std::function<bool(const format::Json&)>& take) {
  const auto found = json.find(key);
  if (found == json.end()) return OkStatus();
  if (!found->is_array()) return DataLoss(fmt::format("'{}' is no array", key));
  for (const format::Json& one : *found) {
    if (!one.is_object() || !take(one)) return DataLoss(fmt::format("'{}' has an invalid entry", key));
  }
  return OkStatus();
}

// No name twice, and no file or link where another name needs a folder.
Status CheckPlaces(const CheckpointSet& set) {
  std::set<std::string> folders, others;
  for (const CheckpointFolder& folder : set.folders) folders.insert(folder.name);
  const auto place = [&](const std::string& name) {
    for (size_t slash = name.find('/'); slash != std::string::npos; slash = name.find('/', slash + 1))
      folders.insert(name.substr(0, slash));
    return others.insert(name).second;
  };
  for (const CheckpointFile& file : set.files) {
    if (!place(file.name)) return DataLoss("a name is there twice");
  }
  for (const CheckpointLink& link : set.links) {
    if (!place(link.name)) return DataLoss("a name is there twice");
  }
  for (const CheckpointFolder& folder : set.folders) {
    for (size_t slash = folder.name.find('/'); slash != std::string::npos;
         slash = folder.name.find('/', slash + 1))
      folders.insert(folder.name.substr(0, slash));
  }
  const bool clash =
      std::ranges::any_of(others, [&](const std::string& name) { return folders.contains(name); });
  return clash ? DataLoss("a name is a file's and a folder's") : OkStatus();
}

}  // namespace

bool LinkStaysInside(std::string_view name, std::string_view target) {
  if (target.empty() || target.front() == '/' || target.find('\0') != std::string_view::npos) return false;
  auto depth = std::ranges::count(name, '/');
  // A ".." behind a name would leave the folder that a link of that name leads to, wherever that is.
  bool named = false;
  while (!target.empty()) {
    const size_t slash = std::min(target.find('/'), target.size());
    const std::string_view part = target.substr(0, slash);
    target.remove_prefix(std::min(slash + 1, target.size()));
    if (part == "..") {
      if (named || --depth < 0) return false;
    } else if (!part.empty() && part != ".") {
      named = true;
    }
  }
  return named;
}

uint64_t CheckpointSet::Bytes() const {
  uint64_t bytes = 0;
  for (const CheckpointFile& file : files) bytes += file.bytes;
  return bytes;
}

bool CheckpointSet::SameContent(const CheckpointSet& other) const {
  return files == other.files && links == other.links &&
         std::ranges::equal(folders, other.folders, {}, &CheckpointFolder::name, &CheckpointFolder::name);
}

std::string CheckpointSet::ToJson() const {
  format::Json json = {{"format", {{"major", kMajor}, {"minor", kMinor}}},
                       {"kind", "checkpoints"},
                       {"id", id},
                       {"run", run},
                       {"host", host},
                       {"wall_nanos", wall_nanos}};
  if (attempt >= 0) json["attempt"] = attempt;
  if (step >= 0) json["step"] = step;
  if (seen_step >= 0) json["seen_step"] = seen_step;
  json["files"] = format::Json::array();
  json["links"] = format::Json::array();
  json["folders"] = format::Json::array();
  for (const CheckpointFile& file : files) {
    format::Json one = {
        {"bytes", file.bytes}, {"sha256", file.sha256}, {"modified_nanos", file.modified_nanos}};
    PutText(&one, "name", file.name);
    json["files"].push_back(std::move(one));
  }
  for (const CheckpointLink& link : links) {
    format::Json one;
    PutText(&one, "name", link.name);
    PutText(&one, "target", link.target);
    json["links"].push_back(std::move(one));
  }
  for (const CheckpointFolder& folder : folders) {
    format::Json one = {{"modified_nanos", folder.modified_nanos}};
    PutText(&one, "name", folder.name);
    json["folders"].push_back(std::move(one));
  }
  return format::DumpJson(json);
}

Result<CheckpointSet> CheckpointSet::FromJson(std::string_view text, std::string_view what) {
  TDBG_ASSIGN_OR_RETURN(const format::Json json, format::ParseJsonObject(text, what));
  int64_t major = 0;
  const auto version = json.find("format");
  if (version == json.end() || !version->is_object() || !format::GetField(*version, "major", &major))
    return DataLoss(std::string(what) + ": says no version");
  if (major > kMajor)
    return Unimplemented(fmt::format("{}: written by a newer tdbg (version {})", what, major));
  std::string kind;
  if (!format::GetField(json, "kind", &kind) || kind != "checkpoints")
    return DataLoss(std::string(what) + ": no set of checkpoints");
  CheckpointSet set;
  format::GetField(json, "id", &set.id);
  format::GetField(json, "run", &set.run);
  format::GetField(json, "host", &set.host);
  format::GetField(json, "wall_nanos", &set.wall_nanos);
  format::GetField(json, "attempt", &set.attempt);
  format::GetField(json, "step", &set.step);
  format::GetField(json, "seen_step", &set.seen_step);
  const auto read = [&]() -> Status {
    uint64_t left = std::numeric_limits<int64_t>::max();  // of what all files together may have
    TDBG_RETURN_IF_ERROR(ForEach(json, "files", [&](const format::Json& one) {
      CheckpointFile file;
      int64_t bytes = -1;
      if (!GetText(one, "name", &file.name) || !format::GetField(one, "bytes", &bytes) || bytes < 0 ||
          !format::GetField(one, "sha256", &file.sha256))
        return false;
      file.bytes = static_cast<uint64_t>(bytes);
      if (!IsName(file.name) || !IsSum(file.sha256) || file.bytes > left) return false;
      left -= file.bytes;
      format::GetField(one, "modified_nanos", &file.modified_nanos);
      set.files.push_back(std::move(file));
      return true;
    }));
    TDBG_RETURN_IF_ERROR(ForEach(json, "links", [&](const format::Json& one) {
      CheckpointLink link;
      if (!GetText(one, "name", &link.name) || !GetText(one, "target", &link.target)) return false;
      if (!IsName(link.name) || !LinkStaysInside(link.name, link.target)) return false;
      set.links.push_back(std::move(link));
      return true;
    }));
    TDBG_RETURN_IF_ERROR(ForEach(json, "folders", [&](const format::Json& one) {
      CheckpointFolder folder;
      if (!GetText(one, "name", &folder.name) || !IsName(folder.name)) return false;
      format::GetField(one, "modified_nanos", &folder.modified_nanos);
      set.folders.push_back(std::move(folder));
      return true;
    }));
    return CheckPlaces(set);
  }();
  if (!read.ok()) return read.Annotate(what);
  return set;
}

std::string CheckpointSetKey(const Location& run, uint64_t number) {
  return KeyBelow(run.KeyPrefix(), fmt::format("{}{:0{}}{}", kCheckpointSets, number, kDigits, kSuffix));
}

std::string CheckpointFileKey(const Location& run, const std::string& sha256) {
  return KeyBelow(run.KeyPrefix(), std::string(kCheckpointFiles) + sha256);
}

Result<std::vector<uint64_t>> ListCheckpointSets(ObjectStore* store, const Location& run) {
  const std::string prefix = KeyBelow(run.KeyPrefix(), std::string(kCheckpointSets));
  TDBG_ASSIGN_OR_RETURN(const std::vector<ObjectInfo> objects, store->List(prefix));
  std::vector<uint64_t> numbers;
  for (const ObjectInfo& object : objects) {
    const auto number = base::ParseInt(
        std::string_view(object.key)
            .substr(prefix.size(), object.key.size() - prefix.size() -
                                       std::min(kSuffix.size(), object.key.size() - prefix.size())));
    // Whatever else lies there is not ours.
    if (number && *number > 0 && CheckpointSetKey(run, static_cast<uint64_t>(*number)) == object.key)
      numbers.push_back(static_cast<uint64_t>(*number));
  }
  std::ranges::sort(numbers, std::greater<>());
  return numbers;
}

Result<CheckpointSet> ReadCheckpointSet(ObjectStore* store, const Location& run, uint64_t number) {
  const std::string key = CheckpointSetKey(run, number);
  TDBG_ASSIGN_OR_RETURN(const Object object, store->Get(key));
  return CheckpointSet::FromJson(object.bytes, key);
}

}  // namespace tdbg::storage

#include "compat/smdebug/reader/collections_file.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>

#include "base/text.h"
#include "compat/smdebug/reader/json.h"

namespace tdbg::compat::smdebug {
namespace {

using simdjson::dom::array;
using simdjson::dom::element;
using simdjson::dom::object;

// As in our own runs: whoever counts absent ranks would not end.
constexpr int64_t kMaxWorkers = 1 << 20;

// A list of texts; false and null stand for an empty one.
Status Texts(const object& from, const char* key, std::vector<std::string>* out) {
  element value;
  if (from[key].get(value) != simdjson::SUCCESS) return OkStatus();
  if (value.is_null() || value.is_bool()) return OkStatus();
  array items;
  if (value.get(items) != simdjson::SUCCESS) return DataLoss(fmt::format("\"{}\" is not a list", key));
  for (const element item : items) {
    std::string_view text;
    if (item.get(text) != simdjson::SUCCESS)
      return DataLoss(fmt::format("\"{}\" holds what is no text", key));
    out->emplace_back(text);
  }
  return OkStatus();
}

// How the collection was to be saved. Reading does not need it, so a value that is not as expected is left as
// it is.
void Configuration(const object& body, CollectionsFile::Collection* out) {
  const auto number = [](const object& from, const char* key, int64_t* to) {
    int64_t value = 0;
    if (from[key].get(value) == simdjson::SUCCESS) *to = value;
  };
  const auto flag = [](const object& from, const char* key, bool* to) {
    bool value = false;
    if (from[key].get(value) == simdjson::SUCCESS) *to = value;
  };
  flag(body, "save_histogram", &out->save_histogram);
  object reductions;
  if (body["reduction_config"].get(reductions) == simdjson::SUCCESS) {
    flag(reductions, "save_raw_tensor", &out->save_raw);
    flag(reductions, "save_shape", &out->save_shape);
    std::string_view list;
    if (reductions["reductions"].get(list) == simdjson::SUCCESS) out->reductions = base::SplitList(list);
  }
  object modes;
  if (body["save_config"].get(modes) != simdjson::SUCCESS) return;
  for (const auto mode : modes) {
    object config;
    if (mode.value.get(config) != simdjson::SUCCESS) continue;
    CollectionsFile::Schedule& schedule = out->save[std::string(mode.key)];
    number(config, "save_interval", &schedule.save_interval);
    number(config, "start_step", &schedule.start_step);
    number(config, "end_step", &schedule.end_step);
    array steps;
    if (config["save_steps"].get(steps) != simdjson::SUCCESS) continue;
    for (const element step : steps) {
      int64_t value = 0;
      if (step.get(value) == simdjson::SUCCESS) schedule.save_steps.push_back(value);
    }
  }
}

}  // namespace

Result<CollectionsFile> DecodeCollectionsFile(std::string_view text) {
  simdjson::dom::parser parser;
  const simdjson::padded_string padded(text);
  TDBG_ASSIGN_OR_RETURN(const object root, ParseObject(&parser, padded));
  CollectionsFile file;
  object meta;
  if (root["_meta"].get(meta) == simdjson::SUCCESS) {
    element workers;
    if (meta["num_workers"].get(workers) == simdjson::SUCCESS &&
        (workers.get(file.num_workers) != simdjson::SUCCESS || file.num_workers < 1 ||
         file.num_workers > kMaxWorkers)) {
      return DataLoss(fmt::format("_meta: \"num_workers\" is not a number from 1 to {}", kMaxWorkers));
    }
  }
  object collections;
  if (root["collections"].get(collections) != simdjson::SUCCESS) return DataLoss("no \"collections\"");
  for (const auto field : collections) {
    CollectionsFile::Collection collection;
    collection.name = field.key;
    object body;
    if (field.value.get(body) != simdjson::SUCCESS) {
      return DataLoss(fmt::format("collection \"{}\" is not an object", collection.name));
    }
    Status read = Texts(body, "include_regex", &collection.include_regex);
    if (read.ok()) read = Texts(body, "tensor_names", &collection.tensor_names);
    if (!read.ok()) return read.Annotate(fmt::format("collection \"{}\"", collection.name));
    Configuration(body, &collection);
    file.collections.push_back(std::move(collection));
  }
  return file;
}

std::vector<std::string> Collections::Add(const CollectionsFile& file) {
  std::vector<std::string> complaints;
  for (const CollectionsFile::Collection& added : file.collections) {
    auto at =
        std::lower_bound(collections_.begin(), collections_.end(), added.name,
                         [](const Collection& c, const std::string& name) { return c.told.name < name; });
    if (at == collections_.end() || at->told.name != added.name) {
      at = collections_.insert(at, Collection{added, {}});
      at->told.include_regex.clear();
    }
    for (const std::string& pattern : added.include_regex) {
      std::vector<std::string>& patterns = at->told.include_regex;
      if (std::find(patterns.begin(), patterns.end(), pattern) != patterns.end()) continue;
      patterns.push_back(pattern);
      auto regex = base::Regex::Compile(pattern);
      if (regex.ok()) {
        at->regexes.push_back(*std::move(regex));
      } else {
        complaints.push_back(fmt::format("collection \"{}\": {}", added.name, regex.status().message()));
      }
    }
    for (const std::string& tensor : added.tensor_names) {
      std::vector<std::string>& names = listed_[tensor];
      if (std::find(names.begin(), names.end(), added.name) == names.end()) names.push_back(added.name);
    }
  }
  return complaints;
}

std::vector<std::string> Collections::Of(std::string_view tensor) const {
  std::vector<std::string> names;
  if (const auto listed = listed_.find(std::string(tensor)); listed != listed_.end()) names = listed->second;
  for (const Collection& collection : collections_) {
    const bool matches = std::any_of(collection.regexes.begin(), collection.regexes.end(),
                                     [&](const base::Regex& regex) { return regex.Search(tensor); });
    if (matches) names.push_back(collection.told.name);
  }
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

std::vector<const CollectionsFile::Collection*> Collections::all() const {
  std::vector<const CollectionsFile::Collection*> out;
  for (const Collection& collection : collections_) out.push_back(&collection.told);
  return out;
}

}  // namespace tdbg::compat::smdebug

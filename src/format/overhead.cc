#include "format/overhead.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "format/json_fields.h"

namespace tdbg::format {
namespace {

constexpr size_t kMostNamed = 2;  // in a sentence

double NumberOr(const Json& object, const char* key, double otherwise) {
  const auto it = object.find(key);
  return it != object.end() && it->is_number() ? it->get<double>() : otherwise;
}

int64_t IntegerFrom(int64_t least, const Json& object, const char* key, int64_t otherwise) {
  int64_t value = otherwise;
  GetField(object, key, &value);
  return std::max(least, value);
}

}  // namespace

std::string Overhead::ToJson() const {
  Json list = Json::array();
  for (const Tensor& tensor : tensors)
    list.push_back({{"name", tensor.name}, {"every", tensor.every}, {"milliseconds", tensor.milliseconds}});
  return DumpJson({{"from_step", from_step},
                   {"share", share},
                   {"every", every},
                   {"rare", rare},
                   {"tensors", std::move(list)}});
}

Overhead Overhead::FromJson(std::string_view text) {
  Overhead out;
  const auto json = ParseJsonObject(text, "overhead");
  if (!json.ok()) return out;
  out.from_step = IntegerFrom(0, *json, "from_step", 0);
  out.share = NumberOr(*json, "share", 0);
  out.every = IntegerFrom(1, *json, "every", 1);
  out.rare = static_cast<uint64_t>(IntegerFrom(0, *json, "rare", 0));
  const auto list = json->find("tensors");
  if (list == json->end() || !list->is_array()) return out;
  for (const Json& entry : *list) {
    if (!entry.is_object() || out.tensors.size() == kMostTensors) continue;
    Tensor& tensor = out.tensors.emplace_back();
    GetField(entry, "name", &tensor.name);
    tensor.every = IntegerFrom(1, entry, "every", 1);
    tensor.milliseconds = NumberOr(entry, "milliseconds", 0);
  }
  return out;
}

std::string Overhead::Words() const {
  std::string words;
  const auto add = [&words](const std::string& part) {
    if (!words.empty()) words += "; ";
    words += part;
  };
  if (every > 1) add(fmt::format("statistics at one step in {}", every));
  for (size_t i = 0; i < std::min(tensors.size(), kMostNamed); ++i) {
    const Tensor& t = tensors[i];
    add(fmt::format("{} at one in {}, since a look takes {:.2g} ms", t.name, t.every, t.milliseconds));
  }
  if (const uint64_t named = std::min<uint64_t>(tensors.size(), kMostNamed); rare > named)
    add(fmt::format("{} less often, too",
                    base::Counted(rare - named, named > 0 ? "other tensor" : "tensor")));
  if (words.empty()) return "everything at every step that is due";
  return fmt::format("{}: more would take over {:.2g} % of the training's time (overhead)", words,
                     100 * share);
}

}  // namespace tdbg::format

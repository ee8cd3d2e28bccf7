#include "cli/dump_events.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <span>
#include <vector>

#include "base/file.h"
#include "base/text.h"
#include "cli/elements.h"
#include "cli/json_output.h"
#include "tfevents/event.h"
#include "tfevents/record.h"

namespace tdbg::cli {
namespace {

Json TensorOf(const tfevents::TensorProto& tensor, int64_t max_elements) {
  Json out = {{"dtype", DTypeName(tensor.dtype)}, {"shape", tensor.shape}};
  Json elements = Json::array();
  const auto cut = [max_elements](size_t count) {
    return max_elements < 0 ? count : std::min(count, static_cast<size_t>(max_elements));
  };
  size_t count = tensor.strings.size();
  if (tensor.dtype == DType::kText) {
    for (size_t i = 0; i < cut(count); ++i) elements.push_back(base::ToValidUtf8(tensor.strings[i]));
  } else {
    // A copy, because elements in a record lie where they happen to.
    std::vector<std::byte> bytes = tensor.values;
    if (bytes.empty()) bytes.assign(tensor.bytes.begin(), tensor.bytes.end());
    count = bytes.size() / ItemSize(tensor.dtype);
    for (size_t i = 0; i < cut(count); ++i) {
      elements.push_back(ElementJson(tensor.dtype, bytes.data(), static_cast<int64_t>(i)));
    }
  }
  if (cut(count) < count) out["elements_left_out"] = count - cut(count);
  out["elements"] = std::move(elements);
  return out;
}

using Damaged = std::function<void(const Status& what)>;

Json ValueOf(const tfevents::Bytes& message, int64_t max_elements, const Damaged& damaged) {
  const auto value = tfevents::DecodeSummaryValue(message);
  if (!value.ok()) {
    damaged(value.status());
    return {{"damaged", value.status().message()}};
  }
  Json out = {{"tag", base::ToValidUtf8(value->tag)}};
  for (const auto& [name, content] : value->plugins) {
    out["plugins"][base::ToValidUtf8(name)] = base::ToValidUtf8(content);
  }
  if (value->kind == tfevents::ValueKind::kSimple) out["simple_value"] = JsonOf(value->simple_value);
  if (value->kind == tfevents::ValueKind::kTensor) {
    const auto tensor = tfevents::DecodeTensor(value->message);
    out["tensor"] =
        tensor.ok() ? TensorOf(*tensor, max_elements) : Json{{"damaged", tensor.status().message()}};
    if (!tensor.ok()) damaged(tensor.status());
  }
  if (value->kind == tfevents::ValueKind::kHistogram) {
    const auto h = tfevents::DecodeHistogramProto(value->message);
    if (h.ok()) {
      out["histogram"] = {{"min", JsonOf(h->min)},
                          {"max", JsonOf(h->max)},
                          {"num", JsonOf(h->num)},
                          {"sum", JsonOf(h->sum)},
                          {"sum_squares", JsonOf(h->sum_squares)}};
      for (const double limit : h->limits) out["histogram"]["bucket_limit"].push_back(JsonOf(limit));
      for (const double count : h->counts) out["histogram"]["bucket"].push_back(JsonOf(count));
    } else {
      out["histogram"] = {{"damaged", h.status().message()}};
      damaged(h.status());
    }
  }
  if (value->kind == tfevents::ValueKind::kOther) out["other"] = "image, audio or an old histogram";
  return out;
}

}  // namespace

bool IsEventFile(const std::string& path) {
  const auto file = base::LocalFileSystem().OpenReadable(path);
  std::array<std::byte, tfevents::kRecordHeaderBytes> head;
  if (!file.ok()) return false;
  const auto got = (*file)->ReadAt(0, head);
  if (!got.ok() || *got != head.size()) return false;
  uint64_t length = 0;
  std::memcpy(&length, head.data(), sizeof(length));
  return tfevents::EncodeRecordHeader(length) == head;
}

Result<std::string> DumpEvents(const std::string& path, bool json, int64_t max_elements,
                               std::vector<std::string>* places) {
  TDBG_ASSIGN_OR_RETURN(const auto mapping, base::ReadOnlyMapping::Open(path));
  Json records = Json::array();
  Json damage;
  size_t at = 0;
  for (std::span<const std::byte> left = mapping->bytes(); !left.empty();) {
    const auto record = tfevents::DecodeRecord(left);
    if (!record.ok()) {
      damage = {{"offset", at}, {"what", record.status().message()}};
      places->push_back(fmt::format("offset {}: {}", at, record.status().message()));
      break;
    }
    Json item = {
        {"offset", at},
        {"bytes", record->bytes},
        {"footer", record->footer == tfevents::Footer::kSmdebug ? "smdebug's constant" : "checksum"}};
    const Damaged damaged = [&](const Status& what) {
      places->push_back(fmt::format("record at {}: {}", at, what.message()));
    };
    const auto event = tfevents::DecodeEvent(record->payload);
    if (event.ok()) {
      item["wall_time"] = JsonOf(event->wall_time);
      item["step"] = event->step;
      if (!event->file_version.empty()) item["file_version"] = base::ToValidUtf8(event->file_version);
      for (const tfevents::Bytes& value : event->values)
        item["values"].push_back(ValueOf(value, max_elements, damaged));
    } else {
      item["damaged"] = event.status().message();
      damaged(event.status());
    }
    records.push_back(std::move(item));
    at += record->bytes;
    left = left.subspan(record->bytes);
  }
  Json document = {{"kind", "event file"}, {"file", path}, {"records", std::move(records)}};
  if (!damage.is_null()) document["damaged"] = std::move(damage);
  return document.dump(json ? -1 : 2, ' ', false, Json::error_handler_t::replace);
}

}  // namespace tdbg::cli

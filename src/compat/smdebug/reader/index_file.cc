#include "compat/smdebug/reader/index_file.h"

#include <fmt/format.h>
#include <simdjson.h>

#include "base/text.h"
#include "compat/smdebug/reader/json.h"
#include "compat/smdebug/reader/names.h"

namespace tdbg::compat::smdebug {

using simdjson::dom::array;
using simdjson::dom::element;
using simdjson::dom::object;

struct IndexDecoder::Impl {
  simdjson::dom::parser parser;
  IndexFile file;

  Status Meta(const object& root);
  Status Payloads(const object& root);
  Status Shapes(const object& root);
  Status Whole(const object& root) const;
};

IndexDecoder::IndexDecoder() : impl_(std::make_unique<Impl>()) {}
IndexDecoder::~IndexDecoder() = default;
IndexDecoder::IndexDecoder(IndexDecoder&&) noexcept = default;
IndexDecoder& IndexDecoder::operator=(IndexDecoder&&) noexcept = default;

size_t IndexDecoder::Padding() { return simdjson::SIMDJSON_PADDING; }

Status IndexDecoder::Impl::Meta(const object& root) {
  object meta;
  if (root["meta"].get(meta) != simdjson::SUCCESS || meta.size() == 0) return DataLoss("no \"meta\"");
  std::string_view mode;
  if (meta["mode"].get(mode) != simdjson::SUCCESS) return DataLoss("meta: no \"mode\"");
  const auto known = format::ModeFromName(base::Trim(mode));
  if (!known) {
    return DataLoss(fmt::format("meta: mode \"{}\", where TRAIN, EVAL, PREDICT or GLOBAL is accepted",
                                base::ToValidUtf8(mode.substr(0, 40))));
  }
  file.mode = *known;
  if (meta["mode_step"].get(file.mode_step) != simdjson::SUCCESS || file.mode_step < 0) {
    return DataLoss("meta: \"mode_step\" is not a number from 0 on");
  }
  element event_file;
  file.event_file = {};
  if (meta["event_file_name"].get(event_file) == simdjson::SUCCESS && !event_file.is_null()) {
    if (event_file.get(file.event_file) != simdjson::SUCCESS || !IsEventFileName(file.event_file)) {
      return DataLoss(fmt::format("meta: event_file_name {} is not of the form events/STEP/FILE",
                                  simdjson::minify(event_file).substr(0, 200)));
    }
  }
  return OkStatus();
}

Status IndexDecoder::Impl::Payloads(const object& root) {
  array items;
  const auto found = root["tensor_payload"];
  if (found.error()) return OkStatus();
  if (found.get(items) != simdjson::SUCCESS) return DataLoss("tensor_payload is no list");
  file.payloads.reserve(items.size());
  for (const element item : items) {
    object fields;
    IndexFile::Payload payload;
    if (item.get(fields) != simdjson::SUCCESS ||
        fields["tensorname"].get(payload.tensor) != simdjson::SUCCESS ||
        fields["start_idx"].get(payload.offset) != simdjson::SUCCESS ||
        fields["length"].get(payload.bytes) != simdjson::SUCCESS) {
      return DataLoss(
          fmt::format("tensor_payload[{}]: \"tensorname\", \"start_idx\" and \"length\" are needed",
                      file.payloads.size()));
    }
    file.payloads.push_back(payload);
  }
  return OkStatus();
}

Status IndexDecoder::Impl::Shapes(const object& root) {
  array items;
  const auto found = root["shape_payload"];
  if (found.error()) return OkStatus();
  if (found.get(items) != simdjson::SUCCESS) return DataLoss("shape_payload is no list");
  for (const element item : items) {
    object fields;
    array extents;
    IndexFile::Shape shape;
    if (item.get(fields) != simdjson::SUCCESS ||
        fields["tensorname"].get(shape.tensor) != simdjson::SUCCESS ||
        fields["originalname"].get(shape.original_name) != simdjson::SUCCESS ||
        fields["shape"].get(extents) != simdjson::SUCCESS) {
      return DataLoss(
          fmt::format("shape_payload[{}]: \"tensorname\", \"originalname\" and \"shape\" are needed",
                      file.shapes.size()));
    }
    shape.first = static_cast<uint32_t>(file.extents.size());
    for (const element extent : extents) {
      int64_t value = 0;
      if (extent.get(value) != simdjson::SUCCESS || value < 0) {
        return DataLoss(
            fmt::format("shape_payload[{}]: an extent that is no number from 0 on", file.shapes.size()));
      }
      file.extents.push_back(value);
    }
    shape.rank = static_cast<uint32_t>(file.extents.size()) - shape.first;
    file.shapes.push_back(shape);
  }
  return OkStatus();
}

/// An index file is written where a tensor or a shape was saved, and names an event file where a tensor was.
/// One that says neither has lost it: a key of another name is what a damaged one looks like.
Status IndexDecoder::Impl::Whole(const object& root) const {
  const bool tensors = !root["tensor_payload"].error(), shapes = !root["shape_payload"].error();
  if (file.event_file.empty() && !file.payloads.empty()) {
    return DataLoss("meta: no \"event_file_name\" to hold the tensors of tensor_payload");
  }
  if (!file.event_file.empty() && file.payloads.empty()) {
    return DataLoss(fmt::format("meta names an event file, and {}",
                                tensors ? "tensor_payload is empty" : "there is no \"tensor_payload\""));
  }
  if (file.payloads.empty() && file.shapes.empty()) return DataLoss("neither tensors nor shapes are in it");
  if (tensors && shapes) return OkStatus();
  for (const auto& [key, value] : root) {
    if (key == "meta" || key == "tensor_payload" || key == "shape_payload") continue;
    return DataLoss(fmt::format("\"{}\" where \"{}\" is missing", base::ToValidUtf8(key.substr(0, 40)),
                                tensors ? "shape_payload" : "tensor_payload"));
  }
  return OkStatus();
}

Result<const IndexFile*> IndexDecoder::Decode(std::string_view text) {
  IndexFile& file = impl_->file;
  file.payloads.clear();
  file.shapes.clear();
  file.extents.clear();
  Result<object> parsed = ParseObject(&impl_->parser, text);
  if (!parsed.ok()) {
    // smdebug opens its temporary file for appending: what a killed writer left there stands in front of the
    // next one's document, which is the one that belongs to the event file.
    const size_t last = text.rfind(R"({"meta")");
    if (last == std::string_view::npos || last == 0) return parsed.status();
    parsed = ParseObject(&impl_->parser, text.substr(last));
    TDBG_RETURN_IF_ERROR(parsed.status());
  }
  const object root = *parsed;
  TDBG_RETURN_IF_ERROR(impl_->Meta(root));
  TDBG_RETURN_IF_ERROR(impl_->Payloads(root));
  TDBG_RETURN_IF_ERROR(impl_->Shapes(root));
  TDBG_RETURN_IF_ERROR(impl_->Whole(root));
  return &file;
}

}  // namespace tdbg::compat::smdebug

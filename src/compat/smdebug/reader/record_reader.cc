#include "compat/smdebug/reader/record_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <new>
#include <span>

#include "base/text.h"
#include "tfevents/event.h"
#include "tfevents/record.h"

namespace tdbg::compat::smdebug {
namespace {

// A protocol buffer has less than 2 GiB. A file without blocks behind its length could claim anything else.
constexpr uint64_t kMaxRecordBytes = (uint64_t{2} << 30) + tfevents::kRecordOverheadBytes;

// The largest alignment that a reader of the elements may need.
constexpr size_t kAlignment = 64;

std::shared_ptr<std::byte> Allocate(size_t bytes) {
  auto* const memory =
      static_cast<std::byte*>(::operator new(std::max<size_t>(bytes, 1), std::align_val_t(kAlignment)));
  return {memory, [](std::byte* p) { ::operator delete(p, std::align_val_t(kAlignment)); }};
}

// The code points of a text; what is no UTF-8 becomes U+FFFD.
std::vector<uint32_t> CodePoints(std::string_view text) {
  std::vector<uint32_t> out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    const auto lead = static_cast<unsigned char>(text[i]);
    const size_t length = lead < 0x80       ? 1
                          : lead >> 5 == 6  ? 2
                          : lead >> 4 == 14 ? 3
                          : lead >> 3 == 30 ? 4
                                            : 0;
    uint32_t point = length == 1 ? lead : lead & (0x7fu >> length);
    bool good = length != 0 && i + length <= text.size();
    for (size_t k = 1; good && k < length; ++k) {
      const auto next = static_cast<unsigned char>(text[i + k]);
      good = next >> 6 == 2;
      point = point << 6 | (next & 0x3f);
    }
    out.push_back(good ? point : 0xfffd);
    i += good ? length : 1;
  }
  return out;
}

// As NumPy holds texts: each as wide as the longest, at least one code point.
Status LayOutTexts(const tfevents::TensorProto& tensor, size_t record_bytes, store::RawValue* value) {
  std::vector<std::vector<uint32_t>> texts;
  size_t width = 1;
  for (const std::string_view text : tensor.strings) {
    texts.push_back(CodePoints(text));
    width = std::max(width, texts.back().size());
  }
  // One long text among many short ones asks for more memory than the file has bytes: only so much more.
  constexpr size_t kAlwaysAllowed = size_t{64} << 20;
  const size_t limit = std::max(kAlwaysAllowed, record_bytes * 16) / sizeof(uint32_t);
  if (!texts.empty() && width > limit / texts.size()) {
    return ResourceExhausted(fmt::format(
        "{} texts of which one has {} characters: too uneven to lay out as an array", texts.size(), width));
  }
  const size_t bytes = texts.size() * width * sizeof(uint32_t);
  const auto memory = Allocate(bytes);
  std::memset(memory.get(), 0, bytes);
  for (size_t i = 0; i < texts.size(); ++i) {
    if (texts[i].empty()) continue;
    std::memcpy(memory.get() + i * width * sizeof(uint32_t), texts[i].data(),
                texts[i].size() * sizeof(uint32_t));
  }
  value->bytes = {memory.get(), bytes};
  value->owner = memory;
  value->dtype = DType::kText;
  value->shape = tensor.shape;
  value->shape.push_back(static_cast<int64_t>(width));
  return OkStatus();
}

// smdebug numbers its modes from 1 as we do; what it leaves out is a step of no mode.
void ReadMode(const tfevents::SummaryValue& stored, Record* record) {
  record->mode_step = record->step;
  for (const auto& [plugin, content] : stored.plugins) {
    const auto number = base::ParseInt(content);
    if (!number) continue;
    if (plugin == "mode_step") record->mode_step = *number;
    if (plugin == "mode" && *number >= 1 && *number <= 4) record->mode = static_cast<format::Mode>(*number);
  }
}

}  // namespace

Status RecordReader::Open(const std::string& event_file) {
  if (open_name_ == event_file) return OkStatus();
  open_name_.clear();
  TDBG_ASSIGN_OR_RETURN(open_, root_.OpenRegular(event_file));
  open_name_ = event_file;
  return OkStatus();
}

Result<uint64_t> RecordReader::BytesAt(const std::string& event_file, uint64_t offset) {
  TDBG_RETURN_IF_ERROR(Open(event_file));
  const uint64_t file_bytes = open_.signature.bytes;
  if (offset >= file_bytes) return uint64_t{0};
  const uint64_t left = file_bytes - offset;
  std::array<std::byte, tfevents::kRecordHeaderBytes> header;
  if (left < tfevents::kRecordOverheadBytes) {
    return DataLoss(fmt::format("{} at {}: {} bytes, which are no whole record", event_file, offset, left));
  }
  TDBG_RETURN_IF_ERROR(ReadExactly(open_.fd.get(), offset, header.size(), header.data()));
  const auto payload = tfevents::DecodeRecordHeader(header);
  if (!payload.ok()) return payload.status().Annotate(fmt::format("{} at {}", event_file, offset));
  if (*payload > left - tfevents::kRecordOverheadBytes) {
    return DataLoss(fmt::format("{} at {}: the record says {} bytes, {} are there", event_file, offset,
                                *payload, left - tfevents::kRecordOverheadBytes));
  }
  return *payload + tfevents::kRecordOverheadBytes;
}

Result<Record> RecordReader::Read(const std::string& event_file, uint64_t offset, uint64_t bytes) {
  TDBG_RETURN_IF_ERROR(Open(event_file));
  const uint64_t file_bytes = open_.signature.bytes;
  if (offset > file_bytes || bytes > file_bytes - offset) {
    return DataLoss(fmt::format("{}: the index says {} bytes at {}, the file has {}", event_file, bytes,
                                offset, file_bytes));
  }
  if (bytes > kMaxRecordBytes) {
    return DataLoss(fmt::format("{} at {}: a record of {} bytes, where a protocol buffer has less than 2 GiB",
                                event_file, offset, bytes));
  }
  const auto size = static_cast<size_t>(bytes);
  const std::shared_ptr<std::byte> memory = Allocate(size);
  TDBG_RETURN_IF_ERROR(ReadExactly(open_.fd.get(), offset, size, memory.get()));
  const auto annotate = [&](const Status& status) {
    return status.Annotate(fmt::format("{} at {}", event_file, offset));
  };
  for (std::span<const std::byte> left(memory.get(), size); !left.empty();) {
    const auto record = tfevents::DecodeRecord(left);
    if (!record.ok()) return annotate(record.status());
    left = left.subspan(record->bytes);
    const auto event = tfevents::DecodeEvent(record->payload);
    if (!event.ok()) return annotate(event.status());
    if (event->values.empty()) continue;
    const auto stored = tfevents::DecodeSummaryValue(event->values.front());
    if (!stored.ok()) return annotate(stored.status());
    Record out;
    out.tag = stored->tag;
    out.wall_time = event->wall_time;
    out.step = event->step;
    ReadMode(*stored, &out);
    if (stored->kind != tfevents::ValueKind::kTensor) {
      return annotate(DataLoss("the record holds no tensor"));
    }
    auto tensor = tfevents::DecodeTensor(stored->message);
    if (!tensor.ok()) return annotate(tensor.status());
    if (tensor->dtype == DType::kText) {
      const Status laid_out = LayOutTexts(*tensor, size, &out.value);
      if (!laid_out.ok()) return annotate(laid_out);
      return out;
    }
    const std::span<const std::byte> elements =
        tensor->bytes.empty() ? std::span<const std::byte>(tensor->values) : tensor->bytes;
    if (elements.size() > size) {
      // As varints, one after the other, small numbers take fewer bytes than an element does.
      const auto copy = Allocate(elements.size());
      std::memcpy(copy.get(), elements.data(), elements.size());
      out.value.owner = copy;
      out.value.bytes = {copy.get(), elements.size()};
    } else {
      // To the front of their own buffer, where they are aligned.
      if (!elements.empty()) std::memmove(memory.get(), elements.data(), elements.size());
      out.value.owner = memory;
      out.value.bytes = {memory.get(), elements.size()};
    }
    out.value.dtype = tensor->dtype;
    out.value.shape = std::move(tensor->shape);
    return out;
  }
  return annotate(DataLoss("no record in it holds a value"));
}

}  // namespace tdbg::compat::smdebug

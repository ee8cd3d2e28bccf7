#include "tfevents/event_writer.h"

#include <algorithm>
#include <array>
#include <protozero/pbf_writer.hpp>

namespace tdbg::tfevents {
namespace {

namespace event {
constexpr int kWallTime = 1, kStep = 2, kFileVersion = 3, kSummary = 5, kSessionLog = 7, kSourceMetadata = 10;
constexpr int kSessionLogStatus = 1, kSessionLogStart = 1;
constexpr int kSourceWriter = 1;
}  // namespace event
namespace summary {
constexpr int kValue = 1;
constexpr int kTag = 1, kSimpleValue = 2, kHisto = 5, kTensor = 8, kMetadata = 9;
constexpr int kPluginData = 1, kPluginName = 1, kPluginContent = 2;
constexpr int kMin = 1, kMax = 2, kNum = 3, kSum = 4, kSumSquares = 5, kBucketLimit = 6, kBucket = 7;
}  // namespace summary
namespace tensor {
constexpr int kDType = 1, kShape = 2, kContent = 4, kStringVal = 8, kDim = 2, kDimSize = 1;
}  // namespace tensor

constexpr int kLengthDelimited = 2;

/// TensorFlow's DataType; 0 where there is no counterpart.
int TypeNumber(DType dtype) {
  constexpr int kLargest = 25;
  constexpr std::array kQuantized = {11, 12, 13, 15,
                                     16};  // storage of the same types, with a scale elsewhere
  for (int type = 1; type <= kLargest; ++type) {
    const bool quantized = std::find(kQuantized.begin(), kQuantized.end(), type) != kQuantized.end();
    if (!quantized && DTypeOfTensorflow(type) == dtype) return type;
  }
  return 0;
}

void AddHead(double wall_seconds, int64_t step, protozero::pbf_writer* writer) {
  writer->add_double(event::kWallTime, wall_seconds);
  writer->add_int64(event::kStep, step);
}

void AddVarint(uint64_t value, std::string* out) {
  for (; value >= 0x80; value >>= 7) out->push_back(static_cast<char>(value | 0x80));
  out->push_back(static_cast<char>(value));
}

size_t VarintBytes(uint64_t value) {
  size_t n = 1;
  for (; value >= 0x80; value >>= 7) ++n;
  return n;
}

// The head of a message (or of bytes) whose content is written later: field, then how long it will be.
void AddLength(int field, uint64_t length, std::string* out) {
  AddVarint(static_cast<uint64_t>(field) << 3 | kLengthDelimited, out);
  AddVarint(length, out);
}

// Fields below 16, as all of ours are, take one byte.
uint64_t Enclosed(uint64_t length) { return 1 + VarintBytes(length) + length; }

std::string_view AsText(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

void AppendRecord(std::string_view payload, Footer footer, std::string* file) {
  *file += AsText(EncodeRecordHeader(payload.size()));
  *file += payload;
  *file += AsText(EncodeRecordFooter(std::as_bytes(std::span(payload)), footer));
}

std::string FileVersionEvent(double wall_seconds, std::string_view writer) {
  std::string payload;
  protozero::pbf_writer out(payload);
  out.add_double(event::kWallTime, wall_seconds);
  out.add_string(event::kFileVersion, "brain.Event:2");
  protozero::pbf_writer source(out, event::kSourceMetadata);
  source.add_string(event::kSourceWriter, writer.data(), writer.size());
  return payload;
}

bool IsWrittenBy(std::string_view head, std::string_view writer) {
  std::string ours;
  AppendRecord(FileVersionEvent(0, writer), Footer::kPayloadCrc, &ours);
  // All but the time, which is the event's first field, and the checksum that covers it.
  constexpr size_t kTimeEnd = kRecordHeaderBytes + 1 + sizeof(double);
  const size_t end = ours.size() - kRecordFooterBytes;
  return head.size() >= end && head.substr(0, kRecordHeaderBytes) == ours.substr(0, kRecordHeaderBytes) &&
         head.substr(kTimeEnd, end - kTimeEnd) == ours.substr(kTimeEnd, end - kTimeEnd);
}

std::string SessionStartEvent(double wall_seconds, int64_t step) {
  std::string payload;
  protozero::pbf_writer writer(payload);
  AddHead(wall_seconds, step, &writer);
  protozero::pbf_writer session(writer, event::kSessionLog);
  session.add_enum(event::kSessionLogStatus, event::kSessionLogStart);
  return payload;
}

void SummaryEvent::AddScalar(std::string_view tag, double value) {
  protozero::pbf_writer writer(summary_);
  protozero::pbf_writer entry(writer, summary::kValue);
  entry.add_string(summary::kTag, tag.data(), tag.size());
  entry.add_float(summary::kSimpleValue, static_cast<float>(value));
}

void SummaryEvent::AddHistogram(std::string_view tag, const HistogramProto& histogram) {
  protozero::pbf_writer writer(summary_);
  protozero::pbf_writer entry(writer, summary::kValue);
  entry.add_string(summary::kTag, tag.data(), tag.size());
  protozero::pbf_writer histo(entry, summary::kHisto);
  histo.add_double(summary::kMin, histogram.min);
  histo.add_double(summary::kMax, histogram.max);
  histo.add_double(summary::kNum, histogram.num);
  histo.add_double(summary::kSum, histogram.sum);
  histo.add_double(summary::kSumSquares, histogram.sum_squares);
  histo.add_packed_double(summary::kBucketLimit, histogram.limits.begin(), histogram.limits.end());
  histo.add_packed_double(summary::kBucket, histogram.counts.begin(), histogram.counts.end());
}

std::string SummaryEvent::Payload() const {
  std::string payload;
  payload.reserve(summary_.size() + 32);
  protozero::pbf_writer writer(payload);
  AddHead(wall_seconds_, step_, &writer);
  writer.add_message(event::kSummary, summary_);
  return payload;
}

namespace {

using Plugins = std::span<const std::pair<std::string, std::string>>;

// \param tensor_head  the TensorProto up to its content. \param content_bytes  -1: it has none
TensorRecord Frame(double wall_seconds, int64_t step, std::string_view tag, const std::string& tensor_head,
                   int64_t content_bytes, Plugins plugins) {
  std::string metadata;
  {
    protozero::pbf_writer writer(metadata);
    for (const auto& [name, content] : plugins) {
      protozero::pbf_writer plugin(writer, summary::kPluginData);
      plugin.add_string(summary::kPluginName, name);
      plugin.add_string(summary::kPluginContent, content);
    }
  }
  // Outermost last: each message must know how long what it holds is going to be, the content included.
  const bool has_content = content_bytes >= 0;
  const auto content = static_cast<uint64_t>(content_bytes);
  const uint64_t tensor_bytes = tensor_head.size() + (has_content ? Enclosed(content) : 0);
  const uint64_t value_bytes = Enclosed(tag.size()) + Enclosed(tensor_bytes) + Enclosed(metadata.size());
  const uint64_t summary_bytes = Enclosed(value_bytes);

  std::string event_head;
  {
    protozero::pbf_writer writer(event_head);
    AddHead(wall_seconds, step, &writer);
  }
  const uint64_t payload_bytes = event_head.size() + Enclosed(summary_bytes);

  TensorRecord record;
  record.before = AsText(EncodeRecordHeader(payload_bytes));
  record.before += event_head;
  AddLength(event::kSummary, summary_bytes, &record.before);
  AddLength(summary::kValue, value_bytes, &record.before);
  AddLength(summary::kTag, tag.size(), &record.before);
  record.before += tag;
  AddLength(summary::kTensor, tensor_bytes, &record.before);
  record.before += tensor_head;
  if (has_content) AddLength(tensor::kContent, content, &record.before);
  AddLength(summary::kMetadata, metadata.size(), &record.after);
  record.after += metadata;
  record.after += AsText(EncodeRecordFooter({}, Footer::kSmdebug));
  record.bytes = kRecordOverheadBytes + payload_bytes;
  return record;
}

void AddShape(std::span<const int64_t> shape, protozero::pbf_writer* writer) {
  protozero::pbf_writer shape_writer(*writer, tensor::kShape);
  for (const int64_t extent : shape) {
    protozero::pbf_writer dim(shape_writer, tensor::kDim);
    dim.add_int64(tensor::kDimSize, extent);
  }
}

}  // namespace

TensorRecord FrameTensor(double wall_seconds, int64_t step, std::string_view tag, DType dtype,
                         std::span<const int64_t> shape, uint64_t content_bytes, Plugins plugins) {
  std::string head;
  protozero::pbf_writer writer(head);
  writer.add_enum(tensor::kDType, TypeNumber(dtype));
  AddShape(shape, &writer);
  return Frame(wall_seconds, step, tag, head, static_cast<int64_t>(content_bytes), plugins);
}

TensorRecord FrameTexts(double wall_seconds, int64_t step, std::string_view tag,
                        std::span<const std::string> texts, Plugins plugins) {
  // Without a type: smdebug cannot read DT_STRING, and takes what has none and holds strings for strings.
  std::string head;
  protozero::pbf_writer writer(head);
  const auto count = static_cast<int64_t>(texts.size());
  AddShape({&count, 1}, &writer);
  for (const std::string& text : texts) writer.add_string(tensor::kStringVal, text);
  return Frame(wall_seconds, step, tag, head, -1, plugins);
}

}  // namespace tdbg::tfevents

#include "tfevents/event.h"

#include <string>

#include "tfevents/protobuf.h"

namespace tdbg::tfevents {
namespace {

Bytes ToBytes(protozero::data_view view) {
  return {reinterpret_cast<const std::byte*>(view.data()), view.size()};
}
std::string_view ToText(protozero::data_view view) { return {view.data(), view.size()}; }

/// Walks a message. f(reader) looks at one field and reads it or returns false, in which case it is skipped.
/// protozero reports what is wrong by exceptions; they end here.
template <typename F>
Status Walk(Bytes message, const char* what, F&& f) {
  try {
    pbf_reader reader(reinterpret_cast<const char*>(message.data()), message.size());
    while (reader.next()) {
      if (!f(reader)) reader.skip();
    }
  } catch (const protozero::exception& error) {
    return DataLoss(std::string(what) + ": not a protocol buffer (" + error.what() + ")");
  }
  return OkStatus();
}

}  // namespace

Result<Event> DecodeEvent(Bytes payload) {
  Event event;
  Bytes summary;
  TDBG_RETURN_IF_ERROR(Walk(payload, "event", [&](pbf_reader& reader) {
    switch (reader.tag_and_type()) {
      case tag_and_type(1, kFixed64):
        event.wall_time = reader.get_double();
        return true;
      case tag_and_type(2, kVarint):
        event.step = reader.get_int64();
        return true;
      case tag_and_type(3, kBytes):
        event.file_version = ToText(reader.get_view());
        return true;
      case tag_and_type(5, kBytes):
        summary = ToBytes(reader.get_view());
        return true;
      default:
        return false;
    }
  }));
  TDBG_RETURN_IF_ERROR(Walk(summary, "summary", [&](pbf_reader& reader) {
    if (reader.tag_and_type() != tag_and_type(1, kBytes)) return false;
    event.values.push_back(ToBytes(reader.get_view()));
    return true;
  }));
  return event;
}

Result<SummaryValue> DecodeSummaryValue(Bytes message) {
  SummaryValue value;
  std::vector<Bytes> plugins;
  Bytes metadata;
  TDBG_RETURN_IF_ERROR(Walk(message, "summary value", [&](pbf_reader& reader) {
    switch (reader.tag_and_type()) {
      case tag_and_type(1, kBytes):
        value.tag = ToText(reader.get_view());
        return true;
      case tag_and_type(2, kFixed32):
        value.kind = ValueKind::kSimple;
        value.simple_value = reader.get_float();
        return true;
      case tag_and_type(5, kBytes):
        value.kind = ValueKind::kHistogram;
        value.message = ToBytes(reader.get_view());
        return true;
      case tag_and_type(8, kBytes):
        value.kind = ValueKind::kTensor;
        value.message = ToBytes(reader.get_view());
        return true;
      case tag_and_type(3, kBytes):
      case tag_and_type(4, kBytes):
      case tag_and_type(6, kBytes):
        value.kind = ValueKind::kOther;
        return false;
      case tag_and_type(9, kBytes):
        metadata = ToBytes(reader.get_view());
        return true;
      default:
        return false;
    }
  }));
  TDBG_RETURN_IF_ERROR(Walk(metadata, "summary metadata", [&](pbf_reader& reader) {
    if (reader.tag_and_type() != tag_and_type(1, kBytes)) return false;
    plugins.push_back(ToBytes(reader.get_view()));
    return true;
  }));
  for (const Bytes& plugin : plugins) {
    std::pair<std::string_view, std::string_view> data;
    TDBG_RETURN_IF_ERROR(Walk(plugin, "plugin data", [&](pbf_reader& reader) {
      switch (reader.tag_and_type()) {
        case tag_and_type(1, kBytes):
          data.first = ToText(reader.get_view());
          return true;
        case tag_and_type(2, kBytes):
          data.second = ToText(reader.get_view());
          return true;
        default:
          return false;
      }
    }));
    value.plugins.push_back(data);
  }
  return value;
}

Result<HistogramProto> DecodeHistogramProto(Bytes message) {
  HistogramProto histogram;
  const auto append = [](pbf_reader& reader, std::vector<double>* to) {
    for (const double x : reader.get_packed_double()) to->push_back(x);
  };
  TDBG_RETURN_IF_ERROR(Walk(message, "histogram", [&](pbf_reader& reader) {
    switch (reader.tag_and_type()) {
      case tag_and_type(1, kFixed64):
        histogram.min = reader.get_double();
        return true;
      case tag_and_type(2, kFixed64):
        histogram.max = reader.get_double();
        return true;
      case tag_and_type(3, kFixed64):
        histogram.num = reader.get_double();
        return true;
      case tag_and_type(4, kFixed64):
        histogram.sum = reader.get_double();
        return true;
      case tag_and_type(5, kFixed64):
        histogram.sum_squares = reader.get_double();
        return true;
      case tag_and_type(6, kBytes):
        append(reader, &histogram.limits);
        return true;
      case tag_and_type(7, kBytes):
        append(reader, &histogram.counts);
        return true;
      default:
        return false;
    }
  }));
  return histogram;
}

}  // namespace tdbg::tfevents

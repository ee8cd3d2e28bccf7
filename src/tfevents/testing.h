// Events for tests of any room: one tensor framed as smdebug frames it.
#pragma once

#include <cstring>
#include <initializer_list>
#include <protozero/pbf_writer.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "tfevents/record.h"

namespace tdbg::tfevents {

inline std::string FrameForTest(std::string_view payload, Footer footer = Footer::kSmdebug) {
  const auto head = EncodeRecordHeader(payload.size());
  const auto foot = EncodeRecordFooter(std::as_bytes(std::span(payload)), footer);
  std::string out(reinterpret_cast<const char*>(head.data()), head.size());
  out += payload;
  return out.append(reinterpret_cast<const char*>(foot.data()), foot.size());
}

/// \param type  TensorFlow's DataType
inline std::string TensorRecordForTest(std::string_view tag, int64_t step, int type,
                                       const std::vector<int64_t>& shape, std::string_view content) {
  using protozero::pbf_writer;
  std::string dimensions, tensor, value, summary, event;
  for (const int64_t extent : shape) {
    std::string dimension;
    pbf_writer(dimension).add_int64(1, extent);
    pbf_writer(dimensions).add_message(2, dimension);
  }
  pbf_writer(tensor).add_int32(1, type);
  pbf_writer(tensor).add_message(2, dimensions);
  pbf_writer(tensor).add_bytes(4, content.data(), content.size());
  pbf_writer(value).add_string(1, tag.data(), tag.size());
  pbf_writer(value).add_message(8, tensor);
  pbf_writer(summary).add_message(1, value);
  pbf_writer(event).add_double(1, 1700000000.0);
  pbf_writer(event).add_int64(2, step);
  pbf_writer(event).add_message(5, summary);
  return FrameForTest(event);
}

inline std::string FloatRecordForTest(std::string_view tag, int64_t step,
                                      const std::vector<float>& elements) {
  return TensorRecordForTest(
      tag, step, 1, {static_cast<int64_t>(elements.size())},
      {reinterpret_cast<const char*>(elements.data()), elements.size() * sizeof(float)});
}

}  // namespace tdbg::tfevents

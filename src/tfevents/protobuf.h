// Names of protozero's that the readers of protocol buffers use.
#pragma once

#include <protozero/pbf_reader.hpp>

namespace tdbg::tfevents {

using protozero::pbf_reader;
using protozero::pbf_wire_type;
using protozero::tag_and_type;

constexpr auto kVarint = pbf_wire_type::varint;
constexpr auto kFixed64 = pbf_wire_type::fixed64;
constexpr auto kFixed32 = pbf_wire_type::fixed32;
constexpr auto kBytes = pbf_wire_type::length_delimited;

}  // namespace tdbg::tfevents

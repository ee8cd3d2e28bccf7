// Event files: framing, then what lies in each record. Payloads are also decoded without their frame, because
// a fuzzer does not guess checksums.
#include <cstdint>
#include <cstdlib>
#include <span>

#include "tfevents/event.h"
#include "tfevents/record.h"

namespace {

using tdbg::tfevents::Bytes;

void Require(bool condition) {
  if (!condition) std::abort();
}

bool Within(Bytes outer, Bytes inner) {
  return inner.empty() ||
         (inner.data() >= outer.data() && inner.data() + inner.size() <= outer.data() + outer.size());
}

void Decode(Bytes payload) {
  using namespace tdbg::tfevents;
  const auto event = DecodeEvent(payload);
  if (!event.ok()) return;
  for (const Bytes& message : event->values) {
    Require(Within(payload, message));
    const auto value = DecodeSummaryValue(message);
    if (!value.ok()) continue;
    Require(Within(payload, value->message));
    (void)DecodeHistogramProto(value->message);
    const auto tensor = DecodeTensor(value->message);
    if (!tensor.ok()) continue;
    Require(Within(payload, tensor->bytes));
    Require(tensor->values.size() <= value->message.size() * 8);
    int64_t elements = 1;
    for (const int64_t extent : tensor->shape) elements *= extent;
    const size_t item = tdbg::ItemSize(tensor->dtype);
    Require(item != 0);
    const size_t bytes = tensor->bytes.empty() ? tensor->values.size() : tensor->bytes.size();
    Require(tensor->dtype == tdbg::DType::kText ? tensor->strings.size() == static_cast<size_t>(elements)
                                                : bytes == static_cast<size_t>(elements) * item);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const Bytes bytes(reinterpret_cast<const std::byte*>(data), size);
  Decode(bytes);
  for (Bytes left = bytes; !left.empty();) {
    const auto record = tdbg::tfevents::DecodeRecord(left);
    if (!record.ok()) break;
    Require(record->bytes <= left.size() && Within(left, record->payload));
    Decode(record->payload);
    left = left.subspan(record->bytes);
  }
  return 0;
}

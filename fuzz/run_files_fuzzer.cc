// The small JSON files of a run and the control file.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "format/run_files.h"

namespace {

template <typename Info>
void RoundTrip(std::string_view text) {
  const auto info = Info::FromJson(text);
  if (!info.ok()) return;
  const auto again = Info::FromJson(info->ToJson());
  if (!again.ok() || again->ToJson() != info->ToJson()) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tdbg::format;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  RoundTrip<RunInfo>(text);
  RoundTrip<AttemptInfo>(text);
  RoundTrip<WorkerInfo>(text);
  if (const auto requests = DecodeControlLines(text); requests.ok()) {
    for (const ControlRequest& request : *requests) {
      if (request.json.find('\n') != std::string::npos) std::abort();
    }
  }
  return 0;
}

#include "trial/scalar_timestamps.h"

#include <nlohmann/json.hpp>

#include "format/scalar_timestamps.h"

namespace tdbg {

std::map<std::string, double, std::less<>> ScalarTimestampsAt(const TrialAccess& access, int64_t global_step,
                                                              WorkerIndex worker) {
  std::map<std::string, double, std::less<>> said;
  for (const auto& [whose, record] : access.ContextsOf(format::kScalarTimestamps)) {
    if (whose != worker || record->global_step != global_step) continue;
    const auto json = nlohmann::json::parse(record->json, nullptr, false);
    if (!json.is_object()) continue;
    for (const auto& [name, seconds] : json.items()) {
      if (seconds.is_number()) said[name] = seconds.get<double>();
    }
  }
  return said;
}

}  // namespace tdbg

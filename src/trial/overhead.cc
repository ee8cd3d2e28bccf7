#include "trial/overhead.h"

#include <fmt/format.h>

#include <map>

namespace tdbg {

std::string SawLessText(const std::string* json) {
  if (json == nullptr) return "";
  const auto said = format::Overhead::FromJson(*json);
  if (said.every <= 1) return "";
  return fmt::format("of the steps since {} one in {} was seen (overhead)", said.from_step, said.every);
}

std::vector<WorkersOverhead> OverheadsOf(const TrialAccess& access) {
  std::map<WorkerIndex, const format::ContextRecord*> last;
  for (const auto& [worker, record] : access.ContextsOf(format::kOverhead)) last[worker] = record;
  std::vector<WorkersOverhead> out;
  for (const auto& [worker, record] : last) {
    format::Overhead said = format::Overhead::FromJson(record->json);
    if (said.holds()) out.push_back({access.workers()[worker].name, std::move(said)});
  }
  return out;
}

}  // namespace tdbg

// The black boxes of a run (docs/black-box.md): steps in which something became NaN or infinite, kept whole.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "tdbg/status.h"

namespace tdbg::cli {

struct BlackBox {
  std::string directory;  ///< that holds black_box.json
  std::string worker;
  int64_t attempt = 0;
  int64_t step = 0;  ///< global
};

/// The black boxes of a run, by step, attempt and worker. Does not open their files.
std::vector<BlackBox> BlackBoxesOf(const std::string& run_directory);

/// [{"step", "attempt", "worker", "directory"}]
nlohmann::json BlackBoxesToJson(const std::vector<BlackBox>& boxes);

/// "the first loss became NaN in log, ...": why it was kept, as its document says.
/// \error kNotFound, kDataLoss  there is no document, or it is damaged
Result<std::string> ReasonOf(const BlackBox& box);

}  // namespace tdbg::cli

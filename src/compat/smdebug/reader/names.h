// What smdebug packs into names: steps and workers into those of files, reductions into those of tensors.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tdbg::compat::smdebug {

inline constexpr std::string_view kEndFile = "training_job_end.ts";
inline constexpr std::string_view kClaimFile = "claim.smd";
inline constexpr std::string_view kIndexDir = "index";
inline constexpr std::string_view kEventsDir = "events";
inline constexpr std::string_view kCollectionsDir = "collections/000000000";

struct StepFileName {
  int64_t step = 0;
  std::string_view worker;  ///< as it stands in the name; DecodeWorker makes it readable
};
/// "000000000003_worker_0.json" -> step 3 of worker_0. Only the file's own name is looked at: smdebug looks
/// at the whole path and takes a run directory with two underscores in its name for a device.
std::optional<StepFileName> ParseStepFileName(std::string_view name, std::string_view suffix);

/// "worker_0_collections.json" -> "worker_0"; empty for "collections.json"; nothing for other names.
std::optional<std::string_view> ParseCollectionsFileName(std::string_view name);

/// TensorFlow's devices are written "_replica-0_task-0_device-GPU-0" for "/replica:0/task:0/device:GPU:0".
std::string DecodeWorker(std::string_view in_name);

/// "events/000000000003/000000000003_worker_0.tfevents", as index files name it.
std::string EventFileName(int64_t step, std::string_view worker_in_name);
/// Three components, the first of them "events", none of which leads elsewhere.
bool IsEventFileName(std::string_view path);

struct ReductionName {
  std::string_view tensor;     ///< that it was made of
  std::string_view operation;  ///< "mean", "l2", ...
  bool absolute = false;       ///< of the absolute values
};
/// "smdebug/reductions/abs_mean/gradient/fc.weight" -> the mean of the absolute values of gradient/fc.weight.
std::optional<ReductionName> ParseReductionName(std::string_view name);

}  // namespace tdbg::compat::smdebug

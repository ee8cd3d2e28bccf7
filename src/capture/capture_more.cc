#include <algorithm>

#include "capture/recorder.h"
#include "plan/groups.h"

namespace tdbg::capture {

// Sets the tensor's bits for the request that holds; true if it is one of its tensors.
bool Recorder::WantsMore(Tensor* tensor) const {
  tensor->summary_groups &= ~plan::kMoreGroup;
  tensor->raw_groups &= ~plan::kMoreGroup;
  tensor->histogram_groups &= ~plan::kMoreGroup;
  const bool member =
      std::any_of(more_collections_.begin(), more_collections_.end(), [&](const std::string& name) {
        return std::ranges::any_of(tensor->details->collections,
                                   [&](std::string_view c) { return c == name; });
      });
  if (!member) return false;
  tensor->summary_groups |= plan::kMoreGroup;
  if (tensor->histogram_groups != 0) tensor->histogram_groups |= plan::kMoreGroup;
  if (more_raw_) tensor->raw_groups |= plan::kMoreGroup;
  return true;
}

uint64_t Recorder::CaptureMore(std::vector<std::string> collections, int64_t steps, bool raw) {
  more_collections_ = std::move(collections);
  more_raw_ = raw;
  more_end_ = global_step() + 1 + steps;
  uint64_t tensors = 0;
  for (Tensor& tensor : tensors_) tensors += !tensor.scalar && WantsMore(&tensor);
  return tensors;
}

}  // namespace tdbg::capture

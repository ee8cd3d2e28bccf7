// Data loaders fork. The child shares files, mappings and half-held locks with the training process, so in it
// an open run must do nothing, whatever is called.
#pragma once

namespace tdbg::session {

/// Told in the child, from inside fork(), where only the forking thread exists and any lock may be held.
class ForkListener {
 public:
  virtual ~ForkListener() = default;
  virtual void OnForkedChild() noexcept = 0;
};

void AddForkListener(ForkListener* listener);
void RemoveForkListener(ForkListener* listener);

}  // namespace tdbg::session

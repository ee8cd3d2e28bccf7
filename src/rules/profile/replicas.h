// What is known of the copies of one model that several ranks hold, for detectors that compare ranks.
#pragma once

#include <cstddef>

#include "rules/profile/detector.h"

namespace tdbg::rules::profile {

/// Of the training step that was judged last. Made by the detector of replicas that differ, which judges
/// before those that ask.
class Replicas {
 public:
  virtual ~Replicas() = default;
  /// Ranks hold copies: these were equal through some updates. Stays true if they differ later.
  virtual bool learnt() const = 0;
  virtual size_t ranks() const = 0;     ///< with statistics of this step; 0: it was not looked at
  virtual size_t compared() const = 0;  ///< matrices that are trained and that all of them have
  virtual size_t equal() const = 0;     ///< of those, the ones whose copies are equal to the bit
};

/// Detectors of what ranks of one model do that they should not. \param replicas  outlives them
void AddRanks(const Replicas& replicas, Detectors* to);

}  // namespace tdbg::rules::profile

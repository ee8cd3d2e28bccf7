// A detector of the profile: looks at every step in order, keeps its own history, and reports each finding
// once. docs/incidents.md has a section for each.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "rules/profile/digest.h"
#include "rules/rule.h"

namespace tdbg::rules::profile {

class Detector {
 public:
  virtual ~Detector() = default;
  virtual void Judge(const Digest& step, std::vector<Finding>* findings) = 0;
  /// The run is over; `last` is its last step.
  virtual void AtEnd(const StepContext& last, std::vector<Finding>* findings) {
    (void)last;
    (void)findings;
  }
  /// Called before the first step of its phase that comes after steps of others, in which other optimizers
  /// stepped. What a detector takes for steps in a row may lie far apart then. One whose measure others move
  /// starts afresh: the loss of a generator rises when its judge has learnt.
  /// \param apart  training steps since the last one of its phase, 2 at least
  virtual void Returns(int64_t apart) { (void)apart; }
  /// What it could not judge so far, and why: "inputs (none were seen)". Nothing where it judged, and of a
  /// kind of training that has nothing of its subject (a model without norms, one rank).
  virtual std::string Unjudged() const { return {}; }
};

/// Training steps after which optimizers that did not step take turns with the others no more.
inline constexpr int64_t kTurn = 200;

/// Does a phase take turns with others? For so many steps after each return.
class TakingTurns {
 public:
  void Returned() { left_ = kTurn; }
  /// To be asked once at each training step.
  bool Now() { return left_ > 0 && left_-- > 0; }

 private:
  int64_t left_ = 0;
};

/// What a finding compares: as Finding's members of these names.
struct Measured {
  std::string measure;
  double value = 0;
  std::string comparison = {};
  double threshold = 0;
};

/// A finding of the catalogue's detector `id` at this step. The caller adds the numbers and the sentence.
Finding MakeFinding(const Digest& step, std::string_view id, const std::string& tensor = {});
Finding MakeFinding(const Digest& step, std::string_view id, const std::string& tensor, Measured measured,
                    std::string text);

// One family per file. Each call makes new detectors, without history.
using Detectors = std::vector<std::unique_ptr<Detector>>;
void AddNonfinite(Detectors* to);
void AddNumerics(Detectors* to);
void AddConnections(Detectors* to);
void AddWiring(Detectors* to);
void AddModes(Detectors* to);
void AddSettings(Detectors* to);
void AddLossGraph(Detectors* to);
void AddStart(Detectors* to);
void AddUpdates(Detectors* to);
void AddLearning(Detectors* to);
void AddPredictions(Detectors* to);
void AddEvaluation(Detectors* to);
void AddReplicas(Detectors* to);
void AddData(Detectors* to);
void AddTargets(Detectors* to);
void AddParts(Detectors* to);
void AddPutBack(Detectors* to);
void AddJob(Detectors* to);
void AddBoosting(Detectors* to);

}  // namespace tdbg::rules::profile

// How often large tensors are looked at, so that looking takes no more than a share of the training's time.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

namespace tdbg::capture {

/// Statistics read a tensor once. In most trainings that is a few percent of a step. Where a step touches
/// little of a large tensor (rows of an embedding, a place in a cache), it is many times the step.
///
/// What looking at a tensor costs, and what a step takes without us, is measured while it trains. Each step
/// has a share of its time for looks. Where that is not enough for all, every tensor gets the same part of
/// it, as far as it needs that much; one that costs more is looked at at every second, fourth, eighth ...
/// step at which it is due. Tensors of one size are looked at in the same steps.
/// \threadsafety One thread at a time.
class LookBudget {
 public:
  using Id = uint32_t;
  /// Bytes: a smaller tensor is looked at whenever it is due.
  static constexpr uint64_t kLarge = 256u << 10;

  /// \param share  of a step's time; 0: no limit
  /// \param spacing  as SetSpacing
  LookBudget(double share, int64_t spacing) : share_(share) { SetSpacing(spacing); }

  /// \param steps  of a mode from one at which statistics are due to the next
  void SetSpacing(int64_t steps) { spacing_ = steps > 0 ? steps : 1; }
  int64_t spacing() const { return spacing_; }

  bool on() const { return share_ > 0; }
  /// May this large tensor be looked at in this step of its mode? Yes if it was never looked at.
  bool IsDue(Id id, int64_t mode_step) {
    asked_ = true;
    const auto found = large_.find(id);
    return found == large_.end() || mode_step / spacing_ % found->second.every == 0;
  }

  struct Look {
    Id id;
    uint64_t bytes;
  };
  /// These large tensors, and others to `bytes` together, were looked at in one go, which took `nanos`.
  /// \param usual  false: it took other than it usually does (values were kept, too)
  void Looked(const std::vector<Look>& looks, uint64_t bytes, int64_t nanos, bool usual);
  /// Was any large tensor asked for in the step that ends? Else `StepEnded` needs no clock.
  bool asked() const { return asked_; }
  /// \param now  monotonic nanoseconds
  /// \return whether from the next step on any tensor is looked at more or less often than before
  bool StepEnded(int64_t now);

  struct Rare {
    Id id;
    int64_t every;  ///< steps at which it is due
    double nanos;   ///< that a look takes
  };
  /// What is not looked at whenever it is due, the dearest first.
  std::vector<Rare> rare() const;

 private:
  struct Large {
    double nanos = 0;
    int64_t every = 1;
  };
  bool Divide();

  const double share_;
  int64_t spacing_;
  std::unordered_map<Id, Large> large_;
  bool asked_ = false;
  bool news_ = false;       // a tensor was looked at for the first time
  int64_t last_end_ = 0;    // of a step in which any was asked for; 0: there was none
  double spent_ = 0;        // nanoseconds of looks since then
  double others_ = 0;       // of them for tensors that are not large
  double step_ = 0;         // nanoseconds from one such step to the next without them, about
  double small_ = 0;        // what its looks at small tensors take, about
  int64_t steps_ = 0;       // that were measured
  int64_t divided_at_ = 0;  // of them
};

}  // namespace tdbg::capture

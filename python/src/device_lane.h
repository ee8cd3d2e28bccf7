// Tensors on a GPU, by address: launched in one call a batch, put into the run as rows when they have arrived
// (cuda/lane.h).
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "cuda/lane.h"
#include "cuda/raw_copies.h"
#include "tdbg/run.h"

namespace tdbg::python {

/// What is to be recorded of one batch, and where.
struct RowPlan {
  std::vector<uint32_t> ids;  ///< kNotWanted: its value is only asked for (`DeviceRows::value`)
  std::vector<DType> dtypes;
  std::vector<std::vector<int64_t>> shapes;  ///< of those whose values travel; else empty
  struct Derived {
    uint32_t tensor;
    Statistic statistic;
    uint64_t elements, samples;
  };
  std::vector<Derived> derived;
  Place place;
};

/// A batch that has arrived.
struct DeviceRows {
  std::shared_ptr<const RowPlan> plan;
  cuda::Arrival arrival;

  /// Of the tensor at this position, whose values travelled: the first; nothing if it is absent.
  std::optional<double> value(size_t position) const;
};

/// cuda::Lane with what Python knows of a batch.
/// \threadsafety  One thread at a time: its calls hold the interpreter's lock.
class DeviceLane {
 public:
  DeviceLane();

  /// Lists, one entry a tensor; `dtypes`: DType's numbers. Small tensors travel as they are.
  /// `statistics`: (position, id text, outer, units, inner, samples).
  /// \return (why it was refused, or an empty text; ticket; graph)
  std::tuple<std::string, uint64_t, uint32_t> Put(
      int device, uint64_t stream, nanobind::handle ids, nanobind::handle addresses, nanobind::handle dtypes,
      const std::vector<std::vector<int64_t>>& shapes,
      const std::vector<std::tuple<uint32_t, std::string, uint64_t, uint64_t, uint64_t, uint64_t>>&
          statistics,
      int sub, int point);
  void PrepareCapture(int device);
  void BeforeReplay(int device, uint64_t stream);
  uint64_t Replayed(uint32_t graph);
  /// 0 under way, 1 arrived, 2 lost
  int Look(uint64_t ticket);
  std::optional<DeviceRows> Take(uint64_t ticket);
  void Drop(uint64_t ticket);
  /// Bytes of tensors, dense in memory, on their way to the host; one answer each.
  /// \return (why it was refused, or an empty text; ticket)
  std::vector<std::pair<std::string, uint64_t>> PutRaw(int device, uint64_t stream,
                                                       nanobind::handle addresses, nanobind::handle sizes);
  /// 0 under way, 1 arrived, 2 lost
  int LookRaw(uint64_t ticket) const;
  /// Of host memory that is theirs until ReleaseRaw; 0: they are not there.
  uint64_t RawAddress(uint64_t ticket) const;
  void ReleaseRaw(uint64_t ticket);
  /// The process ends: our memory stays where it is, for freeing waits for the device, which may hang for
  /// ever. Nothing is launched any more.
  void Leave();
  std::string trouble() const;
  uint64_t device_bytes() const { return lane_ ? lane_->device_bytes() : 0; }
  uint64_t pinned_bytes() const { return lane_ ? lane_->pinned_bytes() : 0; }
  uint64_t raw_device_bytes() const { return raw_ ? raw_->device_bytes() : 0; }
  uint64_t raw_pinned_bytes() const { return raw_ ? raw_->pinned_bytes() : 0; }

 private:
  std::string no_driver_;
  std::unique_ptr<cuda::Lane> lane_;
  std::unique_ptr<cuda::RawCopies> raw_;  // by the lane's connection
  std::unordered_map<uint64_t, std::shared_ptr<const RowPlan>> under_way_;
  std::unordered_map<uint32_t, std::shared_ptr<const RowPlan>> graphs_;
};

/// Run::PutSummary, PutStatistic and, of what travelled as it is, Put.
void PutRows(Run& run, const DeviceRows& rows);

void BindDeviceLane(nanobind::module_* m);

}  // namespace tdbg::python

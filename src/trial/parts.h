// Tensors of which each worker keeps a part (FSDP): taken together they are one tensor again.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "format/columns.h"
#include "format/records.h"
#include "store/reader/worker_reader.h"
#include "tdbg/status.h"
#include "tdbg/summary.h"
#include "tdbg/trial.h"
#include "trial/access.h"

namespace tdbg {

inline bool IsPart(const format::TensorDef& def) { return !def.whole_shape.empty(); }

/// Which parts of one tensor are there. Says of each whether it is a new one, and of all whether they are the
/// whole.
class PartsTaken {
 public:
  /// False: it was there already, from another worker (replicas of a shard), or is of another tensor.
  bool Take(const format::TensorDef& def, uint64_t elements);
  bool whole() const;

 private:
  std::vector<const format::TensorDef*> parts_;
  uint64_t elements_ = 0;
};

template <typename T>
using ColumnItems = std::vector<T>;

/// The numbers of a step's parts, merged: a batch like those that a reader has.
struct MergedRows : format::SummaryColumns<ColumnItems> {
  struct Source {
    WorkerIndex worker;
    store::WorkerReader::RowRef row;
  };
  store::SummaryBatch batch;
  std::vector<TensorIndex> tensor_of;
  std::vector<std::vector<Source>> sources;  ///< by row

  void Clear();
  /// A row like `like_row`, but for what is given.
  void Add(TensorIndex of, const store::SummaryBatch& like, uint32_t like_row, const Summary& summary,
           bool histograms, uint32_t flags_of_all, std::vector<Source> from);
  void PointAtColumns();
};

/// Puts values of parts together. \pre they are whole; each value has its definition's shape
/// \error kDataLoss  the parts do not lie inside the whole
Result<TensorValue> Assemble(const std::vector<std::pair<const format::TensorDef*, TensorValue>>& parts);

}  // namespace tdbg

// Parts of raw values and their shapes.
#include <algorithm>

#include "base/text.h"
#include "tdbg/trial.h"
#include "trial/impl.h"
#include "trial/value_finder.h"

namespace tdbg {
namespace {

std::string RangeText(const AxisRange& range) {
  return std::to_string(range.count) + " from " + std::to_string(range.begin) + " by " +
         std::to_string(range.stride);
}

/// \error kInvalidArgument  what does not fit
Status Cut(std::span<const AxisRange> ranges, TensorValue* value) {
  const size_t rank = value->shape.size();
  if (ranges.size() > rank) {
    return InvalidArgument(std::to_string(ranges.size()) + " ranges for " + std::to_string(rank) + " axes");
  }
  std::vector<int64_t> strides(rank, 1);
  for (size_t axis = rank; axis-- > 1;) strides[axis - 1] = strides[axis] * value->shape[axis];
  int64_t offset = 0;
  for (size_t axis = 0; axis < ranges.size(); ++axis) {
    const AxisRange& range = ranges[axis];
    const int64_t extent = value->shape[axis];
    const auto inside = [extent](int64_t i) { return i >= 0 && i < extent; };
    // The last index by division first: count * stride may not fit.
    const bool fits = range.count == 0 ||
                      (range.count > 0 && range.count <= extent && inside(range.begin) && range.stride != 0 &&
                       (range.count == 1 || (range.stride > -extent && range.stride < extent &&
                                             inside(range.begin + (range.count - 1) * range.stride))));
    if (!fits) {
      return InvalidArgument("axis " + std::to_string(axis) + " has " + base::Counted(extent, "element") +
                             ": no " + RangeText(range));
    }
    if (range.count > 0) offset += range.begin * strides[axis];
    strides[axis] *= range.stride;
    value->shape[axis] = range.count;
  }
  if (value->data != nullptr)
    value->data =
        static_cast<const std::byte*>(value->data) + offset * static_cast<int64_t>(ItemSize(value->dtype));
  value->strides = std::move(strides);
  value->view = {value->data, value->dtype, value->shape, value->strides};
  return OkStatus();
}

}  // namespace

Result<TensorValue> Trial::slice(std::string_view name, int64_t global_step,
                                 std::span<const AxisRange> ranges, std::string_view worker) const {
  TDBG_ASSIGN_OR_RETURN(const ValueFinder finder, ValueFinder::Make(*impl_, name, worker));
  TDBG_ASSIGN_OR_RETURN(const std::vector<WorkerSlot*> workers, finder.WorkersAt(global_step));
  Result<TensorValue> whole = NotFound("");
  for (const WorkerSlot* slot : workers) {
    const auto ref = finder.RawOf(*slot, global_step);
    if (!ref) continue;
    if (finder.TakesTogether(slot->reader->tensors()[ref->tensor])) break;  // value() puts the parts together
    whole = slot->MapRaw(*ref);
    if (!whole.ok()) return whole.status();
    break;
  }
  if (!whole.ok())
    whole = value(name, global_step, worker);  // one element, or the error that says what is kept
  if (!whole.ok()) return whole.status();
  TDBG_RETURN_IF_ERROR(Cut(ranges, &*whole).Annotate("'" + finder.info().name + "'"));
  return whole;
}

Result<std::vector<int64_t>> Trial::shape(std::string_view name, int64_t global_step,
                                          std::string_view worker) const {
  TDBG_ASSIGN_OR_RETURN(const ValueFinder finder, ValueFinder::Make(*impl_, name, worker));
  TDBG_ASSIGN_OR_RETURN(const std::vector<WorkerSlot*> workers, finder.WorkersAt(global_step));
  for (const WorkerSlot* slot : workers) {
    for (const format::TensorId id : slot->IdsOf(finder.tensor())) {
      auto saved = slot->reader->SavedShapeOf(id, global_step);
      if (!saved) continue;
      // A saved shape of texts counts texts; the last axis, their width, was not saved with it.
      if (finder.info().dtype == DType::kText) saved->push_back(1);
      return *std::move(saved);
    }
    if (const auto ref = finder.RawOf(*slot, global_step)) {
      const format::TensorDef& def = slot->reader->tensors()[ref->tensor];
      if (finder.TakesTogether(def)) return def.whole_shape;
      const std::span<const int64_t> shape = slot->reader->ShapeOf(*ref);
      return std::vector<int64_t>(shape.begin(), shape.end());
    }
    // smdebug's reductions do not say of how many elements they are.
    const auto row = finder.RowOf(*slot, global_step);
    if (row && !impl_->smdebug)
      return finder.TakesTogether(row->def()) ? row->def().whole_shape : *row->shape;
    if (finder.ScalarOf(*slot, global_step)) return std::vector<int64_t>();
  }
  return NotFound("neither a value nor the shape of '" + finder.info().name + "' is kept at step " +
                  std::to_string(global_step));
}

}  // namespace tdbg

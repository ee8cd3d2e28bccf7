#include "tensor_mark.h"

#include <algorithm>

#include "fingerprint.h"

namespace tdbg::python {

namespace nb = nanobind;
using nb::dlpack::dltensor;

namespace {

constexpr uint8_t kComplex = 5;  // DLPack's; may be conjugated when it is read

}  // namespace

bool TensorMark::Expect(const TensorReader& reader, nb::handle tensor, uint32_t id) {
  Forget();
  dltensor view;
  known_ = reader.View(tensor, &view);
  if (!known_) return false;
  id_ = id;
  dtype_ = view.dtype;
  shape_.assign(view.shape, view.shape + view.ndim);
  return true;
}

nb::tuple LookAgain(const TensorReader& reader, nb::list marks, nb::list tensors, uint64_t call,
                    uint64_t every) {
  nb::list ids, addresses, unchanged, others;
  const size_t n = std::min(marks.size(), tensors.size());
  for (size_t i = 0; i < n; ++i) {
    auto& mark = nb::cast<TensorMark&>(marks[i]);
    const nb::handle tensor = tensors[i];
    dltensor view;
    if (!mark.known_ || !reader.View(tensor, &view) || !IsSame(view.dtype, mark.dtype_) ||
        view.dtype.code == kComplex ||
        !std::equal(view.shape, view.shape + view.ndim, mark.shape_.begin(), mark.shape_.end()) ||
        !IsContiguous(view) || reader.IsNegated(tensor)) {
      others.append(i);
      continue;
    }
    if (mark.id_ == Run::kNotWanted) continue;
    uint64_t bytes = view.dtype.bits / 8u * view.dtype.lanes;
    for (const int64_t extent : mark.shape_) bytes *= static_cast<uint64_t>(extent);
    const void* const data = AddressOf(view);
    // Somebody took its memory and left its shape, as offloading libraries do: no process has anything below
    // 64 KiB.
    if (reinterpret_cast<uintptr_t>(data) < 0x10000) {
      mark.seen_ = false;
      continue;
    }
    const int64_t version = reader.Version(tensor);
    const auto fingerprint = FingerprintIfThere(reinterpret_cast<uintptr_t>(data), bytes);
    if (!fingerprint) {
      mark.seen_ = false;
      others.append(i);
      continue;
    }
    const bool same =
        mark.seen_ && mark.data_ == data && mark.version_ == version && mark.fingerprint_ == fingerprint;
    const bool its_turn = mark.turn_ % every == call % every;
    mark.seen_ = true;
    mark.data_ = data;
    mark.version_ = version;
    mark.fingerprint_ = *fingerprint;
    ids.append(mark.id_);
    addresses.append(reinterpret_cast<uintptr_t>(data));
    unchanged.append(same ? its_turn ? Run::kWorthALook : uint8_t{1} : uint8_t{0});
  }
  return nb::make_tuple(ids, addresses, unchanged, others);
}

}  // namespace tdbg::python

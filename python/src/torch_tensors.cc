#include "torch_tensors.h"

#include <algorithm>
#include <cstring>

#include "number.h"

namespace tdbg::python {

namespace nb = nanobind;
using nb::dlpack::dltensor;

namespace {

constexpr int32_t kHost = 1;  // kDLCPU

}  // namespace

bool IsSame(nb::dlpack::dtype a, nb::dlpack::dtype b) {
  return a.code == b.code && a.bits == b.bits && a.lanes == b.lanes;
}

bool IsContiguous(const dltensor& t) {
  int64_t stride = 1;
  for (int32_t i = t.ndim; i-- > 0;) {
    if (t.shape[i] == 0) return true;
    if (t.shape[i] != 1 && t.strides[i] != stride) return false;
    stride *= t.shape[i];
  }
  return true;
}

const void* AddressOf(const dltensor& t) { return static_cast<const std::byte*>(t.data) + t.byte_offset; }

DType DTypeOf(nb::dlpack::dtype t) {
  if (t.lanes != 1) return DType::kInvalid;
  const int size = t.bits / 8;
  const auto by_size = [&](DType d1, DType d2, DType d4, DType d8) {
    return size == 1 ? d1 : size == 2 ? d2 : size == 4 ? d4 : size == 8 ? d8 : DType::kInvalid;
  };
  switch (t.code) {  // DLPack's numbers; the later ones have no names in nanobind
    case 0:
      return by_size(DType::kInt8, DType::kInt16, DType::kInt32, DType::kInt64);
    case 1:
      return by_size(DType::kUInt8, DType::kUInt16, DType::kUInt32, DType::kUInt64);
    case 2:
      return by_size(DType::kInvalid, DType::kFloat16, DType::kFloat32, DType::kFloat64);
    case 4:
      return DType::kBFloat16;
    case 5:
      return size == 8 ? DType::kComplex64 : size == 16 ? DType::kComplex128 : DType::kInvalid;
    case 6:
      return DType::kBool;
    case 10:
      return DType::kFloat8E4M3FN;
    case 11:
      return DType::kFloat8E4M3FNUZ;
    case 12:
      return DType::kFloat8E5M2;
    case 13:
      return DType::kFloat8E5M2FNUZ;
    default:
      return DType::kInvalid;
  }
}

double NumberCopy::value() const { return NumberAt(bytes, dtype); }

TensorReader::TensorReader(nb::type_object tensor_type, nb::type_object parameter_type)
    : type_(tensor_type), parameter_type_(parameter_type) {
  if (!nb::hasattr(type_, ExchangeTable::kAttribute)) throw nb::type_error("no DLPack exchange table");
  table_ = type_.attr(ExchangeTable::kAttribute);
  const auto* table =
      static_cast<const ExchangeTable*>(PyCapsule_GetPointer(table_.ptr(), ExchangeTable::kCapsule));
  if (table == nullptr) {
    PyErr_Clear();
    throw nb::type_error("the DLPack exchange table is no capsule of that name");
  }
  if (table->major != ExchangeTable::kMajor || table->view_of_object == nullptr) {
    throw nb::type_error("a DLPack exchange table of another version");
  }
  view_ = table->view_of_object;
  gradient_ = type_.attr("grad");
  is_neg_ = type_.attr("is_neg");
  get_gradient_ = reinterpret_cast<descrgetfunc>(PyType_GetSlot(Py_TYPE(gradient_.ptr()), Py_tp_descr_get));
  if (get_gradient_ == nullptr) throw nb::type_error("`grad` is no descriptor");
  version_ = type_.attr("_version");
  get_version_ = reinterpret_cast<descrgetfunc>(PyType_GetSlot(Py_TYPE(version_.ptr()), Py_tp_descr_get));
  if (get_version_ == nullptr) throw nb::type_error("`_version` is no descriptor");
}

bool TensorReader::View(nb::handle tensor, dltensor* view) const {
  const auto* type = reinterpret_cast<PyObject*>(Py_TYPE(tensor.ptr()));
  if (type != type_.ptr() && type != parameter_type_.ptr()) return false;
  if (view_(tensor.ptr(), view) !=
      0) {  // sparse, quantized, a functorch wrapper, a type DLPack does not know
    PyErr_Clear();
    return false;
  }
  return view->device.device_type == kHost;
}

std::optional<std::pair<int64_t, std::span<const std::byte>>> TensorReader::Dense(nb::handle tensor) const {
  dltensor view;
  if (!View(tensor, &view) || !IsContiguous(view)) return std::nullopt;
  size_t bytes = view.dtype.bits / 8u * view.dtype.lanes;
  for (int32_t i = 0; i < view.ndim; ++i) bytes *= static_cast<size_t>(view.shape[i]);
  if (bytes == 0) return std::nullopt;
  const std::span all(static_cast<const std::byte*>(AddressOf(view)), bytes);
  return std::pair(view.ndim == 0 ? 1 : view.shape[0], all);
}

std::optional<NumberCopy> TensorReader::Number(nb::handle tensor) const {
  dltensor view;
  if (!View(tensor, &view) || view.ndim != 0) return std::nullopt;
  NumberCopy copy{{}, DTypeOf(view.dtype)};
  if (copy.dtype != DType::kFloat32 && copy.dtype != DType::kFloat64 && copy.dtype != DType::kBFloat16 &&
      copy.dtype != DType::kFloat16) {
    return std::nullopt;
  }
  std::memcpy(copy.bytes, AddressOf(view), copy.size());
  return copy;
}

nb::object TensorReader::Gradient(nb::handle tensor) const {
  PyObject* const gradient =
      get_gradient_(gradient_.ptr(), tensor.ptr(), reinterpret_cast<PyObject*>(Py_TYPE(tensor.ptr())));
  if (gradient == nullptr) throw nb::python_error();
  return nb::steal(gradient);
}

bool TensorReader::IsNegated(nb::handle tensor) const { return nb::cast<bool>(is_neg_(tensor)); }

int64_t TensorReader::Version(nb::handle tensor) const {
  PyObject* const version =
      get_version_(version_.ptr(), tensor.ptr(), reinterpret_cast<PyObject*>(Py_TYPE(tensor.ptr())));
  if (version == nullptr) {
    PyErr_Clear();
    return -1;
  }
  return nb::cast<int64_t>(nb::steal(version));
}

ParameterBatch::ParameterBatch(const TensorReader* reader, nb::list parameters,
                               const std::vector<uint32_t>& weight_ids,
                               const std::vector<uint32_t>& gradient_ids)
    : reader_(reader) {
  const size_t n = parameters.size();
  if (weight_ids.size() != n || gradient_ids.size() != n)
    throw nb::type_error("as many ids as parameters, please");
  for (const nb::handle parameter : parameters) {
    dltensor view;
    if (!reader_->View(parameter, &view) || !IsContiguous(view)) {
      throw nb::type_error("a parameter that is no plain host memory");
    }
    expected_.push_back({AddressOf(view), view.dtype, view.ndim, std::ssize(shapes_)});
    shapes_.insert(shapes_.end(), view.shape, view.shape + view.ndim);
  }
  ids_ = weight_ids;
  ids_.insert(ids_.end(), gradient_ids.begin(), gradient_ids.end());
  addresses_.resize(2 * n);
  want_gradients_ = std::any_of(gradient_ids.begin(), gradient_ids.end(),
                                [](uint32_t id) { return id != Run::kNotWanted; });
}

bool ParameterBatch::IsTwinOf(const Expected& parameter, const dltensor& gradient) const {
  return IsSame(parameter.dtype, gradient.dtype) && gradient.ndim == parameter.rank &&
         std::equal(gradient.shape, gradient.shape + gradient.ndim, shapes_.begin() + parameter.shape) &&
         IsContiguous(gradient);
}

int ParameterBatch::Gather(nb::list parameters) {
  const size_t n = expected_.size();
  if (parameters.size() != n) return kMoved;
  absent_.clear();
  for (size_t i = 0; i < n; ++i) {
    const nb::handle parameter = parameters[i];
    dltensor view;
    if (!reader_->View(parameter, &view) || AddressOf(view) != expected_[i].data) return kMoved;
    addresses_[i] = addresses_[n + i] = nullptr;
    const nb::object gradient = reader_->Gradient(parameter);
    if (gradient.is_none()) {
      absent_.push_back(static_cast<uint32_t>(i));
      continue;
    }
    addresses_[i] = expected_[i].data;
    if (!want_gradients_) continue;
    if (!reader_->View(gradient, &view) || !IsTwinOf(expected_[i], view)) return kOdd;
    addresses_[n + i] = AddressOf(view);
  }
  return static_cast<int>(absent_.size());
}

bool ParameterBatch::Put(Run* run, const std::vector<uint32_t>& more_ids,
                         const std::vector<uint64_t>& more_addresses, Place place) const {
  if (more_ids.size() != more_addresses.size())
    throw nb::value_error("put_batch: as many addresses as ids, please");
  std::vector<uint32_t> ids = ids_;
  std::vector<const void*> addresses = addresses_;
  ids.insert(ids.end(), more_ids.begin(), more_ids.end());
  for (const uint64_t address : more_addresses) addresses.push_back(reinterpret_cast<const void*>(address));
  nb::gil_scoped_release unlocked;
  return run->PutMany(ids, addresses, place);
}

void TensorSlot::Remember(uint32_t id, nb::handle tensor) {
  dltensor view;
  known_ = reader_->View(tensor, &view);
  if (!known_) return;
  id_ = id;
  dtype_ = view.dtype;
  rank_ = view.ndim;
}

bool TensorSlot::Match(nb::handle tensor, uint32_t* id, TensorView* view) {
  dltensor t;
  if (!known_ || !reader_->View(tensor, &t)) return false;
  if (!IsSame(dtype_, t.dtype) || rank_ != t.ndim) return false;
  if (t.dtype.code == static_cast<uint8_t>(nb::dlpack::dtype_code::Complex) || reader_->IsNegated(tensor))
    return false;
  *id = id_;
  const auto rank = static_cast<size_t>(t.ndim);
  view->data = AddressOf(t);
  view->dtype = DTypeOf(t.dtype);
  view->shape = {t.shape, rank};
  // C order said by leaving them out: nobody has to find it out again.
  view->strides = IsContiguous(t) ? std::span<const int64_t>() : std::span<const int64_t>(t.strides, rank);
  return true;
}

bool TensorSlot::Put(Run* run, nb::handle tensor, Place place) {
  uint32_t id;
  TensorView view;
  if (!Match(tensor, &id, &view)) return false;
  if (id == Run::kNotWanted || view.element_count() == 0) return true;
  const nb::object kept = nb::borrow(tensor);
  nb::gil_scoped_release unlocked;
  run->Put(id, view, place);
  return true;
}

}  // namespace tdbg::python

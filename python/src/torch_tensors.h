// Tensors of torch, read without a line of Python per tensor: what 1,200 calls of data_ptr() tell takes 40 ns
// a tensor here. Needs DLPack's exchange table (torch 2.10 and later); the adaptor has another way without
// it.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "dlpack.h"
#include "tdbg/run.h"

namespace tdbg::python {

/// The value of a host tensor of one floating-point element, without a tensor made of it.
struct NumberCopy {
  alignas(8) std::byte bytes[8];
  DType dtype;
  size_t size() const { return ItemSize(dtype); }
  double value() const;
};

bool IsSame(nanobind::dlpack::dtype a, nanobind::dlpack::dtype b);
bool IsContiguous(const nanobind::dlpack::dltensor& tensor);  ///< in C order
const void* AddressOf(const nanobind::dlpack::dltensor& tensor);

/// What is read from a tensor type. One per process is enough.
class TensorReader {
 public:
  /// \param parameter_type  a subclass whose instances are read as well; other subclasses are not.
  /// \throws nanobind::type_error  `tensor_type` has no table that we understand.
  TensorReader(nanobind::type_object tensor_type, nanobind::type_object parameter_type);

  /// A strided host tensor of one of the two types. Borrowed: good while nothing else runs. False, and no
  /// exception set, for everything else.
  bool View(nanobind::handle tensor, nanobind::dlpack::dltensor* view) const;
  /// The bytes of a tensor in C order, with the length of its first axis (1, where it has none); borrowed in
  /// the same way. Nothing for every other tensor, and for one without elements.
  std::optional<std::pair<int64_t, std::span<const std::byte>>> Dense(nanobind::handle tensor) const;
  /// Of a host tensor of no axes and floating point, of 16 bits and more; nothing for any other.
  std::optional<NumberCopy> Number(nanobind::handle tensor) const;
  /// Its gradient, or None.
  nanobind::object Gradient(nanobind::handle tensor) const;
  /// Is its sign flipped when it is read (a view of an imaginary part)? The bytes then are not the values.
  bool IsNegated(nanobind::handle tensor) const;
  /// How often it was changed in place; -1 of one made in inference mode, which nobody counts.
  int64_t Version(nanobind::handle tensor) const;

 private:
  nanobind::object type_, parameter_type_, gradient_, is_neg_, version_;
  nanobind::object table_;  // keeps the capsule
  decltype(ExchangeTable::view_of_object) view_ = nullptr;
  descrgetfunc get_gradient_ = nullptr, get_version_ = nullptr;
};

/// The parameters of an optimizer and their gradients: where they are now, and whether they still are what
/// they were.
class ParameterBatch {
 public:
  static constexpr int kOdd = -1;  ///< a gradient is no plain host memory of its parameter's shape and dtype
  static constexpr int kMoved = -2;  ///< a parameter is elsewhere: it may have become anything

  /// `parameters`: a list of plain host tensors; ids as Define gave them, Run::kNotWanted for the unwanted.
  /// \throws nanobind::type_error  one of them cannot be read.
  ParameterBatch(const TensorReader* reader, nanobind::list parameters,
                 const std::vector<uint32_t>& weight_ids, const std::vector<uint32_t>& gradient_ids);

  /// Looks at the same `parameters` again: how many have no gradient, or kOdd or kMoved. Those are not in the
  /// batch: no optimizer changes them, and whether they are to be looked at is their caller's business. The
  /// addresses are good until the tensors change.
  int Gather(nanobind::list parameters);

  const std::vector<uint32_t>& ids() const { return ids_; }
  const std::vector<const void*>& addresses() const { return addresses_; }  ///< null: absent
  const std::vector<uint32_t>& absent() const { return absent_; }  ///< positions of those without a gradient

  /// Run::PutMany of what was gathered and of `more`.
  bool Put(Run* run, const std::vector<uint32_t>& more_ids, const std::vector<uint64_t>& more_addresses,
           Place place) const;

 private:
  struct Expected {
    const void* data;
    nanobind::dlpack::dtype dtype;
    int32_t rank;
    ptrdiff_t shape;  // where it begins in shapes_
  };
  bool IsTwinOf(const Expected& parameter, const nanobind::dlpack::dltensor& gradient) const;

  const TensorReader* reader_;
  std::vector<Expected> expected_;
  std::vector<int64_t> shapes_;  // one behind the other: a block each would lie among the training's own
  bool want_gradients_ = false;
  std::vector<uint32_t> ids_;  // of the weights, then of the gradients
  std::vector<const void*> addresses_;
  std::vector<uint32_t> absent_;
};

/// A name whose tensors arrive one by one (a module's output). Remembers the id for the dtype and rank it saw
/// last.
class TensorSlot {
 public:
  explicit TensorSlot(const TensorReader* reader) : reader_(reader) {}

  /// From now on tensors like this one are `id`. Does nothing for a tensor that cannot be read here.
  void Remember(uint32_t id, nanobind::handle tensor);
  /// The id for `tensor`, with a view of it, or false: it is another way's business.
  bool Match(nanobind::handle tensor, uint32_t* id, TensorView* view);
  /// Run::Put. False: nothing was done.
  bool Put(Run* run, nanobind::handle tensor, Place place);

 private:
  const TensorReader* reader_;
  bool known_ = false;
  uint32_t id_ = 0;
  nanobind::dlpack::dtype dtype_ = {};
  int32_t rank_ = 0;
};

}  // namespace tdbg::python

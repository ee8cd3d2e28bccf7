// Lists of Python's integers, by the thousand.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <vector>

namespace tdbg::python {

namespace nb = nanobind;

/// A list of ints, read with the interpreter's own calls (nanobind's cast of a list costs ten times as much),
/// or any one-dimensional array of T.
template <typename T>
std::vector<T> Integers(nb::handle values) {
  std::vector<T> out;
  if (PyList_Check(values.ptr())) {
    const Py_ssize_t n = PyList_Size(values.ptr());
    out.resize(static_cast<size_t>(n));
    for (Py_ssize_t i = 0; i < n; ++i) {
      const unsigned long value = PyLong_AsUnsignedLong(PyList_GetItem(values.ptr(), i));
      if (value == static_cast<unsigned long>(-1) && PyErr_Occurred() != nullptr) throw nb::python_error();
      out[static_cast<size_t>(i)] = static_cast<T>(value);
    }
    return out;
  }
  nb::ndarray<nb::ro, const T, nb::ndim<1>, nb::c_contig, nb::device::cpu> array;
  if (nb::try_cast(values, array)) return std::vector<T>(array.data(), array.data() + array.size());
  for (nb::handle item : nb::iter(values)) out.push_back(nb::cast<T>(item));
  return out;
}

}  // namespace tdbg::python

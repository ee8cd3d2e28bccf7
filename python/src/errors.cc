#include "errors.h"

#include <nanobind/nanobind.h>

#include <string>

namespace nb = nanobind;

namespace tdbg::python {

void Throw(const Status& status) {
  // The types live in Python, so that both extension modules raise the same ones.
  const nb::object type =
      nb::module_::import_("tdbg.errors").attr("of_code")(static_cast<int>(status.code()));
  const nb::object error = type(nb::str(status.message().data(), status.message().size()));
  PyErr_SetObject(type.ptr(), error.ptr());
  throw nb::python_error();
}

}  // namespace tdbg::python

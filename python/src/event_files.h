// smdebug's event files for Python, one at a time: what its FileWriter and FileReader are made of.
#pragma once

#include <nanobind/nanobind.h>

namespace tdbg::python {

void BindEventFiles(nanobind::module_& module);

}  // namespace tdbg::python

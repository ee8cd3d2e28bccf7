// The fields of Trial::series and Trial::frame, for who takes one long before there is a run to ask.
#pragma once

#include <string_view>

#include "tdbg/status.h"

namespace tdbg {

/// \error kInvalidArgument  there is no such field; lists those that there are
Status CheckField(std::string_view name);

}  // namespace tdbg

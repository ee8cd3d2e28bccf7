#include "trial/mode_name.h"

#include "format/keys.h"

namespace tdbg {

std::string_view ModeName(ModeKey mode) { return format::ModeName(static_cast<format::Mode>(mode)); }

}  // namespace tdbg

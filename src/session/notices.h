// What a training job's user hears of tdbg: one line on stderr per kind of trouble and process.
#pragma once

#include <string_view>

namespace tdbg::session {

/// Prints "tdbg: TEXT" unless something of this kind was said before.
/// \threadsafety Any thread.
void TellOnce(std::string_view kind, std::string_view text);

}  // namespace tdbg::session

// What a training job's user hears of tdbg: one message on stderr per kind of trouble and process.
#pragma once

#include <string_view>

namespace tdbg::session {

/// Prints "tdbg: TEXT", in lines of 100 columns, unless something of this kind was said before.
/// \threadsafety Any thread.
void TellOnce(std::string_view kind, std::string_view text);

}  // namespace tdbg::session

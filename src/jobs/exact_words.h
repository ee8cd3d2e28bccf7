// Words and paths of any bytes, kept in JSON, whose strings are UTF-8: a resumed command is the very one that
// was started.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace tdbg::jobs {

/// {"words": [...]}, and where a word is no UTF-8 {"bytes": {"<its index>": "<hexadecimal>"}}: in `words`
/// U+FFFD stands for what is none; older versions read that alone.
std::string WordsText(const std::vector<std::string>& words);
/// Back, byte for byte. What is no such text has no words.
std::vector<std::string> WordsOf(const std::string& text);

/// index -> hexadecimal, of the words that are no UTF-8.
std::map<std::string, std::string> OtherBytes(const std::vector<std::string>& words);
/// The bytes of `text` in hexadecimal; empty where it is UTF-8.
std::string OtherBytes(std::string_view text);

}  // namespace tdbg::jobs

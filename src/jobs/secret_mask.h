// Masks known secrets in a stream of bytes.
#pragma once

#include <bitset>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tdbg::jobs {

/// Values that no log may hold: those of variables that base::NamesASecret or `names` names, and what
/// base::RedactCommand takes out of the command. Values below six bytes are left out: "1" occurs everywhere.
std::vector<std::string> SecretsOf(const std::vector<std::string>& command,
                                   const std::map<std::string, std::string>& environment,
                                   const std::vector<std::string>& names);

/// Replaces secrets by base::kRedacted, also if they come in several pieces.
class SecretMask {
 public:
  explicit SecretMask(std::vector<std::string> secrets);
  /// Returns what may be written now. Bytes that may be the beginning of a secret are held back until more
  /// comes.
  std::string Feed(std::string_view bytes);
  /// At the end of the stream: returns what was held back.
  std::string Flush();
  /// What comes next does not follow on what came: forgets what was held back. \return how many bytes
  size_t Forget() { return std::exchange(held_, {}).size(); }

 private:
  std::vector<std::string> secrets_;
  std::bitset<256> first_bytes_;
  std::string held_;
};

}  // namespace tdbg::jobs

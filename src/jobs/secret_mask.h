// Known secrets taken out of a stream of bytes.
#pragma once

#include <bitset>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace tdbg::jobs {

/// Values that no log may hold: of variables that base::NamesASecret or that `names` names, and what
/// base::RedactCommand takes out of the command. Those below six bytes are left out: "1" is everywhere.
std::vector<std::string> SecretsOf(const std::vector<std::string>& command,
                                   const std::map<std::string, std::string>& environment,
                                   const std::vector<std::string>& names);

/// Writes base::kRedacted where a secret stood, also where it comes in pieces.
class SecretMask {
 public:
  explicit SecretMask(std::vector<std::string> secrets);
  /// What may be written by now. What may be a secret's begin is held back until more comes.
  std::string Feed(std::string_view bytes);
  /// What was held back: nothing more comes.
  std::string Flush();

 private:
  std::vector<std::string> secrets_;
  std::bitset<256> first_bytes_;
  std::string held_;
};

}  // namespace tdbg::jobs

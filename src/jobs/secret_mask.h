// Masks known secrets in a stream of bytes.
#pragma once

#include <bitset>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace tdbg::jobs {

/// What no log may hold: values of variables that base::NamesASecret or `names` names, and what
/// base::RedactCommand and base::RedactText take out of the command and of the other variables (a password in
/// a database's URL). Each also as JSON, Python's repr and a URL write it, with a terminal's line ends, and
/// line by line; of a JSON object, such as a service account's, also its own secrets. Texts below six bytes
/// are left out: "1" occurs everywhere; so are paths of what is there, such as a working directory.
std::vector<std::string> SecretsOf(const std::vector<std::string>& command,
                                   const std::map<std::string, std::string>& environment,
                                   const std::vector<std::string>& names);

/// Replaces secrets by base::kRedacted, also if they come in several pieces. Where two begin at the same
/// byte, the longer one is replaced. Any number of secrets of any length: what is not one costs a look at a
/// byte.
class SecretMask {
 public:
  /// \pre each has at least four bytes
  explicit SecretMask(std::vector<std::string> secrets);
  /// Returns what may be written now. Bytes that may be the beginning of a secret are held back until more
  /// comes.
  std::string Feed(std::string_view bytes);
  /// At the end of the stream: returns what was held back.
  std::string Flush() { return Mask(/*ends=*/true); }
  /// What comes next does not follow on what came: forgets what was held back. \return how many bytes
  size_t Forget() { return std::exchange(held_, {}).size(); }

 private:
  struct Found {
    size_t length = 0;    ///< of the secret that is there; 0: none
    bool begins = false;  ///< what is there may become one
  };

  std::string Mask(bool ends);
  Found FindAt(std::string_view text) const;
  static Found Compare(std::string_view text, const std::vector<std::string>& secrets);

  std::vector<std::string> secrets_;  ///< the longest first
  std::bitset<256> first_bytes_;
  std::unordered_map<uint32_t, std::vector<std::string>> by_beginning_;  ///< by their first four bytes
  std::string held_;
};

}  // namespace tdbg::jobs

// What looks like a secret, taken out of text before it is written where others may read it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tdbg::base {

/// Stands where a secret stood.
inline constexpr std::string_view kRedacted = "[redacted]";

/// A flag, variable, parameter or header of this name holds a secret: token, password, api-key,
/// CLIENT_SECRET, wandb.apiKey ...; not max_tokens, pad-token, tokenizer, token_file.
bool NamesASecret(std::string_view name);

/// A command line: the value of a flag or variable that NamesASecret, in the next word or behind '='; in
/// every word what RedactText finds.
/// \param taken  may be null; each secret that was replaced is appended to it
std::vector<std::string> RedactCommand(const std::vector<std::string>& words,
                                       std::vector<std::string>* taken = nullptr);

/// Text of any kind, a shell's command line too: values behind names that NamesASecret (`--token X`,
/// `TOKEN=X`,
/// `"password": "X"`, `Authorization: Bearer X`), credentials in URLs, keys of well-known shapes (AKIA...,
/// ghp_..., JSON web tokens, private keys). A reference to a variable (`$TOKEN`) is none and stays. What is
/// redacted already stays as it is. In an action (webhook:URL, exec:COMMAND) also the path of a URL that
/// looks like the secret it often is. A guess: what looks like nothing is not found.
/// \param taken  as for RedactCommand
std::string RedactText(std::string_view text, std::vector<std::string>* taken = nullptr);

/// What a program printed, or says of its failure: as RedactText, and without what RedactText takes out of
/// `given` (an action, "exec:COMMAND", with which it was started) and without the values of this process's
/// environment variables that NamesASecret, if they have six bytes or more.
std::string RedactOutput(std::string_view text, std::string_view given);

}  // namespace tdbg::base

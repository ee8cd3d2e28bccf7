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
std::vector<std::string> RedactCommand(const std::vector<std::string>& words);

/// Text of any kind, a shell's command line too: values behind names that NamesASecret (`--token X`,
/// `TOKEN=X`,
/// `"password": "X"`, `Authorization: Bearer X`), credentials in URLs, keys of well-known shapes (AKIA...,
/// ghp_..., JSON web tokens, private keys). A reference to a variable (`$TOKEN`) is none and stays. What is
/// redacted already stays as it is. A guess: what looks like nothing is not found.
std::string RedactText(std::string_view text);

/// The URL of a web hook: as RedactText, and a path that looks like the secret it often is.
std::string RedactHook(std::string_view url);

}  // namespace tdbg::base

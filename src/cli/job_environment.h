// A job's environment variables: what its command gets, and what the registry may keep of them.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace tdbg::cli {

/// This process's variables. The first of two with one name, as getenv has it.
std::map<std::string, std::string> EnvironmentVariables();

/// Without what looks like a secret, by the variable's name or by its value, and without those of `names`.
std::map<std::string, std::string> WithoutSecrets(std::map<std::string, std::string> variables,
                                                  const std::vector<std::string>& names);
/// Flags of `tdbg run` without what looks like a secret. The name behind --secret is none and is kept.
std::vector<std::string> FlagsWithoutSecrets(const std::vector<std::string>& flags);

}  // namespace tdbg::cli

// A job's environment variables: what its command gets, and what the registry may keep of them.
#pragma once

#include <map>
#include <string>

namespace tdbg::cli {

/// This process's variables. The first of two with one name, as getenv has it.
std::map<std::string, std::string> EnvironmentVariables();

/// Without what looks like a secret, by the variable's name or by its value.
std::map<std::string, std::string> WithoutSecrets(std::map<std::string, std::string> variables);

}  // namespace tdbg::cli

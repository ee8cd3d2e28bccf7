#include "cli/job_environment.h"

#include <unistd.h>

#include <string_view>

#include "base/redact.h"

namespace tdbg::cli {

std::map<std::string, std::string> EnvironmentVariables() {
  std::map<std::string, std::string> variables;
  for (char** entry = environ; entry && *entry; ++entry) {
    const std::string_view text = *entry;
    const size_t equals = text.find('=');
    if (equals != std::string_view::npos) variables.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return variables;
}

std::map<std::string, std::string> WithoutSecrets(std::map<std::string, std::string> variables) {
  for (auto& [name, value] : variables)
    value = base::NamesASecret(name) ? std::string(base::kRedacted) : base::RedactText(value);
  return variables;
}

}  // namespace tdbg::cli

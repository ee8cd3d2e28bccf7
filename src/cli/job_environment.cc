#include "cli/job_environment.h"

#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <string_view>

#include "base/redact.h"

namespace tdbg::cli {
namespace {

// One that is set, or written as such names are: a secret that stands here by mistake is to be in no
// registry.
bool IsVariableName(const std::string& name) {
  const bool is_word =
      !name.empty() && std::isdigit(static_cast<unsigned char>(name[0])) == 0 &&
      std::ranges::all_of(name, [](unsigned char c) { return std::isalnum(c) != 0 || c == '_'; });
  return is_word && base::RedactText(name) == name &&
         (::getenv(name.c_str()) != nullptr ||
          std::ranges::none_of(name, [](unsigned char c) { return std::islower(c) != 0; }));
}

}  // namespace

std::map<std::string, std::string> EnvironmentVariables() {
  std::map<std::string, std::string> variables;
  for (char** entry = environ; entry && *entry; ++entry) {
    const std::string_view text = *entry;
    const size_t equals = text.find('=');
    if (equals != std::string_view::npos) variables.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return variables;
}

std::map<std::string, std::string> WithoutSecrets(std::map<std::string, std::string> variables,
                                                  const std::vector<std::string>& names) {
  for (auto& [name, value] : variables) {
    const bool secret = base::NamesASecret(name) || std::ranges::find(names, name) != names.end();
    value = secret ? std::string(base::kRedacted) : base::RedactText(value);
  }
  return variables;
}

std::vector<std::string> FlagsWithoutSecrets(const std::vector<std::string>& flags) {
  constexpr std::string_view kFlag = "--secret";
  std::vector<std::string> kept = base::RedactCommand(flags);
  for (size_t i = 0; i < flags.size(); ++i) {
    const bool behind = i > 0 && flags[i - 1] == kFlag;
    if (!behind && !flags[i].starts_with(std::string(kFlag) + "=")) continue;
    const std::string name = behind ? flags[i] : flags[i].substr(kFlag.size() + 1);
    if (IsVariableName(name)) kept[i] = flags[i];  // and not, by mistake, the value
  }
  return kept;
}

}  // namespace tdbg::cli

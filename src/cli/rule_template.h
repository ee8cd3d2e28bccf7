// A template of a custom rule, which `tdbg rules new` writes.
#pragma once

#include <string>
#include <vector>

#include "tdbg/status.h"

namespace tdbg::cli {

enum class RuleLanguage { kPython, kCpp };

/// Writes DIRECTORY/NAME.py or NAME.cc with its Makefile, and a test that judges a small run with it.
/// \param name  LargeGradient or large_gradient
/// \return the files written \error kInvalidArgument  no name for a class; kAlreadyExists  a file is there
Result<std::vector<std::string>> WriteRuleTemplate(const std::string& name, RuleLanguage language,
                                                   const std::string& directory);

}  // namespace tdbg::cli

// The built-in rules' pages, builtin/<rule>/README.md, as the build put them into the library.
#pragma once

#include <string_view>

namespace tdbg::rules {

/// Markdown; empty for a rule without a page. \param snake_name  "vanishing_gradient", the folder's name
std::string_view RulePage(std::string_view snake_name);

}  // namespace tdbg::rules

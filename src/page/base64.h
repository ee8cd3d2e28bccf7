// Bytes as text, as RFC 4648 spells them (its section 4, with padding).
#pragma once

#include <string>
#include <string_view>

namespace tdbg::page {

std::string Base64(std::string_view bytes);

}  // namespace tdbg::page

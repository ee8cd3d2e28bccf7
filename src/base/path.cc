#include "base/file.h"

namespace tdbg::base {

std::string JoinPath(std::string_view a, std::string_view b) {
  if (a.empty() || b.starts_with('/')) return std::string(b);
  std::string joined(a);
  if (!joined.ends_with('/')) joined += '/';
  joined.append(b);
  return joined;
}

std::string BaseName(std::string_view path) {
  while (path.size() > 1 && path.ends_with('/')) path.remove_suffix(1);
  const size_t slash = path.rfind('/');
  if (slash == std::string_view::npos || path.size() == 1) return std::string(path);
  return std::string(path.substr(slash + 1));
}

}  // namespace tdbg::base

#include "storage/location.h"

#include <algorithm>

namespace tdbg::storage {
namespace {

bool IsBucketName(std::string_view name) {
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '.' || c == '_';
  };
  return name.size() >= 3 && name.size() <= 255 && std::ranges::all_of(name, allowed) &&
         name.find("..") == std::string_view::npos;
}

std::string_view WithoutSlashes(std::string_view path) {
  while (path.starts_with('/')) path.remove_prefix(1);
  while (path.ends_with('/')) path.remove_suffix(1);
  return path;
}

}  // namespace

std::string Location::ToString() const {
  if (!s3) return "file://" + path;
  return "s3://" + bucket + (path.empty() ? "" : "/" + path);
}

Result<Location> ParseLocation(std::string_view text) {
  Location location;
  if (text.starts_with("file://")) {
    location.path = text.substr(7);
    while (location.path.size() > 1 && location.path.back() == '/') location.path.pop_back();
    if (!location.path.starts_with('/'))
      return InvalidArgument(std::string(text) + ": a file URL is file:///absolute/path");
    return location;
  }
  if (!text.starts_with("s3://"))
    return InvalidArgument("found '" + std::string(text) +
                           "'; accepted: s3://BUCKET/PREFIX, file:///DIRECTORY");
  location.s3 = true;
  const std::string_view rest = text.substr(5);
  const size_t slash = rest.find('/');
  location.bucket = rest.substr(0, slash);
  if (slash != std::string_view::npos) location.path = WithoutSlashes(rest.substr(slash));
  if (location.bucket.empty()) return InvalidArgument(std::string(text) + ": no bucket; s3://BUCKET/PREFIX");
  if (!IsBucketName(location.bucket))
    return InvalidArgument(std::string(text) + ": '" + location.bucket +
                           "' cannot be a bucket's name (three letters or more, a-z, 0-9, - and .)");
  if (!location.path.empty() && !IsSafeName(location.path))
    return InvalidArgument(std::string(text) + ": a prefix has no empty part, no '.' and no '..'");
  return location;
}

std::string ShellWord(const std::string& word) {
  const bool plain = std::ranges::all_of(word, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("/._-:@%+,=").find(c) != std::string_view::npos;
  });
  if (plain) return word;
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

std::string KeyBelow(const std::string& prefix, const std::string& name) {
  return prefix.empty() ? name : prefix + "/" + name;
}

bool IsSafeName(std::string_view name) {
  if (name.empty() || name.find('\0') != std::string_view::npos || name.size() > 1024) return false;
  while (true) {
    const size_t slash = name.find('/');
    const std::string_view part = name.substr(0, slash);
    if (part.empty() || part == "." || part == ".." || part.size() > 255) return false;
    if (slash == std::string_view::npos) return true;
    name.remove_prefix(slash + 1);
  }
}

}  // namespace tdbg::storage

#include "service/images.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

namespace tdbg::service {
namespace {

// PYTHON itself, or an environment's directory.
std::string InterpreterAt(const std::string& path) {
  const std::string inside = path + "/bin/python";
  if (::access(inside.c_str(), X_OK) == 0) return inside;
  return path.starts_with('/') && ::access(path.c_str(), X_OK) == 0 ? path : std::string();
}

}  // namespace

ImageName SplitImage(const std::string& image) {
  const size_t slash = image.rfind('/');
  std::string last = slash == std::string::npos ? image : image.substr(slash + 1);
  const size_t digest = last.find('@');
  if (digest != std::string::npos) last.resize(digest);
  const size_t colon = last.find(':');
  if (colon == std::string::npos) return {last, ""};
  return {last.substr(0, colon), last.substr(colon + 1)};
}

Result<Images> Images::Parse(const nlohmann::json& document, const plan::Source& source) {
  Images images;
  images.where_ = source.name;
  Status status;
  const plan::ConfigNode root(document, source, &status);
  const std::vector<std::string> keys = {"images", "package_index"};
  if (!document.is_null() && root.CheckKeys(keys)) {
    root.At("package_index", [&](const plan::ConfigNode& node) {
      const std::string given = node.Text();
      if (!node.ok()) return;
      if (const Status set = images.SetPackageIndex(given); !set.ok()) node.Fail(set.message());
    });
    root.At("images", [&](const plan::ConfigNode& map) {
      if (!map.value().is_object()) return map.Fail("expected REPOSITORY[:VERSION]: PYTHON for each image");
      for (const auto& [name, unused] : map.value().items()) {
        const plan::ConfigNode node = map.Key(name);
        const std::string given = node.Text();
        const std::string python = InterpreterAt(given);
        if (python.empty() && node.ok())
          return node.Fail(
              fmt::format("found \"{}\", expected the absolute path of a Python interpreter, or of its "
                          "environment",
                          given));
        const ImageName image = SplitImage(name);
        images.entries_.push_back({image.repository, image.tag, python});
      }
    });
  }
  if (!status.ok()) return status;
  return images;
}

Status Images::Add(const std::string& text) {
  const size_t equals = text.find('=');
  const std::string python = equals == std::string::npos ? "" : InterpreterAt(text.substr(equals + 1));
  if (python.empty() || equals == 0)
    return InvalidArgument(
        fmt::format("--image: found \"{}\", expected REPOSITORY[:VERSION]=PYTHON, PYTHON the absolute path "
                    "of an interpreter, or "
                    "of its environment",
                    text));
  const ImageName image = SplitImage(text.substr(0, equals));
  entries_.push_back({image.repository, image.tag, python});
  return OkStatus();
}

Status Images::SetPackageIndex(const std::string& text) {
  struct stat info;
  const bool folder = text.starts_with('/') && ::stat(text.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
  const bool url =
      text.starts_with("https://") || text.starts_with("http://") || text.starts_with("file:///");
  if (!folder && !url && text != "pip")
    return InvalidArgument(fmt::format(
        "found \"{}\", expected the URL of a package index, the absolute path of a folder with wheels, or "
        "pip",
        text));
  package_index_ = text;
  return OkStatus();
}

Images::Found Images::Find(const std::string& image) const {
  const ImageName name = SplitImage(image);
  const Entry* best = nullptr;
  for (const Entry& entry : entries_) {
    const bool any = entry.repository == "*";
    if (!any && (entry.repository != name.repository || !name.tag.starts_with(entry.version))) continue;
    const bool better = best == nullptr || (best->repository == "*" && !any) ||
                        (!any && entry.version.size() >= best->version.size());
    if (better) best = &entry;
  }
  if (best != nullptr) return {best->python, ""};
  return {"",
          fmt::format(
              "ClientError: no Python environment stands for the image '{}': add '{}' (or '{}:VERSION', or "
              "'*') under 'images' in {}, or start tdbg serve with --image {}=PYTHON",
              image, name.repository, name.repository, where_, name.repository)};
}

}  // namespace tdbg::service

// The server's configuration: which Python environment stands for an image, and where packages that it lacks
// come from.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "plan/config_reader.h"
#include "tdbg/status.h"

namespace tdbg::service {

/// An image's repository and version: "pytorch-training", "1.13.1-cpu-py39" of
/// "763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-training:1.13.1-cpu-py39".
struct ImageName {
  std::string repository, tag;
};
ImageName SplitImage(const std::string& image);

/// `images:`, REPOSITORY or REPOSITORY:VERSION -> a Python interpreter. The longest VERSION that the image's
/// own begins with wins; "*" is any repository.
class Images {
 public:
  /// \error kInvalidArgument  no such interpreter: file, line, key
  static Result<Images> Parse(const nlohmann::json& document, const plan::Source& source);
  /// One of --image, "REPOSITORY[:VERSION]=PYTHON". \error kInvalidArgument
  Status Add(const std::string& text);
  bool empty() const { return entries_.empty(); }
  /// Where the packages of a job's requirements.txt come from: a URL, a folder of wheels, or "pip" (as pip
  /// itself is configured). \error kInvalidArgument
  Status SetPackageIndex(const std::string& text);
  /// Empty: from nowhere, and nothing is installed.
  const std::string& package_index() const { return package_index_; }
  /// Where a reader would add what is missing, for messages.
  void SayWhere(std::string where) { where_ = std::move(where); }

  struct Found {
    std::string python;   ///< empty: none
    std::string why_not;  ///< names the key
  };
  Found Find(const std::string& image) const;

 private:
  struct Entry {
    std::string repository, version, python;
  };
  std::vector<Entry> entries_;
  std::string package_index_;
  std::string where_ = "the server's configuration";
};

}  // namespace tdbg::service

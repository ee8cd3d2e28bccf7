// Files with holes: of a run that lies in a bucket, bytes are brought when somebody is about to look at them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "tdbg/status.h"

namespace tdbg::base {

/// \threadsafety Any thread.
class Filler {
 public:
  virtual ~Filler() = default;
  /// Returns once the file's bytes [offset, offset + bytes) are there. May take as long as a network does.
  virtual Status Need(const std::string& path, uint64_t offset, uint64_t bytes) = 0;
};

/// Files below this directory are the filler's, as long as it lives.
void FillBelow(const std::string& directory, const std::shared_ptr<Filler>& filler);
/// Whose this file is; null, mostly: nobody's, and it is whole.
std::shared_ptr<Filler> FillerOf(const std::string& path);

}  // namespace tdbg::base

// Named arrays in one file: NumPy's .npz, and safetensors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ship/output.h"
#include "tdbg/status.h"
#include "tdbg/tensor.h"

namespace tdbg::ship {

/// A file of arrays, written front to back. Not to be used after a failed call.
class Archive {
 public:
  virtual ~Archive() = default;
  /// `name` may be added once. \error kInvalidArgument  the format cannot hold it; or what writing says
  virtual Status Add(const std::string& name, const TensorView& value) = 0;
  /// After the last Add; the file is whole then.
  virtual Status Finish() = 0;
  virtual uint64_t count() const = 0;
};

/// Uncompressed, as numpy.savez writes it; ZIP64 where it must be. bfloat16 and float8, which NumPy does not
/// know, become float32; texts become '<U'. \param file  outlives the archive
std::unique_ptr<Archive> MakeNpz(OutputFile& file);
/// Did MakeNpz's archive write this file?
bool IsOurNpz(const std::string& path);
/// \param space    for the header, which is in front of data that is not known yet: an upper bound of the sum
///                 over all arrays of HeaderSpace(name, rank)
/// \param metadata the header's "__metadata__"
/// Complex numbers, texts and the float8 UZ types, which the format does not know, are U8 with one more axis
/// for the bytes of an element; the metadata has "<name>.dtype" for them.
std::unique_ptr<Archive> MakeSafetensors(OutputFile& file, uint64_t space,
                                         std::map<std::string, std::string> metadata);
uint64_t SafetensorsHeaderSpace(const std::string& name, size_t rank);
/// Do the metadata of the safetensors file hold this?
bool HasSafetensorsMetadata(const std::string& path, const std::string& key, const std::string& value);

}  // namespace tdbg::ship

// One index file: where each tensor of one step of one worker lies in that step's event file, and the shapes
// that were saved instead of values.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "format/keys.h"
#include "tdbg/status.h"

namespace tdbg::compat::smdebug {

/// Texts borrow the decoder (until its next Decode).
struct IndexFile {
  struct Payload {
    std::string_view tensor;
    uint64_t offset = 0;
    uint64_t bytes = 0;  ///< of the whole record
  };
  struct Shape {
    std::string_view tensor;
    std::string_view original_name;  ///< the framework's, where it is another one
    uint32_t first = 0, rank = 0;    ///< into extents
  };

  format::Mode mode = format::Mode::kGlobal;
  int64_t mode_step = 0;
  std::string_view event_file;  ///< relative to the run's directory; empty where only shapes were saved
  std::vector<Payload> payloads;
  std::vector<Shape> shapes;
  std::vector<int64_t> extents;
};

/// Decodes index files one after another, keeping its memory. One thread.
class IndexDecoder {
 public:
  IndexDecoder();
  ~IndexDecoder();
  IndexDecoder(IndexDecoder&&) noexcept;
  IndexDecoder& operator=(IndexDecoder&&) noexcept;

  /// Readable bytes that Decode wants behind the text.
  static size_t Padding();
  /// Unknown keys are ignored. \param text  followed by Padding() readable bytes. The result lives in the
  /// decoder.
  /// \error kDataLoss  not JSON, or not what an index file holds: says which key, and what was found
  Result<const IndexFile*> Decode(std::string_view text);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tdbg::compat::smdebug

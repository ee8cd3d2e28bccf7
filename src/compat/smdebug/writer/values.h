// Tensors in the types that smdebug's reader knows.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "tdbg/tensor.h"

namespace tdbg::smdebug {

struct ReadableValue {
  DType dtype = DType::kInvalid;
  std::span<const std::byte> borrowed;  ///< of the given view, where nothing had to be done
  std::vector<std::byte> own;
  std::span<const std::byte> bytes() const {
    return own.empty() ? borrowed : std::span<const std::byte>(own);
  }
};

/// The texts of a tensor of kText, in C order: its last axis is their width, code points filled up with 0.
std::vector<std::string> TextsOf(const TensorView& value);

/// C-ordered elements in float16, float32, float64, int32, int64, uint8, bool or complex128: the types that
/// smdebug 1.0.34 reads back right (int8 loses its sign there, the others raise). Values stay equal, except
/// uint64 beyond int64's range, which become float64. \pre value.element_count() > 0, and not kText
ReadableValue MakeReadable(const TensorView& value);

}  // namespace tdbg::smdebug

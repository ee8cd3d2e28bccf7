// Little-endian scalars in byte buffers, whatever the alignment. Big-endian hosts are refused at compile
// time.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace tdbg::base {

static_assert(std::endian::native == std::endian::little,
              "tdbg's files are little-endian and mapped as they are");

template <typename T>
T Load(const void* from) {
  static_assert(std::is_trivially_copyable_v<T>);
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}
template <typename T>
void Store(void* to, const T& value) {
  static_assert(std::is_trivially_copyable_v<T>);
  std::memcpy(to, &value, sizeof(T));
}

constexpr uint64_t AlignUp(uint64_t n, uint64_t alignment) {
  return (n + alignment - 1) / alignment * alignment;
}

}  // namespace tdbg::base

// Where a column of a segment is written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "base/bytes.h"

namespace tdbg::store {

/// Writes a column's items one after the other into the space reserved for it. Items that do not fit are not
/// written. The column is then not exact: the rows were miscounted when the space was reserved, and the
/// segment must not be published.
class ColumnWriter {
 public:
  explicit ColumnWriter(std::span<std::byte> room) : room_(room) {}

  /// One item of each of `count` rows, which are `stride` bytes apart; `from` is the first row's.
  template <size_t kItemBytes>
  void Copy(const std::byte* from, size_t stride, uint64_t count) {
    std::byte* to = Take<kItemBytes>(count);
    if (to == nullptr) return;
    for (; count != 0; --count, from += stride, to += kItemBytes) std::memcpy(to, from, kItemBytes);
  }
  /// value_of(row) for rows 0 to `count`.
  template <typename T, typename F>
  void Fill(uint64_t count, F&& value_of) {
    std::byte* to = Take<sizeof(T)>(count);
    if (to == nullptr) return;
    for (uint64_t row = 0; row < count; ++row, to += sizeof(T)) base::Store<T>(to, value_of(row));
  }
  void Append(std::span<const std::byte> bytes) {
    std::byte* const to = Take<1>(bytes.size());
    if (to != nullptr && !bytes.empty()) std::memcpy(to, bytes.data(), bytes.size());
  }

  /// All of the room is written, and nothing was left out.
  bool exact() const { return fits_ && room_.empty(); }

 private:
  template <size_t kItemBytes>
  std::byte* Take(uint64_t count) {
    if (count > room_.size() / kItemBytes) fits_ = false;
    if (!fits_) return nullptr;
    std::byte* const to = room_.data();
    room_ = room_.subspan(count * kItemBytes);
    return to;
  }

  std::span<std::byte> room_;  // that is left
  bool fits_ = true;
};

}  // namespace tdbg::store

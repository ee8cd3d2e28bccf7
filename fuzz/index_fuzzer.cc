// The index at a segment's end: as a whole file, and as the head alone under hashes that fit.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "base/bytes.h"
#include "base/hash.h"
#include "format/segment_index.h"

namespace {

using namespace tdbg::format;

void Require(bool condition) {
  if (!condition) std::abort();
}

/// Looks at everything: nothing of it may lie outside the file.
void Walk(std::span<const std::byte> file) {
  const auto decoded = DecodeSegmentIndex(file);
  if (!decoded.ok()) return;
  const SegmentIndex& index = *decoded;
  Require(index.data_offset + index.data_bytes == file.size());
  uint64_t bytes = 0, rows[3] = {};
  for (size_t i = 0; i < index.columns.size(); ++i) {
    bytes += index.ColumnName(i).size();
    Require(index.columns[i].begin + index.columns[i].bytes <= index.data_bytes);
  }
  for (size_t i = 0; i < index.definition_ends.size(); ++i) bytes += index.Definition(i).size();
  Require(bytes <= file.size());
  for (const IndexCommit& commit : index.commits) {
    rows[0] += index.Layout(commit.summaries).size();
    rows[1] += index.Layout(commit.scalars).size();
    rows[2] += index.Layout(commit.raws).size();
  }
  // No small file stands for many rows.
  Require(std::max({rows[0], rows[1], rows[2]}) <= file.size());
  Require(rows[2] == index.raws.size());
  for (const IndexRow& row : index.layout_rows) (void)index.ShapeOf(row.form).ok();
  for (size_t i = 0; i < index.raws.size(); i += kIndexBlockRows) (void)index.Intact(i);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // Aligned like a mapping.
  std::vector<uint64_t> file((size + 7) / 8 + 64);
  auto* const bytes = reinterpret_cast<std::byte*>(file.data());
  std::memcpy(bytes, data, size);
  Walk({bytes, size});

  // The same as head and raw table of a file that is otherwise whole: its hashes hide them from all inputs.
  if (size < sizeof(IndexHead) + 8) return 0;
  const uint64_t data_bytes = tdbg::base::Load<uint32_t>(data) % 4096;
  const uint64_t raws = tdbg::base::Load<uint16_t>(data + 4) % (size / sizeof(IndexRaw) + 1);
  const uint64_t content = (size - 8) / 8 * 8;
  if (content < raws * sizeof(IndexRaw) + sizeof(IndexHead)) return 0;
  const uint64_t head_bytes = content - raws * sizeof(IndexRaw);
  const uint64_t header = 8 + (data_bytes + 7) / 8 * 8;  // the JSON header and whatever columns there are
  std::vector<uint64_t> whole((header + content) / 8 + 8);
  auto* const to = reinterpret_cast<std::byte*>(whole.data());
  const uint64_t total = header + content + sizeof(IndexFooter);
  std::memcpy(to + header, data + 8, content);
  IndexFooter footer;
  std::memcpy(footer.magic, kIndexMagic, sizeof(kIndexMagic));
  footer.major = 1;
  footer.footer_bytes = sizeof(IndexFooter);
  footer.data_bytes = total - 8;
  footer.head_bytes = head_bytes;
  footer.raws = raws;
  footer.head_hash = tdbg::base::Hash64({to + header, head_bytes});
  std::memcpy(to + header + content, &footer, sizeof(footer));
  footer.footer_hash = tdbg::base::Hash64({to + header + content, sizeof(footer) - 8});
  std::memcpy(to + header + content, &footer, sizeof(footer));
  Walk({to, total});
  return 0;
}

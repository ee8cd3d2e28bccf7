#include <fmt/format.h>

#include <array>
#include <cstring>
#include <utility>

#include "base/bytes.h"
#include "ship/archive.h"
#include "tensor/widen.h"

namespace tdbg::ship {
namespace {

// PKWARE's APPNOTE.TXT, 4.3; fields little-endian.
constexpr uint32_t kLocalHeader = 0x04034b50, kCentralHeader = 0x02014b50, kEndOfCentral = 0x06054b50;
constexpr uint32_t kZip64End = 0x06064b50, kZip64Locator = 0x07064b50;
constexpr uint16_t kVersion = 45;  // ZIP64
constexpr uint16_t kUtf8Names = 1 << 11;
constexpr uint16_t kDate = (0 << 9) | (1 << 5) | 1;  // 1980-01-01: the same arrays give the same bytes
constexpr uint16_t kZip64Field = 1;
constexpr uint32_t kIn64 = 0xffffffffu;  // "see the ZIP64 field"
constexpr size_t kNpyAlignment = 64;

// CRC-32 of ZIP (reflected polynomial 0xEDB88320), eight bytes a turn.
constexpr auto kCrcTables = [] {
  std::array<std::array<uint32_t, 256>, 8> tables{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) ? 0xedb88320u : 0);
    tables[0][i] = crc;
  }
  for (size_t k = 1; k < 8; ++k) {
    for (size_t i = 0; i < 256; ++i)
      tables[k][i] = (tables[k - 1][i] >> 8) ^ tables[0][tables[k - 1][i] & 0xff];
  }
  return tables;
}();

uint32_t Crc32(uint32_t crc, std::span<const std::byte> bytes) {
  crc = ~crc;
  const std::byte* at = bytes.data();
  size_t left = bytes.size();
  for (; left >= 8; left -= 8, at += 8) {
    const uint64_t word = base::Load<uint64_t>(at) ^ crc;
    crc = 0;
    for (size_t k = 0; k < 8; ++k) crc ^= kCrcTables[7 - k][(word >> (8 * k)) & 0xff];
  }
  for (; left != 0; --left, ++at) crc = (crc >> 8) ^ kCrcTables[0][(crc ^ static_cast<uint32_t>(*at)) & 0xff];
  return ~crc;
}

template <typename T>
void Put(T value, std::string* out) {
  out->append(reinterpret_cast<const char*>(&value), sizeof(value));
}

std::string DescriptionOf(DType dtype, int64_t text_width) {
  switch (dtype) {
    case DType::kBool:
      return "|b1";
    case DType::kUInt8:
      return "|u1";
    case DType::kInt8:
      return "|i1";
    case DType::kText:
      return fmt::format("<U{}", text_width);
    case DType::kComplex64:
    case DType::kComplex128:
      return fmt::format("<c{}", ItemSize(dtype));
    case DType::kUInt16:
    case DType::kUInt32:
    case DType::kUInt64:
      return fmt::format("<u{}", ItemSize(dtype));
    case DType::kInt16:
    case DType::kInt32:
    case DType::kInt64:
      return fmt::format("<i{}", ItemSize(dtype));
    default:
      return fmt::format("<f{}", ItemSize(dtype));
  }
}

// NumPy's format 1.0, or 2.0 where the header is longer than 64 KiB.
std::string NpyHeader(DType dtype, std::span<const int64_t> shape) {
  int64_t width = 1;
  if (dtype == DType::kText && !shape.empty()) {
    width = shape.back();
    shape = shape.first(shape.size() - 1);
  }
  std::string axes;
  for (const int64_t extent : shape) axes += fmt::format("{}, ", extent);
  std::string dictionary = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}",
                                       DescriptionOf(dtype, width), axes);
  const size_t prefix = dictionary.size() < 60000 ? 10 : 12;
  dictionary.append(kNpyAlignment - (prefix + dictionary.size() + 1) % kNpyAlignment, ' ');
  dictionary += '\n';
  std::string header =
      prefix == 10 ? std::string("\x93NUMPY\x01\x00", 8) : std::string("\x93NUMPY\x02\x00", 8);
  if (prefix == 10) {
    Put(static_cast<uint16_t>(dictionary.size()), &header);
  } else {
    Put(static_cast<uint32_t>(dictionary.size()), &header);
  }
  return header + dictionary;
}

class Npz : public Archive {
 public:
  explicit Npz(OutputFile& file) : file_(&file) {}

  Status Add(const std::string& name, const TensorView& value) override {
    const DType dtype = NumpyDType(value.dtype);
    std::vector<std::byte> own;
    std::span<const std::byte> bytes{static_cast<const std::byte*>(value.data), value.byte_count()};
    if (dtype != value.dtype || !value.is_contiguous()) {
      own = Widen(value, dtype);
      bytes = own;
    }
    const std::string npy = NpyHeader(dtype, value.shape);
    Entry entry{name + ".npy", 0, npy.size() + bytes.size(), file_->bytes()};
    if (entry.name.size() > 0xffff)
      return InvalidArgument("a tensor's name of more than 64 KiB fits no .npz");
    entry.crc = Crc32(Crc32(0, std::as_bytes(std::span(npy))), bytes);

    std::string header;
    Put(kLocalHeader, &header);
    PutCommon(entry, &header);
    Put(static_cast<uint16_t>(entry.name.size()), &header);
    Put(uint16_t{20}, &header);  // the extra field: both sizes, always, so that no array is too large
    header += entry.name;
    Put(kZip64Field, &header);
    Put(uint16_t{16}, &header);
    Put(entry.size, &header);
    Put(entry.size, &header);
    TDBG_RETURN_IF_ERROR(file_->Write(std::as_bytes(std::span(header))));
    TDBG_RETURN_IF_ERROR(file_->Write(std::as_bytes(std::span(npy))));
    TDBG_RETURN_IF_ERROR(file_->Write(bytes));
    entries_.push_back(std::move(entry));
    return OkStatus();
  }

  Status Finish() override {
    const uint64_t begin = file_->bytes();
    std::string directory;
    for (const Entry& entry : entries_) {
      Put(kCentralHeader, &directory);
      Put(kVersion, &directory);  // made by
      PutCommon(entry, &directory);
      Put(static_cast<uint16_t>(entry.name.size()), &directory);
      Put(uint16_t{28}, &directory);  // extra field
      Put(uint16_t{0}, &directory);   // comment
      Put(uint16_t{0}, &directory);   // disk
      Put(uint16_t{0}, &directory);   // internal attributes
      Put(uint32_t{0644u << 16}, &directory);
      Put(kIn64, &directory);
      directory += entry.name;
      Put(kZip64Field, &directory);
      Put(uint16_t{24}, &directory);
      Put(entry.size, &directory);
      Put(entry.size, &directory);
      Put(entry.offset, &directory);
    }
    const uint64_t size = directory.size();
    const uint64_t end = begin + size;
    Put(kZip64End, &directory);
    Put(uint64_t{44}, &directory);
    Put(kVersion, &directory);
    Put(kVersion, &directory);
    Put(uint64_t{0}, &directory);  // both disk numbers
    Put(uint64_t{entries_.size()}, &directory);
    Put(uint64_t{entries_.size()}, &directory);
    Put(size, &directory);
    Put(begin, &directory);
    Put(kZip64Locator, &directory);
    Put(uint32_t{0}, &directory);
    Put(end, &directory);
    Put(uint32_t{1}, &directory);
    Put(kEndOfCentral, &directory);
    Put(uint32_t{0}, &directory);
    Put(uint16_t{0xffff}, &directory);
    Put(uint16_t{0xffff}, &directory);
    Put(kIn64, &directory);
    Put(kIn64, &directory);
    Put(uint16_t{0}, &directory);
    return file_->Write(std::as_bytes(std::span(directory)));
  }
  uint64_t count() const override { return entries_.size(); }

  struct Entry {
    std::string name;
    uint32_t crc = 0;
    uint64_t size = 0, offset = 0;
  };

  // From "version needed" to the sizes: the same in front of the data and in the directory.
  static void PutCommon(const Entry& entry, std::string* out) {
    Put(kVersion, out);
    Put(kUtf8Names, out);
    Put(uint16_t{0}, out);  // stored
    Put(uint16_t{0}, out);  // midnight
    Put(kDate, out);
    Put(entry.crc, out);
    Put(kIn64, out);
    Put(kIn64, out);
  }

 private:
  OutputFile* file_;
  std::vector<Entry> entries_;
};

}  // namespace

std::unique_ptr<Archive> MakeNpz(OutputFile& file) { return std::make_unique<Npz>(file); }

bool IsOurNpz(const std::string& path) {
  // The first array's header: what precedes the checksum, which numpy.savez does not set alike (its names are
  // not marked as UTF-8 unless they must be), then the name.
  constexpr size_t kCrcAt = 14, kNameLengthAt = 26, kNameAt = 30;
  std::string fixed;
  Put(kLocalHeader, &fixed);
  Npz::PutCommon({}, &fixed);
  const std::string head = HeadOf(path, kNameAt + 0xffff);
  if (head.size() < kNameAt || head.substr(0, kCrcAt) != fixed.substr(0, kCrcAt)) return false;
  const auto length = base::Load<uint16_t>(head.data() + kNameLengthAt);
  const std::string name = head.substr(kNameAt, length);
  return name.ends_with("/global_step.npy") || name.find('@') != std::string::npos;
}

}  // namespace tdbg::ship

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "base/bytes.h"
#include "ship/archive.h"
#include "tensor/safetensors_dtype.h"
#include "tensor/widen.h"

namespace tdbg::ship {
namespace {

using Json = nlohmann::ordered_json;

// The library refuses longer headers.
constexpr uint64_t kLargestHeader = 100'000'000;
constexpr uint64_t kAlignment = 8;
constexpr size_t kBytesOfASize = 22;  // digits of an axis or offset, and what separates it

std::string Dumped(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

class Safetensors : public Archive {
 public:
  Safetensors(OutputFile& file, uint64_t space, std::map<std::string, std::string> metadata)
      : file_(&file), space_(space), metadata_(std::move(metadata)) {
    for (const auto& [key, value] : metadata_) space_ += key.size() * 6 + value.size() * 6 + 8;
    space_ = base::AlignUp(space_ + 64, kAlignment);
  }

  Status Add(const std::string& name, const TensorView& value) override {
    if (count_ == 0) TDBG_RETURN_IF_ERROR(Reserve());
    std::vector<std::byte> own;
    std::span<const std::byte> bytes{static_cast<const std::byte*>(value.data), value.byte_count()};
    if (!value.is_contiguous()) {
      own = Widen(value, value.dtype);
      bytes = own;
    }
    std::vector<int64_t> shape(value.shape.begin(), value.shape.end());
    std::string_view type = SafetensorsDType(value.dtype);
    if (type.empty()) {
      type = "U8";
      shape.push_back(static_cast<int64_t>(ItemSize(value.dtype)));
      metadata_[name + ".dtype"] = DTypeName(value.dtype);
    }
    header_[name] = {{"dtype", type}, {"shape", shape}, {"data_offsets", {offset_, offset_ + bytes.size()}}};
    offset_ += bytes.size();
    ++count_;
    return file_->Write(bytes);
  }

  Status Finish() override {
    if (count_ == 0) TDBG_RETURN_IF_ERROR(Reserve());
    Json whole;
    whole["__metadata__"] = metadata_;
    for (auto& [name, entry] : header_.items()) whole[name] = std::move(entry);
    std::string text = Dumped(whole);
    if (text.size() > space_) return Internal("a safetensors header is longer than what was kept for it");
    text.append(space_ - text.size(), ' ');
    return file_->WriteAt(sizeof(space_), std::as_bytes(std::span(text)));
  }
  uint64_t count() const override { return count_; }

 private:
  Status Reserve() {
    if (space_ > kLargestHeader) {
      return InvalidArgument(
          fmt::format("too many arrays for one safetensors file (its header would need {} bytes, 100,000,000 "
                      "are allowed); choose "
                      "fewer tensors or steps, or --to npz",
                      space_));
    }
    std::string head(sizeof(space_) + space_, ' ');
    base::Store(head.data(), space_);
    return file_->Write(std::as_bytes(std::span(head)));
  }

  OutputFile* file_;
  uint64_t space_, offset_ = 0, count_ = 0;
  std::map<std::string, std::string> metadata_;
  Json header_ = Json::object();
};

}  // namespace

std::unique_ptr<Archive> MakeSafetensors(OutputFile& file, uint64_t space,
                                         std::map<std::string, std::string> metadata) {
  return std::make_unique<Safetensors>(file, space, std::move(metadata));
}

uint64_t SafetensorsHeaderSpace(const std::string& name, size_t rank) {
  // Twice for its entry in the metadata. The JSON text of a name may be longer than the name.
  return 2 * Dumped(Json(name)).size() + 96 + (rank + 3) * kBytesOfASize;
}

bool HasSafetensorsMetadata(const std::string& path, const std::string& key, const std::string& value) {
  const std::string size = HeadOf(path, sizeof(uint64_t));
  if (size.size() < sizeof(uint64_t)) return false;
  const auto bytes = base::Load<uint64_t>(size.data());
  if (bytes > kLargestHeader) return false;
  const std::string head = HeadOf(path, sizeof(uint64_t) + bytes);
  if (head.size() < sizeof(uint64_t) + bytes) return false;
  const Json json = Json::parse(head.begin() + sizeof(uint64_t), head.end(), nullptr, false);
  if (!json.is_object() || !json.contains("__metadata__")) return false;
  const Json& metadata = json["__metadata__"];
  return metadata.is_object() && metadata.contains(key) && metadata[key] == value;
}

}  // namespace tdbg::ship

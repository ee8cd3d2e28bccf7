#include "rules/text_values.h"

#include <cstring>

#include "base/text.h"
#include "rules/kept_values.h"

namespace tdbg::rules {
std::optional<std::vector<std::string>> TextElements(const TensorValue& value) {
  if (value.dtype != DType::kText || value.shape.empty()) return std::nullopt;
  const auto width = static_cast<size_t>(value.shape.back());
  const size_t count = width == 0 ? 0 : ElementCount(value) / width;
  std::vector<std::string> texts(count);
  const auto* at = static_cast<const std::byte*>(value.data);
  for (std::string& text : texts) {
    bool ended = false;
    for (size_t i = 0; i < width; ++i, at += sizeof(uint32_t)) {
      uint32_t c;
      std::memcpy(&c, at, sizeof c);
      ended = ended || c == 0;
      if (!ended) base::AppendUtf8(c, &text);
    }
  }
  return texts;
}

}  // namespace tdbg::rules

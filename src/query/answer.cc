#include "query/answer.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/stable_sort.h"

static_assert(std::endian::native == std::endian::little, "safetensors is little-endian");

namespace tdbg::query {

Json JsonNumber(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  return value;
}

Answer JsonAnswer(Json document) {
  document["version"] = kAnswerVersion;
  return {"application/json", format::DumpJson(document)};
}

void Columns::AddBytes(std::string name, std::string type, size_t item_bytes, std::vector<size_t> shape,
                       std::string_view bytes) {
  columns_.push_back({std::move(name), std::move(type), item_bytes, std::move(shape), std::string(bytes)});
}

Answer Columns::Finish(Json head) const {
  // Columns with the widest items come first, and the head's length is a multiple of 8: so every column is
  // aligned, and a browser's typed array can refer to it without a copy.
  std::vector<const Column*> order;
  for (const Column& column : columns_) order.push_back(&column);
  base::StableSort(&order, [](const Column* a, const Column* b) { return a->item_bytes > b->item_bytes; });
  head["version"] = kAnswerVersion;
  Json header = Json::object();
  header["__metadata__"] = {{"answer", format::DumpJson(head)}};
  size_t at = 0;
  for (const Column* column : order) {
    header[column->name] = {
        {"dtype", column->type}, {"shape", column->shape}, {"data_offsets", {at, at + column->bytes.size()}}};
    at += column->bytes.size();
  }
  std::string text = format::DumpJson(header);
  text.resize((text.size() + 7) / 8 * 8, ' ');
  Answer answer{kColumnsType, {}};
  answer.body.reserve(8 + text.size() + at);
  const uint64_t size = text.size();
  answer.body.append(reinterpret_cast<const char*>(&size), sizeof size);
  answer.body += text;
  for (const Column* column : order) answer.body += column->bytes;
  return answer;
}

}  // namespace tdbg::query

#include "format/drop_details.h"

#include <algorithm>

#include "base/redact.h"
#include "base/text.h"
#include "format/json_fields.h"

namespace tdbg::format {

bool DropDetails::Add(DropCause cause, DropKind kind, std::string_view detail) {
  std::string line = base::ToValidUtf8(detail);
  for (char& c : line) {
    if (static_cast<unsigned char>(c) < ' ') c = ' ';
  }
  line = base::RedactText(base::Trim(line));  // before it is cut: half a secret is recognised by nobody
  if (line.size() > kMaxDetailBytes) {
    size_t end = kMaxDetailBytes;
    while (end > 0 && (static_cast<unsigned char>(line[end]) & 0xC0) == 0x80) --end;
    line = line.substr(0, end) + "...";
  }
  if (line.empty()) return false;
  auto& known = details_[{std::string(DropCauseName(cause)), std::string(DropKindName(kind))}];
  if (known.size() >= kMost || std::find(known.begin(), known.end(), line) != known.end()) return false;
  known.push_back(std::move(line));
  return true;
}

void DropDetails::AddJson(std::string_view text) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return;
  for (const auto& [cause, kinds] : json.items()) {
    if (!kinds.is_object()) continue;
    for (const auto& [kind, lines] : kinds.items()) {
      if (!lines.is_array()) continue;
      auto& known = details_[{cause, kind}];
      for (const Json& line : lines) {
        if (!line.is_string() || known.size() >= kMost) continue;
        const auto& told = line.get_ref<const std::string&>();
        if (std::find(known.begin(), known.end(), told) == known.end()) known.push_back(told);
      }
    }
  }
}

std::string DropDetails::ToJson() const {
  Json json = Json::object();
  for (const auto& [key, lines] : details_) json[key.first][key.second] = lines;
  return DumpJson(json);
}

std::string DropDetails::Sentence(DropCause cause, DropKind kind) const {
  const std::string_view text = DropCauseText(cause);
  const auto found = details_.find({std::string(DropCauseName(cause)), std::string(DropKindName(kind))});
  if (found == details_.end() || found->second.empty()) return std::string(text);
  // "What tdbg cannot record: a dtype, ...": the words in front of what it may be, and then what it is.
  std::string sentence(text.substr(0, text.find_first_of(":;.")));
  std::string_view detail = found->second.front();
  while (detail.ends_with('.') && !detail.ends_with("...")) detail.remove_suffix(1);
  sentence += ": ";
  sentence += detail;
  if (const size_t more = found->second.size() - 1; more > 0) {
    sentence += " (and " + base::Counted(more, "other cause") + (more + 1 == kMost ? " or more)" : ")");
  }
  if (!sentence.ends_with('.')) sentence += '.';
  return sentence;
}

}  // namespace tdbg::format

#include "cli/markdown.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "base/text.h"

namespace tdbg::cli {
namespace {

constexpr int kWidest = 100;  // longer lines are hard to read, however wide the terminal is
constexpr int kWithoutTerminal = 80;

struct Span {
  std::string text;
  Colour colour = Colour::kNone;
};

// The text between `open` and `close`, from `at` on; moves `at` behind it.
std::optional<std::string> Between(std::string_view text, std::string_view open, std::string_view close,
                                   size_t* at) {
  if (!text.substr(*at).starts_with(open)) return std::nullopt;
  const size_t begin = *at + open.size(), end = text.find(close, begin);
  if (end == std::string_view::npos) return std::nullopt;
  *at = end + close.size();
  return std::string(text.substr(begin, end - begin));
}

std::vector<Span> SpansOf(std::string_view text) {
  std::vector<Span> spans = {{}};
  for (size_t at = 0; at < text.size();) {
    size_t next = at;
    if (auto bold = Between(text, "**", "**", &next)) {
      spans.push_back({*bold, Colour::kBold});
      spans.emplace_back();
    } else if (auto code = Between(text, "`", "`", &next)) {
      spans.push_back({*code, Colour::kCyan});
      spans.emplace_back();
    } else if (text[at] == '[' || text.substr(at).starts_with("![")) {
      const bool picture = text[at] == '!';
      const auto label = Between(text, picture ? "![" : "[", "]", &next);
      const auto target = label ? Between(text, "(", ")", &next) : std::nullopt;
      if (target) {
        spans.back().text += picture ? fmt::format("[picture: {} ({})]", *label, *target) : *label;
      } else {
        next = at;
      }
    } else if (text[at] == '\\' && at + 1 < text.size()) {
      spans.back().text += text[at + 1];
      next = at + 2;
    }
    if (next == at) spans.back().text += text[next++];
    at = next;
  }
  return spans;
}

std::string Painted(const std::vector<Span>& spans, const Terminal& terminal) {
  std::string text;
  for (const Span& span : spans) text += Paint(terminal, span.colour, span.text);
  return text;
}

std::string Plain(std::string_view text) {
  std::string plain;
  for (const Span& span : SpansOf(text)) plain += span.text;
  return plain;
}

// Breaks at blanks. A word may hold several spans: **Sees**, for instance, with its comma.
std::string Filled(std::string_view text, int columns, const std::string& first_indent,
                   const std::string& indent, const Terminal& terminal) {
  std::string out = first_indent, word;
  int width = DisplayWidth(first_indent), word_width = 0;
  bool line_is_empty = true;
  const auto flush = [&] {
    if (word.empty()) return;
    if (!line_is_empty && width + 1 + word_width > columns) {
      out += "\n" + indent;
      width = DisplayWidth(indent);
      line_is_empty = true;
    }
    if (!line_is_empty) out += ' ', ++width;
    out += word;
    width += word_width;
    line_is_empty = false;
    word.clear();
    word_width = 0;
  };
  for (const Span& span : SpansOf(text)) {
    for (size_t at = 0; at <= span.text.size();) {
      const size_t blank = std::min(span.text.find(' ', at), span.text.size());
      const std::string piece = span.text.substr(at, blank - at);
      word += Paint(terminal, piece.empty() ? Colour::kNone : span.colour, piece);
      word_width += DisplayWidth(piece);
      if (blank < span.text.size()) flush();
      at = blank + 1;
    }
  }
  flush();
  return out + "\n";
}

std::vector<std::string> Cells(std::string_view row) {
  std::vector<std::string> cells = {""};
  row = base::Trim(row);
  row.remove_prefix(1);
  for (size_t i = 0; i < row.size(); ++i) {
    if (row[i] == '\\' && i + 1 < row.size() && row[i + 1] == '|') {
      cells.back() += row[++i];
    } else if (row[i] == '|') {
      cells.emplace_back();
    } else {
      cells.back() += row[i];
    }
  }
  if (base::Trim(cells.back()).empty()) cells.pop_back();
  for (std::string& cell : cells) cell = std::string(base::Trim(cell));
  return cells;
}

// The last column is filled, the others are as wide as they need.
std::string TableText(const std::vector<std::string_view>& lines, int columns, const Terminal& terminal) {
  std::vector<std::vector<std::string>> rows;
  std::vector<int> widths;
  for (const std::string_view line : lines) {
    if (line.find_first_not_of("|-: ") == std::string_view::npos) continue;
    rows.push_back(Cells(line));
    widths.resize(std::max(widths.size(), rows.back().size()));
    for (size_t i = 0; i < rows.back().size(); ++i)
      widths[i] = std::max(widths[i], DisplayWidth(Plain(rows.back()[i])));
  }
  std::string out;
  for (size_t r = 0; r < rows.size(); ++r) {
    std::string line;
    int left = 0;
    for (size_t i = 0; i + 1 < widths.size(); ++i) {
      const std::string cell = i < rows[r].size() ? rows[r][i] : "";
      line += r == 0 ? Paint(terminal, Colour::kBold, Plain(cell)) : Painted(SpansOf(cell), terminal);
      line += std::string(static_cast<size_t>(widths[i] + 2 - DisplayWidth(Plain(cell))), ' ');
      left += widths[i] + 2;
    }
    const std::string last = rows[r].size() == widths.size() ? rows[r].back() : "";
    const int room = std::max(columns - left, 30);
    const std::string text =
        Filled(r == 0 && !last.empty() ? "**" + last + "**" : last, room, "", "\n", terminal);
    // Filled marks its line breaks with an indent of our own, so that painted text is not measured.
    std::string indented;
    for (size_t at = 0; at < text.size(); ++at) {
      indented += text[at];
      if (text[at] == '\n' && at + 1 < text.size() && text[at + 1] == '\n') {
        indented += std::string(static_cast<size_t>(left), ' ');
        ++at;
      }
    }
    out += line + indented;
  }
  return out;
}

}  // namespace

std::string FormatMarkdown(std::string_view markdown, const Terminal& terminal) {
  const int columns = std::min(terminal.columns > 0 ? terminal.columns : kWithoutTerminal, kWidest);
  std::vector<std::string_view> lines;
  for (size_t begin = 0; begin < markdown.size();) {
    const size_t end = std::min(markdown.find('\n', begin), markdown.size());
    lines.push_back(markdown.substr(begin, end - begin));
    begin = end + 1;
  }
  const auto starts_block = [](std::string_view line) {
    return line.empty() || line.starts_with('#') || line.starts_with('|') || line.starts_with("- ") ||
           line.starts_with("    ") || line.starts_with("```");
  };
  std::string out;
  for (size_t i = 0; i < lines.size();) {
    const std::string_view line = lines[i];
    if (line.empty()) {
      out += "\n";
      ++i;
    } else if (line.starts_with('#')) {
      out +=
          Paint(terminal, Colour::kBold, Plain(base::Trim(line.substr(line.find_first_not_of('#'))))) + "\n";
      ++i;
    } else if (line.starts_with("```")) {
      for (++i; i < lines.size() && !lines[i].starts_with("```"); ++i)
        out += "    " + Paint(terminal, Colour::kCyan, lines[i]) + "\n";
      ++i;
    } else if (line.starts_with("    ")) {
      out += "    " + Paint(terminal, Colour::kCyan, line.substr(4)) + "\n";
      ++i;
    } else if (line.starts_with('|')) {
      std::vector<std::string_view> table;
      for (; i < lines.size() && lines[i].starts_with('|'); ++i) table.push_back(lines[i]);
      out += TableText(table, columns, terminal);
    } else {
      const bool item = line.starts_with("- ");
      std::string text(item ? line.substr(2) : line);
      for (++i; i < lines.size(); ++i) {
        if (starts_block(lines[i]) && !(item && lines[i].starts_with("  "))) break;
        text += " " + std::string(base::Trim(lines[i]));
      }
      out += Filled(text, columns, item ? "- " : "", item ? "  " : "", terminal);
    }
  }
  return out;
}

}  // namespace tdbg::cli

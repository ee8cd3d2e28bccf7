#include "cli/terminal.h"

#include <fmt/format.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/posix.h"
#include "base/text.h"

namespace tdbg::cli {
namespace {

constexpr int kLeastRowsForLiveLine = 5;

const char* Code(Colour colour) {
  switch (colour) {
    case Colour::kRed:
      return "31";
    case Colour::kGreen:
      return "32";
    case Colour::kYellow:
      return "33";
    case Colour::kCyan:
      return "36";
    case Colour::kDim:
      return "2";
    case Colour::kBold:
      return "1";
    case Colour::kNone:
      break;
  }
  return "0";
}

bool IsContinuation(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

bool ClaimsToBeDumb() {
  const char* term = ::getenv("TERM");
  return !term || !*term || std::string_view(term) == "dumb";
}

// We may be in the background of the terminal: it belongs to the script's group. With `stty tostop` writing
// would stop us; blocked, the signal lets the write through.
void WriteToTerminal(int fd, std::string_view text) {
  sigset_t ttou, previous;
  sigemptyset(&ttou);
  sigaddset(&ttou, SIGTTOU);
  pthread_sigmask(SIG_BLOCK, &ttou, &previous);
  (void)base::WriteFully(fd, std::as_bytes(std::span(text)));
  pthread_sigmask(SIG_SETMASK, &previous, nullptr);
}

}  // namespace

namespace {

// Where it names none, terminals are what they are today: UTF-8.
bool NamesAnotherCharset() {
  for (const char* const name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const char* const value = ::getenv(name);
    if (value == nullptr || *value == '\0') continue;
    return ::strcasestr(value, "utf-8") == nullptr && ::strcasestr(value, "utf8") == nullptr;
  }
  return false;
}

}  // namespace

Terminal Terminal::Of(int fd) {
  Terminal terminal;
  terminal.is_terminal = ::isatty(fd) == 1;
  if (!terminal.is_terminal) {
    terminal.columns = 0;
    return terminal;
  }
  terminal.ascii = NamesAnotherCharset();
  const char* no_colour = ::getenv("NO_COLOR");
  terminal.colour = !(no_colour && *no_colour) && !ClaimsToBeDumb();
  winsize size{};
  if (::ioctl(fd, TIOCGWINSZ, &size) == 0) {
    if (size.ws_col > 0) terminal.columns = size.ws_col;
    if (size.ws_row > 0) terminal.rows = size.ws_row;
  }
  return terminal;
}

std::string Paint(const Terminal& terminal, Colour colour, std::string_view text) {
  if (!terminal.colour || colour == Colour::kNone) return std::string(text);
  return fmt::format("\x1b[{}m{}\x1b[0m", Code(colour), text);
}

std::string Fit(std::string_view text, int columns) {
  if (columns <= 0 || DisplayWidth(text) <= columns) return std::string(text);
  size_t end = 0;
  for (int seen = 0; end < text.size(); ++end) {
    if (!IsContinuation(text[end]) && seen++ == columns - 1) break;
  }
  return std::string(text.substr(0, end)) + "…";
}

std::string FreshLine(const Terminal& terminal) {
  if (!terminal.is_terminal || ClaimsToBeDumb() || terminal.columns < 2) return {};
  return std::string(static_cast<size_t>(terminal.columns - 1), ' ') + "\r";
}

std::string Sparkline(const std::vector<double>& values, int columns, bool ascii) {
  static const char* const kUnicode[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  static const char* const kAscii[] = {"_", ".", ":", "-", "=", "+", "*", "#"};
  const auto& blocks = ascii ? kAscii : kUnicode;
  if (values.empty() || columns <= 0) return {};
  const size_t n = std::min(values.size(), static_cast<size_t>(columns));
  std::vector<double> points(n);
  for (size_t i = 0; i < n; ++i) {
    const size_t begin = i * values.size() / n;
    const size_t end = std::max(begin + 1, (i + 1) * values.size() / n);
    // Divided before it is summed: the values may be as large as doubles get. A stretch that holds one
    // non-finite value shows it, since that one is what people look for.
    double mean = 0;
    for (size_t j = begin; j < end; ++j) mean += values[j] / static_cast<double>(end - begin);
    points[i] = mean;
  }
  double low = std::numeric_limits<double>::infinity(), high = -low;
  for (const double point : points) {
    if (!std::isfinite(point)) continue;
    low = std::min(low, point);
    high = std::max(high, point);
  }
  std::string line;
  for (const double point : points) {
    if (!std::isfinite(point)) {
      line += ascii ? "x" : "×";
    } else if (!(high > low)) {
      line += blocks[3];
    } else {
      const double share = (point / 2 - low / 2) / (high / 2 - low / 2);
      line += blocks[std::clamp(static_cast<int>(share * 8), 0, 7)];
    }
  }
  return line;
}

std::string Table::Format(const Terminal& terminal) const {
  std::vector<int> widths;
  const auto widen = [&](const std::vector<std::string>& row) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], DisplayWidth(row[i]));
  };
  widen(header_);
  for (const auto& row : rows_) widen(row);
  const auto format = [&](const std::vector<std::string>& row) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      if (wraps_ && i + 1 == row.size()) {
        const int begin = DisplayWidth(line);
        return line + Wrapped(row[i], begin,
                              terminal.is_terminal ? std::max(terminal.columns, begin + 20) : kTextColumns);
      }
      const std::string padding(static_cast<size_t>(widths[i] - DisplayWidth(row[i])), ' ');
      const bool right = std::find(right_.begin(), right_.end(), i) != right_.end();
      line += right ? padding + row[i] : i + 1 < row.size() ? row[i] + padding : row[i];
      if (i + 1 < row.size()) line += "  ";
    }
    return Fit(line, terminal.columns);
  };
  std::string text = Paint(terminal, Colour::kDim, format(header_)) + "\n";
  for (const auto& row : rows_) text += format(row) + "\n";
  return text;
}

LiveLine::LiveLine(int fd) : fd_(fd) {
  const Terminal terminal = Terminal::Of(fd);
  enabled_ = terminal.is_terminal && !ClaimsToBeDumb() && terminal.rows >= kLeastRowsForLiveLine;
}

LiveLine::~LiveLine() { Close(); }

void LiveLine::TakeRow() {
  const Terminal terminal = Terminal::Of(fd_);
  if (open_ && terminal.rows == rows_ && terminal.columns == columns_) return;
  rows_ = terminal.rows;
  columns_ = terminal.columns;
  // A newline scrolls the screen where the cursor is in the last row, and the step up returns to the text's
  // row. Setting the region moves the cursor home, hence save and restore around it.
  WriteToTerminal(fd_, fmt::format("\n\x1b[A\x1b"
                                   "7\x1b[1;{}r\x1b"
                                   "8",
                                   rows_ - 1));
  open_ = true;
}

void LiveLine::Draw(std::string_view text) {
  if (!enabled_) return;
  TakeRow();
  WriteToTerminal(fd_, fmt::format("\x1b"
                                   "7\x1b[{};1H\x1b[2K\x1b[7m{}\x1b[0m\x1b"
                                   "8",
                                   rows_, Fit(text, columns_ - 1)));
}

void LiveLine::Close() {
  if (!open_) return;
  open_ = false;
  WriteToTerminal(fd_, fmt::format("\x1b"
                                   "7\x1b[r\x1b[{};1H\x1b[2K\x1b"
                                   "8",
                                   rows_));
}

}  // namespace tdbg::cli

// The terminal: is there one, how wide is it, colours, one live line at its bottom.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/printable.h"
#include "base/wrapped.h"

namespace tdbg::cli {

/// Stream of a file descriptor, looked at once.
struct Terminal {
  bool is_terminal = false;
  bool colour = false;  ///< a terminal, NO_COLOR unset or empty, TERM not "dumb"
  bool ascii = false;   ///< a terminal, and the locale that the environment names has no UTF-8
  int columns = 80;     ///< of text that fits a line; without a terminal, no limit is meant: 0
  int rows = 24;

  static Terminal Of(int fd);
};

/// On a terminal, more rows than this push what stands above them off the screen.
inline constexpr size_t kMostRowsOnTerminal = 24;

enum class Colour { kNone, kRed, kGreen, kYellow, kCyan, kDim, kBold };
/// `text` between escape codes if `terminal.colour`, else as it is.
std::string Paint(const Terminal& terminal, Colour colour, std::string_view text);

using base::DisplayWidth;
using base::kTextColumns;
using base::Wrapped;
/// At most `columns` wide; what is cut off ends in "…". No limit for columns <= 0.
std::string Fit(std::string_view text, int columns);
/// Used for every name and text that comes from a run, so that data cannot control the terminal.
using base::Printable;

/// What brings the cursor to the beginning of a line, whatever another process has left unfinished there: as
/// many blanks as wrap unless it stands in the first column. "" where there is no terminal, or one that knows
/// nothing.
std::string FreshLine(const Terminal& terminal);

/// A block of "▁▂▃▄▅▆▇█", at most `columns` long; longer series are averaged by stretch. Non-finite values
/// are "×", and a constant series is a flat line in the middle.
/// \param ascii  "_.:-=+*#" and "x" instead
std::string Sparkline(const std::vector<double>& values, int columns, bool ascii = false);

/// Rows under a header, columns as wide as their widest cell, two blanks apart.
class Table {
 public:
  explicit Table(std::vector<std::string> header) : header_(std::move(header)) {}
  void AlignRight(size_t column) { right_.push_back(column); }
  void Add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  /// The last column is text to be read: broken at blanks into lines that fit, and never cut.
  void WrapLast() { wraps_ = true; }
  bool empty() const { return rows_.empty(); }
  /// On a terminal the last column is cut to fit.
  std::string Format(const Terminal& terminal) const;

 private:
  std::vector<std::string> header_;
  std::vector<std::vector<std::string>> rows_;
  std::vector<size_t> right_;
  bool wraps_ = false;
};

/// A line kept at the bottom of the terminal while somebody else writes to it.
///
/// The other writer is the training script, with the same terminal as its own: we neither see what it writes
/// nor know where its cursor stands, so a line drawn at the cursor would end up inside its progress bar.
/// Instead the last row is taken out of the scrolling region (as apt does); the script's output scrolls above
/// it, and the cursor is saved and restored around each drawing, in one write.
class LiveLine {
 public:
  explicit LiveLine(int fd);
  ~LiveLine();
  LiveLine(const LiveLine&) = delete;

  bool enabled() const { return enabled_; }
  void Draw(std::string_view text);
  /// Gives the row back. Idempotent.
  void Close();

 private:
  void TakeRow();

  int fd_;
  bool enabled_ = false;
  bool open_ = false;
  int rows_ = 0;
  int columns_ = 0;
};

}  // namespace tdbg::cli

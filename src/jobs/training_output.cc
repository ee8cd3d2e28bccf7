#include "jobs/training_output.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>

#include "base/below.h"
#include "base/file.h"
#include "base/text.h"

namespace tdbg::jobs {
namespace {

constexpr char kFolder[] = "logs";
constexpr char kMagic[8] = {'T', 'D', 'B', 'G', 'L', 'O', 'G', 'I'};
// Lines of one step within a tenth of a second share an entry, so that the index stays the smaller file.
constexpr int64_t kSameNanos = 100'000'000;
constexpr size_t kReadBytes = 4u << 20;
constexpr size_t kLongestLine = 1u << 20;

struct IndexHeader {
  char magic[8];
  uint16_t major, minor;
  uint32_t entry_bytes;
  uint64_t first_offset;  ///< of the text file's first byte
  uint64_t reserved;
};
static_assert(sizeof(IndexHeader) == sizeof(OutputEntry));

std::string NameOf(int64_t attempt, int64_t node) {
  return node == 0 ? fmt::format("attempt-{}", attempt) : fmt::format("attempt-{}-node-{}", attempt, node);
}

std::string BaseOf(const std::string& run_directory, int64_t attempt, int64_t node) {
  return base::JoinPath(base::JoinPath(run_directory, kFolder), NameOf(attempt, node));
}

uint64_t SizeOf(int fd) {
  struct stat info;
  return ::fstat(fd, &info) == 0 ? static_cast<uint64_t>(info.st_size) : 0;
}

template <typename T>
std::span<const std::byte> BytesOf(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

}  // namespace

Result<OutputWriter> OutputWriter::Open(const std::string& run_directory, int64_t attempt,
                                        uint64_t limit_bytes, int64_t node) {
  OutputWriter writer;
  writer.directory_ = base::JoinPath(run_directory, kFolder);
  writer.name_ = NameOf(attempt, node);
  writer.limit_bytes_ = limit_bytes;
  TDBG_RETURN_IF_ERROR(
      base::FilesBelow(base::LocalFileSystem(), run_directory).CreateDirectories(writer.directory_));
  writer.folder_ = base::OpenFd(writer.directory_.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
  if (!writer.folder_.ok()) return base::PathError(errno, "cannot keep the output", writer.directory_);
  TDBG_RETURN_IF_ERROR(writer.Begin());
  return writer;
}

Status OutputWriter::Begin() {
  const mode_t mode = base::FileModeIn(directory_);
  const int flags = O_RDWR | O_CREAT | O_APPEND | O_NOFOLLOW;
  text_ = base::OpenFdAt(folder_.get(), (name_ + ".out").c_str(), flags, mode);
  if (text_.ok()) index_ = base::OpenFdAt(folder_.get(), (name_ + ".index").c_str(), flags, mode);
  if (!text_.ok() || !index_.ok()) return base::PathError(errno, "cannot keep the output", directory_);
  text_bytes_ = SizeOf(text_.get());
  index_bytes_ = SizeOf(index_.get());
  IndexHeader header = {};
  if (index_bytes_ >= sizeof(header) &&
      ::pread(index_.get(), &header, sizeof(header), 0) == static_cast<ssize_t>(sizeof(header))) {
    // If a writer was killed in the middle of an entry, cut that off: entries begin at multiples of their
    // size.
    if (index_bytes_ % sizeof(OutputEntry) != 0) {
      index_bytes_ -= index_bytes_ % sizeof(OutputEntry);
      (void)!::ftruncate(index_.get(), static_cast<off_t>(index_bytes_));
    }
    offset_ = header.first_offset + text_bytes_;
    return OkStatus();
  }
  std::memcpy(header.magic, kMagic, sizeof(kMagic));
  header.major = 1;
  header.entry_bytes = sizeof(OutputEntry);
  header.first_offset = offset_;
  (void)!::ftruncate(index_.get(), 0);
  if (const int error = base::WriteFully(index_.get(), BytesOf(header)))
    return base::PathError(error, "cannot keep the output", directory_);
  index_bytes_ = sizeof(header);
  offset_ += text_bytes_;
  return OkStatus();
}

void OutputWriter::Rotate() {
  for (const char* suffix : {".out", ".index"}) {
    const std::string name = name_ + suffix;
    (void)::renameat(folder_.get(), name.c_str(), folder_.get(), (name + ".1").c_str());
  }
  last_.reset();
  if (!Begin().ok()) lost_ = true;
}

void OutputWriter::Append(std::string_view bytes, OutputStream stream, int64_t wall_nanos,
                          int64_t global_step) {
  if (bytes.empty()) return;
  if (text_bytes_ + index_bytes_ + bytes.size() > limit_bytes_ / 2 && text_bytes_ > 0) Rotate();
  OutputEntry entry = {offset_, wall_nanos, global_step, static_cast<uint32_t>(stream), 0};
  if (lost_) entry.flags = kOutputLost;
  size_t written = 0;
  while (written < bytes.size()) {
    const ssize_t got = ::write(text_.get(), bytes.data() + written, bytes.size() - written);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    written += static_cast<size_t>(got);
  }
  offset_ += written;
  text_bytes_ += written;
  lost_ = written < bytes.size() || (lost_ && written == 0);
  if (written == 0) return;
  const bool same = last_ && last_->global_step == global_step && last_->stream == entry.stream &&
                    entry.flags == 0 && wall_nanos - last_->wall_nanos < kSameNanos;
  if (same) return;
  if (base::WriteFully(index_.get(), BytesOf(entry)) != 0) return;
  index_bytes_ += sizeof(entry);
  last_ = entry;
}

OutputReader::OutputReader(std::string run_directory, int64_t attempt, int64_t node)
    : base_(BaseOf(run_directory, attempt, node)) {}

bool OutputReader::Exists() const { return base::LocalFileSystem().Exists(base_ + ".out"); }

namespace {

struct Part {
  base::UniqueFd text;
  uint64_t first = 0, bytes = 0;
  std::vector<OutputEntry> entries;
};

// Reads one pair of files. If it is renamed between the two opens, the next look finds it.
std::optional<Part> OpenPart(const std::string& text_path, const std::string& index_path) {
  Part part;
  part.text = base::OpenFd(text_path.c_str(), O_RDONLY | O_NONBLOCK);
  if (!part.text.ok()) return std::nullopt;
  part.bytes = SizeOf(part.text.get());
  const auto index = base::LocalFileSystem().ReadFile(index_path, 1u << 30);
  IndexHeader header = {};
  if (!index.ok() || index->size() < sizeof(header)) return part;
  std::memcpy(&header, index->data(), sizeof(header));
  if (std::memcmp(header.magic, kMagic, sizeof(kMagic)) != 0 || header.major != 1 ||
      header.entry_bytes != sizeof(OutputEntry)) {
    return part;
  }
  part.first = header.first_offset;
  for (size_t at = sizeof(header); at + sizeof(OutputEntry) <= index->size(); at += sizeof(OutputEntry)) {
    OutputEntry entry;
    std::memcpy(&entry, index->data() + at, sizeof(entry));
    const uint64_t least = part.entries.empty() ? part.first : part.entries.back().offset;
    if (entry.offset >= least && entry.offset - part.first <= part.bytes) part.entries.push_back(entry);
  }
  return part;
}

// What a terminal would show of the line: what follows the last carriage return.
std::string Shown(std::string_view line) {
  while (line.ends_with('\r')) line.remove_suffix(1);
  return std::string(line.substr(line.rfind('\r') + 1));
}

}  // namespace

std::vector<OutputLine> OutputReader::Next(bool at_end) {
  std::vector<OutputLine> lines;
  std::vector<Part> parts;
  if (auto old = OpenPart(base_ + ".out.1", base_ + ".index.1")) parts.push_back(std::move(*old));
  if (auto now = OpenPart(base_ + ".out", base_ + ".index")) parts.push_back(std::move(*now));
  bool lost = false, more = false;
  for (Part& part : parts) {
    if (part.first + part.bytes <= position_) continue;
    if (position_ < part.first) {
      lost = position_ > 0 || part.first > 0;
      position_ = part.first;
      rest_.clear();
      rest_line_.reset();
    }
    std::string text(std::min<uint64_t>(part.bytes - (position_ - part.first), kReadBytes), '\0');
    const ssize_t got =
        ::pread(part.text.get(), text.data(), text.size(), static_cast<off_t>(position_ - part.first));
    text.resize(got > 0 ? static_cast<size_t>(got) : 0);
    auto entry = std::upper_bound(part.entries.begin(), part.entries.end(), position_,
                                  [](uint64_t offset, const OutputEntry& e) { return offset < e.offset; });
    for (size_t i = 0; i < text.size(); ++i) {
      while (entry != part.entries.end() && entry->offset <= position_ + i) {
        lost = lost || (entry->flags & kOutputLost) != 0;
        ++entry;
      }
      if (!rest_line_) {
        rest_line_.emplace();
        if (entry != part.entries.begin()) {
          const OutputEntry& of = *std::prev(entry);
          rest_line_->wall_nanos = of.wall_nanos;
          rest_line_->global_step = of.global_step;
          if (of.stream <= static_cast<uint32_t>(OutputStream::kErr))
            rest_line_->stream = static_cast<OutputStream>(of.stream);
        }
        rest_line_->lost_before = std::exchange(lost, false);
      }
      if (text[i] != '\n' && rest_.size() < kLongestLine) {
        rest_ += text[i];
        continue;
      }
      rest_line_->text = Shown(rest_);
      lines.push_back(*std::move(rest_line_));
      rest_line_.reset();
      rest_ = text[i] == '\n' ? "" : std::string(1, text[i]);
    }
    position_ += text.size();
    more = more || position_ < part.first + part.bytes;
    if (more) break;  // the next part comes after the rest of this one
  }
  if (at_end && !more && rest_line_) {
    rest_line_->text = Shown(std::exchange(rest_, ""));
    lines.push_back(*std::move(rest_line_));
    rest_line_.reset();
  }
  return lines;
}

}  // namespace tdbg::jobs

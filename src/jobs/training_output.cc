#include "jobs/training_output.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <cstring>
#include <iterator>

#include "base/below.h"
#include "base/data_extents.h"
#include "base/file.h"
#include "base/stable_sort.h"
#include "base/text.h"

namespace tdbg::jobs {
namespace {

constexpr char kFolder[] = "logs";
constexpr char kMagic[8] = {'T', 'D', 'B', 'G', 'L', 'O', 'G', 'I'};
// Lines of one step within a tenth of a second share an entry, so that the index stays the smaller file.
constexpr int64_t kSameNanos = 100'000'000;
// On a small disk a log must leave room for what the training writes.
constexpr uint64_t kShareOfDisk = 4, kLeastBytes = 256 << 10;
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

bool IsFile(int fd) {
  struct stat info;
  return ::fstat(fd, &info) == 0 && S_ISREG(info.st_mode);
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
  rlimit most;  // `ulimit -f`: no file may become larger, and none becomes half as large as the log
  if (::getrlimit(RLIMIT_FSIZE, &most) == 0 && most.rlim_cur < limit_bytes / 2)
    writer.limit_bytes_ = most.rlim_cur * 2;
  TDBG_RETURN_IF_ERROR(
      base::FilesBelow(base::LocalFileSystem(), run_directory).CreateDirectories(writer.directory_));
  writer.folder_ = base::OpenFd(writer.directory_.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
  if (!writer.folder_.ok()) return base::PathError(errno, "cannot keep the output", writer.directory_);
  TDBG_RETURN_IF_ERROR(writer.Begin());
  if (const auto entries = base::LocalFileSystem().List(writer.directory_); entries.ok()) {
    for (const base::DirEntry& entry : *entries) {
      if (entry.name == writer.name_ + ".out" || entry.name == writer.name_ + ".index") continue;
      const bool first = entry.name == writer.name_ + ".out.0" || entry.name == writer.name_ + ".index.0";
      const bool previous = entry.name == writer.name_ + ".out.1" || entry.name == writer.name_ + ".index.1";
      (first ? writer.first_bytes_ : previous ? writer.previous_bytes_ : writer.other_bytes_) += entry.size;
    }
  }
  writer.MeasureDisk();
  return writer;
}

void OutputWriter::SayLost() {
  if (lost_bytes_ == 0 || !index_.ok()) return;
  OutputEntry entry = last_.value_or(OutputEntry{0, 0, -1, 0, 0});
  entry.offset = offset_;
  (void)AddEntry(entry);
}

Status OutputWriter::Begin() {
  const mode_t mode = base::FileModeIn(directory_);
  const int flags = O_RDWR | O_CREAT | O_APPEND;
  text_ = base::OpenPlainFileAt(folder_.get(), (name_ + ".out").c_str(), flags, mode);
  if (text_.ok()) index_ = base::OpenPlainFileAt(folder_.get(), (name_ + ".index").c_str(), flags, mode);
  int error = !text_.ok() || !index_.ok() ? errno : 0;
  if (error == 0) error = ReadOrWriteHeader();
  if (error == 0) return OkStatus();
  text_.reset();
  index_.reset();
  if (error == EINVAL || error == ELOOP || error == EISDIR || error == ENXIO)
    return FailedPrecondition("cannot keep the output, what is in its place is no file: " + directory_);
  return base::PathError(error, "cannot keep the output", directory_);
}

int OutputWriter::ReadOrWriteHeader() {
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
    return 0;
  }
  std::memcpy(header.magic, kMagic, sizeof(kMagic));
  header.major = 1;
  header.entry_bytes = sizeof(OutputEntry);
  header.first_offset = offset_;
  (void)!::ftruncate(index_.get(), 0);
  if (const int error = base::WriteFully(index_.get(), BytesOf(header))) return error;
  index_bytes_ = sizeof(header);
  offset_ += text_bytes_;
  return 0;
}

// How much the log may have, as the disk is now. Other logs of the run count: a command that fails at once
// and is started again and again would fill the disk with small ones.
void OutputWriter::MeasureDisk() {
  unmeasured_bytes_ = 0;
  allowed_bytes_ = limit_bytes_;
  struct statvfs disk;
  if (::fstatvfs(folder_.get(), &disk) != 0 || disk.f_blocks == 0) return;
  const uint64_t own = first_bytes_ + previous_bytes_ + text_bytes_ + index_bytes_;
  const uint64_t share = (uint64_t{disk.f_bavail} * disk.f_frsize + own + other_bytes_) / kShareOfDisk;
  const uint64_t left = share > other_bytes_ ? share - other_bytes_ : 0;
  allowed_bytes_ = std::min(limit_bytes_, std::max(kLeastBytes, left));
  if (own <= allowed_bytes_ || previous_bytes_ == 0) return;
  for (const char* suffix : {".out.1", ".index.1"})
    (void)::unlinkat(folder_.get(), (name_ + suffix).c_str(), 0);
  previous_bytes_ = 0;
}

void OutputWriter::Rotate() {
  const bool first = first_bytes_ == 0;
  for (const char* suffix : {".out", ".index"}) {
    const std::string name = name_ + suffix;
    // Where something stands in the way, as a directory, the newest must not grow for ever.
    if (::renameat(folder_.get(), name.c_str(), folder_.get(), (name + (first ? ".0" : ".1")).c_str()) != 0)
      (void)::unlinkat(folder_.get(), name.c_str(), 0);
  }
  (first ? first_bytes_ : previous_bytes_) = text_bytes_ + index_bytes_;
  last_.reset();
  (void)Begin();
}

bool OutputWriter::AddEntry(OutputEntry entry) {
  if (lost_bytes_ > 0) {
    const uint64_t kib = std::min<uint64_t>((lost_bytes_ + 1023) >> 10, UINT32_MAX >> kLostShift);
    entry.flags = kOutputLost | static_cast<uint32_t>(kib << kLostShift);
  }
  if (base::WriteFully(index_.get(), BytesOf(entry)) != 0) {
    // Half an entry would displace all that come after it.
    (void)!::ftruncate(index_.get(), static_cast<off_t>(index_bytes_));
    return false;
  }
  index_bytes_ += sizeof(entry);
  all_lost_ += std::exchange(lost_bytes_, 0);
  last_ = entry;
  return true;
}

void OutputWriter::Append(std::string_view bytes, OutputStream stream, int64_t wall_nanos,
                          int64_t global_step) {
  if (bytes.empty()) return;
  unmeasured_bytes_ += bytes.size();
  if (unmeasured_bytes_ > std::max(kLeastBytes, allowed_bytes_ / 64)) MeasureDisk();
  const uint64_t most = first_bytes_ == 0 ? allowed_bytes_ / 8 : allowed_bytes_ / 16 * 7;
  if (text_bytes_ > 0 && text_bytes_ + index_bytes_ + bytes.size() > most) Rotate();
  if (!text_.ok() && !Begin().ok()) return Lose(bytes.size());
  const OutputEntry entry = {offset_, wall_nanos, global_step, static_cast<uint32_t>(stream), 0};
  size_t written = 0;
  while (written < bytes.size()) {
    const ssize_t got = ::write(text_.get(), bytes.data() + written, bytes.size() - written);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    written += static_cast<size_t>(got);
  }
  offset_ += written;
  text_bytes_ += written;
  const bool same = last_ && last_->global_step == global_step && last_->stream == entry.stream &&
                    lost_bytes_ == 0 && wall_nanos - last_->wall_nanos < kSameNanos;
  if (written > 0 && !same) (void)AddEntry(entry);
  if (written == bytes.size()) return;
  Lose(bytes.size() - written);
  MeasureDisk();  // it may be full: then there is less for the log, and the oldest gives way
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
  if (!part.text.ok() || !IsFile(part.text.get())) return std::nullopt;
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

// Bytes of a hole so large that no log has one: its length was forged, and is not read through.
uint64_t HoleAt(const Part& part, uint64_t offset) {
  constexpr uint64_t kLarge = uint64_t{64} << 20;
  if (part.bytes - offset < kLarge) return 0;
  base::DataExtents extents(part.text.get());
  const uint64_t hole = std::min(extents.From(offset), part.bytes) - offset;
  return hole < kLarge ? 0 : hole;
}

}  // namespace

void OutputReader::Lost(uint64_t bytes) {
  lost_ = true;
  lost_bytes_ += bytes;
}

void OutputReader::FinishAll(std::vector<OutputLine>* lines) {
  std::vector<OutputLine> last;
  for (Unfinished& unfinished : unfinished_) {
    if (!unfinished.line) continue;
    unfinished.line->text = Shown(std::exchange(unfinished.text, ""));
    last.push_back(*std::move(unfinished.line));
    unfinished.line.reset();
  }
  base::StableSort(&last,
                   [](const OutputLine& x, const OutputLine& y) { return x.wall_nanos < y.wall_nanos; });
  std::ranges::move(last, std::back_inserter(*lines));
}

std::vector<OutputLine> OutputReader::Next(bool at_end) {
  std::vector<OutputLine> lines;
  std::vector<Part> parts;
  // The newest first: if it is renamed before the next one is opened, it is seen twice and not missed.
  for (const char* suffix : {"", ".1", ".0"}) {
    if (auto part = OpenPart(base_ + ".out" + suffix, base_ + ".index" + suffix))
      parts.insert(parts.begin(), *std::move(part));
  }
  bool more = false;
  const OutputEntry* beyond = nullptr;
  for (Part& part : parts) {
    beyond = !part.entries.empty() && part.entries.back().offset == part.first + part.bytes
                 ? &part.entries.back()
                 : nullptr;
    if (part.first + part.bytes <= position_) continue;
    if (position_ < part.first) {
      Lost(part.first - position_);
      position_ = part.first;
      FinishAll(&lines);
    }
    if (const uint64_t hole = HoleAt(part, position_ - part.first); hole > 0) {
      Lost(hole);
      position_ += hole;
      FinishAll(&lines);
      if (part.first + part.bytes <= position_) continue;
    }
    std::string text(std::min<uint64_t>(part.bytes - (position_ - part.first), kReadBytes), '\0');
    const ssize_t got =
        ::pread(part.text.get(), text.data(), text.size(), static_cast<off_t>(position_ - part.first));
    text.resize(got > 0 ? static_cast<size_t>(got) : 0);
    if (text.empty()) {  // a bad place on the disk must not hide all that comes after it
      Lost(part.first + part.bytes - position_);
      position_ = part.first + part.bytes;
    }
    auto entry = std::lower_bound(part.entries.begin(), part.entries.end(), position_,
                                  [](const OutputEntry& e, uint64_t offset) { return e.offset < offset; });
    for (size_t i = 0; i < text.size(); ++i) {
      while (entry != part.entries.end() && entry->offset <= position_ + i) {
        if ((entry->flags & kOutputLost) != 0) {
          Lost(uint64_t{entry->flags >> kLostShift} << 10);
          FinishAll(&lines);
        }
        ++entry;
      }
      const OutputEntry* const of = entry == part.entries.begin() ? nullptr : &*std::prev(entry);
      const uint32_t stream = of != nullptr && of->stream < unfinished_.size() ? of->stream : 0;
      auto& [rest, line] = unfinished_[stream];
      if (!line) {
        line.emplace();
        if (of != nullptr) {
          line->wall_nanos = of->wall_nanos;
          line->global_step = of->global_step;
          line->stream = static_cast<OutputStream>(stream);
        }
        line->lost_before = std::exchange(lost_, false);
        line->lost_bytes = std::exchange(lost_bytes_, 0);
      }
      if (text[i] != '\n' && rest.size() < kLongestLine) {
        rest += text[i];
        continue;
      }
      line->text = Shown(rest);
      lines.push_back(*std::move(line));
      line.reset();
      rest = text[i] == '\n' ? "" : std::string(1, text[i]);
    }
    position_ += text.size();
    more = more || position_ < part.first + part.bytes;
    if (more) break;  // the next part comes after the rest of this one
  }
  if (!at_end || more) return lines;
  FinishAll(&lines);
  if (beyond != nullptr && (beyond->flags & kOutputLost) != 0 && !std::exchange(told_end_, true)) {
    const uint64_t lost = uint64_t{beyond->flags >> kLostShift} << 10;
    lines.push_back({"", beyond->wall_nanos, beyond->global_step, OutputStream::kBoth, true, lost});
  }
  return lines;
}

}  // namespace tdbg::jobs

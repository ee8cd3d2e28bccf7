// The file system, behind one interface, so that a test can fill the disk or fail the third write.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tdbg/status.h"

namespace tdbg::base {

/// A file held open under an exclusive advisory lock (flock); released when destroyed or when the process
/// dies.
class FileLock {
 public:
  virtual ~FileLock() = default;
  /// Whether the path that was locked still leads to this file. It does not once its directory was removed or
  /// moved away, and then what lies beside that path is nobody's, or somebody else's. One stat.
  /// \error kNotFound  it does not; others: it cannot be told. \threadsafety Any thread.
  ///
  /// Where a script has closed the lock's descriptor the lock is gone with it: it is then taken again. Where
  /// another process has it by then, and keeps it, that takes 40 ms, once, and is as Disown.
  virtual Status CheckInPlace() const = 0;
  /// How often that was done. Between two looks somebody may have come, and gone. \threadsafety Any thread.
  virtual int times_retaken() const = 0;
  /// Gives the lock up for good: CheckInPlace says kNotFound from now on. \threadsafety Any thread.
  virtual void Disown() = 0;
};

/// Writable, shared mapping of a whole file. Writes to it never fail and never signal: of a file that
/// somebody cut short they go into memory that nobody else sees (bus_guard.h), which is what `intact` is for.
class MappedFile {
 public:
  virtual ~MappedFile() = default;
  virtual std::span<std::byte> bytes() = 0;
  /// False once a page of it is gone: its file was cut short, its disk or server fails. One system call. Any
  /// thread.
  virtual bool intact() const = 0;
  /// Whether this path leads to the mapped file. Any thread.
  virtual bool IsAt(const std::string& path) const = 0;
};

/// Read-only random access that survives truncation: pread, so a short file is a short read and no SIGBUS.
class ReadableFile {
 public:
  virtual ~ReadableFile() = default;
  /// Bytes actually read (fewer at the end of the file).
  virtual Result<size_t> ReadAt(uint64_t offset, std::span<std::byte> out) const = 0;
  virtual Result<uint64_t> Size() const = 0;
  /// Whether its descriptor is still its own: a script may have closed it, and what it opened since then
  /// would be what ReadAt reads.
  virtual bool StillOpen() const = 0;
};

/// A new file under a temporary name until Publish. Destroying it unpublished removes it.
class PendingFile {
 public:
  virtual ~PendingFile() = default;
  virtual Status Write(std::span<const std::byte> bytes) = 0;
  /// fdatasync if `durable`, then rename to `path`. Replaces an existing file.
  virtual Status Publish(const std::string& path, bool durable) = 0;
};

struct DirEntry {
  std::string name;
  bool is_directory = false;
  uint64_t size = 0;
};

/// Of a file that CreateMapped made. All of it would take 0.05 to 0.5 s for 256 MiB, in which a training
/// waits for its run to open, and the disk would write pages that a short run never fills.
inline constexpr uint64_t kTouchedAtCreation = 8u << 20;

class FileSystem {
 public:
  virtual ~FileSystem() = default;
  virtual Status CreateDirectories(const std::string& path) = 0;
  virtual Result<std::vector<DirEntry>> List(const std::string& path) = 0;  ///< sorted by name
  virtual bool Exists(const std::string& path) = 0;
  virtual Result<std::string> ReadFile(const std::string& path, uint64_t max_bytes = 64u << 20) = 0;
  /// Temporary file, then rename: readers see the old bytes or the new ones.
  virtual Status WriteFileAtomic(const std::string& path, std::string_view contents) = 0;
  /// O_APPEND, one write: lines of concurrent writers do not mix.
  virtual Status AppendLine(const std::string& path, std::string_view line) = 0;
  virtual Result<std::unique_ptr<ReadableFile>> OpenReadable(const std::string& path) = 0;
  virtual Result<std::unique_ptr<PendingFile>> CreatePending(const std::string& temporary_path) = 0;
  /// Pre-allocates (posix_fallocate) and maps; on failure leaves no file behind. Pages of the first
  /// kTouchedAtCreation bytes are there, so that no first write to them is a fault (160 to 1200 ns a page).
  /// \error kResourceExhausted  no room, quota or file-size limit.
  /// \error kAlreadyExists      the file is there, and is left alone: somebody may have it mapped.
  virtual Result<std::unique_ptr<MappedFile>> CreateMapped(const std::string& path, uint64_t bytes) = 0;
  /// \error kFailedPrecondition  somebody holds it.
  virtual Result<std::unique_ptr<FileLock>> Lock(const std::string& path) = 0;
  /// True while somebody holds the lock file (probed without keeping it).
  virtual bool IsLocked(const std::string& path) = 0;
  virtual Status Remove(const std::string& path) = 0;
  virtual Result<uint64_t> FreeBytes(const std::string& path) = 0;
};

/// Takes the lock. While another process holds it, tries again every 20 ms, at least once and for
/// `patience_millis` at most. For locks that are held for a moment at a time, to read a file and write it
/// anew: a process that holds one longer hangs. The calling thread sleeps meanwhile; a training's does so
/// only where it opens its run. One try of LocalFileSystem().Lock takes 40 ms while the lock is held.
/// \error kFailedPrecondition  it was held all the time; any other error of Lock is returned at once.
/// \threadsafety As files.Lock.
Result<std::unique_ptr<FileLock>> WaitForLock(FileSystem& files, const std::string& path,
                                              int64_t patience_millis);

/// Maps a file that is there, as long as it is. \error kNotFound, kDataLoss (empty, or no regular file)
Result<std::unique_ptr<MappedFile>> MapForWriting(const std::string& path);

/// The machine's. Lives for ever.
FileSystem& LocalFileSystem();

/// Read-only mapping of an immutable file (a sealed segment): zero-copy reads. A file that shrinks all the
/// same is a SIGBUS at the next look behind its end; see SurviveTornMappings.
class ReadOnlyMapping {
 public:
  static Result<std::shared_ptr<const ReadOnlyMapping>> Open(const std::string& path);
  ~ReadOnlyMapping();
  ReadOnlyMapping(const ReadOnlyMapping&) = delete;
  std::span<const std::byte> bytes() const { return {data_, size_}; }

 private:
  friend struct Mappings;
  ReadOnlyMapping() = default;

  std::string path_;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

/// A page of a ReadOnlyMapping opened from now on that is not to be had any more (its file was cut short, its
/// disk fails, its server dropped it) reads as zeros, and TornMapping says so, instead of SIGBUS killing the
/// process. It takes the process's SIGBUS: for programs of ours, not for a user's Python. Other faults stay
/// what they were. Before there are threads; a second call does nothing.
void SurviveTornMappings();
/// Once that has happened: what, and to which file. What was read since the last look is then not to be
/// believed. Any thread; one load.
std::optional<std::string> TornMapping();

std::string JoinPath(std::string_view a, std::string_view b);
std::string BaseName(std::string_view path);

/// Waits until one of several files or directories changes (inotify), with a slow poll as fallback where
/// inotify is not to be had. One thread.
class ChangeWaiter {
 public:
  ChangeWaiter();
  ~ChangeWaiter();
  ChangeWaiter(const ChangeWaiter&) = delete;
  /// Watches a file (or, for new entries, a directory). Watching twice is harmless; a path that does not
  /// exist is remembered and polled.
  void Watch(const std::string& path);
  /// True if something changed (or Wake was called), false after `timeout_millis`; -1 waits for ever.
  /// Uses no CPU while waiting. Stores into a shared mapping are no change that the kernel reports.
  bool Wait(int timeout_millis);
  /// Makes a concurrent Wait, or else the next one, return; safe from any thread and from signal handlers.
  void Wake();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tdbg::base

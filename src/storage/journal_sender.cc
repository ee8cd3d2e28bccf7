#include "storage/journal_sender.h"

#include <string.h>
#include <sys/stat.h>

#include <algorithm>
#include <span>
#include <utility>

#include "base/file.h"
#include "format/journal.h"
#include "format/run_files.h"
#include "format/version.h"

namespace tdbg::storage {
namespace {

// If more than this of a journal is not sealed, a segment will come soon; do not upload the bytes twice.
constexpr uint64_t kMaxPartBytes = 32u << 20;
// With so many parts some are joined into one, because a reader that opens the run has to fetch each.
constexpr size_t kMaxParts = 16;

// A consistent copy of the header's page: read until two reads agree, since its fields are not written at
// once.
Result<std::string> ReadHeader(const base::ReadableFile& file) {
  std::string page(format::kJournalHeaderBytes, '\0'), before;
  for (int i = 0; i < 20; ++i) {
    TDBG_ASSIGN_OR_RETURN(const size_t got, file.ReadAt(0, std::as_writable_bytes(std::span(page))));
    if (got != page.size()) return DataLoss("a journal without a header");
    if (!before.empty() && ::memcmp(page.data() + 64, before.data() + 64, 16) == 0 &&
        ::memcmp(page.data() + 128, before.data() + 128, 16) == 0)
      break;
    before = page;
  }
  return page;
}

uint64_t U64At(const std::string& page, size_t offset) {
  uint64_t value;
  ::memcpy(&value, page.data() + offset, sizeof(value));
  return value;
}
uint64_t CommittedOf(const std::string& page) { return U64At(page, 64); }
uint64_t EndedOf(const std::string& page) { return U64At(page, 96); }
uint64_t SealedOf(const std::string& page) { return U64At(page, 128); }

// Where a part that ends at `to` begins, if it is joined with the last of those before it: with all from the
// first one on that is not longer than what follows it. So a part is joined with parts of its own size, and a
// byte is sent again a few times only, however long nothing is sealed.
uint64_t JoinedFrom(const std::vector<JournalPart>& parts, uint64_t from, uint64_t to) {
  for (const JournalPart& part : parts) {
    if (part.to - part.from <= to - part.to && to - part.from <= kMaxPartBytes) return part.from;
  }
  return to - parts.back().from <= kMaxPartBytes ? parts.back().from : from;
}

}  // namespace

JournalSender::JournalSender(ObjectStore* store, std::string run_directory, Location to)
    : store_(store), run_directory_(std::move(run_directory)), to_(std::move(to)) {}

void JournalSender::Found(const std::string& worker, const JournalPart& part) {
  Journal& journal = journals_[worker];
  journal.epoch = std::max(journal.epoch, part.epoch);
  journal.stale.push_back(part);
}

std::string JournalSender::KeyOf(const std::string& worker, const JournalPart& part) const {
  return KeyBelow(to_.KeyPrefix(), worker + "/" + std::string(kJournalParts) + "/" + part.Name());
}

// Empty: the worker says of no journal.
std::string JournalSender::PathOf(const std::string& worker) const {
  const std::string directory = base::JoinPath(run_directory_, worker);
  const auto text = base::LocalFileSystem().ReadFile(base::JoinPath(directory, format::kWorkerFile));
  const auto info = text.ok() ? format::WorkerInfo::FromJson(*text) : text.status();
  if (!info.ok()) return "";
  if (info->journal_path.starts_with('/')) return info->journal_path;
  return base::JoinPath(directory, format::kJournalFile);
}

std::optional<std::string> JournalSender::HeaderOf(const std::string& worker) const {
  const std::string path = PathOf(worker);
  if (path.empty()) return std::nullopt;
  const auto file = base::LocalFileSystem().OpenReadable(path);
  if (!file.ok()) return std::nullopt;
  auto page = ReadHeader(**file);
  const auto size = (*file)->Size();
  if (!page.ok() || !size.ok()) return std::nullopt;
  if (!format::CheckJournalHeader(std::as_bytes(std::span(*page)), *size).ok()) return std::nullopt;
  return *std::move(page);
}

Result<uint64_t> JournalSender::Send(const std::string& worker, const std::string& header) {
  Journal* const journal = &journals_[worker];
  const std::string path = PathOf(worker);
  if (path.empty()) return 0;
  const auto file = base::LocalFileSystem().OpenReadable(path);
  struct stat now;
  if (!file.ok() || ::stat(path.c_str(), &now) != 0) return 0;
  const uint64_t committed = CommittedOf(header), sealed = std::min(SealedOf(header), committed);
  const uint64_t ring = U64At(header, 16);
  const bool anew = journal->counter == 0 || journal->inode != now.st_ino ||
                    journal->writer_id != U64At(header, 24) || committed < journal->committed_pos;
  if (anew) {
    journal->stale.insert(journal->stale.end(), journal->parts.begin(), journal->parts.end());
    journal->parts.clear();
    ++journal->epoch;
    journal->counter = 0;
    journal->inode = now.st_ino;
    journal->writer_id = U64At(header, 24);
    journal->committed_pos = sealed;
  } else if (journal->committed_pos == committed && journal->sealed_pos == sealed &&
             journal->ended == EndedOf(header)) {
    return 0;
  }
  JournalPart part;
  part.epoch = journal->epoch;
  part.counter = journal->counter + 1;
  part.from = std::max(journal->committed_pos, sealed);
  part.to = committed;
  if (journal->parts.size() >= kMaxParts && part.from == journal->committed_pos)
    part.from = std::max(sealed, JoinedFrom(journal->parts, part.from, committed));
  if (part.to - part.from > kMaxPartBytes || ring == 0) return 0;
  std::string bytes = header;
  bytes.resize(header.size() + (part.to - part.from));
  for (uint64_t at = part.from; at < part.to;) {
    const uint64_t stretch = std::min(part.to - at, ring - at % ring);
    const auto out =
        std::as_writable_bytes(std::span(bytes)).subspan(header.size() + (at - part.from), stretch);
    TDBG_ASSIGN_OR_RETURN(const size_t got, (*file)->ReadAt(format::kJournalHeaderBytes + at % ring, out));
    if (got != stretch) return 0;  // the journal was replaced by another one
    at += stretch;
  }
  TDBG_ASSIGN_OR_RETURN(const std::string after, ReadHeader(**file));
  // The ring overwrote it while it was read: the next look finds its segment.
  if (SealedOf(after) > part.from && part.to > part.from) return 0;
  TDBG_RETURN_IF_ERROR(store_->Put(KeyOf(worker, part), std::as_bytes(std::span(bytes))).status());
  journal->counter = part.counter;
  journal->committed_pos = committed;
  journal->sealed_pos = sealed;
  journal->ended = EndedOf(header);
  journal->parts.push_back(part);
  TidyUp(worker, journal);
  return bytes.size();
}

// Without the permission to delete they stay; they cost readers nothing.
void JournalSender::TidyUp(const std::string& worker, Journal* journal) {
  const std::vector<JournalPart> cover = CoverOf(journal->parts, journal->sealed_pos);
  std::erase_if(journal->parts, [&](const JournalPart& old) {
    if (std::ranges::find(cover, old) != cover.end()) return false;
    journal->stale.push_back(old);
    return true;
  });
  while (!journal->stale.empty() && store_->Delete(KeyOf(worker, journal->stale.back())).ok())
    journal->stale.pop_back();
}

}  // namespace tdbg::storage

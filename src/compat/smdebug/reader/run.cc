#include "compat/smdebug/reader/run.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>

#include "base/clock.h"
#include "base/file.h"
#include "base/text.h"
#include "compat/smdebug/reader/names.h"
#include "compat/smdebug/reader/record_reader.h"
#include "compat/smdebug/reader/worker.h"

namespace tdbg::compat::smdebug {
namespace {

// Index folders hold no folders; a little more is forgiven, a loop of mounts is not.
constexpr int kMaxDepth = 4;
// Some file systems tell times by the second or two: a folder that changed so shortly before it was listed
// may have changed again without showing it.
constexpr int64_t kTimeGrainNanos = 2'000'000'000;
// With the end marker there, workers that are behind are taken for dead after this long without news.
constexpr int64_t kStragglerNanos = 60'000'000'000;
// A run without end marker, whose processes nobody can ask, is taken for dead after this many of its longest
// pauses, but not before the first of these times; the second holds while its pace is not known.
constexpr int64_t kPausesOfSilence = 20;
constexpr int64_t kLeastSilenceNanos = 600'000'000'000, kUnpacedSilenceNanos = 21'600'000'000'000;
constexpr size_t kPausesThatTell = 2;

int64_t NowNanos() { return base::SystemClock().WallNanos(); }

std::string Below(std::string_view folder, std::string_view name) { return base::JoinPath(folder, name); }

}  // namespace

bool Run::IsAt(const std::string& path) {
  auto root = Root::Open(path);
  if (!root.ok()) return false;
  const auto has = [&root](std::string_view name) {
    return root->SignatureOf(std::string(name)) != Signature();
  };
  // Anybody may have a folder called index; with one called events beside it, it is smdebug's.
  return has(kCollectionsDir) || has(kEndFile) || has(kClaimFile) || (has(kIndexDir) && has(kEventsDir));
}

Result<std::shared_ptr<Run>> Run::Open(const std::string& path) {
  TDBG_ASSIGN_OR_RETURN(Root root, Root::Open(path));
  std::shared_ptr<Run> run(new Run(std::move(root)));
  TDBG_RETURN_IF_ERROR(run->Refresh().status());
  return run;
}

Result<bool> Run::Refresh() {
  bool news = false;
  // Looked at first: what is found afterwards is all that was there when it ended.
  const Signature end = root_.SignatureOf(std::string(kEndFile));
  if (!end_marker_ && end != Signature()) {
    end_marker_ = news = true;
    newest_nanos_ = std::max(newest_nanos_, end.modified_nanos);
  }
  news |= ReadCollections();
  if (!TooEarly()) TDBG_RETURN_IF_ERROR(ReadIndex(std::string(kIndexDir), 0, &news));
  if (!end_marker_) {
    // A step that is being written has a folder there before it has an index file.
    newest_nanos_ = std::max(newest_nanos_, root_.SignatureOf(std::string(kEventsDir)).modified_nanos);
  }
  const bool silent = LookSilent();
  news |= silent != silent_;
  silent_ = silent;
  bool over = silent_ || (end_marker_ && !parts_.empty());
  for (size_t i = 0; over && !silent_ && i < parts_.size(); ++i) over = ended(i);
  if (over && !salvaged_) news |= Salvage();
  salvaged_ = over;
  return news;
}

bool Run::LookSilent() const {
  if (end_marker_ || parts_.empty()) return false;
  // A pause of days says nothing about a training's pace, and times twenty it would not fit.
  constexpr int64_t kLongestPauseNanos = 86'400'000'000'000;
  const int64_t pause = std::min(longest_pause_nanos_, kLongestPauseNanos);
  const int64_t paced = std::max(kLeastSilenceNanos, kPausesOfSilence * pause);
  return NowNanos() - newest_nanos_ > (pauses_ < kPausesThatTell ? kUnpacedSilenceNanos : paced);
}

bool Run::Salvage() {
  const auto folders = root_.List(std::string(kEventsDir));
  if (!folders.ok()) return false;
  bool news = false;
  for (const Root::Entry& folder : *folders) {
    const auto step = base::ParseInt(folder.name);
    if (!folder.is_directory || !step || *step < 0) continue;
    if (std::all_of(parts_.begin(), parts_.end(), [&](const auto& part) { return part->Has(*step); }))
      continue;
    const std::string inside = Below(kEventsDir, folder.name);
    const auto entries = root_.List(inside);
    if (!entries.ok()) continue;
    for (const Root::Entry& entry : *entries) {
      auto parsed = ParseStepFileName(entry.name, ".tfevents");
      if (!parsed) parsed = ParseStepFileName(entry.name, ".tfevents.tmp");
      if (entry.is_directory || !parsed || parsed->step != *step) continue;
      const auto part = parts_by_name_.find(parsed->worker);
      // A name that appears in this file only is no worker of this run.
      if (part == parts_by_name_.end() || parts_[part->second]->Has(*step)) continue;
      news |= SalvageFile(Below(inside, entry.name), *step, part->second);
    }
  }
  return news;
}

bool Run::SalvageFile(const std::string& file, int64_t step, size_t part) {
  RecordReader records(root_);
  IndexFile found;
  std::deque<std::string> names;  // the index borrows them
  uint64_t offset = 0;
  std::string cut;
  for (;;) {
    const auto bytes = records.BytesAt(file, offset);
    if (bytes.ok() && *bytes == 0) break;
    const auto record = bytes.ok() ? records.Read(file, offset, *bytes) : Result<Record>(bytes.status());
    if (!record.ok()) {
      cut = record.status().message();
      break;
    }
    if (names.empty()) {
      found.mode = record->mode;
      found.mode_step = std::max<int64_t>(record->mode_step, 0);
    }
    found.payloads.push_back({names.emplace_back(record->tag), offset, *bytes});
    offset += *bytes;
  }
  const Signature signature = root_.SignatureOf(file);
  Reject(file, signature,
         fmt::format("left by a writer that was killed: {} whole records{}", names.size(),
                     cut.empty() ? ", and nothing tells whether that was all" : "; then " + cut));
  if (names.empty()) return false;
  found.event_file = file;
  parts_[part]->Add(step, signature.modified_nanos, found, collections_);
  salvaged_steps_.emplace(part, step);
  return true;
}

// The first index file comes shortly before the collections file, and a tensor's collections are settled when
// it is first seen. Whoever dies in between still has its steps read, a minute later.
bool Run::TooEarly() const {
  if (num_workers_ != 0 || end_marker_) return false;
  const Signature index = root_.SignatureOf(std::string(kIndexDir));
  return NowNanos() - index.modified_nanos < kStragglerNanos;
}

bool Run::ReadCollections() {
  const std::string folder(kCollectionsDir);
  const Signature signature = root_.SignatureOf(folder);
  Folder& seen = folders_[folder];
  if (seen.signature == signature && seen.listed_nanos - signature.modified_nanos > kTimeGrainNanos)
    return false;
  seen = {signature, NowNanos()};
  const auto entries = root_.List(folder);
  if (!entries.ok()) return false;
  bool news = false;
  for (const Root::Entry& entry : *entries) {
    const auto worker = ParseCollectionsFileName(entry.name);
    if (entry.is_directory || !worker) continue;
    const std::string file = Below(folder, entry.name);
    const Signature now = root_.SignatureOf(file);
    Signature& before = collections_files_[file];
    if (before == now) continue;
    before = now;
    std::vector<char> text;
    const auto read = root_.Read(file, 0, &text);
    auto decoded = read.ok() ? DecodeCollectionsFile({text.data(), text.size()}) : read.status();
    if (!decoded.ok()) {
      Reject(file, now, decoded.status().message());
      continue;
    }
    rejected_.erase(file);
    for (std::string& complaint : collections_.Add(*decoded)) complaints_.push_back(std::move(complaint));
    num_workers_ = std::max(num_workers_, decoded->num_workers);
    PartOfCollections(worker->empty() ? "worker_0" : *worker);
    newest_nanos_ = std::max(newest_nanos_, now.modified_nanos);
    news = true;
  }
  return news;
}

Status Run::ReadIndex(const std::string& folder, int depth, bool* news) {
  const Signature signature = root_.SignatureOf(folder);
  const auto seen = folders_.find(folder);
  const bool unchanged = seen != folders_.end() && seen->second.signature == signature &&
                         seen->second.listed_nanos - signature.modified_nanos > kTimeGrainNanos;
  if (depth > 0 && unchanged) return OkStatus();
  const int64_t listed_nanos = NowNanos();
  TDBG_ASSIGN_OR_RETURN(const std::vector<Root::Entry> entries, root_.List(folder));
  for (const Root::Entry& entry : entries) {
    if (entry.is_directory) {
      if (depth < kMaxDepth) TDBG_RETURN_IF_ERROR(ReadIndex(Below(folder, entry.name), depth + 1, news));
    } else if (entry.name.ends_with(".json")) {
      *news |= ReadIndexFile(folder, entry.name);
    }
  }
  folders_[folder] = {signature, listed_nanos};
  return OkStatus();
}

bool Run::ReadIndexFile(const std::string& folder, const std::string& name) {
  const auto parsed = ParseStepFileName(name, ".json");
  if (parsed && parsed->step >= 0) {
    const auto known = parts_by_name_.find(parsed->worker);
    if (known != parts_by_name_.end() && parts_[known->second]->Has(parsed->step) &&
        !salvaged_steps_.contains({known->second, parsed->step})) {
      return false;
    }
  }
  const std::string file = Below(folder, name);
  if (!rejected_.empty()) {
    const auto rejected = rejected_.find(file);
    if (rejected != rejected_.end() && rejected->second.signature == root_.SignatureOf(file)) return false;
  }
  if (!parsed || parsed->step < 0) {
    Reject(file, root_.SignatureOf(file),
           parsed ? "a step below 0: what was saved before the first step has no place among the steps"
                  : "not the name of an index file (STEP_WORKER.json)");
    return false;
  }
  const auto signature = root_.Read(file, IndexDecoder::Padding(), &buffer_);
  if (!signature.ok()) {
    Reject(file, root_.SignatureOf(file), signature.status().message());
    return false;
  }
  const auto decoded = decoder_.Decode({buffer_.data(), static_cast<size_t>(signature->bytes)});
  if (!decoded.ok()) {
    Reject(file, *signature, decoded.status().message());
    return false;
  }
  rejected_.erase(file);
  const size_t index = PartOfIndex(parsed->worker);
  Part& part = *parts_[index];
  if (salvaged_steps_.erase({index, parsed->step}) != 0) {
    // The writer was alive after all: its finished file replaces what was salvaged from the unfinished one.
    rejected_.erase(part.EventFileOf(part.file_of(*part.Find(parsed->step))));
  }
  if (part.last_wall_nanos() != 0 && signature->modified_nanos > part.last_wall_nanos()) {
    longest_pause_nanos_ = std::max(longest_pause_nanos_, signature->modified_nanos - part.last_wall_nanos());
    ++pauses_;
  }
  part.Add(parsed->step, signature->modified_nanos, **decoded, collections_);
  index_bytes_ += signature->bytes;
  newest_nanos_ = std::max(newest_nanos_, signature->modified_nanos);
  return true;
}

void Run::Reject(const std::string& file, const Signature& signature, std::string what) {
  rejected_[file] = {signature, std::move(what)};
}

size_t Run::NewPart(std::string_view name_in_files) {
  constexpr std::string_view kRanked = "worker_";
  auto rank = static_cast<int64_t>(parts_.size());
  if (name_in_files.starts_with(kRanked)) {
    const auto number = base::ParseInt(name_in_files.substr(kRanked.size()));
    if (number && *number >= 0) rank = *number;
  }
  parts_.push_back(std::make_unique<Part>(std::string(name_in_files), DecodeWorker(name_in_files), rank));
  parts_by_name_[std::string(name_in_files)] = parts_.size() - 1;
  return parts_.size() - 1;
}

size_t Run::PartOfIndex(std::string_view name_in_files) {
  const auto known = parts_by_name_.find(name_in_files);
  if (known != parts_by_name_.end()) return known->second;
  if (static_cast<int64_t>(parts_.size()) >= num_workers_) {
    // All workers are there that the collections files speak of: one of them that has no step is this one.
    for (const auto& [name, part] : described_) {
      const auto by_name = parts_by_name_.find(name);
      if (by_name == parts_by_name_.end() || by_name->second != part) continue;
      if (!parts_[part]->commits().empty()) continue;
      parts_by_name_.erase(by_name);
      parts_by_name_[std::string(name_in_files)] = part;
      parts_[part]->Rename(std::string(name_in_files), DecodeWorker(name_in_files));
      return part;
    }
  }
  return NewPart(name_in_files);
}

size_t Run::PartOfCollections(std::string_view name_in_files) {
  if (const auto known = described_.find(name_in_files); known != described_.end()) return known->second;
  size_t part = parts_.size();
  if (const auto same = parts_by_name_.find(name_in_files); same != parts_by_name_.end()) {
    part = same->second;
  } else if (static_cast<int64_t>(parts_.size()) >= num_workers_) {
    // A worker that wrote steps before, and of which no collections file speaks.
    for (size_t i = 0; i < parts_.size() && part == parts_.size(); ++i) {
      const bool is_described = std::any_of(described_.begin(), described_.end(),
                                            [i](const auto& named) { return named.second == i; });
      if (!is_described) part = i;
    }
  }
  if (part == parts_.size()) part = NewPart(name_in_files);
  described_.emplace(std::string(name_in_files), part);
  return part;
}

std::unique_ptr<store::WorkerReader> Run::OpenWorker(size_t worker) {
  return MakeWorkerReader(shared_from_this(), worker);
}

int64_t Run::world_size() const {
  return std::max({num_workers_, static_cast<int64_t>(parts_.size()), int64_t{1}});
}

bool Run::ended(size_t worker) const {
  if (!end_marker_) return false;
  const auto last = [](const Part& part) {
    return part.commits().empty() ? -1 : part.commits().back().global_step;
  };
  int64_t furthest = -1;
  for (const auto& part : parts_) furthest = std::max(furthest, last(*part));
  return last(*parts_[worker]) == furthest || NowNanos() - newest_nanos_ > kStragglerNanos;
}

std::vector<store::Damage> Run::damage() const {
  std::vector<store::Damage> out;
  for (const auto& [file, rejected] : rejected_)
    out.push_back({file, rejected.what, rejected.signature.bytes});
  for (const std::string& complaint : complaints_)
    out.push_back({std::string(kCollectionsDir), complaint, 0});
  return out;
}

std::vector<std::string> Run::doorbells() const {
  std::vector<std::string> out{root_.path(), Below(root_.path(), kCollectionsDir),
                               Below(root_.path(), kIndexDir)};
  // Steps are written in order: the newest folder is where news comes.
  for (auto it = folders_.rbegin(); it != folders_.rend(); ++it) {
    if (it->first.starts_with(std::string(kIndexDir) + "/")) {
      out.push_back(Below(root_.path(), it->first));
      break;
    }
  }
  return out;
}

}  // namespace tdbg::compat::smdebug

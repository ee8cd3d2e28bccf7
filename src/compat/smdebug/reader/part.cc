#include "compat/smdebug/reader/part.h"

#include <algorithm>
#include <limits>

#include "compat/smdebug/reader/names.h"

namespace tdbg::compat::smdebug {
namespace {

bool Before(const format::Commit& commit, int64_t step) { return commit.global_step < step; }

// What rules ask of a tensor's kind; smdebug has collections instead.
std::string KindFor(std::string_view name, const std::vector<std::string>& collections) {
  static constexpr std::pair<std::string_view, std::string_view> kKinds[] = {
      {"gradients", "gradient"}, {"losses", "loss"},        {"biases", "bias"},
      {"weights", "weight"},     {"labels", "label"},       {"optimizer_variables", "optimizer"},
      {"metrics", "metric"},     {"predictions", "output"},
  };
  for (const auto& [collection, kind] : kKinds) {
    if (std::binary_search(collections.begin(), collections.end(), collection)) return std::string(kind);
  }
  if (name.find("_output_") != std::string_view::npos) return "output";
  if (name.find("_input_") != std::string_view::npos) return "input";
  return "";
}

}  // namespace

Part::Part(std::string name_in_files, std::string name, int64_t rank)
    : name_in_files_(std::move(name_in_files)), name_(std::move(name)), rank_(rank) {}

std::optional<size_t> Part::Find(int64_t step) const {
  if (commits_.empty() || commits_.back().global_step < step) return std::nullopt;
  const auto at = std::lower_bound(commits_.begin(), commits_.end(), step, Before);
  if (at->global_step != step) return std::nullopt;
  return static_cast<size_t>(at - commits_.begin());
}

uint32_t Part::TensorOf(std::string_view name, const Collections& collections) {
  const auto it = names_.find(name);
  if (it != names_.end() && it->second.kind == EntryKind::kRaw) return it->second.tensor;
  format::TensorDef def;
  def.id = static_cast<uint32_t>(tensors_.size());
  def.name = name;
  def.collections = collections.Of(name);
  def.kind = KindFor(name, def.collections);
  def.variable_shape = true;  // nothing says that it is not
  const uint32_t tensor = def.id;
  tensors_.push_back(std::move(def));
  names_.emplace(name, Named{tensor, EntryKind::kRaw});
  return tensor;
}

EntryKind Part::KindOf(std::string_view operation, bool absolute) {
  const auto known = std::find_if(operations_.begin(), operations_.end(), [&](const Operation& o) {
    return o.name == operation && o.absolute == absolute;
  });
  const auto index = static_cast<size_t>(known - operations_.begin());
  constexpr auto kFirst = static_cast<size_t>(EntryKind::kFirstReduction);
  // Names of operations come from the file as well: once there are more than a kind can number, the rest
  // share the last number.
  if (known == operations_.end() && index < std::numeric_limits<uint16_t>::max() - kFirst) {
    operations_.push_back({std::string(operation), absolute});
  }
  return static_cast<EntryKind>(kFirst + std::min(index, operations_.size() - 1));
}

const Part::NameTable::value_type& Part::Intern(std::string_view name, const Collections& collections) {
  if (const auto it = names_.find(name); it != names_.end()) return *it;
  Named named;
  if (const auto reduction = ParseReductionName(name)) {
    named.kind = KindOf(reduction->operation, reduction->absolute);
    named.tensor = TensorOf(reduction->tensor, collections);
  } else {
    TensorOf(name, collections);
    return *names_.find(name);
  }
  return *names_.emplace(name, named).first;
}

uint32_t Part::ShapeOf(std::span<const int64_t> extents) {
  std::vector<int64_t> shape(extents.begin(), extents.end());
  const auto [it, is_new] = shape_indices_.try_emplace(shape, static_cast<uint32_t>(shapes_.size()));
  if (is_new) shapes_.push_back(std::move(shape));
  return it->second;
}

void Part::Add(int64_t step, int64_t wall_nanos, const IndexFile& file, const Collections& collections) {
  StepFile own;
  own.step = step;
  own.first_entry = static_cast<uint32_t>(entries_.size());
  if (!file.event_file.empty() && file.event_file != EventFileName(step, name_in_files_)) {
    event_files_.emplace_back(file.event_file);
    own.event_file = static_cast<uint32_t>(event_files_.size());
  }
  format::Commit commit;
  uint64_t event_bytes = 0;
  if (expected_.size() < file.payloads.size()) expected_.resize(file.payloads.size(), nullptr);
  for (size_t i = 0; i < file.payloads.size(); ++i) {
    const IndexFile::Payload& payload = file.payloads[i];
    if (expected_[i] == nullptr || expected_[i]->first != payload.tensor) {
      expected_[i] = &Intern(payload.tensor, collections);
    }
    Entry entry;
    entry.tensor = expected_[i]->second.tensor;
    entry.kind = expected_[i]->second.kind;
    entry.offset = payload.offset;
    entry.bytes = payload.bytes;
    entries_.push_back(entry);
    commit.raw_tensors += entry.kind == EntryKind::kRaw;
    ++commit.summary_rows;  // at most: values have statistics, and reductions are some
    if (payload.offset <= std::numeric_limits<uint64_t>::max() - payload.bytes) {
      event_bytes = std::max(event_bytes, payload.offset + payload.bytes);
    }
  }
  for (const IndexFile::Shape& shape : file.shapes) {
    Entry entry;
    entry.tensor = TensorOf(shape.tensor, collections);
    entry.kind = EntryKind::kShape;
    entry.offset = ShapeOf(std::span(file.extents).subspan(shape.first, shape.rank));
    entries_.push_back(entry);
    format::TensorDef& def = tensors_[entry.tensor];
    if (def.shape.empty()) def.shape = shapes_[entry.offset];
    if (!shape.original_name.empty() && shape.original_name != shape.tensor && def.aliases.empty()) {
      def.aliases.emplace_back(shape.original_name);
    }
  }
  own.entry_count = static_cast<uint32_t>(entries_.size()) - own.first_entry;
  // A hostile index may claim any length: the length is stored, nothing is allocated for it.
  event_bytes_ += std::min(event_bytes, uint64_t{1} << 50);
  last_wall_nanos_ = std::max(last_wall_nanos_, wall_nanos);

  commit.global_step = step;
  commit.mode = static_cast<uint16_t>(file.mode);
  commit.mode_step = file.mode_step;
  commit.wall_nanos = wall_nanos;
  const auto at = commits_.empty() || commits_.back().global_step < step
                      ? commits_.end()
                      : std::lower_bound(commits_.begin(), commits_.end(), step, Before);
  const auto index = at - commits_.begin();
  if (at != commits_.end()) ++reordered_;
  const auto file_index = static_cast<uint32_t>(files_.size());
  if (at != commits_.end() && at->global_step == step) {
    *at = commit;
    commit_files_[static_cast<size_t>(index)] = file_index;
  } else {
    commits_.insert(at, commit);
    commit_files_.insert(commit_files_.begin() + index, file_index);
  }
  files_.push_back(own);
}

std::string Part::EventFileOf(const StepFile& file) const {
  return file.event_file == 0 ? EventFileName(file.step, name_in_files_) : event_files_[file.event_file - 1];
}

bool Part::IsNameOf(std::string_view name, const Entry& entry) const {
  const auto it = names_.find(name);
  return it != names_.end() && it->second.tensor == entry.tensor && it->second.kind == entry.kind;
}

}  // namespace tdbg::compat::smdebug

#include "compat/smdebug/writer/run_directory.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/text.h"
#include "compat/smdebug/writer/values.h"
#include "tfevents/event_writer.h"

namespace tdbg::smdebug {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kCollectionsFolder[] = "collections/000000000";
constexpr char kEndMarker[] = "training_job_end.ts";
constexpr int64_t kStepsPerIndexFolder = 1000;
constexpr size_t kBufferBytes = 256u << 10;

std::string StepName(int64_t step) { return fmt::format("{:012}", step); }

// A device's name ("/replica:0/task:0") becomes part of a file's; its readers turn it back.
std::string FileNameOf(std::string_view worker) {
  std::string name(worker);
  std::replace(name.begin(), name.end(), '/', '_');
  std::replace(name.begin(), name.end(), ':', '-');
  return name;
}

std::string Dumped(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

// A reduction belongs to a tensor by its name; smdebug's readers look for it without TensorFlow's ":0".
std::string WithoutOutputNumbers(std::string_view name) {
  std::string out;
  for (size_t i = 0; i < name.size(); ++i) {
    if (name[i] == ':') {
      size_t end = i + 1;
      while (end < name.size() && name[end] >= '0' && name[end] <= '9') ++end;
      if (end > i + 1) {
        i = end - 1;
        continue;
      }
    }
    out += name[i];
  }
  return out;
}

Json ScheduleJson(const SaveSchedule& schedule) {
  return {{"save_interval", schedule.interval},
          {"save_steps", schedule.steps},
          {"start_step", schedule.start},
          {"end_step", schedule.end ? Json(*schedule.end) : Json(nullptr)}};
}

// All four modes or nothing: its reader refuses to answer for any mode while one of them is null.
Json SaveConfigJson(const CollectionEntry& entry) {
  const bool any = std::any_of(std::begin(entry.modes), std::end(entry.modes),
                               [](const auto& schedule) { return schedule.has_value(); });
  if (!any) return nullptr;
  Json modes;
  for (int mode = 1; mode <= 4; ++mode) {
    modes[std::string(ModeName(mode))] = ScheduleJson(entry.modes[mode].value_or(SaveSchedule{}));
  }
  return modes;
}

Json CollectionJson(const CollectionEntry& entry) {
  return {{"name", entry.name},
          {"include_regex", entry.include_regex},
          {"tensor_names", entry.tensor_names},
          {"reduction_config",
           {{"save_raw_tensor", entry.save_raw},
            {"reductions", fmt::format("{}", fmt::join(entry.reductions, ","))},
            {"save_shape", entry.save_shape}}},
          {"save_config", SaveConfigJson(entry)},
          {"save_histogram", entry.save_histogram}};
}

}  // namespace

std::string_view ModeName(int mode) {
  switch (mode) {
    case 1:
      return "TRAIN";
    case 2:
      return "EVAL";
    case 3:
      return "PREDICT";
    default:
      return "GLOBAL";
  }
}

struct StepFiles::Impl {
  base::FileSystem* files = nullptr;
  std::string root, worker;
  int64_t step = 0;
  Moment now;                   // of the records that follow
  std::optional<Moment> first;  // of the first record; while there is none, of the first shape

  std::unique_ptr<base::PendingFile> events;
  std::string buffer;  // of the event file, not yet written: most records are tiny
  uint64_t offset = 0;
  Json payload = Json::array(), shapes = Json::array();
  // Mode and its step, as smdebug writes them into every record (its readers take the index's).
  std::vector<std::pair<std::string, std::string>> plugins;

  std::string EventsFolder() const { return "events/" + StepName(step); }
  std::string EventsName() const {
    return fmt::format("{}/{}_{}.tfevents", EventsFolder(), StepName(step), worker);
  }
  std::string IndexFolder() const { return fmt::format("index/{:09}", step / kStepsPerIndexFolder); }
  std::string Path(const std::string& name) const { return base::JoinPath(root, name); }

  Status WriteBuffer() {
    TDBG_RETURN_IF_ERROR(events->Write(std::as_bytes(std::span(buffer))));
    buffer.clear();
    return OkStatus();
  }

  Status Append(std::string_view name, DType dtype, std::span<const int64_t> shape,
                std::span<const std::byte> content) {
    return Append(name,
                  tfevents::FrameTensor(now.wall_seconds, step, name, dtype, shape, content.size(), plugins),
                  content);
  }

  Status Append(std::string_view name, const tfevents::TensorRecord& record,
                std::span<const std::byte> content) {
    if (!events) {
      TDBG_RETURN_IF_ERROR(files->CreateDirectories(Path(EventsFolder())));
      TDBG_ASSIGN_OR_RETURN(events, files->CreatePending(Path(EventsName()) + ".tmp"));
    }
    buffer += record.before;
    if (content.size() >= kBufferBytes) {
      TDBG_RETURN_IF_ERROR(WriteBuffer());
      TDBG_RETURN_IF_ERROR(events->Write(content));
    } else {
      buffer.append(reinterpret_cast<const char*>(content.data()), content.size());
    }
    buffer += record.after;
    if (buffer.size() >= kBufferBytes) TDBG_RETURN_IF_ERROR(WriteBuffer());
    if (now.indexed) {
      if (payload.empty()) first = now;
      payload.push_back({{"tensorname", name}, {"start_idx", offset}, {"length", record.bytes}});
    }
    offset += record.bytes;
    return OkStatus();
  }
};

StepFiles::StepFiles(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
StepFiles::~StepFiles() = default;
StepFiles::StepFiles(StepFiles&&) noexcept = default;
StepFiles& StepFiles::operator=(StepFiles&&) noexcept = default;

void StepFiles::SetMoment(const Moment& moment) {
  impl_->now = moment;
  impl_->plugins = {{"mode_step", std::to_string(moment.mode_step)}, {"mode", std::to_string(moment.mode)}};
}

Result<bool> StepFiles::AddTensor(std::string_view name, const TensorView& value) {
  if (value.element_count() == 0) return false;
  if (value.dtype == DType::kText) {
    return AddTexts(name, TextsOf(value));
  }
  const ReadableValue readable = MakeReadable(value);
  TDBG_RETURN_IF_ERROR(impl_->Append(name, readable.dtype, value.shape, readable.bytes()));
  return true;
}

Result<bool> StepFiles::AddTexts(std::string_view name, std::span<const std::string> texts) {
  if (texts.empty()) return false;
  TDBG_RETURN_IF_ERROR(impl_->Append(
      name, tfevents::FrameTexts(impl_->now.wall_seconds, impl_->step, name, texts, impl_->plugins), {}));
  return true;
}

void StepFiles::AddShape(std::string_view name, std::string_view original_name,
                         std::span<const int64_t> shape) {
  if (!impl_->first) impl_->first = impl_->now;
  impl_->shapes.push_back({{"tensorname", name},
                           {"originalname", original_name},
                           {"shape", std::vector<int64_t>(shape.begin(), shape.end())}});
}

Status StepFiles::AddReduction(std::string_view reduction, std::string_view name, DType dtype, double value) {
  const std::string full = fmt::format("smdebug/reductions/{}/{}", reduction, WithoutOutputNumbers(name));
  if (dtype == DType::kFloat32) {
    const auto number = static_cast<float>(value);
    return impl_->Append(full, dtype, {}, std::as_bytes(std::span(&number, 1)));
  }
  return impl_->Append(full, DType::kFloat64, {}, std::as_bytes(std::span(&value, 1)));
}

size_t StepFiles::records() const { return impl_->payload.size(); }
uint64_t StepFiles::bytes() const { return impl_->offset; }

std::string StepFiles::event_path() const { return impl_->Path(impl_->EventsName()); }

Status StepFiles::Close() {
  Json meta;
  if (impl_->first) {
    meta = {{"mode", ModeName(impl_->first->mode)}, {"mode_step", impl_->first->mode_step}};
  }
  if (impl_->events) {
    const std::string name = impl_->EventsName();
    TDBG_RETURN_IF_ERROR(impl_->WriteBuffer());
    TDBG_RETURN_IF_ERROR(impl_->events->Publish(impl_->Path(name), /*durable=*/false));
    impl_->events.reset();
    meta["event_file_name"] = name;
  }
  if (!impl_->first) return OkStatus();
  const Json index = {{"meta", std::move(meta)},
                      {"tensor_payload", std::move(impl_->payload)},
                      {"shape_payload", std::move(impl_->shapes)}};
  TDBG_RETURN_IF_ERROR(impl_->files->CreateDirectories(impl_->Path(impl_->IndexFolder())));
  const std::string index_name =
      fmt::format("{}/{}_{}.json", impl_->IndexFolder(), StepName(impl_->step), impl_->worker);
  return impl_->files->WriteFileAtomic(impl_->Path(index_name), Dumped(index));
}

Result<RunDirectory> RunDirectory::Create(const std::string& path, base::FileSystem& files) {
  for (const char* folder : {kCollectionsFolder, "events", "index"}) {
    TDBG_RETURN_IF_ERROR(files.CreateDirectories(base::JoinPath(path, folder)));
  }
  return RunDirectory(path, files);
}

Status RunDirectory::WriteCollections(std::string_view worker,
                                      const std::vector<CollectionEntry>& collections, int64_t workers) {
  // Only these two keys at the top: its reader refuses a file with any other.
  Json document;
  document["collections"] = Json::object();
  for (const CollectionEntry& entry : collections)
    document["collections"][entry.name] = CollectionJson(entry);
  document["_meta"] = {{"num_workers", workers}};
  const std::string name = fmt::format("{}/{}_collections.json", kCollectionsFolder, FileNameOf(worker));
  return files_->WriteFileAtomic(base::JoinPath(path_, name), Dumped(document));
}

Result<StepFiles> RunDirectory::OpenStep(int64_t step, int mode, int64_t mode_step, std::string_view worker,
                                         double wall_seconds) {
  if (step < 0 || mode_step < 0) {
    return InvalidArgument(
        fmt::format("smdebug counts steps from 0: found step {}, mode step {}", step, mode_step));
  }
  auto impl = std::make_unique<StepFiles::Impl>();
  impl->files = files_;
  impl->root = path_;
  impl->worker = FileNameOf(worker);
  impl->step = step;
  StepFiles step_files(std::move(impl));
  step_files.SetMoment({mode, mode_step, wall_seconds});
  return step_files;
}

Status WriteEnd(const std::string& path, base::FileSystem& files) {
  return files.WriteFileAtomic(base::JoinPath(path, kEndMarker), "");
}

Status RemoveEnd(const std::string& path, base::FileSystem& files) {
  const std::string marker = base::JoinPath(path, kEndMarker);
  return files.Exists(marker) ? files.Remove(marker) : OkStatus();
}

Status RunDirectory::Rewind(int64_t step) {
  TDBG_RETURN_IF_ERROR(RemoveEnd(path_, *files_));
  // Readers find events through the index only, so that is what has to go.
  const std::string index = base::JoinPath(path_, "index");
  TDBG_ASSIGN_OR_RETURN(const std::vector<base::DirEntry> folders, files_->List(index));
  for (const base::DirEntry& folder : folders) {
    const auto number = base::ParseInt(folder.name);
    if (!folder.is_directory || !number || *number < step / kStepsPerIndexFolder) continue;
    const std::string inside = base::JoinPath(index, folder.name);
    TDBG_ASSIGN_OR_RETURN(const std::vector<base::DirEntry> entries, files_->List(inside));
    for (const base::DirEntry& entry : entries) {
      const auto at = base::ParseInt(entry.name.substr(0, entry.name.find('_')));
      if (!at || *at < step) continue;
      TDBG_RETURN_IF_ERROR(files_->Remove(base::JoinPath(inside, entry.name)));
    }
  }
  return OkStatus();
}

}  // namespace tdbg::smdebug

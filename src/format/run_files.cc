#include "format/run_files.h"

#include <cstring>
#include <limits>

#include "base/bytes.h"
#include "format/json_fields.h"
#include "format/keys.h"

namespace tdbg::format {
namespace {

constexpr int64_t kForEver = std::numeric_limits<int64_t>::max();
constexpr int64_t kMaxWorkers = 1 << 20;  // more is no world: whoever counts absent ranks would not end

void GetOptional(const Json& json, const char* key, int64_t least, int64_t most,
                 std::optional<int64_t>* out) {
  int64_t number = 0;
  if (GetField(json, key, &number) && number >= least && number <= most) *out = number;
}

void GetModeSteps(const Json& json, std::map<std::string, int64_t>* out) {
  const auto modes = json.find("mode_step_bases");
  if (modes == json.end() || !modes->is_object()) return;
  for (const auto& [mode, step] : modes->items()) {
    const auto known = ModeFromName(mode);
    if (known && step.is_number_integer() && step.get<int64_t>() >= 0)
      (*out)[std::string(ModeName(*known))] = step.get<int64_t>();
  }
}

// For people too: these files are read with a pager.
std::string Pretty(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

Result<Json> ParseVersioned(std::string_view text, std::string_view file) {
  TDBG_ASSIGN_OR_RETURN(Json json, ParseJsonObject(text, file));
  TDBG_RETURN_IF_ERROR(CheckFormatVersion(json, file));
  return json;
}

}  // namespace

std::string RunInfo::ToJson() const {
  return Pretty(Json{{"format", FormatVersionJson()},
                     {"kind", "run"},
                     {"id", id},
                     {"name", name},
                     {"tdbg_version", tdbg_version},
                     {"command", command},
                     {"working_directory", working_directory},
                     {"created_wall_nanos", created_wall_nanos}});
}

Result<RunInfo> RunInfo::FromJson(std::string_view text) {
  TDBG_ASSIGN_OR_RETURN(const Json json, ParseVersioned(text, kRunFile));
  RunInfo info;
  if (!GetField(json, "id", &info.id)) return DataLoss("run.json: no id");
  GetField(json, "name", &info.name);
  GetField(json, "tdbg_version", &info.tdbg_version);
  GetField(json, "command", &info.command);
  GetField(json, "working_directory", &info.working_directory);
  GetField(json, "created_wall_nanos", &info.created_wall_nanos);
  return info;
}

std::string AttemptInfo::ToJson() const {
  Json json{{"format", FormatVersionJson()},
            {"kind", "attempt"},
            {"attempt", attempt},
            {"started_wall_nanos", started_wall_nanos}};
  if (step_base) json["step_base"] = *step_base;
  if (world_size) json["world_size"] = *world_size;
  if (parent) json["parent"] = *parent;
  return Pretty(json);
}

Result<AttemptInfo> AttemptInfo::FromJson(std::string_view text) {
  TDBG_ASSIGN_OR_RETURN(const Json json, ParseVersioned(text, kAttemptFile));
  AttemptInfo info;
  if (!GetField(json, "attempt", &info.attempt)) return DataLoss("attempt.json: no attempt");
  GetOptional(json, "step_base", 0, kForEver, &info.step_base);
  GetOptional(json, "world_size", 1, kMaxWorkers, &info.world_size);
  GetField(json, "started_wall_nanos", &info.started_wall_nanos);
  int64_t parent = 0;
  if (GetField(json, "parent", &parent)) info.parent = parent;
  return info;
}

std::string WorkerInfo::ToJson() const {
  Json json{{"format", FormatVersionJson()},
            {"kind", "worker"},
            {"worker", worker},
            {"rank", rank},
            {"pid", pid},
            {"host", host},
            {"boot_id", boot_id},
            {"writer_id", writer_id},
            {"journal_path", journal_path},
            {"started_wall_nanos", started_wall_nanos},
            {"adaptor", adaptor},
            {"run", run_id},
            {"attempt", attempt}};
  if (world_size) json["world_size"] = *world_size;
  if (step_base) json["step_base"] = *step_base;
  if (!step_base_from.empty()) json["step_base_from"] = step_base_from;
  if (!mode_step_bases.empty()) json["mode_step_bases"] = mode_step_bases;
  if (step_base_said) json["step_base_said"] = *step_base_said;
  if (optimizer_step) json["optimizer_step"] = *optimizer_step;
  return Pretty(json);
}

Result<WorkerInfo> WorkerInfo::FromJson(std::string_view text) {
  TDBG_ASSIGN_OR_RETURN(const Json json, ParseVersioned(text, kWorkerFile));
  WorkerInfo info;
  if (!GetField(json, "worker", &info.worker)) return DataLoss("worker.json: no worker");
  int64_t number = 0;
  if (!GetField(json, "writer_id", &number) || number < 0) return DataLoss("worker.json: no writer_id");
  info.writer_id = static_cast<uint64_t>(number);
  GetField(json, "rank", &info.rank);
  GetOptional(json, "world_size", 1, kMaxWorkers, &info.world_size);
  GetOptional(json, "step_base", 0, kForEver, &info.step_base);
  GetField(json, "step_base_from", &info.step_base_from);
  GetModeSteps(json, &info.mode_step_bases);
  GetOptional(json, "step_base_said", 0, kForEver, &info.step_base_said);
  GetOptional(json, "optimizer_step", 0, kForEver, &info.optimizer_step);
  if (GetField(json, "pid", &number) && number >= 0 && number <= 0xffffffff)
    info.pid = static_cast<uint32_t>(number);
  GetField(json, "host", &info.host);
  GetField(json, "boot_id", &info.boot_id);
  GetField(json, "journal_path", &info.journal_path);
  GetField(json, "started_wall_nanos", &info.started_wall_nanos);
  GetField(json, "adaptor", &info.adaptor);
  GetField(json, "run", &info.run_id);
  GetField(json, "attempt", &info.attempt);
  return info;
}

std::string EncodeControlPage() {
  std::string page(kControlPageBytes, '\0');
  std::memcpy(page.data(), kControlMagic, sizeof(kControlMagic));
  base::Store<uint16_t>(page.data() + 8, kMajor);
  base::Store<uint16_t>(page.data() + 10, kMinor);
  return page;
}

Result<std::vector<ControlRequest>> DecodeControlLines(std::string_view bytes) {
  if (bytes.find('\0') != std::string_view::npos) return DataLoss("control: NUL among the requests");
  std::vector<ControlRequest> requests;
  for (size_t newline; (newline = bytes.find('\n')) != std::string_view::npos;
       bytes.remove_prefix(newline + 1)) {
    const std::string_view line = bytes.substr(0, newline);
    const auto json = ParseJsonObject(line, "control");
    if (!json.ok()) continue;
    ControlRequest request;
    if (!GetField(*json, "id", &request.id) || !GetField(*json, "action", &request.action)) continue;
    GetField(*json, "by", &request.by);
    request.json = std::string(line);
    requests.push_back(std::move(request));
  }
  return requests;
}

}  // namespace tdbg::format

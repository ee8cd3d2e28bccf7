#include "session/control.h"

#include <array>
#include <cstring>
#include <nlohmann/json.hpp>
#include <span>

namespace tdbg::session {
namespace {

int64_t IntegerOr(const nlohmann::json& object, const char* key, int64_t otherwise) {
  if (!object.is_object()) return otherwise;
  const auto it = object.find(key);
  return it != object.end() && it->is_number_integer() ? it->get<int64_t>() : otherwise;
}

}  // namespace

Result<std::unique_ptr<Control>> Control::Open(base::FileSystem& files, std::string path, int64_t attempt) {
  std::unique_ptr<Control> control(new Control(files, std::move(path), attempt));
  TDBG_ASSIGN_OR_RETURN(control->file_, files.OpenReadable(control->path_));
  std::array<std::byte, format::kControlPageBytes> page;
  TDBG_ASSIGN_OR_RETURN(const size_t read, control->file_->ReadAt(0, page));
  if (read < page.size() ||
      std::memcmp(page.data(), format::kControlMagic, sizeof(format::kControlMagic)) != 0) {
    return DataLoss("not a control file: " + control->path_);
  }
  control->ReadNew(/*only_of_this_attempt=*/true);
  return control;
}

uint64_t Control::Generation() {
  uint64_t generation;
  const auto read =
      file_->ReadAt(format::kControlGenerationOffset, std::as_writable_bytes(std::span(&generation, 1)));
  if (read.ok() && *read == sizeof generation) return generation;
  Reopen();
  return seen_generation_;
}

void Control::Reopen() {
  if (skip_ > 0) {
    --skip_;
    return;
  }
  skip_ = 100;
  if (file_->StillOpen()) return;
  if (auto file = files_.OpenReadable(path_); file.ok()) file_ = *std::move(file);
}

void Control::ReadNew(bool only_of_this_attempt) {
  seen_generation_ = Generation();  // before the lines: what is appended meanwhile is looked for again
  const auto bytes = files_.ReadFile(path_);
  if (!bytes.ok() || bytes->size() < format::kControlPageBytes) return;
  const auto requests =
      format::DecodeControlLines(std::string_view(*bytes).substr(format::kControlPageBytes));
  if (!requests.ok()) return;
  for (const format::ControlRequest& r : *requests) {
    if (!seen_ids_.insert(r.id).second) continue;
    const auto json = nlohmann::json::parse(r.json, nullptr, /*allow_exceptions=*/false);
    const int64_t of_attempt = IntegerOr(json, "attempt", -1);
    if (of_attempt >= 0 ? of_attempt != attempt_ : only_of_this_attempt) continue;
    waiting_.push_back({r, IntegerOr(json, "at_step", -1)});
  }
}

std::optional<format::ControlRequest> Control::TakeSlowly(int64_t global_step) {
  if (Generation() != seen_generation_) {
    skip_ = 0;
    Reopen();  // another file's bytes may look like news
    ReadNew(/*only_of_this_attempt=*/false);
  }
  for (auto it = waiting_.begin(); it != waiting_.end(); ++it) {
    if (it->at_step > global_step) continue;
    format::ControlRequest due = std::move(it->request);
    waiting_.erase(it);
    return due;
  }
  return std::nullopt;
}

}  // namespace tdbg::session

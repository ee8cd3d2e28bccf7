#include "watch/muted.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/below.h"
#include "base/file.h"
#include "format/json_fields.h"
#include "format/version.h"

namespace tdbg::watch {
namespace {

constexpr int64_t kMutesVersion = 1;
constexpr uint64_t kMostBytes = 4u << 20;

Status Damaged(std::string_view why) {
  return DataLoss(fmt::format("{}: {}; nothing is muted by it", format::kMutedFile, why));
}

Result<rules::Mute> MuteOf(const format::Json& json) {
  if (!json.is_object()) return Damaged("an entry is no object");
  rules::Mute mute;
  format::GetField(json, "id", &mute.id);
  format::GetField(json, "title", &mute.title);
  format::GetField(json, "run", &mute.run);
  format::GetField(json, "script", &mute.script);
  format::GetField(json, "wall_nanos", &mute.wall_nanos);
  if (!format::GetField(json, "because", &mute.because) || mute.because.empty())
    return Damaged("an entry has no reason");
  if (mute.because.size() > kMostReason) return Damaged("a reason is too long");
  const auto what = json.find("what");
  if (what == json.end() || !what->is_array() || what->empty() || what->size() > kMostFingerprints)
    return Damaged("an entry does not say what is muted");
  for (const format::Json& item : *what) {
    rules::Fingerprint one;
    if (!item.is_object() || !format::GetField(item, "detector", &one.detector) || one.detector.empty() ||
        !format::GetField(item, "place", &one.place))
      return Damaged("an entry does not say what is muted");
    mute.what.push_back(std::move(one));
  }
  return mute;
}

// Of another file, or of one that was written since, it is another one.
std::string StampOf(const std::string& path) {
  struct stat info;
  if (::stat(path.c_str(), &info) != 0) return {};
  return fmt::format("{} {} {}.{}", info.st_ino, info.st_size, info.st_mtim.tv_sec, info.st_mtim.tv_nsec);
}

std::string PathOf(const std::string& run_path) {
  return base::JoinPath(run_path, std::string(format::kMutedFile));
}

}  // namespace

std::string MutesToJson(const std::vector<rules::Mute>& mutes) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const rules::Mute& mute : mutes) {
    nlohmann::ordered_json json = {{"id", mute.id}, {"title", mute.title}, {"because", mute.because}};
    if (!mute.script.empty()) json["script"] = mute.script;
    json["run"] = mute.run;
    json["wall_nanos"] = mute.wall_nanos;
    for (const rules::Fingerprint& one : mute.what)
      json["what"].push_back({{"detector", one.detector}, {"place", one.place}});
    list.push_back(std::move(json));
  }
  const nlohmann::ordered_json document = {{"version", kMutesVersion}, {"muted", std::move(list)}};
  return document.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

Result<std::vector<rules::Mute>> MutesFromJson(std::string_view text) {
  const auto json = format::ParseJsonObject(text, format::kMutedFile);
  if (!json.ok()) return Damaged("not a JSON object");
  int64_t version = 0;
  if (!format::GetField(*json, "version", &version) || version < 1) return Damaged("it has no version");
  if (version > kMutesVersion)
    return Unimplemented(fmt::format("{}: of version {}, which a newer tdbg wrote; nothing is muted by it",
                                     format::kMutedFile, version));
  const auto list = json->find("muted");
  if (list == json->end() || !list->is_array() || list->size() > kMostMutes)
    return Damaged("it has no list of what is muted");
  std::vector<rules::Mute> mutes;
  for (const format::Json& item : *list) {
    TDBG_ASSIGN_OR_RETURN(rules::Mute mute, MuteOf(item));
    mutes.push_back(std::move(mute));
  }
  return mutes;
}

Result<std::vector<rules::Mute>> ReadMutes(const std::string& run_path) {
  const auto text = base::LocalFileSystem().ReadFile(PathOf(run_path), kMostBytes);
  if (text.ok()) return MutesFromJson(*text);
  if (text.status().code() == Code::kNotFound) return std::vector<rules::Mute>();
  return Damaged(text.status().message());
}

Status WriteMutes(const std::string& run_path, const std::vector<rules::Mute>& mutes) {
  return base::FilesBelow(base::LocalFileSystem(), run_path)
      .WriteFileAtomic(PathOf(run_path), MutesToJson(mutes));
}

void ApplyMutesOf(const std::string& run_path, bool goes_on, std::vector<rules::RuleStatus>* statuses) {
  if (const auto mutes = ReadMutes(run_path); mutes.ok()) rules::ApplyMutes(*mutes, goes_on, statuses);
}

bool FollowedMutes::Refresh() {
  std::string stamp = StampOf(PathOf(run_path_));
  if (stamp == stamp_) return false;
  stamp_ = std::move(stamp);
  auto mutes = ReadMutes(run_path_);
  trouble_ = mutes.status();
  mutes_ = mutes.ok() ? *std::move(mutes) : std::vector<rules::Mute>();
  return true;
}

std::vector<rules::RuleStatus> FollowedMutes::Shown(std::vector<rules::RuleStatus> statuses,
                                                    bool goes_on) const {
  rules::ApplyMutes(mutes_, goes_on, &statuses);
  return statuses;
}

rules::RuleStatus FollowedMutes::Marked(rules::RuleStatus status) const {
  rules::MarkMuted(mutes_, &status);
  return status;
}

void FollowedMutes::AddConcerned(const std::vector<rules::RuleStatus>& statuses,
                                 std::vector<size_t>* indexes) {
  for (size_t i = 0; i < statuses.size(); ++i) {
    const std::vector<rules::Finding>& findings = statuses[i].findings;
    if (!findings.empty() && !findings.front().detector.empty()) indexes->push_back(i);
  }
}

bool FollowedMutes::any_nonfinite() const {
  return std::ranges::any_of(mutes_, [](const rules::Mute& mute) {
    return std::ranges::any_of(mute.what, [](const auto& one) { return one.detector == "nonfinite"; });
  });
}

}  // namespace tdbg::watch

#include "cli/black_boxes.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <tuple>

#include "base/file.h"
#include "base/text.h"

namespace tdbg::cli {
namespace {

constexpr char kDirectory[] = "black_box";
constexpr char kDocument[] = "black_box.json";

}  // namespace

std::vector<BlackBox> BlackBoxesOf(const std::string& run_directory) {
  std::vector<BlackBox> boxes;
  base::FileSystem& files = base::LocalFileSystem();
  const auto subdirectories = [&](const std::string& path) {
    auto entries = files.List(path);
    return entries.ok() ? std::move(*entries) : std::vector<base::DirEntry>();
  };
  const std::string root = base::JoinPath(run_directory, kDirectory);
  for (const base::DirEntry& of_attempt : subdirectories(root)) {
    const auto attempt = base::ParseInt(of_attempt.name);
    if (!attempt) continue;
    const std::string attempt_path = base::JoinPath(root, of_attempt.name);
    for (const base::DirEntry& of_worker : subdirectories(attempt_path)) {
      const std::string worker_path = base::JoinPath(attempt_path, of_worker.name);
      for (const base::DirEntry& of_step : subdirectories(worker_path)) {
        const auto step = base::ParseInt(of_step.name);
        const std::string directory = base::JoinPath(worker_path, of_step.name);
        if (!step || !files.Exists(base::JoinPath(directory, kDocument))) continue;
        boxes.push_back({directory, of_worker.name, *attempt, *step});
      }
    }
  }
  std::ranges::sort(boxes, {}, [](const BlackBox& b) { return std::tie(b.step, b.attempt, b.worker); });
  return boxes;
}

nlohmann::json BlackBoxesToJson(const std::vector<BlackBox>& boxes) {
  nlohmann::json list = nlohmann::json::array();
  for (const BlackBox& box : boxes) {
    list.push_back(
        {{"step", box.step}, {"attempt", box.attempt}, {"worker", box.worker}, {"directory", box.directory}});
  }
  return list;
}

Result<std::string> ReasonOf(const BlackBox& box) {
  const std::string path = base::JoinPath(box.directory, kDocument);
  TDBG_ASSIGN_OR_RETURN(const std::string text, base::LocalFileSystem().ReadFile(path));
  const auto document = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!document.is_object() || document.value("kind", "") != "black_box")
    return DataLoss(path + ": not a black box");
  const auto because = document.find("because");
  return because != document.end() && because->is_string() ? because->get<std::string>() : std::string();
}

}  // namespace tdbg::cli

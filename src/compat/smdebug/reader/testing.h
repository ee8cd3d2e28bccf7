// A directory as smdebug leaves it, written by hand, so that a test can leave it otherwise.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <string>
#include <vector>

#include "base/testing.h"
#include "tfevents/testing.h"

namespace tdbg::compat::smdebug {

class RunForTest {
 public:
  explicit RunForTest(std::string path) : path_(std::move(path)) {
    Write("collections/000000000/worker_0_collections.json",
          R"({"collections": {"weights": {"name": "weights", "include_regex": ["^w"], "tensor_names": []},
              "gradients": {"name": "gradients", "include_regex": ["^gradient"], "tensor_names": []}},
              "_meta": {"num_workers": 1}})");
  }
  const std::string& path() const { return path_; }

  void Write(const std::string& relative, std::string_view contents) const {
    const std::filesystem::path path = std::filesystem::path(path_) / relative;
    std::filesystem::create_directories(path.parent_path());
    base::Spill(path.string() + ".tmp", contents);
    std::filesystem::rename(path.string() + ".tmp", path);
  }
  static std::string IndexName(int64_t step, const std::string& worker = "worker_0") {
    return fmt::format("index/{:09d}/{:012d}_{}.json", step / 1000, step, worker);
  }
  static std::string EventName(int64_t step, const std::string& worker = "worker_0") {
    return fmt::format("events/{:012d}/{:012d}_{}.tfevents", step, step, worker);
  }

  struct Named {
    std::string name;
    std::vector<float> values;
  };
  void Step(int64_t step, const std::vector<Named>& tensors, const std::string& worker = "worker_0",
            const std::string& mode = "TRAIN", int64_t mode_step = -1) const {
    std::string events;
    std::vector<std::string> entries;
    for (const Named& tensor : tensors) {
      const std::string record = tfevents::FloatRecordForTest(tensor.name, step, tensor.values);
      entries.push_back(fmt::format(R"({{"tensorname": "{}", "start_idx": {}, "length": {}}})", tensor.name,
                                    events.size(), record.size()));
      events += record;
    }
    Write(EventName(step, worker), events);
    Index(step, EventName(step, worker), fmt::format("{}", fmt::join(entries, ", ")), worker, mode,
          mode_step < 0 ? step : mode_step);
  }
  void Index(int64_t step, const std::string& event_file, const std::string& payload,
             const std::string& worker = "worker_0", const std::string& mode = "TRAIN",
             int64_t mode_step = 0) const {
    Write(IndexName(step, worker),
          fmt::format(R"({{"meta": {{"mode": "{}", "mode_step": {}, "event_file_name": "{}"}}, )"
                      R"("tensor_payload": [{}], "shape_payload": []}})",
                      mode, mode_step, event_file, payload));
  }
  void End() const { Write("training_job_end.ts", ""); }

 private:
  std::string path_;
};

}  // namespace tdbg::compat::smdebug

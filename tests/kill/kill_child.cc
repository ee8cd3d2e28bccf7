// kill_child write <directory> <seed> <stall_millis>   trains for ever: each step's end is reported on stdout
// kill_child seal <directory> <stall_millis>           seals what a dead one left
//
// A reported line is "<step> <hash> <hash> <hash>\n", XXH3-64 of the step's three raw tensors, written with
// one write(2) after the step's end has returned: from then on the step must survive anything but power loss.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>

#include "store/writer/testing.h"
#include "store/writer/testing_options.h"

namespace {

using namespace tdbg;

constexpr uint32_t kTensors = 3;

int Write(const std::string& directory, uint32_t seed, store::FaultyFileSystem* files) {
  store::WriterOptions options = store::TestOptions(directory);
  options.segment_bytes = 128 << 10;  // so that a seal or a lap of the ring is in progress nearly always
  options.files = files;
  auto writer = store::WorkerWriter::Open(options);
  if (!writer.ok()) {
    std::fprintf(stderr, "%s\n", writer.status().ToString().c_str());
    return 1;
  }
  for (uint32_t t = 0; t < kTensors; ++t) {
    format::TensorDef def;
    def.id = t;
    def.name = "t" + std::to_string(t);
    def.dtype = DType::kUInt32;
    (*writer)->AppendTensorDef(def);
  }
  std::mt19937 random(seed);
  std::vector<uint32_t> values;
  for (int64_t step = 0;; ++step) {
    std::string line = std::to_string(step);
    for (uint32_t t = 0; t < kTensors; ++t) {
      values.resize(random() % 30'000);
      for (uint32_t& value : values) value = random();
      const int64_t shape[] = {static_cast<int64_t>(values.size())};
      if (!(*writer)->AppendRaw(step, t, {}, {values.data(), DType::kUInt32, shape, {}})) return 2;
      line += " " + base::Hex64(base::Hash64(std::as_bytes(std::span(values))));
    }
    format::SummaryRow row;
    row.count = static_cast<uint64_t>(step);
    (*writer)->AppendSummaries(step, {&row, 1}, {});
    format::Commit commit;
    commit.global_step = commit.mode_step = step;
    commit.mode = 1;
    (*writer)->Commit(commit);
    line += "\n";
    if (::write(STDOUT_FILENO, line.data(), line.size()) != static_cast<ssize_t>(line.size())) return 3;
  }
}

}  // namespace

int main(int argc, char** argv) {
  store::FaultyFileSystem files;
  if (argc == 5 && std::strcmp(argv[1], "write") == 0) {
    files.stall_millis = std::atoi(argv[4]);
    return Write(argv[2], static_cast<uint32_t>(std::atoi(argv[3])), &files);
  }
  if (argc == 4 && std::strcmp(argv[1], "seal") == 0) {
    files.stall_millis = std::atoi(argv[3]);
    const Status sealed = store::SealLeftovers(files, argv[2]);
    if (!sealed.ok()) std::fprintf(stderr, "%s\n", sealed.ToString().c_str());
    return sealed.ok() ? 0 : 1;
  }
  return 64;
}

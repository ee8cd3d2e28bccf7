// What a killed smdebug writer left: an event file that no index speaks of, taken in record by record.
// Through the run's directory, as a reader finds it, since that scan is the decoder. Lengths are framed here,
// because a fuzzer does not guess checksums; what comes behind the last frame is taken as it is.
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>

#include "compat/smdebug/reader/run.h"
#include "store/reader/worker_reader.h"
#include "tfevents/record.h"

namespace {

using tdbg::store::WorkerReader;

constexpr const char* kFile = "events/000000000002/000000000002_worker_0.tfevents";

void Require(bool condition) {
  if (!condition) std::abort();
}

void Write(const std::filesystem::path& path, const std::string& contents) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary | std::ios::trunc) << contents;
}

/// In memory where there is such a place: a run is opened for every input.
std::filesystem::path MakeRun() {
  const std::filesystem::path memory = "/dev/shm";
  const auto at = std::filesystem::exists(memory) ? memory : std::filesystem::temp_directory_path();
  std::string name = (at / "tdbg-salvage-XXXXXX").string();
  Require(::mkdtemp(name.data()) != nullptr);
  const std::filesystem::path path = name;
  Write(path / "collections/000000000/worker_0_collections.json",
        R"({"collections": {}, "_meta": {"num_workers": 1}})");
  Write(
      path / "index/000000000/000000000001_worker_0.json",
      R"({"meta": {"mode": "TRAIN", "mode_step": 1, "event_file_name": null}, "tensor_payload": [], "shape_payload": []})");
  Write(path / "training_job_end.ts", "");
  return path;
}

struct Folder {
  std::filesystem::path path = MakeRun();
  ~Folder() { std::filesystem::remove_all(path); }
};

template <size_t N>
void Append(std::string* out, const std::array<std::byte, N>& bytes) {
  out->append(reinterpret_cast<const char*>(bytes.data()), N);
}

/// The first byte: how many pieces [u8 length][bytes] become records. Behind them: as it is.
std::string FileOf(std::string_view input) {
  std::string file;
  if (input.empty()) return file;
  const size_t records = static_cast<uint8_t>(input[0]) % 8;
  input.remove_prefix(1);
  for (size_t i = 0; i < records && !input.empty(); ++i) {
    const std::string_view payload = input.substr(1, static_cast<uint8_t>(input[0]));
    Append(&file, tdbg::tfevents::EncodeRecordHeader(payload.size()));
    file += payload;
    Append(&file, tdbg::tfevents::EncodeRecordFooter({}, tdbg::tfevents::Footer::kSmdebug));
    input.remove_prefix(1 + payload.size());
  }
  return file.append(input);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const Folder folder;
  const std::string file = FileOf({reinterpret_cast<const char*>(data), size});
  Write(folder.path / kFile, file);
  const auto run = tdbg::compat::smdebug::Run::Open(folder.path.string());
  Require(run.ok() && (*run)->worker_count() == 1);
  // However little of the file is whole, it is named.
  bool named = false;
  for (const auto& damage : (*run)->damage()) named |= damage.file == kFile;
  Require(named);
  const auto worker = (*run)->OpenWorker(0);
  uint64_t bytes = 0;
  for (uint32_t tensor = 0; tensor < worker->tensors().size(); ++tensor) {
    for (const auto& ref : worker->RawsOf(tensor)) {
      Require(ref.global_step == 2 && ref.offset + ref.bytes <= file.size());
      bytes += ref.bytes;
      // It has been read once already.
      Require(worker->ReadRaw(ref).ok());
    }
    (void)worker->Series(tensor, 0, 3, WorkerReader::kAllColumns);
    for (const auto& saved : worker->ReductionsOf(tensor, 2)) {
      bytes += saved.ref.bytes;
      Require(worker->ReadRaw(saved.ref).ok());
    }
  }
  Require(bytes <= file.size());  // no byte belongs to two records
  return 0;
}

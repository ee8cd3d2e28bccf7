// The JSON files of a directory that smdebug wrote: index and collections files, and the names that lie in
// them.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "compat/smdebug/reader/collections_file.h"
#include "compat/smdebug/reader/index_file.h"
#include "compat/smdebug/reader/names.h"
#include "compat/smdebug/reader/part.h"

namespace {

void Require(bool condition) {
  if (!condition) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tdbg::compat::smdebug;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  std::string padded(text);
  padded.resize(size + IndexDecoder::Padding());

  Collections collections;
  if (const auto file = DecodeCollectionsFile(text); file.ok()) {
    (void)collections.Add(*file);
    for (const auto& collection : file->collections) {
      for (const std::string& name : collection.tensor_names) Require(!collections.Of(name).empty());
    }
  }
  static IndexDecoder decoder;  // one for many files, as it is used
  const auto index = decoder.Decode(std::string_view(padded).substr(0, size));
  if (index.ok()) {
    const IndexFile& file = **index;
    Require(file.event_file.empty() || IsEventFileName(file.event_file));
    Part part("worker_0", "worker_0", 0);
    part.Add(3, 0, file, collections);
    part.Add(1, 0, file, collections);
    Require(part.commits().size() == 2 && part.commits()[0].global_step == 1);
    const auto entries = part.entries_of(part.file_of(0));
    Require(entries.size() == file.payloads.size() + file.shapes.size());
    for (const Entry& entry : entries) {
      Require(entry.tensor < part.tensors().size());
      if (entry.kind == EntryKind::kShape) (void)part.shape(entry.offset).size();
      if (entry.kind >= EntryKind::kFirstReduction) Require(!part.operation(entry.kind).name.empty());
    }
  }
  (void)ParseStepFileName(text, ".json");
  (void)ParseReductionName(text);
  (void)DecodeWorker(text);
  return 0;
}

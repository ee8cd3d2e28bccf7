// What a store answers: lists of objects, and any XML.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "storage/s3/xml.h"
#include "storage/upload_state.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tdbg::storage;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto page = ParseListPage(text); page.ok()) {
    for (const ObjectInfo& object : page->objects) {
      if (object.key.empty()) std::abort();
      if (IsSafeName(object.key) && (object.key[0] == '/' || object.key.starts_with("../"))) std::abort();
    }
  }
  if (const auto part = JournalPart::Parse(text); part && part->from > part->to) std::abort();
  return 0;
}

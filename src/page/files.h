// The page's files, as ui/ was built into them.
#pragma once

#include <string_view>

namespace tdbg::page {

struct File {
  std::string_view name;  ///< "page.js"
  std::string_view media_type;
  std::string_view body;
};
/// "": the document. Null: there is none of that name.
const File* FindFile(std::string_view name);
/// The document of a report: markers where the style, the script and the answers go. No server has it.
std::string_view ReportTemplate();

}  // namespace tdbg::page

#include "page/files.h"

#include <array>

// Built into the program, as the GPU's kernels are (src/cuda/image.cc), so no file must be found at run time.
#define TDBG_EMBED(symbol, file)                                                                     \
  asm(".pushsection .rodata\n.balign 8\n" #symbol "_begin:\n.incbin \"" TDBG_PAGE_DIRECTORY "/" file \
      "\"\n" #symbol "_end:\n.byte 0\n.popsection\n");                                               \
  extern "C" const char symbol##_begin[];                                                            \
  extern "C" const char symbol##_end[];

TDBG_EMBED(tdbg_page_html, "page.html")
TDBG_EMBED(tdbg_page_js, "page.js")
TDBG_EMBED(tdbg_page_css, "page.css")
TDBG_EMBED(tdbg_page_report, "report.html")

namespace tdbg::page {
namespace {

std::string_view Between(const char* begin, const char* end) {
  return {begin, static_cast<size_t>(end - begin)};
}

}  // namespace

const File* FindFile(std::string_view name) {
  static const std::array<File, 3> files{{
      {"", "text/html; charset=utf-8", Between(tdbg_page_html_begin, tdbg_page_html_end)},
      {"page.js", "text/javascript; charset=utf-8", Between(tdbg_page_js_begin, tdbg_page_js_end)},
      {"page.css", "text/css; charset=utf-8", Between(tdbg_page_css_begin, tdbg_page_css_end)},
  }};
  for (const File& file : files) {
    if (file.name == name) return &file;
  }
  return nullptr;
}

std::string_view ReportTemplate() { return Between(tdbg_page_report_begin, tdbg_page_report_end); }

}  // namespace tdbg::page

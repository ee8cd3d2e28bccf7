#include "cuda/image.h"

// Included by the assembler: as a C++ array, a megabyte takes the compiler half a minute.
asm(".section .rodata\n"
    ".balign 16\n"
    "tdbg_cuda_image_begin:\n"
    ".incbin \"" TDBG_CUDA_IMAGE
    "\"\n"
    "tdbg_cuda_image_end:\n"
    ".byte 0\n"
    ".text\n");

extern "C" {
// Labels of the text above; no object has these types.
__attribute__((visibility("hidden"))) extern const std::byte tdbg_cuda_image_begin[];
__attribute__((visibility("hidden"))) extern const std::byte tdbg_cuda_image_end[];
}

namespace tdbg::cuda {

std::span<const std::byte> Image() { return {tdbg_cuda_image_begin, tdbg_cuda_image_end}; }

}  // namespace tdbg::cuda

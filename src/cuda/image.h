// The kernels, compiled: part of the library, so that nothing is needed where it runs.
#pragma once

#include <cstddef>
#include <span>

namespace tdbg::cuda {

/// A fat binary for cuModuleLoadData: machine code for the architectures that tools/build_cuda.py names and
/// PTX for later ones. Made by tools/build_cuda.py from device/; tools/check_cuda_image.py compares the hash
/// of the sources.
std::span<const std::byte> Image();

}  // namespace tdbg::cuda

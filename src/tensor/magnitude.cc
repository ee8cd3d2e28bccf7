#include "tensor/magnitude.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "tensor/strided.h"

namespace tdbg {
namespace {

double Magnitude(const float* parts) {
  const double re = parts[0], im = parts[1];
  if (std::isinf(re) || std::isinf(im)) return HUGE_VAL;
  return std::sqrt(re * re + im * im);  // no square of a float32 leaves the range of float64
}
double Magnitude(const double* parts) { return std::hypot(parts[0], parts[1]); }

template <typename Part>
std::vector<double> Each(const TensorView& view) {
  std::vector<double> magnitudes(static_cast<size_t>(view.element_count()));
  constexpr size_t kElements = 512;  // a piece of the view in C order, instead of a copy of all of it
  std::byte piece[kElements * 2 * sizeof(Part)];
  AxisList axes = magnitudes.empty() ? AxisList() : CoalescedAxes(view);
  RunReader reader(static_cast<const std::byte*>(view.data), axes, 2 * sizeof(Part));
  for (size_t done = 0; done < magnitudes.size();) {
    const size_t n = reader.Read(piece, std::min(kElements, magnitudes.size() - done));
    if (n == 0) break;
    for (size_t i = 0; i < n; ++i) {
      Part parts[2];
      std::memcpy(parts, piece + i * sizeof parts, sizeof parts);
      magnitudes[done + i] = Magnitude(parts);
    }
    done += n;
  }
  return magnitudes;
}

}  // namespace

std::vector<double> Magnitudes(const TensorView& view) {
  return view.dtype == DType::kComplex64 ? Each<float>(view) : Each<double>(view);
}

}  // namespace tdbg

// What a model predicts against what it is compared with, of tensors in host memory
// (python/tdbg/adaptors/torch/predictions.py says what the numbers are). Some forty of torch's operations on
// a few hundred numbers each would cost a small training's step two percent.
#pragma once

#include <cstdint>
#include <vector>

namespace tdbg::python {

/// Rows by columns of float or double. Distances are in elements.
struct MatrixPart {
  uintptr_t data = 0;
  bool is_double = false;
  int64_t row = 0, column = 0;
};

/// How a difference counts. Numbers that Python passes.
enum class Measure : uint8_t {
  kSquared = 0,
  kAbsolute = 1,
  kHuber = 2,      ///< squared up to a width, then straight
  kSmooth = 3,     ///< that over the width
  kOfSigmoid = 4,  ///< squared; what is given becomes a probability first
};

/// \return mean, deviation, deviation between rows of targets; the same of predictions; correlation; guess;
/// loss
/// \pre rows >= 2, columns >= 1, the memory holds them
std::vector<double> CompareElements(Measure measure, double width, const MatrixPart& given,
                                    const MatrixPart& target, int64_t rows, int64_t columns);

/// \param whole  these are all classes, and not every so many of them
/// `labels` of 64 bits, `label` elements apart; rows with the label `ignored` are left out.
/// \return of logits less the row's mean: deviation between rows, deviation; then of probabilities, where all
/// labels are classes and `whole`: the targets' deviation between rows, correlation, guess, loss. Empty:
/// fewer than 2 rows.
std::vector<double> CompareClasses(const MatrixPart& logits, int64_t rows, int64_t classes, uintptr_t labels,
                                   int64_t label, int64_t ignored, bool whole);

}  // namespace tdbg::python

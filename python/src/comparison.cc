#include "comparison.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace tdbg::python {
namespace {

template <typename T>
void Copy(const MatrixPart& part, int64_t rows, int64_t columns, double* to) {
  const T* const from = reinterpret_cast<const T*>(part.data);
  for (int64_t i = 0; i < rows; ++i) {
    const T* const row = from + i * part.row;
    for (int64_t j = 0; j < columns; ++j) *to++ = static_cast<double>(row[j * part.column]);
  }
}

// Row after row.
std::vector<double> Values(const MatrixPart& part, int64_t rows, int64_t columns) {
  std::vector<double> values(static_cast<size_t>(rows * columns));
  if (part.is_double) {
    Copy<double>(part, rows, columns, values.data());
  } else {
    Copy<float>(part, rows, columns, values.data());
  }
  return values;
}

double Counted(Measure measure, double width, double apart) {
  const double size = std::abs(apart);
  if (measure == Measure::kSquared || measure == Measure::kOfSigmoid) return apart * apart;
  if (measure == Measure::kAbsolute || !(width > 0)) return size;
  const double near = std::min(size, width), huber = near * (size - near / 2);
  return measure == Measure::kSmooth ? huber / width : huber;
}

// Means and sums of squared distances from them, of each column.
struct Columns {
  std::vector<double> mean, squares;

  Columns(const std::vector<double>& values, size_t columns) : mean(columns), squares(columns) {
    const double n = static_cast<double>(values.size() / columns);
    for (size_t at = 0; at < values.size();) {
      for (size_t j = 0; j < columns; ++j) mean[j] += values[at++];
    }
    for (double& one : mean) one /= n;
    for (size_t at = 0; at < values.size();) {
      for (size_t j = 0; j < columns; ++j) {
        const double apart = values[at++] - mean[j];
        squares[j] += apart * apart;
      }
    }
  }

  double Between(double n) const {
    double sum = 0;
    for (const double one : squares) sum += std::sqrt(one / (n - 1));
    return sum / static_cast<double>(squares.size());
  }
  double Squares() const {
    double sum = 0;
    for (const double one : squares) sum += one;
    return sum;
  }
  // Mean and deviation of all elements.
  std::array<double, 2> Whole(double n) const {
    const double count = static_cast<double>(mean.size());
    double sum = 0, apart = 0;
    for (const double one : mean) sum += one;
    const double middle = sum / count;
    for (const double one : mean) apart += (one - middle) * (one - middle);
    return {middle, std::sqrt(Squares() / (n * count) + apart / count)};
  }
};

std::vector<double> Compare(Measure measure, double width, const std::vector<double>& given,
                            const std::vector<double>& target, size_t columns) {
  const Columns predicted(given, columns), wanted(target, columns);
  const double all = static_cast<double>(given.size()), n = all / static_cast<double>(columns);
  const double unbiased = std::sqrt(n / (n - 1));
  const bool squared = measure == Measure::kSquared || measure == Measure::kOfSigmoid;
  double products = 0, guess = 0, loss = 0;
  for (size_t at = 0; at < given.size();) {
    for (size_t j = 0; j < columns; ++j, ++at) {
      const double apart = target[at] - wanted.mean[j];
      products += (given[at] - predicted.mean[j]) * apart;
      loss += Counted(measure, width, given[at] - target[at]);
      if (!squared) guess += Counted(measure, width, apart * unbiased);
    }
  }
  std::vector<double> found;
  for (const Columns* const of : {&wanted, &predicted}) {
    const auto [mean, deviation] = of->Whole(n);
    found.insert(found.end(), {mean, deviation, of->Between(n)});
  }
  const double norms = std::sqrt(predicted.Squares()) * std::sqrt(wanted.Squares());
  found.push_back(norms > 0 ? products / norms : 0);
  found.push_back(squared ? wanted.Squares() / (all - static_cast<double>(columns)) : guess / all);
  found.push_back(loss / all);
  return found;
}

}  // namespace

std::vector<double> CompareElements(Measure measure, double width, const MatrixPart& given,
                                    const MatrixPart& target, int64_t rows, int64_t columns) {
  std::vector<double> predicted = Values(given, rows, columns);
  if (measure == Measure::kOfSigmoid) {
    for (double& value : predicted) value = 1 / (1 + std::exp(-value));
  }
  return Compare(measure, width, predicted, Values(target, rows, columns), static_cast<size_t>(columns));
}

std::vector<double> CompareClasses(const MatrixPart& logits, int64_t rows, int64_t classes, uintptr_t labels,
                                   int64_t label, int64_t ignored, bool whole) {
  const auto* const of_row = reinterpret_cast<const int64_t*>(labels);
  const auto columns = static_cast<size_t>(classes);
  std::vector<double> values = Values(logits, rows, classes);
  std::vector<size_t> kept;  // labels
  size_t to = 0;
  for (int64_t i = 0; i < rows; ++i) {
    const int64_t wanted = of_row[i * label];
    if (wanted == ignored) continue;
    if (wanted < 0 || wanted >= classes) whole = false;
    kept.push_back(static_cast<size_t>(wanted));
    const double* const row = values.data() + static_cast<size_t>(i) * columns;
    double mean = 0;
    for (size_t j = 0; j < columns; ++j) mean += row[j];
    mean /= static_cast<double>(classes);
    for (size_t j = 0; j < columns; ++j) values[to++] = row[j] - mean;
  }
  if (kept.size() < 2) return {};
  values.resize(to);
  double squares = 0;
  for (const double value : values) squares += value * value;
  std::vector<double> found = {Columns(values, columns).Between(static_cast<double>(kept.size())),
                               std::sqrt(squares / static_cast<double>(values.size()))};
  if (!whole) return found;
  std::vector<double> right(values.size());
  for (size_t i = 0; i < kept.size(); ++i) {
    double* const row = values.data() + i * columns;
    const double most = *std::max_element(row, row + columns);
    double parts = 0;
    for (size_t j = 0; j < columns; ++j) parts += row[j] = std::exp(row[j] - most);
    for (size_t j = 0; j < columns; ++j) row[j] /= parts;
    right[i * columns + kept[i]] = 1;
  }
  const std::vector<double> all = Compare(Measure::kSquared, 0, values, right, columns);
  for (const size_t which : {2, 6, 7, 8}) found.push_back(all[which]);
  return found;
}

}  // namespace tdbg::python

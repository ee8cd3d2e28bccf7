// TensorBoard's event files: a run's numbers as scalars, its statistics as scalars and histograms.
//
//   <directory>/<mode>/events.out.tfevents...            one worker
//   <directory>/<mode>/<worker>/events.out.tfevents...   several
//
// Modes are folders because TensorBoard draws the folders' values of one tag into one chart: train against
// eval. Steps are global steps, for the same reason.
#pragma once

#include <memory>
#include <string>

#include "ship/destination.h"
#include "tdbg/status.h"

namespace tdbg::ship {

struct TensorBoardOptions {
  std::string directory;
  Choice::Options choice;
  /// Per-tensor statistics only at mode steps that are multiples of it, and histograms at the first step at
  /// or after each that has one; losses, metrics and learning rates are written at every chosen step.
  int64_t statistics_every = 1;
  /// A later attempt of a job: earlier files of the directory no longer hold from the first step taken on.
  bool restart = false;
};

/// Tags: a number series has its own name (`lr/0`); a tensor of one element `<collection>/<tensor>`
/// (`losses/CrossEntropyLoss_output_0`); a larger one has `<collection>_mean_abs/<tensor>`,
/// `<collection>_std/<tensor>`, and, from the first step on at which there is a NaN or an infinity,
/// `<collection>_nonfinite_count/<tensor>`; its histogram is `<collection>/<tensor>`. Tensors that have no
/// histogram (fewer than 256 elements) get one where their values were kept.
/// Files grow as they are written: TensorBoard follows them.
/// \error kInvalidArgument  the choice; Take: kResourceExhausted, kUnavailable (cannot write)
Result<std::unique_ptr<Destination>> MakeTensorBoard(const TensorBoardOptions& options);

/// Did MakeTensorBoard's destination write this file? `inside` is its path below `directory`.
bool IsOurTensorBoardFile(const std::string& directory, const std::string& inside);

}  // namespace tdbg::ship

// What one thread needs to make rows of statistics.
#pragma once

#include <cstdint>
#include <vector>

#include "capture/recorder.h"
#include "tdbg/summary.h"

namespace tdbg::capture {

struct Recorder::ThreadScratch {
  Summarizer summarizer;
  Histogram histogram;
  std::vector<uint8_t> bytes;  // encoded histograms, one behind the other
};

}  // namespace tdbg::capture

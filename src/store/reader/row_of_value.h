// A row of statistics that storage does not have, made of the value that it has.
#pragma once

#include <cstdint>

#include "store/reader/worker_reader.h"
#include "tdbg/status.h"
#include "tdbg/summary.h"

namespace tdbg::store {

/// From so many elements on a tensor has a histogram, as where statistics are captured.
inline constexpr uint64_t kHistogramFrom = 256;

/// One pass over the value.
/// \return bits of SummaryBatch::unknown: 0, kUnreadable or kNoStatistics; `*summary` is set where it is 0
inline uint64_t SummaryOfValue(const Result<RawValue>& value, Summarizer* summarizer, Summary* summary) {
  if (!value.ok()) return kUnreadable;
  if (!HasStatistics(value->dtype)) return kNoStatistics;
  const Status status =
      summarizer->Summarize({value->bytes.data(), value->dtype, value->shape, {}}, summary, nullptr);
  return status.ok() ? 0 : kNoStatistics;
}

inline Result<Histogram> HistogramOfValue(const Result<RawValue>& value, Summarizer* summarizer) {
  TDBG_RETURN_IF_ERROR(value.status());
  Summary summary;
  Histogram histogram;
  TDBG_RETURN_IF_ERROR(
      summarizer->Summarize({value->bytes.data(), value->dtype, value->shape, {}}, &summary, &histogram));
  return histogram;
}

}  // namespace tdbg::store

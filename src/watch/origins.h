// Where what is not finite began, as the training process found it (docs/nan-origin.md) and wrote into the
// run.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "rules/incidents.h"
#include "tdbg/trial.h"

namespace tdbg::watch {

/// Topic of the context record.
inline constexpr std::string_view kOriginTopic = "nan_origin";

struct Origin {
  int64_t attempt = 0;
  std::string worker;
  int64_t global_step = -1;
  bool seen = false;     ///< otherwise `sentence` says why it could not be seen
  std::string title;     ///< "NaN born in log, between l2 and head"
  std::string sentence;  ///< all of it, with the numbers
  std::string advice;    ///< what to do about it; empty where nothing is known
  std::string json;      ///< the record: docs/format.md, "Where a NaN began"
};

/// Origins of the attempts that the overlay shows, by step. Within a step: those that were seen before those
/// that were not, forward before backward, then by rank.
std::vector<Origin> OriginsOf(const Trial& trial);

/// The profile's NaN or infinity that began there: of several the one whose first step is nearest. Null: it
/// has found none.
const rules::Incident* ExplainedBy(const Origin& origin, const std::vector<rules::Incident>& incidents);

/// That incident says where it began, where the first origin was seen: its title, sentence and advice are the
/// origin's then, in every window alike.
void Explain(std::vector<rules::Incident>* incidents, const std::vector<Origin>& origins);

/// The fields of the event.
std::string OriginFields(const Origin& origin);

}  // namespace tdbg::watch

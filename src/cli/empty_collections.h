// Collections that a user asked for and of which the run has nothing: a misspelled pattern, mostly.
#pragma once

#include <string>
#include <vector>

#include "tdbg/trial.h"

namespace tdbg::cli {

struct EmptyCollection {
  std::string name;
  std::vector<std::string> patterns;  ///< its include_regex, and names of tensors
  std::vector<std::string> nearby;  ///< up to two recorded tensors whose names have most in common with these
};

/// Of the latest start, as its plan says. Nothing while the run has no tensor. Built-in collections are left
/// out unless the plan keeps more of them than it does by default.
std::vector<EmptyCollection> EmptyCollections(const Trial& trial, const std::string& run);
/// "collection mine (fc3.*output) matched nothing; names that are recorded: Net_fc1.weight, Net_fc2.weight".
/// \param ends the run has ended
std::string EmptyCollectionLine(const EmptyCollection& collection, bool ended);

}  // namespace tdbg::cli

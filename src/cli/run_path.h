// RUN on the command line -> a run directory.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tdbg/status.h"
#include "tdbg/trial.h"

namespace tdbg::cli {

/// A path, a name under ./tdbg-runs, or "last": the run that was started last, of those under ./tdbg-runs and
/// those that this user started from here with --dir elsewhere.
/// \error kNotFound  names the nearest run
Result<std::string> ResolveRun(const std::string& text);
/// ResolveRun, then opened and read once.
Result<std::unique_ptr<Trial>> OpenRun(const std::string& text, int64_t attempt = -1);
/// What a trial's damage() is to who asked for an answer. Every command that reads returns this once it has
/// printed what could be read. \param of  "run", "file": what the places are in
/// \error kDataLoss  there is some: counts and names it
Status CouldNotRead(const std::vector<std::string>& damage, std::string_view of = "run");
/// The runs in `root`: ours, those in its folders too, from the oldest on, then smdebug's by name; or `root`,
/// if it is one.
std::vector<std::string> ListRuns(const std::string& root);
struct NamedRun {
  std::string path;
  std::string name;  ///< as it can be typed as RUN
};
/// Runs under ./tdbg-runs (ListRuns), and those that this user started from this directory with --dir
/// elsewhere. Runs that tdbg wrote stand from the oldest on.
std::vector<NamedRun> RunsOfHere();
/// What a run that ListRuns found is called: its path from `root` on.
std::string RunName(const std::string& path, const std::string& root);
/// As short as it can be typed again: relative to the working directory where it lies below it.
std::string DisplayPath(const std::string& path);
/// A word for people to paste into bash or zsh, quoted where it must be, of printable characters only.
std::string ShellWord(std::string_view word);
/// A word for sh, whatever it holds.
std::string SingleQuoted(std::string_view word);

}  // namespace tdbg::cli

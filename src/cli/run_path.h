// RUN on the command line -> a run directory.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tdbg/status.h"
#include "tdbg/trial.h"

namespace tdbg::cli {

/// Where a run is: in a directory of this machine, in a bucket, or in both.
struct RunPlace {
  std::string directory;  ///< absolute; empty: it is not on this machine
  std::string url;        ///< of the bucket; empty: none is known
};
/// A path, a name under ./tdbg-runs, a job's name, a URL, or "last": the run that was started last, of those
/// under ./tdbg-runs and those that this user started from here with --dir elsewhere. Does not ask a bucket.
/// \error kNotFound  names the nearest run
Result<RunPlace> PlaceOfRun(const std::string& text);
/// PlaceOfRun, for commands that need the directory.
/// \error kUnimplemented  it is in a bucket only
Result<std::string> ResolveRun(const std::string& text);
/// ResolveRun for commands that act on a job. A word that names a run here and another job elsewhere names
/// neither.
/// \error kInvalidArgument  both, and how each is said
Result<std::string> ResolveRunOfJob(const std::string& text);
/// For commands that only read: accepts a run in a bucket, too, and takes one from there whose directory is
/// gone. Its directory is then in the cache, and is kept up to date until this process ends.
Result<std::string> ResolveRunToRead(const std::string& text);
/// ResolveRunToRead, then opens the run and reads it once.
Result<std::unique_ptr<Trial>> OpenRun(const std::string& text, int64_t attempt = -1);
/// The error for a trial's damage(). Every command that reads returns this after it has printed what could be
/// read.
/// \param of  "run" or "file": what is damaged
/// \error kDataLoss  there is damage: counts and names the places
Status CouldNotRead(const std::vector<std::string>& damage, std::string_view of = "run");
/// The runs in `root` and in its folders: ours, oldest first, then smdebug's by name. Only `root` if it is a
/// run itself.
std::vector<std::string> ListRuns(const std::string& root);
struct NamedRun {
  std::string path;
  std::string name;  ///< a name that can be typed as RUN
};
/// Runs under ./tdbg-runs (ListRuns), and those that this user started from this directory with --dir
/// elsewhere. Runs that tdbg wrote come first, oldest first.
std::vector<NamedRun> RunsOfHere();
/// What a run that ListRuns found is called: its path from `root` on.
std::string RunName(const std::string& path, const std::string& root);
/// The shortest path to type: relative to the working directory if it is below it; of a run that is kept in a
/// bucket, its URL.
std::string DisplayPath(const std::string& path);
/// Where a run can be opened later, too: the URL of one that is kept in a bucket, else the path as it is.
std::string LastingPlace(const std::string& path);
/// A word for people to paste into bash or zsh, quoted where it must be, of printable characters only.
std::string ShellWord(std::string_view word);
/// A word for sh, whatever it holds.
std::string SingleQuoted(std::string_view word);

}  // namespace tdbg::cli

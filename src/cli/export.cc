// tdbg export: a run's content for other programs, once or while the run goes on.
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <thread>

#include "base/below.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/companion.h"
#include "base/file.h"
#include "base/posix.h"
#include "base/process.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/elements.h"
#include "cli/exit_codes.h"
#include "cli/exporters.h"
#include "cli/flags.h"
#include "cli/json_output.h"
#include "cli/output.h"
#include "cli/run_events.h"
#include "cli/run_path.h"
#include "cli/terminal.h"
#include "jobs/interrupts.h"
#include "jobs/run_directory.h"
#include "ship/follow.h"
#include "ship/output.h"
#include "ship/smdebug.h"
#include "ship/tables.h"
#include "ship/tensorboard.h"
#include "trial/coarse.h"

namespace tdbg::cli {
namespace {

const std::vector<std::string> kFormats = {"tensorboard", "smdebug", "csv", "parquet", "npz", "safetensors"};
constexpr int kNoPyarrow = 3;                             // python/tdbg/export.py says so
constexpr std::string_view kParquetMark = "tdbg.export";  // and this
constexpr int64_t kProgressNanos = 1'000'000'000;         // no progress is shown for exports that are faster
constexpr int64_t kProgressEveryNanos = 200'000'000;
// A follower runs at the lowest priority: it has the whole time of the training for its work.
constexpr int kNiceness = 10;

std::atomic<int> interrupted_by{0};

std::string CountWords(const ship::Shipped& shipped) {
  std::string text;
  for (const auto& [what, count] : shipped.counts)
    text += (text.empty() ? "" : ", ") + base::Counted(count, what.substr(0, what.size() - 1), what);
  return text;
}

Status Convert(const std::string& python, const std::string& rows, const std::string& parquet) {
  const std::string home = base::FindPythonHome();
  if (home.empty()) {
    return NotFound(
        "--to parquet needs tdbg's Python part, which cannot be found; set TDBG_HOME to the directory that "
        "holds the package, or use --to csv");
  }
  base::SpawnOptions spawn;
  spawn.argv = {python, base::JoinPath(home, "tdbg/export.py"), rows, parquet};
  spawn.own_group = false;
  auto child = base::Child::Spawn(spawn);
  if (!child.ok())
    return child.status().Annotate("--to parquet needs a Python with pyarrow (--python COMMAND)");
  const auto exit = child->Wait(-1);
  if (exit && exit->shell_code() == 0) return OkStatus();
  if (exit && exit->shell_code() == kNoPyarrow) {
    return FailedPrecondition(
        fmt::format("--to parquet needs pyarrow, and {} has none: install it there (pip install "
                    "pyarrow), name another Python (--python COMMAND), or use --to csv",
                    ShellWord(python)));
  }
  return Unavailable(
      fmt::format("{} could not write the Parquet file (exit code {}); --to csv needs no Python",
                  ShellWord(python), exit ? exit->shell_code() : -1));
}

/// True if python/tdbg/export.py wrote the file: its mark is in the metadata, at the end of the file.
bool IsOurParquet(const std::string& path) {
  const auto mapping = base::ReadOnlyMapping::Open(path);
  if (!mapping.ok()) return false;
  const std::string_view bytes(reinterpret_cast<const char*>((*mapping)->bytes().data()),
                               (*mapping)->bytes().size());
  constexpr std::string_view kMagic = "PAR1";
  constexpr size_t kEndBytes = sizeof(uint32_t) + kMagic.size();  // the metadata's length, the magic
  if (bytes.size() < kMagic.size() + kEndBytes || !bytes.starts_with(kMagic) || !bytes.ends_with(kMagic))
    return false;
  const size_t end = bytes.size() - kEndBytes;
  const auto length = base::Load<uint32_t>(bytes.data() + end);
  return length <= end && bytes.substr(end - length, length).find(kParquetMark) != std::string_view::npos;
}

ship::IsOurFile OurFile(const std::string& format) {
  if (format == "csv") return ship::IsOurCsv;
  if (format == "parquet") return IsOurParquet;
  const auto archive = format == "npz" ? ship::ArchiveFormat::kNpz : ship::ArchiveFormat::kSafetensors;
  return [archive](const std::string& path) { return ship::IsOurArchive(path, archive); };
}

/// "exporting: step 120 of 1000", on a terminal, once it takes longer than a second.
class Progress {
 public:
  explicit Progress(bool quiet) : shown_(!quiet && Terminal::Of(STDERR_FILENO).is_terminal) {}
  ~Progress() {
    if (drawn_) WriteProgress("\r\x1b[K");
  }
  Status operator()(size_t done, size_t total) {
    if (interrupted_by != 0) return Unavailable("interrupted; nothing was written");
    if (!shown_) return OkStatus();
    const int64_t now = base::SystemClock().MonotonicNanos();
    if (now < next_) return OkStatus();
    next_ = now + kProgressEveryNanos;
    WriteProgress(fmt::format("\r\x1b[Kexporting: {} of {}", done, total));
    drawn_ = true;
    return OkStatus();
  }

 private:
  const bool shown_;
  bool drawn_ = false;
  int64_t next_ = base::SystemClock().MonotonicNanos() + kProgressNanos;
};

class ExportCommand : public Command {
 public:
  std::string name() const override { return "export"; }
  std::string help() const override { return "write a run's content for other programs"; }
  void Define(Flags& flags) override {
    flags.AddOption("RUN", run_, "a path, a name under ./tdbg-runs, or last").Required();
    flags.AddOption("PATH", path_, "the file or directory to make").Required();
    flags.AddOption("REGEX", choice_.regex, "only tensors in whose name it is found");
    flags.AddOption("--to", to_, "tensorboard, smdebug, csv, parquet, npz, safetensors")
        .TypeName("FORMAT")
        .Required();
    flags.AddOption("--collection", choice_.collection, "only tensors of this collection").TypeName("NAME");
    flags.AddOption("--steps", steps_, "global steps from A up to, not including, B").TypeName("A:B");
    flags.AddOption("--every", choice_.every, "only mode steps that are multiples of N; default 1")
        .TypeName("N")
        .Check(IntegerFrom(1));
    flags
        .AddOption("--statistics-every", statistics_every_,
                   "tensorboard: statistics of large tensors at every Nth mode step only; default 1")
        .TypeName("N")
        .Check(IntegerFrom(1));
    flags
        .AddOption("--fields", fields_,
                   "csv, parquet, npz, safetensors: these statistics; default: the usual ones")
        .TypeName("F,F,...");
    flags.AddFlag("--raw", raw_,
                  "csv, npz, safetensors: the values, where they were kept, instead of statistics");
    flags
        .AddOption("--python", python_,
                   "parquet: a Python that has pyarrow; default: $TDBG_PYTHON, else python3")
        .TypeName("COMMAND");
    flags.AddOption("--worker", choice_.worker, "only this worker; default: all").TypeName("NAME");
    AddAttempt(flags, attempt_);
    flags.AddFlag("--force", force_, "replace what an earlier export wrote");
    flags.AddFlag("--follow", follow_, "tensorboard, smdebug: go on until the run has ended");
    flags.AddFlag("--quiet", quiet_, "no progress");
    flags.AddFlag("--json", json_, "the result as one JSON document on stdout");
    // For `tdbg run`, which keeps standard input open for as long as the job lives.
    flags.AddFlag("--launched", launched_, "").Hidden();
    flags.AddFlag("--no-end", no_end_, "").Hidden();  // its launcher tells readers that it is over
    flags.AddFlag("--again", again_, "").Hidden();    // what was exported of this attempt is exported anew
    flags.AddFlag("--whole", whole_, "").Hidden();    // and what earlier attempts reached
  }

  Result<int> Run() override {
    if (std::find(kFormats.begin(), kFormats.end(), to_) == kFormats.end()) {
      const auto nearest = base::Nearest(to_, kFormats);
      return InvalidArgument(fmt::format("--to {}: no such format{}; accepted: {}", to_,
                                         nearest ? ", did you mean " + *nearest + "?" : "",
                                         fmt::join(kFormats, ", ")));
    }
    TDBG_ASSIGN_OR_RETURN(const StepRange range, ParseStepRange(steps_));
    choice_.begin = range.begin;
    choice_.end = range.end;
    path_ = jobs::AbsolutePath(path_);
    TDBG_RETURN_IF_ERROR(CheckFlags());
    TDBG_RETURN_IF_ERROR(StayInside());
    if (follow_) return Follow();
    TDBG_ASSIGN_OR_RETURN(const std::unique_ptr<Trial> trial, OpenRun(run_, attempt_));
    TDBG_RETURN_IF_ERROR(CheckChoice(*trial));
    thinned_ = CoarseRows(*trial).ThinnedSteps().steps;
    for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
      struct sigaction action = {};
      action.sa_handler = [](int signal_number) { interrupted_by = signal_number; };
      ::sigaction(number, &action, nullptr);
    }
    Progress progress(quiet_);
    const auto tell = [&](size_t done, size_t total) { return progress(done, total); };
    return IsStream() ? ExportSteps(*trial, tell) : ExportTable(*trial, tell);
  }

 private:
  using Tell = std::function<Status(size_t done, size_t total)>;

  /// Steps go into a directory as they come; the others are files made from all of them.
  bool IsStream() const { return to_ == "tensorboard" || to_ == "smdebug"; }
  Status CheckFlags() const;
  /// An output inside of the run must not lead out of it through a symbolic link.
  Status StayInside() const;
  Status CheckChoice(const Trial& trial) const;
  Result<int> ExportSteps(Trial& trial, const Tell& tell);
  Result<int> ExportTable(const Trial& trial, const Tell& tell);
  Result<ship::Shipped> ExportParquet(const Trial& trial, const ship::TableOptions& options, const Tell& tell,
                                      const ship::OutputFile& output) const;
  Result<int> Follow();
  Result<std::unique_ptr<ship::Destination>> MakeDestination(const std::string& directory) const;
  /// The error if there is nothing to publish: kDataLoss if the run is damaged, otherwise kNotFound
  Status CheckShipped(const ship::Shipped& shipped, const std::vector<std::string>& damage) const;
  /// The exit code once the export is published. \error kDataLoss  it lacks what is damaged
  Result<int> Conclude(const ship::Shipped& shipped, const std::vector<std::string>& damage) const;

  std::string run_, path_, to_, steps_, fields_, python_;
  ship::Choice::Options choice_;
  int64_t statistics_every_ = 1, attempt_ = -1;
  size_t thinned_ = 0;  // steps whose rows were dropped to keep the run within a budget
  bool force_ = false, follow_ = false, quiet_ = false, json_ = false, launched_ = false, raw_ = false;
  bool no_end_ = false, again_ = false, whole_ = false;
};

Status ExportCommand::StayInside() const {
  const auto resolved = ResolveRunToRead(run_);
  const std::string run = resolved.ok() ? *resolved : jobs::AbsolutePath(run_);
  if (!path_.starts_with(run + "/")) return OkStatus();
  TDBG_RETURN_IF_ERROR(base::CheckBelow(run, path_));
  // An export inside a run gets the run's permissions.
  struct stat info;
  if (::stat(run.c_str(), &info) == 0) ::umask(::umask(0) | (~info.st_mode & 077));
  return OkStatus();
}

Result<std::unique_ptr<ship::Destination>> ExportCommand::MakeDestination(
    const std::string& directory) const {
  const bool restart = follow_ && (attempt_ > 0 || again_);
  if (to_ == "smdebug") return ship::MakeSmdebug({directory, choice_, restart, !no_end_});
  ship::TensorBoardOptions options;
  options.directory = directory;
  options.choice = choice_;
  options.statistics_every = statistics_every_;
  options.restart = restart;
  return ship::MakeTensorBoard(options);
}

Status ExportCommand::CheckFlags() const {
  if (follow_ && !IsStream()) {
    return InvalidArgument(
        fmt::format("--follow: {} files are written once; tensorboard and smdebug can follow a run", to_));
  }
  if (IsStream() && (raw_ || !fields_.empty())) {
    return InvalidArgument(fmt::format("{}: is for csv, parquet, npz and safetensors, and says nothing to {}",
                                       raw_ ? "--raw" : "--fields", to_));
  }
  if (raw_ && !fields_.empty())
    return InvalidArgument("--raw and --fields exclude each other; leave one out");
  if (raw_ && to_ == "parquet") {
    return InvalidArgument("--raw: parquet holds statistics; npz, safetensors and csv hold values");
  }
  return OkStatus();
}

Status ExportCommand::CheckChoice(const Trial& trial) const {
  TDBG_ASSIGN_OR_RETURN(const std::vector<std::string> names,
                        trial.tensor_names(choice_.regex, choice_.collection));
  if (!names.empty()) return OkStatus();
  TDBG_RETURN_IF_ERROR(CouldNotRead(trial.damage()).Annotate("nothing to export"));
  return NotFound(fmt::format(
      "nothing to export: no tensor of the run is chosen; `tdbg tensors {}` lists them", ShellWord(run_)));
}

Status ExportCommand::CheckShipped(const ship::Shipped& shipped,
                                   const std::vector<std::string>& damage) const {
  if (shipped.steps == 0) {
    TDBG_RETURN_IF_ERROR(CouldNotRead(damage).Annotate("nothing to export"));
    return NotFound(
        fmt::format("nothing to export: the run holds no {} of these tensors at these steps; `tdbg tensors "
                    "{}` says what it holds",
                    raw_ ? "values" : "data", ShellWord(run_)));
  }
  return OkStatus();
}

Result<int> ExportCommand::Conclude(const ship::Shipped& shipped,
                                    const std::vector<std::string>& damage) const {
  if (json_) {
    Json json = {{"to", to_}, {"path", path_}, {"steps", shipped.steps}, {"bytes", shipped.bytes}};
    if (!damage.empty()) json["damage"] = damage;
    if (thinned_ != 0) json["coarse_steps"] = thinned_;
    for (const auto& [what, count] : shipped.counts) json[what] = count;
    PrintJson(json);
  } else if (!quiet_) {
    Print("{}: {} of {}, {}\n", DisplayPath(path_), CountWords(shipped), base::Counted(shipped.steps, "step"),
          base::FormatBytes(shipped.bytes));
    if (thinned_ != 0) {
      Note(fmt::format(
          "of {} rows were dropped to keep the run within its budget; an export has single steps only, "
          "the page shows what coarse rows tell of them",
          base::Counted(thinned_, "step")));
    }
  }
  TDBG_RETURN_IF_ERROR(CouldNotRead(damage).Annotate(Printable(DisplayPath(path_)) + " is incomplete"));
  return kExitOk;
}

Result<int> ExportCommand::ExportSteps(Trial& trial, const Tell& tell) {
  TDBG_ASSIGN_OR_RETURN(
      ship::OutputDirectory output,
      ship::OutputDirectory::Create(path_, force_,
                                    to_ == "smdebug" ? ship::IsOurSmdebugFile : ship::IsOurTensorBoardFile));
  TDBG_ASSIGN_OR_RETURN(const std::unique_ptr<ship::Destination> destination,
                        MakeDestination(output.temporary_path()));
  TDBG_RETURN_IF_ERROR(ship::ShipAll(trial, *destination, tell));
  const ship::Shipped shipped = destination->shipped();
  TDBG_RETURN_IF_ERROR(CheckShipped(shipped, trial.damage()));
  TDBG_RETURN_IF_ERROR(output.Commit());
  return Conclude(shipped, trial.damage());
}

Result<int> ExportCommand::ExportTable(const Trial& trial, const Tell& tell) {
  ship::TableOptions options;
  options.choice = choice_;
  options.fields = base::SplitList(fields_);
  options.raw = raw_;
  TDBG_ASSIGN_OR_RETURN(ship::OutputFile output, ship::OutputFile::Create(path_, force_, OurFile(to_)));
  ship::Shipped shipped;
  if (to_ == "npz" || to_ == "safetensors") {
    const auto format = to_ == "npz" ? ship::ArchiveFormat::kNpz : ship::ArchiveFormat::kSafetensors;
    TDBG_ASSIGN_OR_RETURN(shipped, ship::WriteArchive(trial, options, format, output, tell));
    TDBG_RETURN_IF_ERROR(CheckShipped(shipped, trial.damage()));
  } else if (to_ == "csv") {
    TDBG_ASSIGN_OR_RETURN(shipped, ship::WriteCsv(trial, options, output, tell));
    TDBG_RETURN_IF_ERROR(CheckShipped(shipped, trial.damage()));
  } else {
    TDBG_ASSIGN_OR_RETURN(shipped, ExportParquet(trial, options, tell, output));
  }
  TDBG_RETURN_IF_ERROR(output.Commit());
  return Conclude(shipped, trial.damage());
}

// We write the rows to a temporary file beside the output, from which pyarrow makes the Parquet file.
Result<ship::Shipped> ExportCommand::ExportParquet(const Trial& trial, const ship::TableOptions& options,
                                                   const Tell& tell, const ship::OutputFile& output) const {
  const std::string rows_path = output.temporary_path() + ".csv";
  TDBG_ASSIGN_OR_RETURN(ship::OutputFile rows, ship::OutputFile::Create(rows_path, true, ship::IsOurCsv));
  TDBG_ASSIGN_OR_RETURN(ship::Shipped shipped, ship::WriteCsv(trial, options, rows, tell));
  TDBG_RETURN_IF_ERROR(CheckShipped(shipped, trial.damage()));
  TDBG_RETURN_IF_ERROR(rows.Commit());
  const char* from_environment = ::getenv("TDBG_PYTHON");
  const std::string python = !python_.empty()                        ? python_
                             : from_environment && *from_environment ? from_environment
                                                                     : "python3";
  const Status converted = Convert(python, rows_path, output.temporary_path());
  (void)base::LocalFileSystem().Remove(rows_path);
  TDBG_RETURN_IF_ERROR(converted);
  TDBG_ASSIGN_OR_RETURN(const auto written, base::LocalFileSystem().OpenReadable(output.temporary_path()));
  TDBG_ASSIGN_OR_RETURN(shipped.bytes, written->Size());
  return shipped;
}

Result<int> ExportCommand::Follow() {
  // Signals that end the job must not end the export at once: the job's last steps are still to be exported.
  jobs::BlockForwardedSignals();
  TDBG_ASSIGN_OR_RETURN(jobs::SignalInbox inbox, jobs::SignalInbox::Open());
  (void)!::nice(kNiceness);
  const auto resolved = ResolveRunToRead(run_);
  ship::FollowOptions options;
  options.run = resolved.ok() ? *resolved : run_;
  options.attempt = whole_ ? -1 : attempt_;
  options.wait_for_job_end = launched_;
  TDBG_ASSIGN_OR_RETURN(const std::unique_ptr<ship::Destination> destination, MakeDestination(path_));

  ship::Follower follower(options);
  const base::UniqueFd done(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  Status followed;
  std::thread following([&] {
    followed = follower.Follow(*destination);
    const uint64_t one = 1;
    (void)!::write(done.get(), &one, sizeof(one));
  });
  bool ending = false;
  while (true) {
    pollfd sources[] = {{done.get(), POLLIN, 0},
                        {inbox.fd(), POLLIN, 0},
                        {launched_ && !ending ? STDIN_FILENO : -1, POLLIN, 0}};
    if (::poll(sources, std::size(sources), -1) < 0) continue;
    if (sources[0].revents & POLLIN) break;
    if (sources[2].revents != 0) {
      ending = true;
      follower.JobEnded();
    }
    const int signal_number = inbox.Next();
    if (signal_number == 0 || signal_number == SIGUSR1 || signal_number == SIGUSR2) continue;
    if (ending) ::_exit(128 + signal_number);
    ending = true;
    follower.JobEnded();
  }
  following.join();
  // A run that never began has nothing to export; `tdbg run` says why.
  if (launched_ && followed.code() == Code::kNotFound) followed = OkStatus();

  const ship::Shipped shipped = destination->shipped();
  if (launched_) {
    const Status whole =
        followed.ok() ? CouldNotRead(follower.damage()).Annotate(CountWords(shipped)) : followed;
    const ExportOutcome outcome{to_, path_, whole.ok(), whole.ok() ? CountWords(shipped) : whole.message()};
    (void)AppendEvent(options.run, "export_ended", ExportFields(outcome, attempt_));
    if (!followed.ok()) {
      return followed.Annotate(
          fmt::format("writing {} stopped, the training and its recording go on (`tdbg export {} --to {} {} "
                      "--force` writes it "
                      "later)",
                      to_, ShellWord(DisplayPath(options.run)), to_, ShellWord(DisplayPath(path_))));
    }
    if (!whole.ok()) return whole.Annotate(DisplayPath(path_));
    return kExitOk;
  }
  TDBG_RETURN_IF_ERROR(followed);
  return Conclude(shipped, follower.damage());
}

}  // namespace

std::unique_ptr<Command> MakeExportCommand() { return std::make_unique<ExportCommand>(); }

}  // namespace tdbg::cli

// tdbg-store: everything that tdbg does with buckets. A separate program, so that libcurl is loaded only
// where it is used, and by no training and no command that needs no bucket.
//
//   tdbg-store check URL [--run ID]                 may a run be put there?
//   tdbg-store probe URL                             may anything be put there?
//   tdbg-store upload RUN URL [--follow] [--uploader ID] [--every-millis N] [--grace-seconds N] [--json]
//                                                    --follow: until standard input ends; "ok ID" on standard
//                                                    output once the prefix is claimed, and "there FILES
//                                                    BYTES" once all of the run is there. --uploader: the ID
//                                                    of a process that was killed, which this one takes over
//                                                    from
//   tdbg-store mirror URL [--cache DIRECTORY]        answers questions on standard input, a line each:
//                                                    "refresh", "need OFFSET BYTES NAME", "include FOLDER";
//                                                    "stats"
//   tdbg-store runs URL [--most N]                   the runs below it, as one JSON document; or "error CODE
//                                                    MESSAGE"
//   tdbg-store bring-back URL DIRECTORY              the prefix's run becomes one of this machine; answers
//   "ok
//                                                    brought", "ok here", "ok behind" or "ok none"
//                                                    (bring_back.h)
//   tdbg-store fetch URL DIRECTORY                   a prefix's objects into a directory, whatever they are
//   tdbg-store send DIRECTORY URL [--follow] [--delete] [--every-millis N]
//                                                    a directory's files into a prefix; --follow: as they
//                                                    come, until standard input ends
//   tdbg-store checkpoints DIRECTORY URL --run ID [--run-directory RUN] [--follow] [--grace-seconds N]
//                                                    a directory of checkpoints into the run's prefix, as
//                                                    sets;
//                                                    --follow: until standard input ends
//   tdbg-store restore-checkpoints URL DIRECTORY [--json]
//                                                    the newest whole set into an empty directory; --json:
//                                                    what came, or the error, as one line on standard output
//   tdbg-store ls|cat|put|rm URL ...                 objects, for tests and for people
//   exit code: 0, or the class of error as tdbg's (docs/cli.md)
#include <fmt/format.h>
#include <poll.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <iostream>
#include <mutex>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "base/background.h"
#include "base/file.h"
#include "base/posix.h"
#include "base/text.h"
#include "format/json_fields.h"
#include "format/version.h"
#include "storage/bring_back.h"
#include "storage/checkpoint_restore.h"
#include "storage/checkpoint_sender.h"
#include "storage/folder.h"
#include "storage/mirror.h"
#include "storage/object_store.h"
#include "storage/run_list.h"
#include "storage/uploader.h"

namespace tdbg::storage {
namespace {

int ExitOf(const Status& status) {
  switch (status.code()) {
    case Code::kOk:
      return 0;
    case Code::kInvalidArgument:
      return 2;
    case Code::kNotFound:
      return 4;
    case Code::kDataLoss:
      return 5;
    case Code::kUnimplemented:
      return 7;
    case Code::kInternal:
      return 70;
    default:
      return 6;
  }
}

std::string OneLine(std::string text) {
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < 32) c = ' ';
  }
  return text;
}

// For whoever reads our standard output: the code, so that it need not be guessed from words.
void Answer(const Status& status, const std::string& text = {}) {
  const std::string line =
      status.ok() ? "ok" + (text.empty() ? "" : " " + text)
                  : fmt::format("error {} {}", static_cast<int>(status.code()), OneLine(status.message()));
  fmt::print("{}\n", line);
  ::fflush(stdout);
}

struct Arguments {
  std::vector<std::string> words;
  std::string run, run_directory, cache, range, if_match, uploader;
  bool follow = false, if_absent = false, json = false, deletes = false;
  bool every_millis_said = false;
  int64_t every_millis = 1'000, grace_seconds = 600, most = 0;
  StoreOptions store;
};

Result<Arguments> Parse(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const auto number = [&](int64_t* to, int64_t least) {
      const auto value = i + 1 < argc ? base::ParseInt(argv[++i]) : std::nullopt;
      if (value && *value >= least) *to = *value;
      return value && *value >= least;
    };
    const auto text = [&](std::string* to) {
      if (i + 1 >= argc) return false;
      *to = argv[++i];
      return true;
    };
    int64_t silent_millis = arguments.store.silent_millis;
    int64_t tries = arguments.store.tries, part_bytes = static_cast<int64_t>(arguments.store.part_bytes);
    bool good = true;
    if (word == "--follow") {
      arguments.follow = true;
    } else if (word == "--json") {
      arguments.json = true;
    } else if (word == "--delete") {
      arguments.deletes = true;
    } else if (word == "--if-absent") {
      arguments.if_absent = true;
    } else if (word == "--if-match") {
      good = text(&arguments.if_match);
    } else if (word == "--run") {
      good = text(&arguments.run);
    } else if (word == "--run-directory") {
      good = text(&arguments.run_directory);
    } else if (word == "--uploader") {
      good = text(&arguments.uploader);
    } else if (word == "--cache") {
      good = text(&arguments.cache);
    } else if (word == "--range") {
      good = text(&arguments.range);
    } else if (word == "--every-millis") {
      good = number(&arguments.every_millis, 10);
      arguments.every_millis_said = good;
    } else if (word == "--grace-seconds") {
      good = number(&arguments.grace_seconds, 0);
    } else if (word == "--most") {
      good = number(&arguments.most, 0);
    } else if (word == "--tries") {
      good = number(&tries, 1);
    } else if (word == "--silent-millis") {
      good = number(&silent_millis, 1'000);
    } else if (word == "--part-bytes") {
      good = number(&part_bytes, 1);
    } else if (word.starts_with("--")) {
      good = false;
    } else {
      arguments.words.push_back(word);
    }
    if (!good) return InvalidArgument("unknown or badly given: " + word);
    arguments.store.tries = static_cast<int>(tries);
    arguments.store.silent_millis = silent_millis;
    arguments.store.part_bytes = static_cast<uint64_t>(part_bytes);
  }
  return arguments;
}

Result<std::string> CacheRoot() {
  for (const auto& [variable, below] : {std::pair("TDBG_CACHE", "s3"), std::pair("XDG_CACHE_HOME", "tdbg/s3"),
                                        std::pair("HOME", ".cache/tdbg/s3")}) {
    const char* const value = ::getenv(variable);
    if (value != nullptr && *value == '/') return base::JoinPath(value, below);
  }
  // A service, cron, `env -i`: no $HOME, and a home all the same. Never a place in /tmp, where anybody may be
  // first.
  if (const passwd* const user = ::getpwuid(::geteuid()); user != nullptr && *user->pw_dir == '/')
    return base::JoinPath(user->pw_dir, ".cache/tdbg/s3");
  return FailedPrecondition("no home to keep what is read in; set TDBG_CACHE to a directory of yours");
}

// Whoever started us tells us by the end of our standard input that the job is over.
template <typename Then>
void WhenInputEnds(Then then) {
  std::thread([then] {
    char bytes[64];
    while (::read(STDIN_FILENO, bytes, sizeof(bytes)) > 0) {
    }
    then();
  }).detach();
}

Status SendFolder(const Arguments& arguments, ObjectStore* store, const Location& to) {
  FolderOptions options;
  options.directory = arguments.words[1];
  options.to = to;
  options.every_millis = arguments.every_millis;
  options.deletes = arguments.deletes;
  options.say = [](const std::string& what) { fmt::print(stderr, "tdbg: send: {}\n", OneLine(what)); };
  FolderSender sender(store, options);
  if (!arguments.follow) return sender.SendDue();
  WhenInputEnds([&] { sender.Stop(); });
  return sender.Follow();
}

// One sender at a time has a run's checkpoints: one that its launcher has left sends the rest before the next
// begins.
Status WaitForTurn(const Arguments& arguments, base::UniqueFd* turn) {
  if (arguments.run_directory.empty()) return OkStatus();
  *turn = base::OpenFd(base::JoinPath(arguments.run_directory, format::kRunFile).c_str(), O_RDONLY);
  if (!turn->ok() || ::flock(turn->get(), LOCK_EX) == 0) return OkStatus();
  return errno == EINTR || errno == ENOLCK || errno == EOPNOTSUPP ? OkStatus()
                                                                  : ErrnoStatus(errno, "cannot lock the run");
}

Status SendCheckpoints(const Arguments& arguments, ObjectStore* store, const Location& run) {
  CheckpointOptions options;
  options.directory = arguments.words[1];
  options.run = run;
  options.run_id = arguments.run;
  options.run_directory = arguments.run_directory;
  if (arguments.every_millis_said) options.every_millis = arguments.every_millis;
  options.grace_millis = arguments.grace_seconds * 1000;
  options.say = [](const std::string& what) { fmt::print(stderr, "tdbg: checkpoints: {}\n", OneLine(what)); };
  base::UniqueFd turn;
  TDBG_RETURN_IF_ERROR(WaitForTurn(arguments, &turn));
  CheckpointSender sender(store, options);
  if (arguments.follow) WhenInputEnds([&] { sender.Stop(); });
  const Status sent = arguments.follow ? sender.Follow() : sender.SendLast();
  if (sent.ok() || sent.code() == Code::kAlreadyExists) return sent.Annotate("checkpoints");
  return sent.Annotate(fmt::format("the last checkpoints are not in {}", run.ToString()));
}

/// \param told  as Upload's
Status Restore(const Arguments& arguments, ObjectStore* store, const Location& run, bool* told) {
  RestoreOptions options;
  options.run = run;
  options.directory = arguments.words[2];
  options.say = [](const std::string& what) { fmt::print(stderr, "tdbg: {}\n", OneLine(what)); };
  const auto restored = RestoreCheckpoints(store, options);
  if (!restored.ok()) {
    *told = arguments.json;
    if (arguments.json)
      fmt::print("{}\n", format::DumpJson({{"error", OneLine(restored.status().message())},
                                           {"code", static_cast<int>(restored.status().code())}}));
    return restored.status();
  }
  if (!arguments.json) {
    fmt::print("{}\n", restored->kept ? options.directory + " holds files, and is left as it is"
                       : restored->number == 0
                           ? "there are no checkpoints in " + run.ToString()
                           : fmt::format("set {}: {} ({})", restored->number,
                                         base::Counted(restored->set.files.size(), "file"),
                                         base::FormatBytes(restored->set.Bytes())));
    return OkStatus();
  }
  fmt::print("{}\n", format::DumpJson({{"kept", restored->kept},
                                       {"set", restored->number},
                                       {"attempt", restored->set.attempt},
                                       {"step", restored->set.step},
                                       {"seen_step", restored->set.seen_step},
                                       {"wall_nanos", restored->set.wall_nanos},
                                       {"files", restored->set.files.size()},
                                       {"bytes", restored->set.Bytes()}}));
  return OkStatus();
}

/// \param told  set to true where an error was answered, and is not to be said once more
Status Upload(const Arguments& arguments, ObjectStore* store, const Location& to, bool* told) {
  UploadOptions options;
  options.run_directory = arguments.words[1];
  while (options.run_directory.size() > 1 && options.run_directory.back() == '/')
    options.run_directory.pop_back();
  options.to = to;
  options.predecessor = arguments.uploader;
  options.every_millis = arguments.every_millis;
  options.grace_millis = arguments.grace_seconds * 1000;
  options.say = [](const std::string& what) { fmt::print(stderr, "tdbg: upload: {}\n", OneLine(what)); };
  Uploader uploader(store, options);
  const Status claimed = uploader.Claim();
  if (arguments.follow) Answer(claimed, uploader.id());  // and whoever gets it says it
  if (!claimed.ok()) {
    *told = arguments.follow;
    return claimed;
  }
  Status done;
  if (arguments.follow) {
    WhenInputEnds([&] { uploader.Stop(); });
    done = uploader.Follow();
  } else {
    done = uploader.SendAll();
  }
  const UploadTotals& totals = uploader.totals();
  if (!done.ok()) {
    if (done.code() == Code::kAlreadyExists) return done;
    // What cannot go is no word of the command line.
    return Status(done.code() == Code::kInvalidArgument ? Code::kFailedPrecondition : done.code(),
                  fmt::format("{} ({}) of {} could not be put into {}: {}; tdbg upload {} {} sends them",
                              base::Counted(totals.files_left, "file"), base::FormatBytes(totals.bytes_left),
                              options.run_directory, to.ToString(), done.message(),
                              ShellWord(options.run_directory), ShellWord(to.ToString())));
  }
  if (arguments.follow && !uploader.goes_on()) {
    fmt::print("there {} {}\n", totals.files_there, totals.bytes_there);
  } else if (arguments.json) {
    fmt::print("{}\n",
               format::DumpJson({{"run", options.run_directory},
                                 {"url", to.ToString()},
                                 {"files", totals.files},
                                 {"bytes", totals.bytes},
                                 {"there", {{"files", totals.files_there}, {"bytes", totals.bytes_there}}},
                                 {"complete", !uploader.goes_on()}}));
  } else if (!arguments.follow) {
    fmt::print("sent {}, {}; {} has {} of the run, {}\n", base::Counted(totals.files, "file"),
               base::FormatBytes(totals.bytes), to.ToString(), base::Counted(totals.files_there, "file"),
               base::FormatBytes(totals.bytes_there));
    if (uploader.goes_on())
      options.say(fmt::format("the run goes on; tdbg upload {} {} sends what comes, once it has ended",
                              ShellWord(options.run_directory), ShellWord(to.ToString())));
  }
  return OkStatus();
}

// Says how far it is, where that takes longer than a second: over and over on a terminal, else now and then.
void ShowProgress(const std::stop_token& stop, const FetchedBytes& bytes, const std::string& url) {
  const bool terminal = ::isatty(STDERR_FILENO) != 0;
  std::mutex mutex;
  std::condition_variable_any ended;
  std::unique_lock lock(mutex);
  bool shown = false;
  while (!ended.wait_for(lock, stop, std::chrono::seconds(terminal || !shown ? 1 : 15),
                         [&] { return stop.stop_requested(); })) {
    if (bytes.all == 0) continue;
    fmt::print(stderr, "{}tdbg: {} comes back: {} of {}{}", shown && terminal ? "\r" : "", OneLine(url),
               base::FormatBytes(bytes.done), base::FormatBytes(bytes.all), terminal ? "\x1b[K" : "\n");
    ::fflush(stderr);
    shown = true;
  }
  if (shown && terminal) fmt::print(stderr, "\n");
}

Status BringRunBack(const Arguments& arguments, ObjectStore* store, const Location& from) {
  BringBackOptions options;
  options.from = from;
  options.directory = arguments.words[2];
  options.say = [](const std::string& what) { fmt::print(stderr, "tdbg: {}\n", OneLine(what)); };
  FetchedBytes bytes;
  std::jthread progress([&](const std::stop_token& stop) { ShowProgress(stop, bytes, from.ToString()); });
  const auto brought = BringBack(store, options, &bytes);
  progress.request_stop();
  progress.join();
  if (!brought.ok()) return brought.status();
  switch (*brought) {
    case BroughtBack::kNoRun:
      Answer(OkStatus(), "none");
      break;
    case BroughtBack::kIsHere:
      Answer(OkStatus(), "here");
      break;
    case BroughtBack::kBehind:
      Answer(OkStatus(), "behind");
      break;
    case BroughtBack::kBrought:
      Answer(OkStatus(), "brought");
      break;
  }
  return OkStatus();
}

Status MirrorRun(const Arguments& arguments, ObjectStore* store, const Location& from) {
  const Result<std::string> root = arguments.cache.empty() ? CacheRoot() : arguments.cache;
  MirrorOptions options;
  options.from = from;
  if (root.ok()) options.cache_root = *root;
  options.say = [&from](const std::string& what) {
    fmt::print(stderr, "tdbg: {}: {}\n", from.ToString(), OneLine(what));
  };
  auto mirror = root.ok() ? Mirror::Open(store, options) : root.status();
  Answer(mirror.ok() ? OkStatus() : mirror.status(), mirror.ok() ? (*mirror)->directory() : "");
  if (!mirror.ok()) return OkStatus();  // the error was told already
  for (std::string line; std::getline(std::cin, line);) {
    if (line == "refresh") {
      Answer((*mirror)->Refresh());
    } else if (line.starts_with("include ")) {
      Answer((*mirror)->Include(line.substr(8)));
    } else if (line == "stats") {
      Answer(OkStatus(), fmt::format("{} {}", (*mirror)->bytes_fetched(), (*mirror)->requests()));
    } else if (line.starts_with("need ")) {
      const size_t bytes_at = line.find(' ', 5), name_at = line.find(' ', bytes_at + 1);
      const auto offset = base::ParseInt(line.substr(5, bytes_at - 5));
      const auto bytes = base::ParseInt(line.substr(bytes_at + 1, name_at - bytes_at - 1));
      const bool good = name_at != std::string::npos && offset && bytes && *offset >= 0 && *bytes >= 0;
      Answer(good ? (*mirror)->Need(line.substr(name_at + 1), static_cast<uint64_t>(*offset),
                                    static_cast<uint64_t>(*bytes))
                  : InvalidArgument("no question: " + line));
    } else {
      Answer(InvalidArgument("no question: " + line));
    }
  }
  return OkStatus();
}

constexpr int64_t kMostRuns = 1'000;

Status ListRuns(const Arguments& arguments, ObjectStore* store, const Location& from) {
  TDBG_ASSIGN_OR_RETURN(
      const RunList list,
      RunsBelow(store, from, static_cast<size_t>(arguments.most > 0 ? arguments.most : kMostRuns)));
  format::Json runs = format::Json::array();
  for (const ListedRun& run : list.runs) {
    runs.push_back({{"name", run.name},
                    {"state", run.state},
                    {"host", run.host},
                    {"bytes", run.bytes},
                    {"age_seconds", run.age_nanos / 1'000'000'000}});
  }
  fmt::print("{}\n", format::DumpJson({{"runs", std::move(runs)}, {"more", list.more}}));
  return OkStatus();
}

// ls URL; cat URL/KEY [--range OFFSET,BYTES]; put FILE URL/KEY [--if-absent] [--if-match ETAG]; rm URL/KEY
Status Objects(const Arguments& arguments, ObjectStore* store, const Location& at) {
  const std::string& verb = arguments.words[0];
  const std::string key = at.KeyPrefix();
  if (verb == "ls") {
    const bool folder = !key.empty() && arguments.words[1].ends_with('/');
    TDBG_ASSIGN_OR_RETURN(const auto objects,
                          store->List(key + (folder ? "/" : ""), static_cast<size_t>(arguments.most)));
    for (const ObjectInfo& object : objects) fmt::print("{} {} {}\n", object.bytes, object.etag, object.key);
    return OkStatus();
  }
  if (verb == "head") {
    TDBG_ASSIGN_OR_RETURN(const ObjectInfo object, store->Head(key));
    fmt::print("{} {} {}\n", object.bytes, object.etag, object.key);
    return OkStatus();
  }
  if (verb == "rm") return store->Delete(key);
  if (verb == "cat") {
    std::optional<Range> range;
    if (!arguments.range.empty()) {
      const size_t comma = arguments.range.find(',');
      const auto offset = base::ParseInt(arguments.range.substr(0, comma));
      const auto bytes = comma == std::string::npos ? 0 : base::ParseInt(arguments.range.substr(comma + 1));
      if (!offset || !bytes || *offset < 0 || *bytes < 0) return InvalidArgument("--range OFFSET,BYTES");
      range = Range{static_cast<uint64_t>(*offset), static_cast<uint64_t>(*bytes)};
    }
    TDBG_ASSIGN_OR_RETURN(const Object object, store->Get(key, range));
    (void)!::fwrite(object.bytes.data(), 1, object.bytes.size(), stdout);
    return OkStatus();
  }
  const std::string& path = arguments.words[1];
  if (arguments.if_absent || !arguments.if_match.empty()) {
    TDBG_ASSIGN_OR_RETURN(const std::string bytes, base::LocalFileSystem().ReadFile(path));
    TDBG_ASSIGN_OR_RETURN(const ObjectInfo put, store->Put(key, std::as_bytes(std::span(bytes)),
                                                           {arguments.if_absent, arguments.if_match}));
    fmt::print("{}\n", put.etag);
    return OkStatus();
  }
  struct stat info;
  if (::stat(path.c_str(), &info) != 0) return ErrnoStatus(errno, "cannot read " + path);
  TDBG_ASSIGN_OR_RETURN(const ObjectInfo put, store->PutFile(key, path, static_cast<uint64_t>(info.st_size)));
  fmt::print("{}\n", put.etag);
  return OkStatus();
}

Status Run(int argc, char** argv, bool* told) {
  ::signal(SIGPIPE, SIG_IGN);
  base::SurviveTornMappings();
  TDBG_ASSIGN_OR_RETURN(const Arguments arguments, Parse(argc, argv));
  const std::string verb = arguments.words.empty() ? "" : arguments.words[0];
  const bool from_bucket = verb == "fetch" || verb == "bring-back" || verb == "restore-checkpoints";
  const bool two =
      from_bucket || verb == "upload" || verb == "put" || verb == "send" || verb == "checkpoints";
  const bool one = verb == "check" || verb == "probe" || verb == "mirror" || verb == "runs" || verb == "ls" ||
                   verb == "cat" || verb == "rm" || verb == "head";
  if ((!two && !one) || arguments.words.size() != (two ? 3 : 2))
    return InvalidArgument(
        "usage: tdbg-store check|probe|mirror|runs|ls|head|cat|rm URL, tdbg-store upload RUN URL, tdbg-store "
        "put "
        "FILE "
        "URL, tdbg-store fetch|bring-back|restore-checkpoints URL DIRECTORY, tdbg-store send|checkpoints "
        "DIRECTORY URL");
  TDBG_ASSIGN_OR_RETURN(const Location location,
                        ParseLocation(from_bucket ? arguments.words[1] : arguments.words.back()));
  auto store = OpenStore(location, arguments.store);
  if ((verb == "mirror" || verb == "bring-back") && !store.ok()) Answer(store.status());
  if (verb == "runs") {
    const Status listed = store.ok() ? ListRuns(arguments, store->get(), location) : store.status();
    if (!listed.ok()) Answer(listed);
    *told = true;
    return listed;
  }
  if (!store.ok()) return store.status();
  if (verb == "upload" || verb == "checkpoints") {
    if (arguments.follow) {  // beside a training; who sends a finished run waits for it
      // A batch system that takes the machine away signals every process of a job. What the training leaves
      // then is still to be sent; we end when whoever started us has.
      for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) ::signal(number, SIG_IGN);
      base::StayInBackground();
      (void)!::nice(10);
    }
    if (verb == "checkpoints") return SendCheckpoints(arguments, store->get(), location);
    return Upload(arguments, store->get(), location, told);
  }
  if (verb == "bring-back") {
    const Status brought = BringRunBack(arguments, store->get(), location);
    if (!brought.ok()) Answer(brought);
    *told = true;
    return brought;
  }
  if (verb == "restore-checkpoints") return Restore(arguments, store->get(), location, told);
  if (verb == "fetch") return FetchFolder(store->get(), location, arguments.words[2]);
  if (verb == "send") return SendFolder(arguments, store->get(), location);
  if (verb == "mirror") return MirrorRun(arguments, store->get(), location);
  if (verb == "probe") return CheckMayPut(**store, location);
  if (verb != "check") return Objects(arguments, store->get(), location);
  UploadOptions options;
  options.to = location;
  options.say = [](const std::string&) {};
  TDBG_RETURN_IF_ERROR(Uploader(store->get(), options).Check(arguments.run));
  return CheckMayPut(**store, location);
}

}  // namespace
}  // namespace tdbg::storage

int main(int argc, char** argv) {
  bool told = false;
  const tdbg::Status status = tdbg::storage::Run(argc, argv, &told);
  if (!status.ok() && !told) fmt::print(stderr, "tdbg: {}\n", tdbg::storage::OneLine(status.message()));
  ::fflush(stdout);
  // Not exit(): a thread may still be reading standard input.
  ::_exit(tdbg::storage::ExitOf(status));
}

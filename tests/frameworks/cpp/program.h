#pragma once
// What a C++ program under the conformance suite does with a training, whichever library that is made of:
// once, twice, two at once, with children. Whatever the training hands to tdbg it also writes, copied by
// itself, into OUT.
//
//   PROGRAM OUT SCENARIO [--run DIRECTORY --plan FILE] [--steps N] [--ask]
//
//   train       once; with $TDBG_RUN into that run, without either into none
//   again       a second training after the first, in the same run
//   two         two at once, each with a run and a thread of its own; the second one leaves OUT.second
//   fork        after the second step a child is forked, which leaves through all frames
//   fork_train  after the second step a child is forked, which trains from the beginning
//   spawn       after the second step a process is started that trains too, and leaves OUT.spawned
//
// With --ask, each step's update is told on standard output ("after N") and answered on standard input: "go",
// "raise TEXT" or "open DIRECTORY PLAN".
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iostream>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "tdbg/run.h"

namespace conformance {

using tdbg::DType;
using tdbg::ModeKey;
using tdbg::Run;

/// Raised by the training's own code.
struct Mistake : std::runtime_error {
  using std::runtime_error::runtime_error;
};
/// In a forked child that has nothing more to do.
struct Leaves {};

/// What a training saw, as text: a line per step and value, bytes as hexadecimal numbers.
class Seen {
 public:
  void Step(const char* mode) { text_ += std::string("step ") + mode + "\n"; }
  void Value(const char* what, const std::string& name, DType dtype, const std::vector<int64_t>& shape,
             const void* data) {
    text_ += std::string(what) + " " + name + " " + std::string(DTypeName(dtype)) + " ";
    size_t bytes = ItemSize(dtype);
    for (const int64_t n : shape) {
      text_ += std::to_string(n) + ",";
      bytes *= static_cast<size_t>(n);
    }
    text_ += " " + Hex(data, bytes) + "\n";
  }
  void Line(const std::string& line) { text_ += line + "\n"; }
  void Result(const void* data, size_t bytes) { result_ += Hex(data, bytes); }
  void Write(const std::string& path) const {
    std::ofstream file(path);
    file << text_ << "result " << result_ << "\n";
    if (!file.flush()) throw std::runtime_error("cannot write " + path);
  }

 private:
  static std::string Hex(const void* data, size_t bytes) {
    std::string text;
    char digits[3];
    for (size_t i = 0; i < bytes; ++i) {
      std::snprintf(digits, sizeof digits, "%02x", static_cast<const unsigned char*>(data)[i]);
      text += digits;
    }
    return text;
  }
  std::string text_, result_;
};

inline std::unique_ptr<Run> Open(const std::string& directory, const std::string& plan_file) {
  tdbg::RunOptions options{.directory = directory, .adaptor = "written by hand"};
  if (!plan_file.empty()) {
    std::stringstream text;
    text << std::ifstream(plan_file).rdbuf();
    options.plan_json = text.str();
  }
  auto run = Run::Open(options);
  if (!run.ok()) throw std::runtime_error(run.status().ToString());
  return std::move(*run);
}

struct Arguments {
  std::string out, scenario;
  std::string directory = {}, plan_file = {};
  int steps = 4;
  bool ask = false;
};

inline Arguments Parse(int argc, char** argv) {
  if (argc < 3) throw std::runtime_error("usage: PROGRAM OUT SCENARIO [--run DIRECTORY --plan FILE] ...");
  Arguments a{.out = argv[1], .scenario = argv[2]};
  for (int i = 3; i < argc; ++i) {
    const std::string flag = argv[i];
    if (flag == "--ask") {
      a.ask = true;
    } else if (i + 1 < argc && flag == "--run") {
      a.directory = argv[++i];
    } else if (i + 1 < argc && flag == "--plan") {
      a.plan_file = argv[++i];
    } else if (i + 1 < argc && flag == "--steps") {
      a.steps = std::stoi(argv[++i]);
    } else {
      throw std::runtime_error("what is " + flag + "?");
    }
  }
  return a;
}

inline std::unique_ptr<Run> OpenFor(const Arguments& a) {
  const bool launched = a.directory.empty() && std::getenv("TDBG_RUN") != nullptr;
  return launched || !a.directory.empty() ? Open(a.directory, a.plan_file) : nullptr;
}

/// Waits for it to have ended well.
inline void Join(pid_t child) {
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child || status != 0) {
    throw std::runtime_error("a child process failed");
  }
}

inline void Ask(int step, std::unique_ptr<Run>* run) {
  std::cout << "after " << step << std::endl;
  std::string word;
  std::cin >> word;
  if (word == "raise") {
    std::string text;
    std::getline(std::cin >> std::ws, text);
    throw Mistake(text);
  }
  if (word == "open") {
    std::string directory, plan_file;
    std::getline(std::cin >> std::ws, directory);
    std::getline(std::cin, plan_file);
    *run = Open(directory, plan_file);
  } else if (word != "go") {
    throw std::runtime_error("asked, and answered \"" + word + "\"");
  }
}

template <class Training>
void TrainOnce(const Arguments& a, uint32_t seed, Seen* seen) {
  std::unique_ptr<Run> run = OpenFor(a);
  Training training("mlp", seed);
  training.Train(
      &run, a.steps,
      [&](int step) {
        if (a.ask) Ask(step, &run);
        if (step != 1) return;
        if (a.scenario.starts_with("fork")) {
          const pid_t child = fork();
          if (child != 0) return Join(child);
          if (a.scenario == "fork_train") {
            // With the parent's run, of which it has a copy.
            Seen unseen;
            Training own("mlp", seed);
            own.Train(&run, a.steps, [](int) {}, &unseen);
            own.End(run.get(), &unseen);
          }
          throw Leaves();
        }
        if (a.scenario == "spawn") {
          const std::string out = a.out + ".spawned";
          const std::array<const char*, 4> command = {"/proc/self/exe", out.c_str(), "train", nullptr};
          pid_t child = -1;
          if (posix_spawn(&child, command[0], nullptr, nullptr, const_cast<char**>(command.data()),
                          environ) != 0)
            child = -1;
          Join(child);
        }
      },
      seen);
  training.End(run.get(), seen);
}

template <class Training>
void TrainAgain(const Arguments& a, Seen* seen) {
  std::unique_ptr<Run> run = OpenFor(a);
  Training("mlp", 11).Train(&run, a.steps, [](int) {}, seen);
  Training second("second", 12);
  second.Train(&run, a.steps, [](int) {}, seen);
  second.End(run.get(), seen);
}

template <class Training>
void TrainTwo(const Arguments& a, Seen* seen) {
  Seen other;
  std::string failed;
  std::thread thread([&] {
    try {
      TrainOnce<Training>(a, 12, &other);
    } catch (const std::exception& error) {
      failed = error.what();
    }
  });
  try {
    TrainOnce<Training>(a, 11, seen);
  } catch (...) {
    thread.join();
    throw;
  }
  thread.join();
  if (!failed.empty()) throw std::runtime_error(failed);
  other.Write(a.out + ".second");
}

template <class Training>
int RunScenario(const Arguments& a) {
  Seen seen;
  try {
    if (a.scenario == "again") {
      TrainAgain<Training>(a, &seen);
    } else if (a.scenario == "two") {
      TrainTwo<Training>(a, &seen);
    } else {
      TrainOnce<Training>(a, 11, &seen);
    }
  } catch (const Leaves&) {
    return 0;
  } catch (const Mistake& mistake) {
    seen.Line(std::string("raised ") + mistake.what());
  }
  seen.Write(a.out);
  return 0;
}

/// \tparam Training  made of a model's name and a seed; has `Train(std::unique_ptr<Run>*, int steps, const
///     std::function<void(int)>& after, Seen*)`, where the run may be null and `after` is called after each
///     update, and may put another run in its place; and `End(Run*, Seen*)`.
template <class Training>
int Program(int argc, char** argv, const char* version) {
  if (argc == 2 && std::string(argv[1]) == "--version") {
    std::printf("%s\n", version);
    return 0;
  }
  try {
    return RunScenario<Training>(Parse(argc, argv));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}

}  // namespace conformance

// tdbg dump: every field of a segment, a journal or a small file of a run, named as docs/format.md names it.
#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "base/file.h"
#include "cli/command.h"
#include "cli/exit_codes.h"

#if __has_include("store/reader/dump.h")
#include "store/reader/dump.h"
#define TDBG_HAS_DUMP 1
#endif

namespace tdbg::cli {
namespace {

class DumpCommand : public Command {
 public:
  std::string name() const override { return "dump"; }
  std::string help() const override { return "every field of a segment or journal, for people who doubt"; }
  void Define(CLI::App& app) override {
    app.add_option("FILE", file_, "a segment (*.safetensors), a journal, or another file of a run")->required();
    app.add_flag("--json", json_, "one JSON document on stdout");
  }

  Result<int> Run() override {
    return Unimplemented("dump is not part of this build");
  }

 private:
  std::string file_;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> MakeDumpCommand() { return std::make_unique<DumpCommand>(); }

}  // namespace tdbg::cli

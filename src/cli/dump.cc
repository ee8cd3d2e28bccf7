// tdbg dump: every field of a segment, a journal or a small file of a run, named as docs/format.md names it;
// and of event files.
#include "store/reader/dump.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "cli/command.h"
#include "cli/dump_events.h"
#include "cli/exit_codes.h"

namespace tdbg::cli {
namespace {

class DumpCommand : public Command {
 public:
  std::string name() const override { return "dump"; }
  std::string help() const override { return "every field of a segment or journal, for people who doubt"; }
  void Define(CLI::App& app) override {
    app.add_option(
           "FILE", file_,
           "a segment (*.safetensors), a journal, another file of a run, or an event file (*.tfevents)")
        ->required();
    app.add_option("--rows", rows_, "rows of a column shown, -1 for all; default 1000")->type_name("N");
    app.add_flag("--json", json_, "one JSON document on stdout");
  }

  Result<int> Run() override {
    store::DumpOptions options;
    options.json = json_;
    options.max_rows = rows_;
    TDBG_ASSIGN_OR_RETURN(const std::string text,
                          IsEventFile(file_) ? DumpEvents(file_, json_, rows_) : store::Dump(file_, options));
    fmt::print("{}{}", text, text.ends_with('\n') ? "" : "\n");
    return kExitOk;
  }

 private:
  std::string file_;
  int64_t rows_ = store::DumpOptions().max_rows;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> MakeDumpCommand() { return std::make_unique<DumpCommand>(); }

}  // namespace tdbg::cli

// tdbg dump: every field of a segment, a journal or a small file of a run, named as docs/format.md names it;
// and of event files.
#include "store/reader/dump.h"

#include <fmt/format.h>

#include <filesystem>

#include "base/printable.h"
#include "cli/command.h"
#include "cli/dump_events.h"
#include "cli/exit_codes.h"
#include "cli/flags.h"
#include "cli/output.h"
#include "cli/run_path.h"

namespace tdbg::cli {
namespace {

// Whoever names a run wants its bytes, and cannot know where they lie.
Status RefuseDirectory(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_directory(path, error)) return OkStatus();
  std::string example;
  for (std::filesystem::recursive_directory_iterator at(path, error), end; !error && at != end;
       at.increment(error)) {
    const std::string name = at->path().filename().string();
    if (name != "journal" && !(name.ends_with(".safetensors") && name[0] != '.')) continue;
    example = at->path().string();
    break;
  }
  return InvalidArgument(path + " is a directory; dump takes one file" +
                         (example.empty() ? std::string() : ", such as " + ShellWord(example)));
}

class DumpCommand : public Command {
 public:
  std::string name() const override { return "dump"; }
  std::string help() const override { return "every field of a segment, a journal or an event file"; }
  void Define(Flags& flags) override {
    flags
        .AddOption(
            "FILE", file_,
            "a segment (*.safetensors), a journal, another file of a run, or an event file (*.tfevents)")
        .Required();
    flags.AddOption("--rows", rows_, "rows of a column shown, -1 for all; default 1000")
        .TypeName("N")
        .Check(IntegerFrom(-1));
    flags.AddFlag("--json", json_, "one JSON document on stdout");
  }

  Result<int> Run() override {
    TDBG_RETURN_IF_ERROR(RefuseDirectory(file_));
    store::DumpOptions options;
    options.json = json_;
    options.max_rows = rows_;
    const bool events = IsEventFile(file_);
    std::vector<std::string> damage;
    TDBG_ASSIGN_OR_RETURN(std::string text, events ? DumpEvents(file_, json_, rows_, &damage)
                                                   : store::Dump(file_, options, &damage));
    if (events || json_) text = base::PrintableJson(text);
    Print("{}{}", text, text.ends_with('\n') ? "" : "\n");
    TDBG_RETURN_IF_ERROR(CouldNotRead(damage, "file"));
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

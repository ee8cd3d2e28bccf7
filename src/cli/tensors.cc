// tdbg tensors: what a run holds.
#include <fmt/format.h>
#include <unistd.h>

#include "base/text.h"
#include "cli/command.h"
#include "cli/exit_codes.h"
#include "cli/flags.h"
#include "cli/json_output.h"
#include "cli/output.h"
#include "cli/run_path.h"
#include "cli/terminal.h"

namespace tdbg::cli {
namespace {

std::string StepsWords(const std::vector<int64_t>& steps) {
  if (steps.empty()) return "-";
  if (steps.size() == 1) return fmt::format("1 ({})", steps.front());
  return fmt::format("{} ({}..{})", steps.size(), steps.front(), steps.back());
}

class TensorsCommand : public Command {
 public:
  std::string name() const override { return "tensors"; }
  std::string help() const override { return "names, collections, shapes, steps, and what is kept"; }
  void Define(Flags& flags) override {
    flags.AddOption("RUN", run_, "a path, a name under ./tdbg-runs, or last").Required();
    flags.AddOption("REGEX", regex_, "searched in the names");
    flags.AddOption("--collection", collection_, "only tensors of this collection").TypeName("NAME");
    flags.AddFlag("--all", all_, "derived statistics (counts per unit, ...) as well");
    AddAttempt(flags, attempt_);
    flags.AddFlag("--json", json_, "one JSON document on stdout");
  }

  Result<int> Run() override {
    TDBG_ASSIGN_OR_RETURN(const std::unique_ptr<Trial> trial, OpenRun(run_, attempt_));
    TDBG_ASSIGN_OR_RETURN(std::vector<std::string> names, trial->tensor_names(regex_, collection_));
    if (all_) {
      TDBG_ASSIGN_OR_RETURN(const std::vector<std::string> derived,
                            trial->tensor_names(regex_, kStatisticsCollection));
      names.insert(names.end(), derived.begin(), derived.end());
    }
    Table table({"TENSOR", "COLLECTIONS", "DTYPE", "SHAPE", "STATISTICS", "RAW"});
    Json list = Json::array();
    for (const std::string& name : names) {
      TDBG_ASSIGN_OR_RETURN(const TensorInfo info, trial->tensor(name));
      TDBG_ASSIGN_OR_RETURN(const std::vector<int64_t> summaries,
                            trial->tensor_steps(name, StepKind::kSummary));
      TDBG_ASSIGN_OR_RETURN(const std::vector<int64_t> raws, trial->tensor_steps(name, StepKind::kRaw));
      if (json_) {
        list.push_back({{"name", info.name},
                        {"short_name", info.short_name},
                        {"aliases", info.aliases},
                        {"kind", info.kind},
                        {"module_kind", info.module_kind},
                        {"collections", info.collections},
                        {"dtype", DTypeName(info.dtype)},
                        {"shape", info.shape},
                        {"summary_steps", summaries},
                        {"raw_steps", raws}});
        continue;
      }
      table.Add({Printable(info.name), Printable(fmt::format("{}", fmt::join(info.collections, ","))),
                 // smdebug keeps no type where only reductions were saved
                 info.dtype == DType::kInvalid ? "-" : std::string(DTypeName(info.dtype)),
                 fmt::format("[{}]", fmt::join(info.shape, ", ")), StepsWords(summaries), StepsWords(raws)});
    }
    if (json_) {
      PrintJson(list);
    } else if (!names.empty()) {
      Print("{}", table.Format(Terminal::Of(STDOUT_FILENO)));
    }
    if (names.empty()) {
      TDBG_ASSIGN_OR_RETURN(const std::vector<std::string> all, trial->tensor_names());
      if (all.empty()) {
        TDBG_RETURN_IF_ERROR(CouldNotRead(trial->damage()));
        if (!json_) Tell("tdbg: the run holds no tensors yet; tdbg status {} says why\n", ShellWord(run_));
        return kExitOk;
      }
      return NotFound(fmt::format("none of the run's {} matches; `tdbg tensors {}` lists them",
                                  base::Counted(all.size(), "tensor"), ShellWord(run_)));
    }
    TDBG_RETURN_IF_ERROR(CouldNotRead(trial->damage()));
    return kExitOk;
  }

 private:
  std::string run_, regex_, collection_;
  int64_t attempt_ = -1;
  bool all_ = false, json_ = false;
};

}  // namespace

std::unique_ptr<Command> MakeTensorsCommand() { return std::make_unique<TensorsCommand>(); }

}  // namespace tdbg::cli

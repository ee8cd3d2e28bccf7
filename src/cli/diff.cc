// tdbg diff: the first step and tensor at which two runs part, and by how much.
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>

#include "base/text.h"
#include "cli/command.h"
#include "cli/elements.h"
#include "cli/exit_codes.h"
#include "cli/flags.h"
#include "cli/json_output.h"
#include "cli/output.h"
#include "cli/run_path.h"
#include "cli/terminal.h"
#include "query/comparison.h"
#include "trial/mode_name.h"

namespace tdbg::cli {
namespace {

using query::Comparison;
using query::Difference;

constexpr size_t kMaxNames = 5;
constexpr size_t kMaxDifferences = 12;

std::string Number(double value) { return fmt::format("{:.9g}", value); }

template <typename T>
std::string Some(const std::vector<T>& items) {
  std::string text;
  for (size_t i = 0; i < std::min(items.size(), kMaxNames); ++i) {
    text += i == 0 ? "" : ", ";
    if constexpr (std::is_same_v<T, std::string>) {
      text += Printable(items[i]);
    } else {
      text += std::to_string(items[i]);
    }
  }
  if (items.size() > kMaxNames) text += fmt::format(" and {} more", items.size() - kMaxNames);
  return text;
}

Json DifferenceJson(const Difference& d) {
  Json json = {{"global_step", d.step.global_step},
               {"mode", ModeName(d.step.mode)},
               {"mode_step", d.step.mode_step},
               {"tensor", d.tensor},
               {"worker", d.worker},
               {"by", d.by_values ? "values" : "statistics"}};
  if (!d.shape_a.empty()) {
    json["a"] = d.shape_a;
    json["b"] = d.shape_b;
    return json;
  }
  if (!d.field.empty()) json["field"] = d.field;
  if (d.by_values) {
    json["elements"] = d.elements;
    json["different"] = d.different;
    if (d.index < 0) return json;
    json["index"] = d.index;
  }
  json["a"] = JsonOf(d.a);
  json["b"] = JsonOf(d.b);
  json["max_abs_difference"] = JsonOf(d.max_abs);
  return json;
}

std::string How(const Difference& d) {
  if (!d.shape_a.empty()) return fmt::format("{} against {}", d.shape_a, d.shape_b);
  if (!d.by_values) return fmt::format("{}: {} against {}", d.field, Number(d.a), Number(d.b));
  const std::string share = fmt::format("{} of {}", d.different, base::Counted(d.elements, "element"));
  if (d.index < 0) return share;
  return fmt::format("{}, by up to {}; [{}]: {} against {}", share, Number(d.max_abs), d.index, Number(d.a),
                     Number(d.b));
}

class DiffCommand : public Command {
 public:
  std::string name() const override { return "diff"; }
  std::string help() const override { return "the first step and tensor at which two runs part"; }
  void Define(Flags& flags) override {
    flags.AddOption("RUN_A", run_a_, "a path, a name under ./tdbg-runs, or last").Required();
    flags.AddOption("RUN_B", run_b_, "the run it is compared with").Required();
    flags.AddOption("REGEX", which_.regex, "only tensors in whose names it is found");
    flags.AddOption("--collection", which_.collection, "only tensors of this collection").TypeName("NAME");
    flags.AddOption("--steps", steps_, "global steps from A up to, not including, B").TypeName("A:B");
    flags
        .AddOption("--rtol", tolerance_.rtol,
                   "relative tolerance: |a - b| <= atol + rtol * |b|; default 0: exact")
        .Check(FiniteFrom0());
    flags.AddOption("--atol", tolerance_.atol, "absolute tolerance; default 0").Check(FiniteFrom0());
    flags.AddFlag("--common", common_,
                  "only what both have: other tensors, steps and workers are no difference");
    flags.AddFlag("--json", json_, "one JSON document on stdout");
  }

  Result<int> Run() override {
    TDBG_ASSIGN_OR_RETURN(const StepRange range, ParseStepRange(steps_));
    which_.steps.begin = range.begin;
    if (range.end >= 0) which_.steps.end = range.end;
    TDBG_ASSIGN_OR_RETURN(const std::unique_ptr<Trial> a, OpenRun(run_a_));
    TDBG_ASSIGN_OR_RETURN(const std::unique_ptr<Trial> b, OpenRun(run_b_));
    TDBG_ASSIGN_OR_RETURN(Comparison found, query::Compare(*a, *b, which_, tolerance_, Progress()));
    if (showing_progress_) WriteProgress("\r\x1b[K");
    if (common_) {
      for (Comparison::Part* part : {&found.only_a, &found.only_b, &found.to_come_a, &found.to_come_b})
        *part = {};
    }
    const bool over = a->loaded_all_steps() && b->loaded_all_steps();
    // Damage anywhere in a run counts, and is named with the run's path: if lists of tensors or steps are
    // damaged, it is not known whether this comparison needed what is missing.
    const Status whole_a = CouldNotRead(a->damage()).Annotate(DisplayPath(a->path()));
    const Status whole = whole_a.ok() ? CouldNotRead(b->damage()).Annotate(DisplayPath(b->path())) : whole_a;
    // Two runs that share nothing are not the same, even if a filter left nothing to compare.
    if (found.values + found.statistics == 0 && found.same()) {
      TDBG_RETURN_IF_ERROR(whole.Annotate("nothing could be compared"));
      if (!over) {
        return Status(Code::kUnavailable,
                      fmt::format("{} and {} share no tensor yet at any step that was asked for; ask again "
                                  "when {} has recorded more",
                                  DisplayPath(a->path()), DisplayPath(b->path()),
                                  DisplayPath((a->loaded_all_steps() ? b : a)->path())));
      }
      return NotFound(
          fmt::format("{} and {} share no tensor at any step that was asked for; `tdbg tensors` lists them",
                      DisplayPath(a->path()), DisplayPath(b->path())));
    }
    if (json_) {
      PrintAsJson(found, *a, *b);
    } else {
      PrintAsText(found, over, !whole.ok());
    }
    // A difference that was read is one, whatever else is damaged; but what a damaged run lacks it may have
    // had.
    if (!found.first.empty() || !found.shapes.empty()) {
      if (!whole.ok()) Tell("tdbg: {}\n", whole.message());
      return kExitDifferent;
    }
    TDBG_RETURN_IF_ERROR(whole);
    return found.same() ? kExitOk : kExitDifferent;
  }

 private:
  std::function<bool(int64_t, const Comparison&)> Progress() {
    using Clock = std::chrono::steady_clock;
    const bool terminal = !json_ && Terminal::Of(STDERR_FILENO).is_terminal;
    return [this, terminal, last = Clock::now()](int64_t step, const Comparison&) mutable {
      if (!terminal || Clock::now() - last < std::chrono::seconds(1)) return true;
      last = Clock::now();
      showing_progress_ = true;
      WriteProgress(fmt::format("\rthe same up to step {}", step));
      return true;
    };
  }

  void PrintAsJson(const Comparison& found, const Trial& a, const Trial& b) const {
    Json shapes = Json::array(), differences = Json::array();
    for (const auto& s : found.shapes) shapes.push_back({{"tensor", s.tensor}, {"a", s.a}, {"b", s.b}});
    for (const Difference& d : found.first) differences.push_back(DifferenceJson(d));
    const auto json = [](const Comparison::Part& part) {
      return Json{{"tensors", part.tensors}, {"steps", part.steps}, {"workers", part.workers}};
    };
    PrintJson(
        {{"same", found.same() && a.damage().empty() && b.damage().empty()},
         {"a", a.path()},
         {"b", b.path()},
         {"rtol", tolerance_.rtol},
         {"atol", tolerance_.atol},
         {"compared", {{"steps", found.steps}, {"values", found.values}, {"statistics", found.statistics}}},
         {"unread", found.unread},
         {"coarse_steps", found.thinned},
         {"damage", {{"a", a.damage()}, {"b", b.damage()}}},
         {"first", differences.empty() ? Json() : differences.front()},
         {"differences", differences},
         {"shapes", shapes},
         {"only_in_a", json(found.only_a)},
         {"only_in_b", json(found.only_b)},
         {"over", {{"a", a.loaded_all_steps()}, {"b", b.loaded_all_steps()}}},
         {"to_come_in_a", json(found.to_come_a)},
         {"to_come_in_b", json(found.to_come_b)}});
  }

  void PrintAsText(const Comparison& found, bool over, bool damaged) const {
    const Terminal terminal = Terminal::Of(STDOUT_FILENO);
    const std::string how = tolerance_.exact()
                                ? "exactly"
                                : fmt::format("within rtol {} and atol {}", tolerance_.rtol, tolerance_.atol);
    const std::string by =
        fmt::format("{} and {} of {} were compared", base::Counted(found.values, "value"),
                    base::Counted(found.statistics, "statistic"), base::Counted(found.steps, "step"));
    if (found.first.empty()) {
      const bool sure = found.same() && !damaged;
      Print("{} {}{}{}: {}\n", Paint(terminal, sure ? Colour::kGreen : Colour::kYellow, "the same"), how,
            over ? "" : " so far", damaged ? " as far as they can be read" : "", by);
    } else {
      const StepInfo& step = found.first.front().step;
      const std::string where =
          step.mode == ModeKey::kGlobal
              ? fmt::format("step {}", step.global_step)
              : fmt::format("step {} ({} {})", step.global_step, ModeName(step.mode), step.mode_step);
      Print("{} at {}: {} differs ({}); {}\n", Paint(terminal, Colour::kRed, "they part"), where,
            Paint(terminal, Colour::kBold, Printable(found.first.front().tensor)), how, by);
      Table table({"TENSOR", "WORKER", "BY", "DIFFERENCE"});
      for (size_t i = 0; i < std::min(found.first.size(), kMaxDifferences); ++i) {
        const Difference& d = found.first[i];
        table.Add({Printable(d.tensor), Printable(d.worker), d.by_values ? "values" : "statistics", How(d)});
      }
      Print("{}", table.Format(terminal));
      if (found.first.size() > kMaxDifferences)
        Print("and {} more at this step; --json lists them\n", found.first.size() - kMaxDifferences);
    }
    if (found.unread != 0)
      Print("damaged and not compared: {}\n",
            base::Counted(found.unread, "value or statistic", "values or statistics"));
    if (found.thinned != 0)
      Print("dropped to keep a run within its budget, and compared in what is left: {}\n",
            base::Counted(static_cast<uint64_t>(found.thinned), "step"));
    for (const auto& s : found.shapes)
      Print("{}: {} in the first, {} in the second\n", Printable(s.tensor), s.a, s.b);
    const auto list = [](const Comparison::Part& part, std::string_view where) {
      if (!part.tensors.empty()) Print("tensors {}: {}\n", where, Some(part.tensors));
      if (!part.steps.empty()) Print("steps {}: {}\n", where, Some(part.steps));
      if (!part.workers.empty()) Print("workers {}: {}\n", where, Some(part.workers));
    };
    list(found.only_a, "only in the first");
    list(found.only_b, "only in the second");
    list(found.to_come_a, "still to come in the first");
    list(found.to_come_b, "still to come in the second");
  }

  std::string run_a_, run_b_, steps_;
  TensorFilter which_;
  query::Tolerance tolerance_;
  bool common_ = false, json_ = false, showing_progress_ = false;
};

}  // namespace

std::unique_ptr<Command> MakeDiffCommand() { return std::make_unique<DiffCommand>(); }

}  // namespace tdbg::cli

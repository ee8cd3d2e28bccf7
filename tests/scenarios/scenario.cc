#include "scenario.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/text.h"

namespace tdbg::scenarios {
namespace {

std::vector<std::string> Words(std::string_view text) { return base::SplitList(text, ' '); }

std::optional<ModeKey> ModeOf(const std::string& word) {
  if (word == "TRAIN") return ModeKey::kTrain;
  if (word == "EVAL") return ModeKey::kEval;
  if (word == "PREDICT") return ModeKey::kPredict;
  if (word == "GLOBAL") return ModeKey::kGlobal;
  return std::nullopt;
}

// "0.5", "nan", "2-0.01*s"
std::optional<Value> ValueOf(const std::string& word) {
  if (!word.ends_with("*s")) {
    const auto number = base::ParseDouble(word);
    if (!number) return std::nullopt;
    return Value{*number, 0};
  }
  const std::string formula = word.substr(0, word.size() - 2);
  // The sign between the two numbers, not one in front or of an exponent.
  size_t sign = formula.size();
  while (sign-- > 1) {
    if ((formula[sign] == '+' || formula[sign] == '-') && formula[sign - 1] != 'e') break;
  }
  if (sign == 0 || sign >= formula.size()) return std::nullopt;
  const auto offset = base::ParseDouble(formula.substr(0, sign));
  const auto slope = base::ParseDouble(formula.substr(sign));
  if (!offset || !slope) return std::nullopt;
  return Value{*offset, *slope};
}

// "2x3"
std::optional<std::vector<int64_t>> ShapeOf(const std::string& word) {
  std::vector<int64_t> shape;
  for (const std::string& extent : base::SplitList(word, 'x')) {
    const auto n = base::ParseInt(extent);
    if (!n || *n < 0) return std::nullopt;
    shape.push_back(*n);
  }
  return shape;
}

struct StepRange {
  int64_t first = 0, last = 0, stride = 1;
};

// "3", "0..9", "0..50/5"
std::optional<StepRange> RangeOf(const std::string& word) {
  const size_t slash = word.find('/');
  const std::string span = word.substr(0, slash);
  const size_t dots = span.find("..");
  const auto first = base::ParseInt(span.substr(0, dots));
  const auto last = dots == std::string::npos ? first : base::ParseInt(span.substr(dots + 2));
  const auto stride = slash == std::string::npos ? 1 : base::ParseInt(word.substr(slash + 1));
  if (!first || !last || !stride || *stride < 1 || *last < *first) return std::nullopt;
  return StepRange{*first, *last, *stride};
}

class Parser {
 public:
  Result<std::vector<Scenario>> Parse(const std::string& text) {
    size_t begin = 0;
    while (begin < text.size()) {
      size_t end = text.find('\n', begin);
      if (end == std::string::npos) end = text.size();
      ++line_;
      std::string line = text.substr(begin, end - begin);
      begin = end + 1;
      line.resize(std::min(line.size(), line.find("  # ")));
      const std::string_view content = base::Trim(line);
      if (content.empty() || content.front() == '#') continue;
      const bool indented = line.front() == ' ';
      const Status status = indented ? Detail(content) : Statement(content);
      if (!status.ok()) return status.Annotate(fmt::format("line {}", line_));
    }
    TDBG_RETURN_IF_ERROR(Flush());
    return std::move(scenarios_);
  }

 private:
  Status Statement(std::string_view content) {
    const auto words = Words(content);
    const std::string& verb = words[0];
    if (verb == "scenario:") {
      TDBG_RETURN_IF_ERROR(Flush());
      scenarios_.emplace_back();
      scenarios_.back().name = std::string(base::Trim(content.substr(verb.size())));
      StartRun();
      return OkStatus();
    }
    if (scenarios_.empty()) return InvalidArgument("nothing may come before the first 'scenario:'");
    if (verb == "rule") return Rule(words);
    if (verb == "tensor" || verb == "scalar") return DefineTensor(words);
    if (verb == "workers" && words.size() == 2) {
      scenarios_.back().workers = base::ParseInt(words[1]).value_or(1);
      return OkStatus();
    }
    if (verb == "step" || verb == "steps") return Steps(words);
    if (verb == "other" && words.size() == 1) return Other();
    if (verb == "plan" && words.size() > 1) {
      scenarios_.back().config = std::string(base::Trim(content.substr(verb.size())));
      return OkStatus();
    }
    if (verb == "stalled") return Stalled(words);
    if (verb == "job" && words.size() == 2) return JobEnd(words[1]);
    if (verb == "expect") return Expect(content, words);
    return InvalidArgument("unknown statement '" + verb + "'");
  }

  void StartRun() {
    for (int64_t& next : next_mode_step_) next = 0;
    next_global_step_ = 0;
    wall_millis_ = 0;
    in_other_ = false;
  }

  // What follows, up to the expectation, is the other run's.
  Status Other() {
    StartRun();
    in_other_ = true;
    return OkStatus();
  }

  // "stalled after 9 for 1800"
  Status Stalled(const std::vector<std::string>& words) {
    const auto after = words.size() == 5 ? base::ParseInt(words[2]) : std::nullopt;
    const auto seconds = words.size() == 5 ? base::ParseDouble(words[4]) : std::nullopt;
    if (!after || !seconds) return InvalidArgument("stalled after STEP for SECONDS");
    scenarios_.back().stalls.push_back({0, *after, *seconds});
    return OkStatus();
  }

  std::vector<Step>& RunSteps() {
    return in_other_ ? scenarios_.back().other_steps : scenarios_.back().steps;
  }

  Status Rule(const std::vector<std::string>& words) {
    if (words.size() < 2) return InvalidArgument("rule: which?");
    scenarios_.back().rule = words[1];
    for (size_t i = 2; i < words.size(); ++i) {
      const size_t equals = words[i].find('=');
      if (equals == std::string::npos) return InvalidArgument("a parameter is name=value: " + words[i]);
      scenarios_.back().parameters[words[i].substr(0, equals)] = words[i].substr(equals + 1);
    }
    return OkStatus();
  }

  Status DefineTensor(const std::vector<std::string>& words) {
    constexpr const char* kForm =
        "tensor NAME [kind KIND] [of MODULE] [axis N] [shape 2x3] [dtype D] [in A,B]";
    if (words.size() < 2 || words.size() % 2 != 0) return InvalidArgument(kForm);
    Tensor tensor;
    tensor.scalar = words[0] == "scalar";
    tensor.name = words[1];
    for (size_t i = 2; i < words.size(); i += 2) {
      if (words[i] == "kind") {
        tensor.kind = words[i + 1];
      } else if (words[i] == "in") {
        tensor.collections = base::SplitList(words[i + 1]);
      } else if (words[i] == "of") {
        tensor.module_kind = words[i + 1];
      } else if (words[i] == "axis" && base::ParseInt(words[i + 1])) {
        tensor.unit_axis = static_cast<int>(*base::ParseInt(words[i + 1]));
      } else if (words[i] == "shape" && ShapeOf(words[i + 1])) {
        tensor.shape = *ShapeOf(words[i + 1]);
      } else if (words[i] == "dtype" && DTypeFromName(words[i + 1])) {
        tensor.dtype = *DTypeFromName(words[i + 1]);
      } else {
        return InvalidArgument(kForm);
      }
    }
    scenarios_.back().tensors.push_back(std::move(tensor));
    return OkStatus();
  }

  Status Steps(const std::vector<std::string>& words) {
    const auto range = words.size() < 2 ? std::nullopt : RangeOf(words[1]);
    if (!range) return InvalidArgument("steps FIRST..LAST[/STRIDE] [MODE] [skipped] [shed] [raw] [raw-shed]");
    Step model;
    for (size_t i = 2; i < words.size(); ++i) {
      if (const auto mode = ModeOf(words[i])) {
        model.mode = *mode;
      } else if (words[i] == "skipped") {
        model.skipped = true;
      } else if (words[i] == "shed") {
        model.shed = true;
      } else if (words[i] == "raw") {
        model.raw = true;
      } else if (words[i] == "raw-shed") {
        model.raw_shed = true;
      } else if (words[i] == "at" && i + 1 < words.size() && words[i + 1].ends_with('s')) {
        const auto seconds = base::ParseDouble(words[i + 1].substr(0, words[i + 1].size() - 1));
        if (!seconds) return InvalidArgument("at SECONDSs, not '" + words[i + 1] + "'");
        wall_millis_ = static_cast<int64_t>(*seconds * 1000);
        ++i;
      } else {
        return InvalidArgument("a step is of a mode, skipped, shed, raw, raw-shed, at SECONDSs, not '" +
                               words[i] + "'");
      }
    }
    block_.clear();
    for (int64_t s = range->first; s <= range->last; s += range->stride) {
      if (s < next_global_step_) return InvalidArgument("steps go forward");
      Step step = model;
      step.global_step = s;
      // Steps that are left out were of the same mode: nothing of them was kept.
      int64_t& next = next_mode_step_[static_cast<size_t>(step.mode)];
      step.mode_step = next + (s - next_global_step_);
      next = step.mode_step + 1;
      next_global_step_ = s + 1;
      step.wall_millis = wall_millis_++;
      block_.push_back(RunSteps().size());
      RunSteps().push_back(std::move(step));
    }
    in_expectation_ = false;
    return OkStatus();
  }

  Status JobEnd(const std::string& word) {
    const std::map<std::string, rules::JobEnd> ends = {{"completed", rules::JobEnd::kCompleted},
                                                       {"stopped", rules::JobEnd::kStopped},
                                                       {"failed", rules::JobEnd::kFailed}};
    const auto found = ends.find(word);
    if (found == ends.end()) return InvalidArgument("a job is completed, stopped or failed");
    scenarios_.back().end = found->second;
    return OkStatus();
  }

  // "expect IssuesFound at 3 judged 4 saying TEXT TO THE END"
  Status Expect(std::string_view content, const std::vector<std::string>& words) {
    Expectation& expected = scenarios_.back().expected;
    in_expectation_ = seen_expectation_ = true;
    if (words.size() < 2) return InvalidArgument("expect what?");
    bool known = words[1] == "refused";
    expected.refused = known;
    for (const rules::RuleState state :
         {rules::RuleState::kInProgress, rules::RuleState::kNoIssuesFound, rules::RuleState::kIssuesFound,
          rules::RuleState::kError, rules::RuleState::kStopped}) {
      if (words[1] != rules::RuleStateName(state)) continue;
      expected.state = state;
      known = true;
    }
    if (!known) return InvalidArgument("no such status: " + words[1]);
    for (size_t i = 2; i < words.size(); i += 2) {
      if (words[i] == "saying") {
        expected.contains = std::string(base::Trim(content.substr(content.find(" saying ") + 8)));
        return OkStatus();
      }
      const auto number = i + 1 < words.size() ? base::ParseInt(words[i + 1]) : std::nullopt;
      if (!number) return InvalidArgument("expect STATUS [at STEP] [judged STEPS] [saying TEXT]");
      if (words[i] == "at") {
        expected.step = *number;
      } else if (words[i] == "judged") {
        expected.judged = *number;
      } else {
        return InvalidArgument("expect STATUS [at STEP] [judged STEPS] [saying TEXT]");
      }
    }
    return OkStatus();
  }

  // An indented line: an assignment of the steps above, or a finding of the expectation above.
  Status Detail(std::string_view content) {
    if (scenarios_.empty()) return InvalidArgument("nothing may come before the first 'scenario:'");
    if (in_expectation_) {
      scenarios_.back().expected.findings.emplace_back(content);
      return OkStatus();
    }
    if (content.starts_with("context ")) {
      const auto words = Words(content);
      const size_t json = content.find('{');
      if (words.size() < 3 || json == std::string_view::npos || block_.empty())
        return InvalidArgument("context TOPIC {JSON}");
      for (const size_t step : block_) RunSteps()[step].context[words[1]] = std::string(content.substr(json));
      return OkStatus();
    }
    const size_t equals = content.find(" =");
    if (equals == std::string_view::npos || block_.empty()) return InvalidArgument("expected NAME = VALUES");
    const auto left = Words(content.substr(0, equals));
    Assignment assignment;
    assignment.tensor = left[0];
    for (size_t i = 1; i + 1 < left.size(); i += 2) {
      if (left[i] == "shape") {
        const auto shape = ShapeOf(left[i + 1]);
        if (!shape) return InvalidArgument("a shape is 2x3, not " + left[i + 1]);
        assignment.shape = *shape;
        continue;
      }
      if (left[i] == "statistic") {
        TDBG_ASSIGN_OR_RETURN(assignment.statistic, Statistic::FromId(left[i + 1]));
        continue;
      }
      const auto number = base::ParseInt(left[i + 1]);
      if (!number) return InvalidArgument("expected a number behind " + left[i]);
      if (left[i] == "worker") {
        assignment.worker = *number;
      } else if (left[i] == "micro") {
        assignment.sub = static_cast<uint16_t>(*number + 1);
      } else if (left[i] == "columns") {
        assignment.columns = *number;
      } else if (left[i] == "per") {
        assignment.per = static_cast<uint64_t>(*number);
      } else if (left[i] == "samples") {
        assignment.samples = static_cast<uint64_t>(*number);
      } else {
        return InvalidArgument(
            "NAME [worker N] [micro N] [columns N] [shape 2x3] [statistic ID per N [samples N]] = VALUES");
      }
    }
    if (assignment.statistic) {
      auto& tensors = scenarios_.back().tensors;
      const auto owner = std::find_if(tensors.begin(), tensors.end(),
                                      [&](const Tensor& t) { return t.name == assignment.tensor; });
      if (owner == tensors.end()) return InvalidArgument("no such tensor: " + assignment.tensor);
      const std::string id = assignment.statistic->Id();
      if (std::find(owner->statistics.begin(), owner->statistics.end(), id) == owner->statistics.end())
        owner->statistics.push_back(id);
    }
    for (const std::string& word : Words(content.substr(equals + 2))) {
      if (word == "empty") continue;
      if (word.front() == 'x' && !assignment.values.empty()) {
        const auto times = base::ParseInt(word.substr(1));
        if (!times || *times < 1) return InvalidArgument("how often? " + word);
        assignment.values.resize(assignment.values.size() + static_cast<size_t>(*times) - 1,
                                 assignment.values.back());
        continue;
      }
      auto value = ValueOf(word);
      if (word.starts_with('"') && word.ends_with('"') && word.size() > 1) {
        value = Value{0, 0, word.substr(1, word.size() - 2)};
      }
      if (!value) return InvalidArgument("not a value: " + word);
      assignment.values.push_back(*value);
    }
    for (const size_t step : block_) RunSteps()[step].assignments.push_back(assignment);
    return OkStatus();
  }

  Status Flush() {
    if (!scenarios_.empty() && !seen_expectation_) {
      return InvalidArgument("scenario '" + scenarios_.back().name + "' expects nothing");
    }
    seen_expectation_ = in_expectation_ = false;
    block_.clear();
    return OkStatus();
  }

  std::vector<Scenario> scenarios_;
  std::vector<size_t> block_;  // the steps that assignments are for
  bool in_expectation_ = false, seen_expectation_ = false;
  int64_t next_mode_step_[5] = {};
  int64_t next_global_step_ = 0;
  int64_t wall_millis_ = 0;
  bool in_other_ = false;
  int line_ = 0;
};

}  // namespace

Result<std::vector<Scenario>> ParseScenarios(const std::string& text) { return Parser().Parse(text); }

std::string FindingText(const rules::Finding& finding) {
  std::string text = finding.tensor.empty() ? "" : finding.tensor + " ";
  text +=
      fmt::format("{} {:g} {} {:g}", finding.measure, finding.value, finding.comparison, finding.threshold);
  if (!finding.worker.empty() && finding.worker != "worker_0") text += " " + finding.worker;
  return text;
}

}  // namespace tdbg::scenarios

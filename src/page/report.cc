#include "page/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "base/text.h"
#include "format/json_fields.h"
#include "page/base64.h"
#include "page/files.h"
#include "page/resolution.h"
#include "query/statistics.h"
#include "trial/access.h"

namespace tdbg::page {
namespace {

using query::Json;

constexpr size_t kMostFocusSteps = 16, kMostFocusTensors = 24, kMostFindings = 20, kMostEvents = 300,
                 kMostHistograms = 6;
constexpr int64_t kStepsAround = 100;  // of a line, one by one
// Fields of a line beside those that the layer map's statistics give.
constexpr std::array<const char*, 4> kExactFields{"mean_abs", "l2", "zero_count", "nan_count"};
// From the finest on: buckets of the whole run, single steps on each side of a focus.
constexpr std::array<std::pair<size_t, size_t>, 8> kResolutions{
    {{512, 32}, {256, 32}, {128, 16}, {64, 16}, {32, 8}, {16, 4}, {16, 2}, {8, 1}}};

struct Focus {
  std::vector<int64_t> steps;
  std::vector<std::string> tensors;

  void Step(int64_t step) {
    if (step >= 0 && steps.size() < kMostFocusSteps && std::ranges::find(steps, step) == steps.end())
      steps.push_back(step);
  }
  void Tensor(const std::string& name) {
    if (!name.empty() && tensors.size() < kMostFocusTensors &&
        std::ranges::find(tensors, name) == tensors.end())
      tensors.push_back(name);
  }
};

// What somebody who opens the report will look at, in the order in which it is told.
Focus FocusOf(const Json& overview) {
  Focus focus;
  const auto finding = [&](const Json& f) {
    focus.Step(f["global_step"].get<int64_t>());
    focus.Tensor(f["tensor"].get<std::string>());
  };
  focus.Step(overview["sentence"]["step"].get<int64_t>());
  focus.Tensor(overview["sentence"]["tensor"].get<std::string>());
  if (overview.contains("first_nonfinite")) finding(overview["first_nonfinite"]);
  for (const Json& origin : overview["origins"]) focus.Step(origin["global_step"].get<int64_t>());
  for (const Json& incident : overview["incidents"]) {
    focus.Step(incident["first_step"].get<int64_t>());
    focus.Tensor(incident["tensor"].get<std::string>());
    for (size_t i = 0; i < incident["evidence"].size() && i < 2; ++i) finding(incident["evidence"][i]);
  }
  for (const Json& verdict : overview["verdicts"]) {
    for (size_t i = 0; i < verdict["findings"].size() && i < 2; ++i) finding(verdict["findings"][i]);
  }
  return focus;
}

// JSON inside of a script element: nothing in it may end that element.
std::string Embedded(const Json& document) {
  const std::string text = format::DumpJson(document);
  std::string out;
  out.reserve(text.size() + text.size() / 16);
  for (const char c : text) {
    if (c == '<')
      out += "\\u003c";
    else
      out += c;
  }
  return out;
}

// {1, 2, 3, 7} -> {{1, 3}, {7, 7}}
std::vector<std::pair<uint32_t, uint32_t>> RangesOf(std::vector<uint32_t> ids) {
  std::ranges::sort(ids);
  std::vector<std::pair<uint32_t, uint32_t>> ranges;
  for (const uint32_t id : ids) {
    if (!ranges.empty() && ranges.back().second + 1 == id)
      ranges.back().second = id;
    else
      ranges.emplace_back(id, id);
  }
  return ranges;
}

class Maker {
 public:
  Maker(query::Run& run, const ReportOptions& options) : run_(run), options_(options) {}

  Result<Report> Make();

 private:
  using Parameters = std::map<std::string, std::string, std::less<>>;

  size_t left() const { return bytes_ < options_.most_bytes ? options_.most_bytes - bytes_ : 0; }
  // An answer as it stands in the file; nothing where the run has none.
  std::optional<std::string> Entry(const std::string& name, const Parameters& parameters);
  void Take(std::string entry) {
    bytes_ += entry.size() + 1;
    answers_.push_back(std::move(entry));
  }
  // \return false where it does not fit in `most`, of which its size is taken off
  bool Keep(const std::string& name, const Parameters& parameters, size_t* most);
  Status TakeEssentials();
  void TakeTree();
  void TakeLine(const std::string& tensor, const std::string& field, int64_t columns, size_t* most);
  void TakeCharts(size_t most);
  bool TakeMatrix(std::string_view statistic, size_t most);
  std::vector<int64_t> HistogramSteps(const std::string& tensor);
  void TakeFocusTensors(size_t most);
  void TakeOtherTensors(size_t most);
  void LeaveOut(std::string sentence) { report_.left_out.push_back(std::move(sentence)); }

  query::Run& run_;
  const ReportOptions& options_;
  Report report_;
  std::vector<std::string> answers_;
  size_t bytes_ = 0;
  Json overview_;
  Focus focus_;
  std::vector<std::string> names_;                     // of tensors that the tree has
  std::vector<std::pair<uint32_t, uint32_t>> ranges_;  // of their ids
  std::vector<size_t> focus_positions_;
  std::vector<int64_t> steps_;
  bool lines_lack_ = false;
};

std::optional<std::string> Maker::Entry(const std::string& name, const Parameters& parameters) {
  query::Question question{name, parameters};
  const auto answer = run_.Ask(question);
  if (!answer.ok()) return {};
  Json entry = {{"question", name}, {"parameters", parameters}};
  if (answer->media_type == query::kColumnsType)
    entry["columns"] = Base64(answer->body);
  else
    entry["json"] = Json::parse(answer->body);
  return Embedded(entry);
}

bool Maker::Keep(const std::string& name, const Parameters& parameters, size_t* most) {
  auto entry = Entry(name, parameters);
  if (!entry) return true;
  if (entry->size() + 1 > *most) return false;
  *most -= entry->size() + 1;
  Take(*std::move(entry));
  return true;
}

Status Maker::TakeEssentials() {
  TDBG_ASSIGN_OR_RETURN(const query::Answer answer, run_.Ask({"run", {}}));
  overview_ = Json::parse(answer.body);
  focus_ = FocusOf(overview_);
  // A rule may find the same in every tensor of a model.
  size_t findings = 0;
  const auto shorten = [&](Json& list) {
    if (list.size() <= kMostFindings) return;
    findings += list.size() - kMostFindings;
    list.erase(list.begin() + kMostFindings, list.end());
  };
  for (Json& verdict : overview_["verdicts"]) shorten(verdict["findings"]);
  for (Json& incident : overview_["incidents"]) {
    shorten(incident["evidence"]);
    shorten(incident["consequences"]);
  }
  if (findings > 0)
    LeaveOut(fmt::format("{} beyond the first {} of each rule", base::Counted(findings, "finding"),
                         kMostFindings));
  if (Json& events = overview_["events"]; events.size() > kMostEvents) {
    LeaveOut(fmt::format("{} of {} events", events.size() - kMostEvents, events.size()));
    events.erase(events.begin() + kMostEvents, events.end());
  }
  Take(Embedded({{"question", "run"}, {"parameters", Json::object()}, {"json", overview_}}));
  const TrialAccess access(run_.trial());
  for (size_t i = 0; i < access.complete_count(); ++i) steps_.push_back(access.steps()[i].info.global_step);
  for (const int64_t step : focus_.steps) {
    const auto at = std::ranges::lower_bound(steps_, step);
    if (at != steps_.end()) focus_positions_.push_back(static_cast<size_t>(at - steps_.begin()));
  }
  return OkStatus();
}

// The tensors that findings name, then the others in the model's order, while they take less than a third.
void Maker::TakeTree() {
  const auto answer = run_.Ask({"tensors", {}});
  if (!answer.ok()) return;
  Json tree = Json::parse(answer->body);
  const std::set<std::string> wanted(focus_.tensors.begin(), focus_.tensors.end());
  const size_t most = left() / 3;
  size_t taken = 0;
  std::vector<const Json*> kept;
  const auto consider = [&](const Json& tensor, bool first) {
    if (wanted.contains(tensor["name"].get<std::string>()) != first) return;
    const size_t size = format::DumpJson(tensor).size() + 60;  // and its module's
    if (taken + size > most) return;
    taken += size;
    kept.push_back(&tensor);
  };
  for (const bool first : {true, false}) {
    for (const Json& tensor : tree["tensors"]) consider(tensor, first);
  }
  const size_t all = tree["tensors"].size();
  if (kept.size() < all) {
    LeaveOut(fmt::format("{} of {} tensors", all - kept.size(), all));
    // Modules of which no tensor is left, too; the others keep their order.
    std::vector<uint8_t> used(tree["nodes"].size());
    for (const Json* const tensor : kept) {
      for (int64_t at = (*tensor)["node"].get<int64_t>(); at >= 0 && !used[static_cast<size_t>(at)];
           at = tree["nodes"][static_cast<size_t>(at)]["parent"].get<int64_t>())
        used[static_cast<size_t>(at)] = 1;
    }
    std::vector<int64_t> place(used.size(), -1);
    Json nodes = Json::array();
    for (size_t i = 0; i < used.size(); ++i) {
      if (!used[i]) continue;
      place[i] = static_cast<int64_t>(nodes.size());
      Json node = tree["nodes"][i];
      const int64_t parent = node["parent"].get<int64_t>();
      node["parent"] = parent < 0 ? -1 : place[static_cast<size_t>(parent)];
      nodes.push_back(std::move(node));
    }
    const std::set<const Json*> chosen(kept.begin(), kept.end());
    Json tensors = Json::array();
    for (const Json& tensor : tree["tensors"]) {
      if (!chosen.contains(&tensor)) continue;
      tensors.push_back(tensor);
      tensors.back()["node"] = place[tensor["node"].get<size_t>()];
    }
    tree["nodes"] = std::move(nodes);
    tree["tensors"] = std::move(tensors);
  }
  if (format::DumpJson(tree["series"]).size() > left() / 6) {
    LeaveOut(fmt::format("the names of {}", base::Counted(tree["series"].size(), "plain number")));
    tree["series"] = Json::array();
  }
  std::vector<uint32_t> ids;
  for (const Json& tensor : tree["tensors"]) {
    ids.push_back(tensor["id"].get<uint32_t>());
    names_.push_back(tensor["name"].get<std::string>());
  }
  ranges_ = RangesOf(std::move(ids));
  Take(Embedded({{"question", "tensors"}, {"parameters", Json::object()}, {"json", std::move(tree)}}));
}

// As a line of so many pixels, and every step near a focus.
void Maker::TakeLine(const std::string& tensor, const std::string& field, int64_t columns, size_t* most) {
  Parameters parameters{{"field", field}, {"columns", std::to_string(columns)}};
  if (!tensor.empty()) parameters["tensor"] = tensor;
  if (!Keep("line", parameters, most)) {
    lines_lack_ = true;
    return;
  }
  if (steps_.size() <= static_cast<size_t>(columns)) return;  // it is exact
  std::vector<int64_t> sorted = focus_.steps;
  std::ranges::sort(sorted);
  int64_t done = 0;
  for (size_t i = 0; i < sorted.size(); ++i) {
    const int64_t begin = std::max(done, sorted[i] - kStepsAround);
    int64_t end = sorted[i] + kStepsAround;
    while (i + 1 < sorted.size() && sorted[i + 1] - kStepsAround <= end) end = sorted[++i] + kStepsAround;
    if (begin >= end) continue;
    done = end;
    parameters["begin"] = std::to_string(begin);
    parameters["end"] = std::to_string(end);
    parameters["columns"] = "16384";
    if (!Keep("line", parameters, most)) lines_lack_ = true;
  }
}

void Maker::TakeCharts(size_t most) {
  for (const Json& chart : overview_["charts"])
    TakeLine(chart["tensor"].get<std::string>(), "value", 250, &most);
  TakeLine("", "step_seconds", 250, &most);
}

bool Maker::TakeMatrix(std::string_view statistic, size_t most) {
  constexpr uint32_t kMostRows = 4096;
  constexpr size_t kMostCells = size_t{1} << 20;  // of an answer; beyond them its buckets become wider
  const size_t tensors = names_.size();
  for (const auto& [columns, around] : kResolutions) {
    const std::vector<Segment> segments = SegmentsOf(steps_.size(), focus_positions_, columns, around);
    size_t bytes = 0;
    for (const Segment& segment : segments)
      bytes += ((tensors * 9 + 20) * segment.buckets() + 900 * (1 + tensors / kMostRows)) * 4 / 3;
    if (bytes > most && columns != kResolutions.back().first) continue;
    std::vector<std::string> entries;
    size_t taken = 0;
    for (const Segment& segment : segments) {
      // All pieces of a segment have its buckets.
      const auto at_once =
          static_cast<uint32_t>(std::clamp<size_t>(kMostCells / segment.buckets(), 1, kMostRows));
      for (const auto& [first, last] : ranges_) {
        for (uint32_t from = first; from <= last; from += at_once) {
          const uint32_t to = std::min(last, from + at_once - 1);
          std::string rows;
          for (uint32_t id = from; id <= to; ++id) rows += fmt::format("{}{}", rows.empty() ? "" : ";", id);
          // Each id a row: said in short, a list of thousands would be as long as their cells.
          query::Question question{"matrix",
                                   {{"statistic", std::string(statistic)},
                                    {"begin", std::to_string(steps_[segment.begin])},
                                    {"end", std::to_string(steps_[segment.end - 1] + 1)},
                                    {"columns", std::to_string(segment.buckets())}}};
          const Json shown = question.parameters;
          question.parameters["rows"] = std::move(rows);
          const auto answer = run_.Ask(question);
          if (!answer.ok()) continue;
          entries.push_back(Embedded({{"question", "matrix"},
                                      {"parameters", shown},
                                      {"each_of", {from, to}},
                                      {"columns", Base64(answer->body)}}));
          taken += entries.back().size() + 1;
        }
      }
    }
    if (taken > most) return false;
    for (std::string& entry : entries) Take(std::move(entry));
    const auto widest = std::ranges::max_element(segments, {}, &Segment::width);
    if (widest != segments.end() && widest->width > 1 && statistic == "mean_abs")
      LeaveOut(
          fmt::format("single steps further than {} steps from a finding: there, the layer map has "
                      "the extremes of up to {} steps together",
                      around, widest->width));
    return true;
  }
  return false;
}

// Steps at which somebody will look at a tensor's distribution: those of findings, the step before each, and
// the nearest that have a histogram, which are kept every now and then only.
std::vector<int64_t> Maker::HistogramSteps(const std::string& tensor) {
  StepFilter filter;
  filter.kind = StepKind::kHistogram;
  const auto kept = run_.trial().tensor_steps(tensor, filter);
  std::set<int64_t> steps;
  for (size_t i = 0; i < focus_.steps.size() && i < kMostHistograms; ++i) {
    const int64_t step = focus_.steps[i];
    steps.insert(step);
    if (step > 0) steps.insert(step - 1);
    if (!kept.ok()) continue;
    const auto after = std::ranges::lower_bound(*kept, step);
    if (after != kept->end()) steps.insert(*after);
    if (after != kept->begin()) steps.insert(*std::prev(after));
  }
  if (!steps_.empty()) steps.insert(steps_.back());
  if (kept.ok() && !kept->empty()) steps.insert(kept->back());
  return {steps.begin(), steps.end()};
}

void Maker::TakeFocusTensors(size_t most) {
  size_t without = 0;
  for (const std::string& tensor : focus_.tensors) {
    bool all = true;
    const auto keep = [&](const char* question, Parameters parameters) {
      parameters["tensor"] = tensor;
      all &= Keep(question, parameters, &most);
    };
    keep("histograms", {{"columns", "48"}});
    for (const int64_t step : HistogramSteps(tensor)) keep("histogram", {{"step", std::to_string(step)}});
    for (const char* const field : kExactFields) TakeLine(tensor, field, 120, &most);
    if (overview_["world_size"].get<int64_t>() > 1)
      keep("workers", {{"field", "mean_abs"}, {"columns", "100"}});
    without += !all;
  }
  if (overview_["world_size"].get<int64_t>() > 1 && !overview_["charts"].empty()) {
    // What the page shows by worker while no tensor is chosen.
    const std::string loss = overview_["charts"][0]["tensor"].get<std::string>();
    const bool listed = std::ranges::find(names_, loss) != names_.end();
    Keep("workers", {{"tensor", loss}, {"field", listed ? "mean_abs" : "value"}, {"columns", "100"}}, &most);
  }
  if (without > 0)
    LeaveOut(fmt::format("some distributions of {} that findings name", base::Counted(without, "tensor")));
}

void Maker::TakeOtherTensors(size_t most) {
  const std::set<std::string> done(focus_.tensors.begin(), focus_.tensors.end());
  std::vector<const std::string*> others;
  for (const std::string& name : names_) {
    if (!done.contains(name)) others.push_back(&name);
  }
  size_t kept = 0;
  for (const std::string* const name : others) {
    const auto fits = [&](const char* question, Parameters parameters) {
      parameters["tensor"] = *name;
      return Keep(question, parameters, &most);
    };
    if (!fits("histograms", {{"columns", "16"}})) break;
    if (!steps_.empty() && !fits("histogram", {{"step", std::to_string(steps_.back())}})) break;
    if (!focus_.steps.empty() && !fits("histogram", {{"step", std::to_string(focus_.steps[0])}})) break;
    ++kept;
  }
  if (kept < others.size())
    LeaveOut(fmt::format("distributions of {} of {} tensors", others.size() - kept, names_.size()));
}

Result<Report> Maker::Make() {
  std::string_view page = ReportTemplate();
  // What is around the answers, and what they say of themselves.
  bytes_ = page.size() + FindFile("page.js")->body.size() + FindFile("page.css")->body.size() + 4096;
  for (const ReportCommand& command : options_.commands) bytes_ += 2 * command.command.size() + 200;
  TDBG_RETURN_IF_ERROR(TakeEssentials());
  if (left() == 0) {
    return InvalidArgument(
        fmt::format("the page and the run's verdicts alone take {}", base::FormatBytes(bytes_ + bytes_ / 8)));
  }
  TakeTree();
  TakeCharts(left() / 3);
  std::string lacking;
  const auto lacks = [&](std::string_view title) {
    lacking += fmt::format("{}{}", lacking.empty() ? "" : ", ", title);
  };
  const auto statistics = query::MatrixStatistics();
  if (!steps_.empty() && !names_.empty()) {
    if (!TakeMatrix(statistics.front().name, left() / 2)) lacks(statistics.front().title);
    TakeFocusTensors(left() / 2);
    for (size_t i = 1; i < statistics.size(); ++i) {
      const size_t share = left() * 3 / 4 / (statistics.size() - i);
      if (!TakeMatrix(statistics[i].name, share)) lacks(statistics[i].title);
    }
    TakeOtherTensors(left());
  }
  if (!lacking.empty()) LeaveOut("the layer map of " + lacking);
  if (lines_lack_) LeaveOut("some lines, or their single steps near findings");
  LeaveOut("values of single elements");

  Json head = {{"version", query::kAnswerVersion},
               {"name", overview_["name"]},
               {"made", options_.made},
               {"by", options_.by}};
  head["left_out"] = report_.left_out;
  head["commands"] = Json::array();
  for (const ReportCommand& command : options_.commands)
    head["commands"].push_back({{"what", command.what}, {"command", command.command}});
  std::string data = Embedded(head);
  data.pop_back();
  data += ",\"answers\":[";
  for (size_t i = 0; i < answers_.size(); ++i) {
    if (i > 0) data += ",\n";
    data += answers_[i];
  }
  data += "]}";

  // From the front on: a marker in what was put in is no marker.
  const std::array<std::pair<std::string_view, std::string_view>, 3> parts{
      {{"@STYLE@", FindFile("page.css")->body},
       {"@ANSWERS@", data},
       {"@SCRIPT@", FindFile("page.js")->body}}};
  for (const auto& [marker, text] : parts) {
    const size_t at = page.find(marker);
    report_.html += page.substr(0, at);
    report_.html += text;
    page.remove_prefix(at + marker.size());
  }
  report_.html += page;
  return std::move(report_);
}

}  // namespace

Result<Report> MakeReport(query::Run& run, const ReportOptions& options) {
  return Maker(run, options).Make();
}

}  // namespace tdbg::page

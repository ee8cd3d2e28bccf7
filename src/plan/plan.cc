#include "plan/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "plan/config.h"

namespace tdbg::plan {
namespace {

using nlohmann::json;

constexpr int kPlanMajor = 1;
constexpr int kPlanMinor = 2;  // 2: histograms_every
constexpr const char* kModeNames[kModes] = {"", "train", "eval", "predict", "global"};

json ScheduleJson(const Schedule& s) {
  json j = {{"interval", s.interval}, {"start", s.start}};
  if (s.end >= 0) j["end"] = s.end;
  if (!s.steps.empty()) j["steps"] = s.steps;
  return j;
}

/// Reads one value of the expected type; absent keeps the default. nlohmann's own exceptions name neither key
/// nor file, so types are asked for before they are taken.
class Fields {
 public:
  Fields(const json& object, std::string where) : object_(object), where_(std::move(where)) {
    if (!object.is_object()) Fail("", "an object");
  }
  void Int(const char* key, int64_t* out) {
    if (const json* v = Find(key))
      v->is_number_integer() ? void(*out = v->get<int64_t>()) : Fail(key, "an integer");
  }
  void Bytes(const char* key, uint64_t* out) {
    if (const json* v = Find(key)) {
      v->is_number_unsigned() ? void(*out = v->get<uint64_t>()) : Fail(key, "a number of bytes");
    }
  }
  void Bool(const char* key, bool* out) {
    if (const json* v = Find(key)) v->is_boolean() ? void(*out = v->get<bool>()) : Fail(key, "true or false");
  }
  void Share(const char* key, double* out) {
    const json* v = Find(key);
    if (v == nullptr) return;
    if (!v->is_number() || !(v->get<double>() >= 0 && v->get<double>() <= 1))
      return Fail(key, "a number from 0 to 1");
    *out = v->get<double>();
  }
  void Text(const char* key, std::string* out) {
    if (const json* v = Find(key))
      v->is_string() ? void(*out = v->get<std::string>()) : Fail(key, "a string");
  }
  void Texts(const char* key, std::vector<std::string>* out) {
    const json* v = Find(key);
    if (v == nullptr) return;
    if (!v->is_array()) return Fail(key, "a list of strings");
    out->clear();
    for (const json& item : *v) {
      if (!item.is_string()) return Fail(key, "a list of strings");
      out->push_back(item.get<std::string>());
    }
  }
  const json* Find(const char* key) const {
    if (!object_.is_object()) return nullptr;
    const auto it = object_.find(key);
    return it == object_.end() || it->is_null() ? nullptr : &*it;
  }
  void Fail(const char* key, const char* expected) {
    if (status_.ok()) {
      status_ = InvalidArgument(fmt::format("plan: {}{}{}: expected {}", where_,
                                            *key && !where_.empty() ? "." : "", key, expected));
    }
  }
  const Status& status() const { return status_; }

 private:
  const json& object_;
  std::string where_;
  Status status_;
};

Result<Schedule> ReadSchedule(const json& j, const std::string& where) {
  Schedule s;
  Fields f(j, where);
  f.Int("interval", &s.interval);
  f.Int("start", &s.start);
  f.Int("end", &s.end);
  if (const json* steps = f.Find("steps")) {
    if (!steps->is_array()) f.Fail("steps", "a list of integers");
    for (const json& v : *steps) {
      if (!v.is_number_integer()) {
        f.Fail("steps", "a list of integers");
        break;
      }
      s.steps.push_back(v.get<int64_t>());
    }
    std::sort(s.steps.begin(), s.steps.end());
  }
  if (s.interval < 1) f.Fail("interval", "an integer of at least 1");
  if (!f.status().ok()) return f.status();
  return s;
}

Result<CollectionPlan> ReadCollection(const json& j, const std::string& where) {
  CollectionPlan c;
  Fields f(j, where);
  f.Text("name", &c.name);
  f.Texts("include_regex", &c.include_regex);
  f.Texts("kinds", &c.kinds);
  f.Texts("tensor_names", &c.tensor_names);
  f.Texts("reductions", &c.reductions);
  f.Bool("keep", &c.keep);
  f.Bool("summaries", &c.summaries);
  f.Bool("histogram", &c.histogram);
  std::vector<std::string> statistics;
  f.Texts("statistics", &statistics);
  for (const std::string& id : statistics) {
    // One that a newer tdbg knows is missing from the run then, and the rule that asked for it says so.
    if (auto statistic = Statistic::FromId(id); statistic.ok()) c.statistics.push_back(*std::move(statistic));
  }
  f.Int("raw_max_elements", &c.raw_max_elements);
  f.Bool("raw_values", &c.raw_values);
  f.Bool("summaries_when_saved", &c.summaries_when_saved);
  f.Bool("save_shape", &c.save_shape);
  if (c.name.empty()) f.Fail("name", "a name");
  const json* raw = f.Find("raw");
  if (raw != nullptr && !raw->is_object()) f.Fail("raw", "an object of modes");
  if (!f.status().ok()) return f.status();
  for (int m = 1; raw != nullptr && m < kModes; ++m) {
    const auto it = raw->find(kModeNames[m]);
    if (it == raw->end()) continue;
    TDBG_ASSIGN_OR_RETURN(c.raw[m], ReadSchedule(*it, fmt::format("{}.raw.{}", where, kModeNames[m])));
  }
  return c;
}

}  // namespace

std::optional<double> ParseOverhead(std::string_view text) {
  if (text == "none") return 0;
  if (!text.ends_with('%')) return std::nullopt;
  const auto percent = base::ParseDouble(text.substr(0, text.size() - 1));
  if (!percent || !(*percent > 0 && *percent <= 100)) return std::nullopt;
  return *percent / 100;
}

std::string Plan::ToJson() const {
  json list = json::array();
  for (const CollectionPlan& c : collections) {
    json j = {{"name", c.name}, {"keep", c.keep}, {"summaries", c.summaries}, {"histogram", c.histogram}};
    if (!c.kinds.empty()) j["kinds"] = c.kinds;
    if (!c.include_regex.empty()) j["include_regex"] = c.include_regex;
    if (!c.tensor_names.empty()) j["tensor_names"] = c.tensor_names;
    if (!c.reductions.empty()) j["reductions"] = c.reductions;
    for (const Statistic& statistic : c.statistics) j["statistics"].push_back(statistic.Id());
    if (c.raw_max_elements >= 0) j["raw_max_elements"] = c.raw_max_elements;
    if (!c.raw_values) j["raw_values"] = false;
    if (c.summaries_when_saved) j["summaries_when_saved"] = true;
    if (c.save_shape) j["save_shape"] = true;
    for (int m = 1; m < kModes; ++m) {
      if (c.raw[m]) j["raw"][kModeNames[m]] = ScheduleJson(*c.raw[m]);
    }
    list.push_back(std::move(j));
  }
  const json document = {
      {"kind", "tdbg.plan"},
      {"major", kPlanMajor},
      {"minor", kPlanMinor},
      {"summaries_every", summaries_every},
      {"histograms", histograms_every > 0},  // what a reader before minor 2 understands
      {"histograms_every", histograms_every},
      {"context", context},
      {"step_by", step_by},
      {"when_full", when_full},
      {"journal_bytes", journal_bytes},
      {"journal_directory", journal_directory},
      {"budget_bytes", budget_bytes},
      {"black_box_bytes", black_box_bytes},
      {"overhead", overhead},
      {"flight", flight},
      {"verify_every", verify_every},
      {"include_workers", include_workers},
      {"shap_rows", shap_rows},
      {"record_end", record_end},
      {"allow_stop", allow_stop},
      {"empty_steps", empty_steps},
      {"collections", std::move(list)},
  };
  return document.dump(1, ' ', false, json::error_handler_t::replace) + "\n";
}

Result<Plan> Plan::FromJson(std::string_view text) {
  const json document = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (document.is_discarded()) return InvalidArgument("plan: not JSON");
  Fields f(document, "");
  std::string kind;
  int64_t major = 0;
  f.Text("kind", &kind);
  f.Int("major", &major);
  if (!f.status().ok()) return f.status();
  if (kind != "tdbg.plan") return InvalidArgument("plan: \"kind\" is not \"tdbg.plan\": not a plan of tdbg");
  if (major < 1) return InvalidArgument("plan: major: expected an integer of at least 1");
  if (major > kPlanMajor) {
    return Unimplemented(
        fmt::format("plan: written by a newer tdbg (format {}; this one reads up to {})", major, kPlanMajor));
  }
  Plan plan;
  f.Int("summaries_every", &plan.summaries_every);
  int64_t minor = 0;
  f.Int("minor", &minor);
  if (minor < 2) {  // at every step, or none
    bool histograms = true;
    f.Bool("histograms", &histograms);
    plan.histograms_every = histograms ? 1 : 0;
  }
  f.Int("histograms_every", &plan.histograms_every);
  f.Bool("context", &plan.context);
  f.Text("step_by", &plan.step_by);
  f.Text("when_full", &plan.when_full);
  f.Bytes("journal_bytes", &plan.journal_bytes);
  f.Text("journal_directory", &plan.journal_directory);
  f.Bytes("budget_bytes", &plan.budget_bytes);
  f.Bytes("black_box_bytes", &plan.black_box_bytes);
  f.Share("overhead", &plan.overhead);
  f.Int("flight", &plan.flight);
  f.Int("verify_every", &plan.verify_every);
  f.Int("include_workers", &plan.include_workers);
  f.Int("shap_rows", &plan.shap_rows);
  f.Bool("record_end", &plan.record_end);
  f.Bool("allow_stop", &plan.allow_stop);
  f.Bool("empty_steps", &plan.empty_steps);
  if (plan.flight < 0) f.Fail("flight", "an integer of at least 0");
  if (plan.verify_every < 0) f.Fail("verify_every", "an integer of at least 0");
  if (plan.shap_rows < 0) f.Fail("shap_rows", "an integer of at least 0");
  if (plan.summaries_every < 0) f.Fail("summaries_every", "an integer of at least 0");
  if (plan.histograms_every < 0) f.Fail("histograms_every", "an integer of at least 0");
  if (plan.step_by != "optimizer" && plan.step_by != "forward" && plan.step_by != "call") {
    f.Fail("step_by", "optimizer, forward or call");
  }
  if (plan.when_full != "drop_raw" && plan.when_full != "block") f.Fail("when_full", "drop_raw or block");
  const json* list = f.Find("collections");
  if (list != nullptr && !list->is_array()) f.Fail("collections", "a list");
  if (!f.status().ok()) return f.status();
  for (size_t i = 0; list != nullptr && i < list->size(); ++i) {
    TDBG_ASSIGN_OR_RETURN(CollectionPlan c, ReadCollection((*list)[i], fmt::format("collections[{}]", i)));
    plan.collections.push_back(std::move(c));
  }
  return plan;
}

Plan Plan::Default() {
  Plan plan;
  plan.collections = BuiltinCollections();
  for (CollectionPlan& c : plan.collections) {
    c.keep = c.name == "weights" || c.name == "biases" || c.name == "gradients" || c.name == "buffers" ||
             c.name == "losses" || c.name == "metrics";
  }
  return plan;
}

}  // namespace tdbg::plan

// Directories that the real smdebug 1.0.34 wrote, and what its own trial answers for them (*.expected.json),
// through ours. Where smdebug is wrong the difference is spelled out here.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "base/testing.h"
#include "rules/engine.h"
#include "tdbg/trial.h"
#include "trial/elements.h"

namespace tdbg {
extern const char* const kGoldenDirectory;  // of this clone (tdbg_path in cmake/rooms.cmake)

namespace {

using Json = nlohmann::json;
using testing::HasSubstr;

const std::string kDirectory = std::string(kGoldenDirectory) + "/smdebug/";

// Python writes NaN where JSON has none.
Json Expected(const std::string& run) {
  std::string text = base::Slurp(kDirectory + run + ".expected.json");
  for (size_t at = 0; (at = text.find(" NaN", at)) != std::string::npos;) text.replace(at, 4, " null");
  return Json::parse(text);
}

std::string TextAt(const TensorValue& value, size_t i) {
  const auto width = static_cast<size_t>(value.shape.back());
  std::string text;
  for (size_t k = 0; k < width; ++k) {
    uint32_t point = 0;
    std::memcpy(&point, static_cast<const std::byte*>(value.data) + (i * width + k) * 4, 4);
    if (point != 0) text.push_back(static_cast<char>(point));
  }
  return text;
}

void ExpectElement(const Json& expected, const TensorValue& value, size_t i) {
  if (value.dtype == DType::kText) {
    EXPECT_EQ(TextAt(value, i), expected.get<std::string>());
  } else if (value.dtype == DType::kComplex128) {
    double parts[2];
    std::memcpy(parts, static_cast<const std::byte*>(value.data) + i * sizeof(parts), sizeof(parts));
    const std::string text = parts[0] == 0 ? "0j" : "(" + std::to_string(static_cast<int>(parts[0])) + "+0j)";
    EXPECT_EQ(text, expected.get<std::string>());
    EXPECT_EQ(parts[1], 0);
  } else {
    if (expected.is_null()) {
      EXPECT_TRUE(std::isnan(*ElementAsDouble(value, i)));
      return;
    }
    const double number = expected.is_boolean() ? expected.get<bool>() : expected.get<double>();
    const auto element = ElementAsDouble(value, i);
    ASSERT_TRUE(element.has_value());
    EXPECT_EQ(*element, number);
  }
}

// Of its own reader: eight bits are taken for unsigned, five types for none, and a shape that was saved
// beside a value hides the value.
bool SmdebugMisreads(const std::string& run, const std::string& tensor) {
  return run == "dtypes" && (tensor == "t_int8" || tensor.starts_with("unreadable_"));
}

class SmdebugGolden : public testing::TestWithParam<std::string> {};

TEST_P(SmdebugGolden, ReadsBackAsSmdebugReadsIt) {
  const std::string& run = GetParam();
  const Json expected = Expected(run);
  auto opened = Trial::Open(kDirectory + run);
  TDBG_ASSERT_OK(opened);
  const Trial& trial = **opened;
  EXPECT_EQ(trial.state(), RunState::kEnded);
  EXPECT_EQ(Json(trial.name()), expected["path_basename"]);
  EXPECT_EQ(Json(trial.steps()), expected["steps"]);
  EXPECT_EQ(Json(trial.workers()), expected["workers"]);
  EXPECT_THAT(trial.damage(), testing::IsEmpty());
  Json modes = Json::object();
  const char* const kModes[] = {"", "TRAIN", "EVAL", "PREDICT"};
  for (const ModeKey mode : trial.modes()) modes[kModes[static_cast<int>(mode)]] = trial.steps(mode);
  EXPECT_EQ(modes, expected["modes"]);

  std::set<std::string> collections;
  for (const CollectionInfo& info : trial.collections()) collections.insert(info.name);
  for (const auto& [collection, tensors] : expected["collections"].items()) {
    EXPECT_TRUE(collections.count(collection)) << collection;
    // "all" is everything for us, and what matched its patterns so far for smdebug.
    if (collection == "all" && tensors.empty()) continue;
    const auto names = trial.tensor_names({}, collection);
    TDBG_ASSERT_OK(names);
    EXPECT_EQ(Json(*names), tensors) << collection;
  }

  std::vector<std::string> names;
  int found_more = 0;
  for (const auto& [name, steps] : expected["tensors"].items()) {
    names.push_back(name);
    for (const auto& [step_text, workers] : steps.items()) {
      const int64_t step = std::stoll(step_text);
      for (const auto& [worker, told] : workers.items()) {
        SCOPED_TRACE(testing::Message() << name << " at " << step << " of " << worker);
        const auto value = trial.value(name, step, worker);
        if (SmdebugMisreads(run, name)) {
          TDBG_ASSERT_OK(value);
          EXPECT_EQ(value->shape, (std::vector<int64_t>{2, 2}));
          EXPECT_EQ(DTypeName(value->dtype), name.substr(name.find('_') + 1));
        } else if (told.contains("value_exception") && value.ok()) {
          EXPECT_EQ(Json(value->shape),
                    told["shape_api"]);  // the shape that was saved beside it hides it from smdebug
          ++found_more;
        } else if (told.contains("value_exception")) {
          EXPECT_EQ(value.status().code(), Code::kNotFound) << value.status().ToString();
        } else {
          TDBG_ASSERT_OK(value);
          std::vector<int64_t> shape = value->shape;
          const std::string dtype = told["dtype"];
          if (value->dtype == DType::kText) {
            EXPECT_EQ("<U" + std::to_string(shape.back()), dtype);
            shape.pop_back();
          } else {
            EXPECT_EQ(DTypeName(value->dtype), dtype);
          }
          EXPECT_EQ(Json(shape), told["shape"]);
          for (size_t i = 0; i < told["head"].size(); ++i) ExpectElement(told["head"][i], *value, i);
        }
        if (told.contains("shape_api") && !(value.ok() && value->dtype == DType::kText)) {
          const auto shape = trial.shape(name, step, worker);
          TDBG_ASSERT_OK(shape);
          EXPECT_EQ(Json(*shape), told["shape_api"]);
        }
        const auto reductions = trial.saved_reductions(name, step, worker);
        TDBG_ASSERT_OK(reductions);
        Json saved = Json::object();
        for (const Reduction& reduction : *reductions)
          saved[reduction.name] = *ElementAsDouble(reduction.value, 0);
        EXPECT_EQ(saved, told["saved_reductions"]);
        for (const auto& [reduction, number] : told["saved_reductions"].items()) {
          const auto one = trial.reduction(name, step, reduction, worker);
          TDBG_ASSERT_OK(one);
          EXPECT_EQ(*ElementAsDouble(*one, 0), number.get<double>());
        }
      }
    }
  }
  EXPECT_EQ(found_more > 0, run == "pt_modes");
  const auto all = trial.tensor_names();
  TDBG_ASSERT_OK(all);
  EXPECT_EQ(*all, names);
}

INSTANTIATE_TEST_SUITE_P(Runs, SmdebugGolden,
                         testing::Values("pt_modes", "pt_reductions_only", "xgb_all", "dtypes"),
                         [](const auto& run) { return run.param; });

TEST(SmdebugGoldenRules, AreJudgedAsRunsOfOurs) {
  const auto judge = [](const std::string& run, const std::string& rule,
                        std::map<std::string, std::string> with) {
    auto trial = Trial::Open(kDirectory + run);
    EXPECT_TRUE(trial.ok());
    plan::RuleConfig config;
    config.rule = rule;
    config.parameters = std::move(with);
    auto engine = rules::Engine::Create({config}, rules::BuiltinRules());
    EXPECT_TRUE(engine.ok());
    EXPECT_TRUE((*engine)->Finish(**trial, rules::JobEnd::kCompleted, 0).ok());
    return (*engine)->statuses().front();
  };
  // Values are boiled down when the rule comes to their step.
  const rules::RuleStatus vanishing =
      judge("pt_modes", "vanishing_gradient", {{"threshold", "1000"}, {"patience", "1"}});
  EXPECT_EQ(vanishing.state, rules::RuleState::kIssuesFound) << vanishing.details;
  // A saved reduction that is finite says that there was no NaN and no infinity.
  const rules::RuleStatus finite = judge("pt_reductions_only", "exploding_tensor", {});
  EXPECT_EQ(finite.state, rules::RuleState::kNoIssuesFound) << finite.details;
  // mean and abs_l1 say nothing of the number of zeros: never a clean verdict, and the missing column is
  // named.
  const rules::RuleStatus zeros = judge("pt_reductions_only", "all_zero", {{"collection_names", "weights"}});
  EXPECT_EQ(zeros.state, rules::RuleState::kError) << zeros.details;
  EXPECT_THAT(zeros.details, HasSubstr("zero_count"));
  EXPECT_THAT(zeros.details, HasSubstr("2 of 2 steps"));
}

}  // namespace
}  // namespace tdbg

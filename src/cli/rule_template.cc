#include "cli/rule_template.h"

#include <cctype>
#include <filesystem>

#include "base/companion.h"
#include "base/file.h"
#include "rulehost/host_command.h"

namespace tdbg::cli {
namespace {

constexpr const char* kPython = R"(import numpy as np

import tdbg


class @CLASS@(tdbg.Rule):
    """The mean of a gradient's absolute values is above a threshold."""

    # What must be captured: statistics at every step. values too: tdbg.needs("gradients", raw=True, every=100)
    needs = tdbg.needs("gradients")
    threshold: float = tdbg.parameter(10.0, minimum=0, help="largest mean of absolute values")

    def judge(self, step):
        s = step.statistics("gradients")  # NumPy columns, one row per tensor and worker
        if not len(s):
            return NotImplemented  # nothing to judge here
        return [s.finding(i, "mean_abs", ">", self.threshold) for i in np.flatnonzero(s.mean_abs > self.threshold)]
)";

constexpr const char* kCpp = R"(#include "tdbg/rule.h"

namespace {

class @CLASS@ : public tdbg::custom::Rule {
 public:
  static tdbg::custom::Info Describe() {
    return {.class_name = "@CLASS@",
            .summary = "The mean of a gradient's absolute values is above a threshold",
            .parameters = {{.name = "threshold",
                            .type = "float",
                            .default_value = "10",
                            .help = "largest mean of absolute values",
                            .minimum = 0}},
            .collections = {"gradients"}};
  }

  explicit @CLASS@(const tdbg::custom::Parameters& parameters) : threshold_(parameters.Float("threshold")) {}

  tdbg::custom::Judged Invoke(const tdbg::custom::Step& step) override {
    bool seen = false;
    for (const tdbg_statistics& s : step.statistics()) {
      const uint64_t finite = s.count - s.nan_count - s.pos_inf_count - s.neg_inf_count;
      if (!step.IsIn(s.tensor, "gradients") || finite == 0) continue;
      seen = true;
      const double mean_abs = s.l1 / static_cast<double>(finite);
      if (mean_abs > threshold_) {
        step.Report(
            {.row = &s, .measure = "mean_abs", .value = mean_abs, .comparison = ">", .threshold = threshold_});
      }
    }
    if (!seen) return tdbg::custom::Judged::kNotDue;
    return step.incomplete() ? tdbg::custom::Judged::kIncomplete : tdbg::custom::Judged::kJudged;
  }

 private:
  const double threshold_;
};

}  // namespace

TDBG_EXPORT_RULES(@CLASS@)
)";

constexpr const char* kMakefile = R"(# tdbg/rule.h is all it needs.
TDBG_INCLUDE ?= @INCLUDE@
CXX ?= c++
PYTHON ?= @PYTHON@

lib@FILE@.so: @FILE@.cc
	$(CXX) -std=c++20 -O2 -Wall -Wextra -shared -fPIC -I$(TDBG_INCLUDE) $< -o $@

test: lib@FILE@.so
	$(PYTHON) test_@FILE@.py

.PHONY: test
)";

constexpr const char* kTest = R"("""Judges small runs with @CLASS@: python test_@FILE@.py, or pytest."""

import os
import sys
import tempfile

import numpy as np

from tdbg.rules.testing import check, write_run

RULE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "@BUILT@") + ":@CLASS@"


def judged(values, **parameters):
    with tempfile.TemporaryDirectory() as scratch:
        steps = [np.full(4, value, np.float32) for value in values]
        return check(write_run(scratch + "/run", {"gradients": {"gradient/fc.weight": steps}}), RULE, **parameters)


def test_at_the_threshold_is_no_issue():
    assert judged([1, 2, 10], threshold=10).status == "NoIssuesFound"


def test_above_the_threshold_is_found_where_it_happens():
    verdict = judged([1, 2, -10.5, 3], threshold=10)
    assert verdict.status == "IssuesFound", verdict.details
    assert verdict.findings[0]["global_step"] == 2
    assert verdict.findings[0]["value"] == 10.5


if __name__ == "__main__":
    for name, test in list(globals().items()):
        if name.startswith("test_"):
            test()
            print("ok", name)
    sys.exit(0)
)";

std::string Snake(const std::string& name) {
  std::string snake;
  for (const char c : name) {
    const auto u = static_cast<unsigned char>(c);
    if (std::isupper(u) && !snake.empty() && snake.back() != '_') snake += '_';
    snake += static_cast<char>(std::tolower(u));
  }
  return snake;
}

std::string Camel(const std::string& name) {
  std::string camel;
  bool up = true;
  for (const char c : name) {
    if (c != '_') camel += up ? static_cast<char>(std::toupper(static_cast<unsigned char>(c))) : c;
    up = c == '_';
  }
  return camel;
}

bool IsIdentifier(const std::string& name) {
  if (name.empty() || !std::isalpha(static_cast<unsigned char>(name[0]))) return false;
  for (const char c : name) {
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '_') return false;
  }
  return true;
}

std::string Filled(std::string text, const std::vector<std::pair<std::string, std::string>>& values) {
  for (const auto& [name, value] : values) {
    for (size_t at = 0; (at = text.find(name, at)) != std::string::npos; at += value.size()) {
      text.replace(at, name.size(), value);
    }
  }
  return text;
}

// In a wheel <site-packages>/tdbg/include; in a source tree beside python/.
std::string IncludeDirectory() {
  const std::filesystem::path home = base::FindPythonHome();
  for (const auto& candidate : {home / "tdbg" / "include", home.parent_path() / "include"}) {
    std::error_code error;
    if (std::filesystem::exists(candidate / "tdbg" / "rule.h", error)) return candidate.string();
  }
  return "/usr/include";
}

}  // namespace

Result<std::vector<std::string>> WriteRuleTemplate(const std::string& name, RuleLanguage language,
                                                   const std::string& directory) {
  if (!IsIdentifier(name)) {
    return InvalidArgument("rules new: '" + name + "' cannot name a class; accepted: letters, digits and _");
  }
  const std::string file = Snake(name);
  const bool python = language == RuleLanguage::kPython;
  const std::vector<std::pair<std::string, std::string>> values = {
      {"@CLASS@", Camel(name)},
      {"@FILE@", file},
      {"@INCLUDE@", IncludeDirectory()},
      {"@PYTHON@", rulehost::PythonInterpreter()},
      {"@BUILT@", python ? file + ".py" : "lib" + file + ".so"}};
  std::vector<std::pair<std::string, const char*>> files = {{"test_" + file + ".py", kTest}};
  if (python) {
    files.emplace_back(file + ".py", kPython);
  } else {
    files.emplace_back(file + ".cc", kCpp);
    files.emplace_back("Makefile", kMakefile);
  }
  base::FileSystem& disk = base::LocalFileSystem();
  std::vector<std::string> paths;
  for (const auto& [path, text] : files) {
    paths.push_back(base::JoinPath(directory, path));
    if (disk.Exists(paths.back()))
      return Status(Code::kAlreadyExists, "rules new: it is there already: " + paths.back());
  }
  TDBG_RETURN_IF_ERROR(disk.CreateDirectories(directory));
  for (size_t i = 0; i < files.size(); ++i) {
    TDBG_RETURN_IF_ERROR(disk.WriteFileAtomic(paths[i], Filled(files[i].second, values)));
  }
  return paths;
}

}  // namespace tdbg::cli

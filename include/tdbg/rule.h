// A rule of your own in C++: a shared library that `--rule-file libmine.so:MyRule` judges a run with.
//
//   #include "tdbg/rule.h"
//   class LargeGradient : public tdbg::custom::Rule {
//    public:
//     static tdbg::custom::Info Describe() {
//       return {.class_name = "LargeGradient", .summary = "Gradients above a threshold",
//               .parameters = {{.name = "threshold", .type = "float", .default_value = "20"}},
//               .collections = {"gradients"}};
//     }
//     explicit LargeGradient(const tdbg::custom::Parameters& p) : threshold_(p.Float("threshold")) {}
//     tdbg::custom::Judged Invoke(const tdbg::custom::Step& step) override {
//       for (const tdbg_statistics& s : step.statistics()) {
//         if (s.abs_max > threshold_) step.Report({.row = &s, .measure = "abs_max", .value = s.abs_max,
//                                                  .comparison = ">", .threshold = threshold_});
//       }
//       return tdbg::custom::Judged::kJudged;
//     }
//     double threshold_;
//   };
//   TDBG_EXPORT_RULES(LargeGradient)
//
// Build it with nothing but this header: c++ -std=c++20 -shared -fPIC -I<include> mine.cc -o libmine.so.
// `tdbg rules new NAME --cpp` writes such a folder, with a test.
//
// The library and its host share the C structs below and nothing else: neither symbols nor allocators nor
// exceptions nor a C++ library. The host asks for the one symbol that TDBG_EXPORT_RULES defines; its name
// carries the major version. Structs may grow at their end with a minor version, so each that is handed over
// begins with its size.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <limits>
#include <map>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#define TDBG_RULE_ABI_MAJOR 1
#define TDBG_RULE_ABI_MINOR 0

extern "C" {

/// Statistics of one tensor (of one worker, one micro-step) at the judged step: tdbg/summary.h's fields.
/// Moments and norms cover finite elements; NaN where there are none.
typedef struct tdbg_statistics {
  uint32_t tensor;  ///< index for tdbg_step::tensor; keeps its meaning from step to step
  uint32_t worker;  ///< index for tdbg_step::worker
  uint16_t sub;     ///< 0: the step's own; n: micro-step n - 1
  uint16_t point;   ///< 0: none; 2: before, 3: after clipping
  uint32_t reserved;
  uint64_t count, nan_count, pos_inf_count, neg_inf_count, zero_count;
  double min, max, mean, variance, m3, m4, l1, l2, abs_min, abs_max;
} tdbg_statistics;

/// A number of a series (learning rate, a metric of the script).
typedef struct tdbg_scalar {
  uint32_t tensor, worker;
  double value;
} tdbg_scalar;

typedef struct tdbg_tensor {
  size_t struct_bytes;
  const char *name, *short_name;   ///< "gradient/Net_conv1.weight", "conv1.weight"
  const char *kind, *module_kind;  ///< "gradient", "conv"; may be empty
  const char* dtype;               ///< "float32"
  const char* const* collections;  ///< ends with a null pointer
  const int64_t* shape;
  uint32_t rank;
  int32_t unit_axis;  ///< -1: none
} tdbg_tensor;

/// A raw value, C order, in the file's own bytes; valid during the call of `invoke` in which it was asked
/// for.
typedef struct tdbg_value {
  size_t struct_bytes;
  const void* data;
  const char* dtype;
  const int64_t* shape;
  uint32_t rank;
  uint64_t elements;
} tdbg_value;

typedef struct tdbg_finding {
  size_t struct_bytes;
  const char *tensor, *worker;  ///< names; may be empty
  const char *measure, *comparison, *text;
  double value, threshold;
} tdbg_finding;

/// One step, as the host shows it. Valid during one call of `invoke`; strings and tensors as long as the
/// rule.
typedef struct tdbg_step {
  size_t struct_bytes;
  int64_t global_step, mode_step;
  int32_t mode;     ///< 1 TRAIN, 2 EVAL, 3 PREDICT, 4 GLOBAL
  int32_t skipped;  ///< the optimizer's update was skipped (AMP)
  /// Statistics that were due here were shed or are damaged: without a reason to hit, answer TDBG_INCOMPLETE.
  int32_t incomplete;
  uint32_t tensor_count;
  const tdbg_statistics* statistics;
  size_t statistics_count;
  const tdbg_scalar* scalars;
  size_t scalar_count;
  void* host;  ///< first argument of what follows
  const tdbg_tensor* (*tensor)(void* host, uint32_t tensor);
  const char* (*worker)(void* host, uint32_t worker);
  /// 0: filled in; 1: no value is kept there; 2: it is damaged.
  int (*value)(void* host, uint32_t tensor, uint32_t worker, tdbg_value* out);
  void (*report)(void* host, const tdbg_finding* finding);
} tdbg_step;

typedef struct tdbg_parameter {
  size_t struct_bytes;
  const char *name, *type;    ///< type: float, int, bool, string, regex list, collection list
  const char* default_value;  ///< as text; null: none
  const char *unit, *help;    ///< may be null
  double minimum, maximum;
  int32_t required;
} tdbg_parameter;

/// Not due (cadence, inputs absent); judged; judged without a hit although inputs were lost; failed.
enum { TDBG_NOT_DUE = 0, TDBG_JUDGED = 1, TDBG_INCOMPLETE = 2, TDBG_FAILED = -1 };

typedef struct tdbg_rule_class {
  size_t struct_bytes;
  uint32_t abi_major, abi_minor;
  const char *class_name, *summary;
  const tdbg_parameter* const* parameters;  ///< ends with a null pointer, like the lists below
  const char* const* collections;           ///< whose statistics it reads
  const char* const* tensor_regex;          ///< and tensors by name
  int32_t raw;                              ///< it reads values, too
  int64_t raw_interval;                     ///< every so many steps; 0: what the run keeps anyway
  /// \param names, values  every parameter that was given or has a default, as text
  /// \return the rule; null: refused, the reason in `error`
  void* (*create)(const char* const* names, const char* const* values, size_t count, char* error,
                  size_t error_bytes);
  int (*invoke)(void* rule, const tdbg_step* step, char* error, size_t error_bytes);
  /// Once, after the last step (as which `last` shows it): for rules that judge the whole.
  int (*at_end)(void* rule, const tdbg_step* last, char* error, size_t error_bytes);
  void (*destroy)(void* rule);
} tdbg_rule_class;

/// What a library exports under the name tdbg_rule_classes_1: its rules, a null pointer behind the last.
typedef const tdbg_rule_class* const* (*tdbg_rule_classes_function)(void);
}

namespace tdbg::custom {

struct Parameter {
  std::string name;
  std::string type = "string";  ///< float, int, bool, string, regex list, collection list
  std::string default_value = {};
  bool required = false;
  std::string unit = {}, help = {};
  double minimum = -std::numeric_limits<double>::infinity();  ///< of numbers, inclusive
  double maximum = std::numeric_limits<double>::infinity();
};

struct Info {
  std::string class_name;  ///< what follows the colon in --rule-file
  std::string summary = {};
  std::vector<Parameter> parameters = {};
  std::vector<std::string> collections = {};   ///< whose statistics are captured for it
  std::vector<std::string> tensor_regex = {};  ///< and tensors by name
  bool raw = false;                            ///< it reads values of these, too
  int64_t raw_interval = 0;                    ///< every so many steps
};

/// Parsed and checked by the host, against Info::parameters, before the rule is made.
class Parameters {
 public:
  explicit Parameters(std::map<std::string, std::string> values) : values_(std::move(values)) {}
  bool Has(const std::string& name) const { return values_.contains(name); }
  std::string Text(const std::string& name) const { return Has(name) ? values_.at(name) : std::string(); }
  double Float(const std::string& name) const { return std::strtod(Text(name).c_str(), nullptr); }
  int64_t Int(const std::string& name) const { return std::strtoll(Text(name).c_str(), nullptr, 10); }
  bool Bool(const std::string& name) const {
    const std::string text = Text(name);
    return text == "true" || text == "True" || text == "1";
  }

 private:
  std::map<std::string, std::string> values_;
};

struct Finding {
  const tdbg_statistics* row = nullptr;  ///< names tensor and worker where given
  std::string tensor = {}, worker = {};
  std::string measure = {};
  double value = 0;
  std::string comparison = {};
  double threshold = 0;
  std::string text = {};  ///< one sentence for a person
};

enum class Judged : int {
  kNotDue = TDBG_NOT_DUE,
  kJudged = TDBG_JUDGED,
  kIncomplete = TDBG_INCOMPLETE,
};

/// The judged step, and nothing later. What a rule wants of earlier ones it keeps itself.
class Step {
 public:
  explicit Step(const tdbg_step& raw) : raw_(raw) {}
  int64_t global_step() const { return raw_.global_step; }
  int64_t mode_step() const { return raw_.mode_step; }
  int mode() const { return raw_.mode; }
  bool skipped() const { return raw_.skipped != 0; }
  bool incomplete() const { return raw_.incomplete != 0; }
  /// Every worker's, by rank: all tensors that are captured, not only those the rule asked for.
  std::span<const tdbg_statistics> statistics() const { return {raw_.statistics, raw_.statistics_count}; }
  std::span<const tdbg_scalar> scalars() const { return {raw_.scalars, raw_.scalar_count}; }
  const tdbg_tensor& tensor(uint32_t index) const { return *raw_.tensor(raw_.host, index); }
  std::string_view worker(uint32_t index) const { return raw_.worker(raw_.host, index); }
  bool IsIn(uint32_t index, std::string_view collection) const {
    for (const char* const* name = tensor(index).collections; *name; ++name) {
      if (collection == *name) return true;
    }
    return false;
  }
  /// False where no value is kept. \error std::runtime_error  it is damaged
  bool Value(uint32_t index, uint32_t worker_index, tdbg_value* out) const {
    out->struct_bytes = sizeof(tdbg_value);
    const int got = raw_.value(raw_.host, index, worker_index, out);
    if (got == 2) throw std::runtime_error(std::string("damaged value of ") + tensor(index).name);
    return got == 0;
  }
  /// The condition is met. The rule ends with this step; several findings of one step are all kept.
  void Report(const Finding& finding) const {
    tdbg_finding out = {};
    out.struct_bytes = sizeof(out);
    out.tensor = finding.row ? tensor(finding.row->tensor).name : finding.tensor.c_str();
    out.worker = finding.row ? raw_.worker(raw_.host, finding.row->worker) : finding.worker.c_str();
    out.measure = finding.measure.c_str();
    out.comparison = finding.comparison.c_str();
    out.text = finding.text.c_str();
    out.value = finding.value;
    out.threshold = finding.threshold;
    raw_.report(raw_.host, &out);
  }

 private:
  const tdbg_step& raw_;
};

/// What a rule derives from. An exception is the rule's Error, in its words.
/// \threadsafety One thread, one run, steps in ascending order.
class Rule {
 public:
  virtual ~Rule() = default;
  virtual Judged Invoke(const Step& step) = 0;
  virtual Judged AtEnd(const Step&) { return Judged::kNotDue; }
};

namespace internal {

/// The C description of a class: built once, lives as long as the library.
template <typename R>
class Exported {
 public:
  static const tdbg_rule_class* Class() {
    static const Exported exported;
    return &exported.class_;
  }

 private:
  Exported() : info_(R::Describe()) {
    for (const Parameter& p : info_.parameters) {
      parameters_.push_back({sizeof(tdbg_parameter), p.name.c_str(), p.type.c_str(),
                             p.default_value.empty() ? nullptr : p.default_value.c_str(), p.unit.c_str(),
                             p.help.c_str(), p.minimum, p.maximum, p.required});
    }
    for (const tdbg_parameter& p : parameters_) parameter_list_.push_back(&p);
    parameter_list_.push_back(nullptr);
    for (const std::string& name : info_.collections) collections_.push_back(name.c_str());
    collections_.push_back(nullptr);
    for (const std::string& regex : info_.tensor_regex) regexes_.push_back(regex.c_str());
    regexes_.push_back(nullptr);
    class_ = {sizeof(tdbg_rule_class),
              TDBG_RULE_ABI_MAJOR,
              TDBG_RULE_ABI_MINOR,
              info_.class_name.c_str(),
              info_.summary.c_str(),
              parameter_list_.data(),
              collections_.data(),
              regexes_.data(),
              info_.raw,
              info_.raw_interval,
              Create,
              Invoke,
              AtEnd,
              Destroy};
  }

  // Nothing may fly out of a function that C calls.
  template <typename F>
  static int Guarded(F&& f, char* error, size_t error_bytes) {
    try {
      return static_cast<int>(f());
    } catch (const std::exception& e) {
      std::snprintf(error, error_bytes, "%s", e.what());
    } catch (...) {
      std::snprintf(error, error_bytes, "an exception that is no std::exception");
    }
    return TDBG_FAILED;
  }

  static void* Create(const char* const* names, const char* const* values, size_t count, char* error,
                      size_t error_bytes) {
    R* made = nullptr;
    Guarded(
        [&] {
          std::map<std::string, std::string> parameters;
          for (size_t i = 0; i < count; ++i) parameters[names[i]] = values[i];
          made = new R(Parameters(std::move(parameters)));
          return 0;
        },
        error, error_bytes);
    return static_cast<Rule*>(made);
  }
  static int Invoke(void* rule, const tdbg_step* step, char* error, size_t error_bytes) {
    return Guarded([&] { return static_cast<Rule*>(rule)->Invoke(Step(*step)); }, error, error_bytes);
  }
  static int AtEnd(void* rule, const tdbg_step* last, char* error, size_t error_bytes) {
    return Guarded([&] { return static_cast<Rule*>(rule)->AtEnd(Step(*last)); }, error, error_bytes);
  }
  static void Destroy(void* rule) { delete static_cast<Rule*>(rule); }

  const Info info_;
  std::vector<tdbg_parameter> parameters_;
  std::vector<const tdbg_parameter*> parameter_list_;
  std::vector<const char*> collections_, regexes_;
  tdbg_rule_class class_;
};

template <typename... Rules>
const tdbg_rule_class* const* Classes() {
  static const tdbg_rule_class* const classes[] = {Exported<Rules>::Class()..., nullptr};
  return classes;
}

}  // namespace internal
}  // namespace tdbg::custom

namespace tdbg {
namespace rule = custom;  ///< the name until 0.1.0; gone in 0.3
}

/// Once in a library: the classes that --rule-file finds in it. They need a constructor that takes
/// `const tdbg::custom::Parameters&`, and a static Describe().
#define TDBG_EXPORT_RULES(...)                                                                            \
  extern "C" __attribute__((visibility("default"))) const tdbg_rule_class* const* tdbg_rule_classes_1() { \
    return ::tdbg::custom::internal::Classes<__VA_ARGS__>();                                              \
  }

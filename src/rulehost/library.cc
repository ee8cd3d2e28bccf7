#include "rulehost/library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cmath>

#include "tdbg/tensor.h"

namespace tdbg::rulehost {
namespace {

using nlohmann::json;

constexpr const char* kSymbol = "tdbg_rule_classes_1";
constexpr size_t kErrorBytes = 900;  // what a StatusDetails has room for

std::string OrEmpty(const char* text) { return text ? text : ""; }

json List(const char* const* texts) {
  json list = json::array();
  for (; texts && *texts; ++texts) list.push_back(*texts);
  return list;
}

// JSON has no NaN; these strings are what everything else in a run uses.
json Number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  return value;
}

}  // namespace

Result<Library> Library::Load(const std::string& file, const std::string& class_name) {
  // Everything resolved now: a symbol that is missing must be an error before training, not at a step.
  void* const handle = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle) return InvalidArgument(fmt::format("{} cannot be loaded: {}", file, OrEmpty(::dlerror())));
  const auto classes = reinterpret_cast<tdbg_rule_classes_function>(::dlsym(handle, kSymbol));
  if (!classes) {
    return InvalidArgument(
        fmt::format("{} exports no {}: it holds no rules, or rules for another major version of tdbg/rule.h; "
                    "this is version {}.{} (TDBG_EXPORT_RULES(CLASS) exports them)",
                    file, kSymbol, TDBG_RULE_ABI_MAJOR, TDBG_RULE_ABI_MINOR));
  }
  std::string known;
  for (const tdbg_rule_class* const* candidate = classes(); candidate && *candidate; ++candidate) {
    const tdbg_rule_class& found = **candidate;
    if (found.abi_major != TDBG_RULE_ABI_MAJOR || found.struct_bytes < sizeof(tdbg_rule_class)) {
      return InvalidArgument(fmt::format("{} was built for version {}.{} of tdbg/rule.h; this is {}.{}", file,
                                         found.abi_major, found.abi_minor, TDBG_RULE_ABI_MAJOR,
                                         TDBG_RULE_ABI_MINOR));
    }
    if (class_name == found.class_name) {
      Library library;
      library.class_ = &found;
      return library;
    }
    known += (known.empty() ? "" : ", ") + OrEmpty(found.class_name);
  }
  return InvalidArgument(fmt::format("{} holds no rule '{}'; there {} {}", file, class_name,
                                     known.find(',') == std::string::npos ? "is" : "are",
                                     known.empty() ? "none" : known));
}

json Library::Describe() const {
  json parameters = json::array();
  for (const tdbg_parameter* const* p = class_->parameters; p && *p; ++p) {
    parameters.push_back({{"name", OrEmpty((*p)->name)},
                          {"type", OrEmpty((*p)->type)},
                          {"default", OrEmpty((*p)->default_value)},
                          {"required", (*p)->required != 0},
                          {"unit", OrEmpty((*p)->unit)},
                          {"help", OrEmpty((*p)->help)},
                          {"minimum", Number((*p)->minimum)},
                          {"maximum", Number((*p)->maximum)}});
  }
  return {{"info", {{"summary", OrEmpty(class_->summary)}, {"parameters", parameters}}},
          {"needs",
           {{"collections", List(class_->collections)},
            {"tensor_regex", List(class_->tensor_regex)},
            {"raw", class_->raw != 0},
            {"interval", class_->raw_interval}}}};
}

// What the C structs point into.
struct LibraryRule::Tensor {
  TensorInfo info;
  std::vector<const char*> collections;
  tdbg_tensor raw = {};
};

// One invocation: what `host` points to.
struct LibraryRule::View {
  LibraryRule* rule;
  const rules::StepContext* step;
  std::vector<std::unique_ptr<TensorValue>> values;  // alive until invoke returns
  json findings = json::array();

  static const tdbg_tensor* TensorAt(void* host, uint32_t index) {
    auto& tensors = static_cast<View*>(host)->rule->tensors_;
    return index < tensors.size() ? &tensors[index]->raw : nullptr;
  }
  static const char* WorkerAt(void* host, uint32_t worker) {
    return static_cast<View*>(host)->step->worker_name(worker).c_str();
  }
  static int ValueAt(void* host, uint32_t tensor, uint32_t worker, tdbg_value* out) {
    auto& view = *static_cast<View*>(host);
    auto value = view.step->Raw(tensor, worker);
    if (!value.ok()) return value.status().code() == Code::kNotFound ? 1 : 2;
    view.values.push_back(std::make_unique<TensorValue>(*std::move(value)));
    const TensorValue& kept = *view.values.back();
    out->data = kept.data;
    out->dtype = DTypeName(kept.dtype).data();  // a literal
    out->shape = kept.shape.data();
    out->rank = static_cast<uint32_t>(kept.shape.size());
    out->elements = 1;
    for (const int64_t d : kept.shape) out->elements *= static_cast<uint64_t>(d);
    return 0;
  }
  static void Report(void* host, const tdbg_finding* finding) {
    static_cast<View*>(host)->findings.push_back({{"tensor", OrEmpty(finding->tensor)},
                                                  {"worker", OrEmpty(finding->worker)},
                                                  {"measure", OrEmpty(finding->measure)},
                                                  {"value", Number(finding->value)},
                                                  {"comparison", OrEmpty(finding->comparison)},
                                                  {"threshold", Number(finding->threshold)},
                                                  {"text", OrEmpty(finding->text)}});
  }
};

Result<std::unique_ptr<LibraryRule>> LibraryRule::Make(const tdbg_rule_class& rule_class,
                                                       const json& parameters) {
  std::vector<std::string> texts;
  std::vector<const char*> names, values;
  for (const auto& [name, value] : parameters.items()) {
    texts.push_back(name);
    texts.push_back(value.is_string() ? value.get<std::string>() : value.dump());
  }
  for (size_t i = 0; i < texts.size(); i += 2) {
    names.push_back(texts[i].c_str());
    values.push_back(texts[i + 1].c_str());
  }
  char error[kErrorBytes] = "it gave no reason";
  void* const rule = rule_class.create(names.data(), values.data(), names.size(), error, sizeof(error));
  if (!rule) return InvalidArgument(std::string("it cannot be made: ") + error);
  return std::unique_ptr<LibraryRule>(new LibraryRule(rule_class, rule));
}

LibraryRule::LibraryRule(const tdbg_rule_class& rule_class, void* rule) : class_(rule_class), rule_(rule) {}

LibraryRule::~LibraryRule() { class_.destroy(rule_); }

Result<json> LibraryRule::Invoke(const rules::StepContext& step, bool at_end) {
  while (tensors_.size() < step.tensor_count()) {
    auto tensor = std::make_unique<Tensor>();
    tensor->info = step.tensor(static_cast<TensorIndex>(tensors_.size()));
    for (const std::string& name : tensor->info.collections) tensor->collections.push_back(name.c_str());
    tensor->collections.push_back(nullptr);
    const TensorInfo& info = tensor->info;
    tensor->raw = {sizeof(tdbg_tensor),
                   info.name.c_str(),
                   info.short_name.c_str(),
                   info.kind.c_str(),
                   info.module_kind.c_str(),
                   DTypeName(info.dtype).data(),
                   tensor->collections.data(),
                   info.shape.data(),
                   static_cast<uint32_t>(info.shape.size()),
                   info.unit_axis};
    tensors_.push_back(std::move(tensor));
  }
  statistics_.clear();
  step.ForEachRow([&](const rules::StepContext::Row& row) {
    const Summary s = row.summary();
    statistics_.push_back({row.tensor,
                           row.worker,
                           row.sub.sub,
                           static_cast<uint16_t>(row.sub.point),
                           0,
                           s.count,
                           s.nan_count,
                           s.pos_inf_count,
                           s.neg_inf_count,
                           s.zero_count,
                           s.min,
                           s.max,
                           s.mean,
                           s.variance,
                           s.m3,
                           s.m4,
                           s.l1,
                           s.l2,
                           s.abs_min,
                           s.abs_max});
  });
  scalars_.clear();
  for (const rules::StepContext::Scalar& scalar : step.scalars()) {
    scalars_.push_back({scalar.tensor, scalar.worker, scalar.value});
  }
  View view{this, &step, {}, json::array()};
  tdbg_step raw = {};
  raw.struct_bytes = sizeof(raw);
  raw.global_step = step.global_step();
  raw.mode_step = step.mode_step();
  raw.mode = static_cast<int32_t>(step.mode());
  raw.skipped = step.skipped();
  raw.incomplete = step.statistics_incomplete();
  raw.tensor_count = static_cast<uint32_t>(tensors_.size());
  raw.statistics = statistics_.data();
  raw.statistics_count = statistics_.size();
  raw.scalars = scalars_.data();
  raw.scalar_count = scalars_.size();
  raw.host = &view;
  raw.tensor = View::TensorAt;
  raw.worker = View::WorkerAt;
  raw.value = View::ValueAt;
  raw.report = View::Report;
  char error[kErrorBytes] = "it failed without a word";
  const int judged = (at_end ? class_.at_end : class_.invoke)(rule_, &raw, error, sizeof(error));
  if (judged == TDBG_FAILED) return Unavailable(error);
  const char* const said = judged == TDBG_NOT_DUE      ? "not_due"
                           : judged == TDBG_INCOMPLETE ? "incomplete"
                                                       : "judged";
  return json{{"judged", said}, {"findings", std::move(view.findings)}};
}

}  // namespace tdbg::rulehost

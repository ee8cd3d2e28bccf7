// What a recorder knows of its tensors: defined once, announced to the sink before their first row.
#include <algorithm>

#include "base/text.h"
#include "capture/recorder.h"

namespace tdbg::capture {
namespace {

int64_t CountElements(const std::vector<int64_t>& shape) {
  int64_t n = 1;
  for (const int64_t d : shape) n *= d;
  return n;
}

bool IsPart(const TensorSpec& spec) {
  return !spec.shape.empty() && spec.whole_shape.size() == spec.shape.size() &&
         spec.part_begin.size() == spec.shape.size() && !spec.variable_shape;
}

/// The element count that decides what is kept. Of a part it is the whole's: what is read of a whole is made
/// of all parts, and parts that differ in size must not differ in what they have. 0: not known.
int64_t DecidingElements(const TensorSpec& spec) {
  return spec.variable_shape ? 0 : CountElements(IsPart(spec) ? spec.whole_shape : spec.shape);
}

}  // namespace

bool Recorder::Wants(const TensorSpec& spec) const {
  if (options_.inert) return false;
  const plan::TensorFacts facts{spec.name, spec.kind, spec.module_kind, &spec.collections,
                                DecidingElements(spec)};
  return plan_.Resolve(facts).wanted();
}

auto Recorder::NewDetails() -> std::unique_ptr<Details, DestroyOnly> {
  std::pmr::polymorphic_allocator<> memory(&definitions_memory_);
  return std::unique_ptr<Details, DestroyOnly>(memory.new_object<Details>(&definitions_memory_));
}

void Recorder::Know(std::string_view name, Id id) {
  auto known = ids_by_name_.find(name);
  if (known == ids_by_name_.end()) {
    auto* const kept = static_cast<char*>(definitions_memory_.allocate(name.size(), 1));
    known = ids_by_name_.try_emplace({kept, name.copy(kept, name.size())}).first;
  }
  known->second.push_back(id);
}

std::string_view Recorder::NameOf(Id id) const {
  for (const auto& [name, ids] : ids_by_name_) {
    if (std::ranges::find(ids, id) != ids.end()) return name;
  }
  return {};
}

Recorder::Id Recorder::Add(format::TensorDef def, Tensor tensor) {
  def.id = static_cast<Id>(tensors_.size());
  const Id id = def.id;
  if (tensor.details == nullptr) tensor.details = NewDetails();
  tensors_.push_back(std::move(tensor));
  tensors_.back().unannounced = std::make_unique<format::TensorDef>(std::move(def));
  // A run of smdebug's knows no tensor of which nothing was ever saved.
  if (plan_.plan().empty_steps) Announce(&tensors_.back());
  return id;
}

/// Before the first row of it.
void Recorder::Announce(Tensor* tensor) {
  if (tensor->unannounced == nullptr) return;
  sink_->AppendTensorDef(*tensor->unannounced);
  tensor->unannounced.reset();
  uncommitted_defs_ = true;
}

Recorder::Id Recorder::Define(const TensorSpec& spec) {
  if (options_.inert) return Run::kNotWanted;
  const std::string name = base::IsValidName(spec.name) ? spec.name : base::ToValidUtf8(spec.name);
  if (const auto known = ids_by_name_.find(name); known != ids_by_name_.end()) {
    for (const Id id : known->second) {
      const Tensor& t = tensors_[id];
      // A shape that varies keeps its rank: of another rank, the unit's axis is another.
      if (t.scalar || t.dtype != spec.dtype || (spec.always && !t.always)) continue;
      const auto& shape = t.details->shape;
      if (!std::ranges::equal(t.details->part_begin, spec.part_begin)) continue;
      if (t.variable_shape ? shape.size() == spec.shape.size() : std::ranges::equal(shape, spec.shape))
        return id;
    }
  }
  const plan::TensorFacts facts{name, spec.kind, spec.module_kind, &spec.collections, DecidingElements(spec)};
  plan::TensorPlan wanted = plan_.Resolve(facts);
  if (!wanted.wanted() && !spec.always) return Run::kNotWanted;

  Tensor tensor;
  tensor.summary_groups = wanted.summary_groups;
  tensor.raw_groups = wanted.raw_groups;
  tensor.dtype = spec.dtype;
  tensor.histogram_groups = wanted.histogram_groups;
  tensor.always = spec.always;
  tensor.variable_shape = spec.variable_shape;
  tensor.elements = CountElements(spec.shape);
  tensor.bytes = static_cast<uint64_t>(tensor.elements) * ItemSize(spec.dtype);
  tensor.details = NewDetails();
  tensor.details->shape.assign(spec.shape.begin(), spec.shape.end());
  tensor.details->collections.assign(wanted.collections.begin(), wanted.collections.end());
  tensor.details->unit_axis = spec.unit_axis;
  tensor.details->part_begin.assign(spec.part_begin.begin(), spec.part_begin.end());
  WantsMore(&tensor);
  format::TensorDef def;
  def.name = name;
  def.short_name = spec.short_name;
  def.kind = spec.kind;
  def.module_kind = spec.module_kind;
  def.collections = std::move(wanted.collections);
  def.aliases = spec.aliases;
  def.dtype = spec.dtype;
  def.shape = spec.shape;
  def.variable_shape = spec.variable_shape;
  def.unit_axis = spec.unit_axis;
  if (IsPart(spec)) {
    def.whole_shape = spec.whole_shape;
    def.part_begin = spec.part_begin;
    tensor.part = true;
  }
  const Id id = Add(std::move(def), std::move(tensor));
  Know(name, id);
  for (Statistic& statistic : wanted.statistics) {
    const int axis = statistic.AxisOf(spec.unit_axis, spec.shape.size());
    if (statistic.per_unit() && axis < 0) continue;  // readers see from the definition why there is none
    format::TensorDef own;
    own.name = StatisticTensorName(statistic.Id(), name);
    own.kind = kStatisticKind;
    own.module_kind = spec.module_kind;
    own.dtype = statistic.kind == Statistic::Kind::kSums ? DType::kFloat64 : DType::kInt32;
    own.shape = {2 + (axis < 0 ? static_cast<int64_t>(statistic.parameters.size())
                               : spec.shape[static_cast<size_t>(axis)])};
    own.variable_shape = true;
    const Id derived = Add(std::move(own), {});
    tensors_[id].details->derived.push_back({std::move(statistic), derived});
    if (!unit_statistics_) unit_statistics_ = std::make_unique<stats::UnitStatistics>();
  }
  return id;
}

Recorder::Id Recorder::DefineScalar(std::string_view name_untrusted, std::string_view collection) {
  if (options_.inert || (collection.empty() && !plan_.plan().context)) return Run::kNotWanted;
  const std::string name =
      base::IsValidName(name_untrusted) ? std::string(name_untrusted) : base::ToValidUtf8(name_untrusted);
  if (const auto known = ids_by_name_.find(name); known != ids_by_name_.end()) {
    for (const Id id : known->second) {
      if (tensors_[id].scalar) return id;
    }
  }
  format::TensorDef def;
  def.name = name;
  def.kind = "scalar";
  def.dtype = DType::kFloat64;
  if (collection.empty()) {
    def.collections = {"context"};
  } else {
    const std::vector<std::string> said = {std::string(collection)};
    def.collections = plan_.Resolve({name, def.kind, {}, &said, 1}).collections;
  }
  Tensor tensor;
  tensor.scalar = true;
  tensor.dtype = DType::kFloat64;
  const Id id = Add(std::move(def), std::move(tensor));
  Know(name, id);
  return id;
}

std::vector<Statistic> Recorder::Statistics(Id id) const {
  std::vector<Statistic> statistics;
  if (const Tensor* t = Find(id)) {
    for (const Derived& derived : t->details->derived) statistics.push_back(derived.statistic);
  }
  return statistics;
}

}  // namespace tdbg::capture

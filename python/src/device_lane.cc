#include "device_lane.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <tuple>

#include "cuda/image.h"
#include "integers.h"
#include "number.h"
#include "summaries.h"

namespace tdbg::python {

namespace nb = nanobind;
using namespace nb::literals;

namespace {

const char* TextOf(cuda::Refusal refusal) {
  using R = cuda::Refusal;
  switch (refusal) {
    case R::kNone:
      return "";
    case R::kClosed:
      return "closed";
    case R::kFull:
      return "full";
    case R::kMemory:
      return "memory";
    case R::kCapturing:
      return "capturing";
    case R::kKind:
      return "kind";
  }
  return "closed";
}

}  // namespace

std::optional<double> DeviceRows::value(size_t position) const {
  const cuda::Arrival::Tensor& t = arrival.tensors.at(position);
  if (!t.present || t.bytes == 0) return std::nullopt;
  return NumberAt(arrival.values.data() + t.first_byte, plan->dtypes[position]);
}

DeviceLane::DeviceLane() {
  const Result<cuda::Driver>& driver = cuda::Driver::OfProcess();
  if (!driver.ok()) {
    no_driver_ = driver.status().message();
  } else {
    lane_ = std::make_unique<cuda::Lane>(&*driver, cuda::Image());
    raw_ = std::make_unique<cuda::RawCopies>(lane_->connection());
  }
}

std::string DeviceLane::trouble() const { return lane_ ? lane_->trouble() : no_driver_; }

std::tuple<std::string, uint64_t, uint32_t> DeviceLane::Put(
    int device, uint64_t stream, nb::handle ids, nb::handle addresses, nb::handle dtypes,
    const std::vector<std::vector<int64_t>>& shapes,
    const std::vector<std::tuple<uint32_t, std::string, uint64_t, uint64_t, uint64_t, uint64_t>>& statistics,
    int sub, int point) {
  if (lane_ == nullptr) return {"closed", 0, 0};
  auto plan = std::make_shared<RowPlan>();
  plan->ids = Integers<uint32_t>(ids);
  plan->place = {static_cast<uint16_t>(sub), static_cast<StepPoint>(point)};
  const auto where = Integers<uint64_t>(addresses);
  const auto types = Integers<uint8_t>(dtypes);
  const size_t n = plan->ids.size();
  if (where.size() != n || types.size() != n || shapes.size() != n)
    throw nb::value_error("put: as many addresses, types and shapes as ids, please");
  std::vector<cuda::Item> items(n);
  plan->dtypes.reserve(n);
  plan->shapes.resize(n);
  for (size_t i = 0; i < n; ++i) {
    cuda::Item& item = items[i];
    item.address = where[i];
    item.dtype = static_cast<DType>(types[i]);
    plan->dtypes.push_back(item.dtype);
    item.elements = 1;
    for (const int64_t d : shapes[i]) item.elements *= static_cast<uint64_t>(d);
    if (item.elements * ItemSize(item.dtype) <= cuda::kMaxValueBytes) {
      item.flags = cuda::kValues;
      plan->shapes[i] = shapes[i];
    } else {
      item.flags = cuda::kStatistics | cuda::kHistogram;
    }
  }
  std::vector<cuda::DerivedSpec> derived;
  for (const auto& [tensor, id, outer, units, inner, samples] : statistics) {
    const auto statistic = Statistic::FromId(id);
    if (!statistic.ok() || tensor >= n || items[tensor].flags == cuda::kValues) continue;
    derived.push_back({tensor, outer, units, inner, *statistic});
    const bool per_unit = statistic->per_unit();
    plan->derived.push_back({tensor, *statistic, per_unit ? outer * inner : items[tensor].elements, samples});
  }
  const cuda::Lane::Put put = lane_->Launch(device, stream, items, derived);
  if (put.ticket != 0) under_way_[put.ticket] = std::move(plan);
  if (put.graph != 0) graphs_[put.graph] = std::move(plan);
  return {TextOf(put.refusal), put.ticket, put.graph};
}

void DeviceLane::PrepareCapture(int device) {
  if (lane_) lane_->PrepareCapture(device);
}

void DeviceLane::BeforeReplay(int device, uint64_t stream) {
  if (lane_) lane_->BeforeReplay(device, stream);
}

uint64_t DeviceLane::Replayed(uint32_t graph) {
  if (!lane_) return 0;
  const uint64_t ticket = lane_->Replayed(graph);
  if (ticket != 0) under_way_[ticket] = graphs_[graph];
  return ticket;
}

int DeviceLane::Look(uint64_t ticket) {
  return lane_ ? static_cast<int>(lane_->Look(ticket)) : static_cast<int>(cuda::TicketState::kLost);
}

std::optional<DeviceRows> DeviceLane::Take(uint64_t ticket) {
  if (!lane_ || lane_->Look(ticket) == cuda::TicketState::kUnderWay) return std::nullopt;
  auto arrival = lane_->Take(ticket);
  const auto plan = under_way_.extract(ticket);
  if (!arrival || plan.empty()) return std::nullopt;
  return DeviceRows{plan.mapped(), *std::move(arrival)};
}

void DeviceLane::Drop(uint64_t ticket) {
  if (lane_) lane_->Drop(ticket);
  under_way_.erase(ticket);
}

std::vector<std::pair<std::string, uint64_t>> DeviceLane::PutRaw(int device, uint64_t stream,
                                                                 nb::handle addresses, nb::handle sizes) {
  const auto where = Integers<uint64_t>(addresses);
  const auto bytes = Integers<uint64_t>(sizes);
  if (where.size() != bytes.size()) throw nb::value_error("put_raw: as many addresses as sizes, please");
  std::vector<std::pair<std::string, uint64_t>> answers;
  if (raw_ == nullptr) return {where.size(), {"closed", 0}};
  std::vector<cuda::RawCopies::Source> sources;
  for (size_t i = 0; i < where.size(); ++i) sources.push_back({where[i], bytes[i]});
  for (const auto& put : raw_->Copy(device, stream, sources)) {
    answers.emplace_back(TextOf(put.refusal), put.ticket);
  }
  return answers;
}

int DeviceLane::LookRaw(uint64_t ticket) const {
  return static_cast<int>(raw_ ? raw_->Look(ticket) : cuda::TicketState::kLost);
}

uint64_t DeviceLane::RawAddress(uint64_t ticket) const {
  return raw_ ? reinterpret_cast<uintptr_t>(raw_->Data(ticket)) : 0;
}

void DeviceLane::ReleaseRaw(uint64_t ticket) {
  if (raw_) raw_->Release(ticket);
}

void DeviceLane::Leave() {
  (void)raw_.release();
  (void)lane_.release();
}

void PutRows(Run& run, const DeviceRows& rows) {
  const RowPlan& plan = *rows.plan;
  const cuda::Arrival& arrival = rows.arrival;
  static constexpr HistogramBucket kNone = {};
  for (size_t i = 0; i < plan.ids.size(); ++i) {
    const cuda::Arrival::Tensor& t = arrival.tensors[i];
    if (plan.ids[i] == Run::kNotWanted || !t.present) continue;
    if (t.bytes != 0) {
      run.Put(plan.ids[i], {arrival.values.data() + t.first_byte, plan.dtypes[i], plan.shapes[i], {}},
              plan.place);
      continue;
    }
    std::span<const HistogramBucket> histogram = arrival.histogram(t);
    if (histogram.data() == nullptr) histogram = {&kNone, 0};  // one of zeros only
    if (t.buckets_lost) histogram = {};
    run.PutSummary(plan.ids[i], t.summary, histogram, plan.place);
  }
  for (size_t i = 0; i < plan.derived.size(); ++i) {
    const RowPlan::Derived& d = plan.derived[i];
    if (!arrival.tensors[d.tensor].present || plan.ids[d.tensor] == Run::kNotWanted) continue;
    const auto begin = arrival.derived.begin();
    run.PutStatistic(
        plan.ids[d.tensor], d.statistic,
        {d.elements, d.samples, {begin + arrival.derived_at[i], begin + arrival.derived_at[i + 1]}},
        plan.place);
  }
}

void BindDeviceLane(nb::module_* m) {
  nb::class_<DeviceRows>(*m, "DeviceRows", "A batch that has arrived from a GPU.")
      .def_prop_ro("ids", [](const DeviceRows& r) { return r.plan->ids; })
      .def("value", &DeviceRows::value, "position"_a,
           "Of a small tensor the first value; None if it was absent.")
      .def(
          "summary",
          [](const DeviceRows& r, size_t position) -> std::optional<std::vector<double>> {
            const cuda::Arrival::Tensor& t = r.arrival.tensors.at(position);
            if (!t.present || t.bytes != 0) return std::nullopt;
            return NumbersOf(t.summary);
          },
          "position"_a, "The 15 numbers, or None of one that was absent or travelled as it is.")
      .def(
          "values",
          [](const DeviceRows& r, size_t position) -> std::optional<nb::bytes> {
            const cuda::Arrival::Tensor& t = r.arrival.tensors.at(position);
            if (!t.present || t.bytes == 0) return std::nullopt;
            return nb::bytes(reinterpret_cast<const char*>(r.arrival.values.data()) + t.first_byte, t.bytes);
          },
          "position"_a, "The bytes of a small tensor.")
      .def_prop_ro("place", [](const DeviceRows& r) {
        return std::tuple(static_cast<int>(r.plan->place.sub), static_cast<int>(r.plan->place.point));
      });
  nb::class_<DeviceLane>(*m, "DeviceLane", "Statistics of tensors on NVIDIA's GPUs, by kernels of our own.")
      .def(nb::init<>())
      .def_prop_ro_static("ARRIVED", [](nb::handle) { return static_cast<int>(cuda::TicketState::kArrived); })
      .def_prop_ro_static("UNDER_WAY",
                          [](nb::handle) { return static_cast<int>(cuda::TicketState::kUnderWay); })
      .def("put", &DeviceLane::Put, "device"_a, "stream"_a, "ids"_a, "addresses"_a, "dtypes"_a, "shapes"_a,
           "statistics"_a, "sub"_a = 0, "point"_a = 0,
           "(why it was refused, or an empty text; ticket; graph, if it was launched into a capture)")
      .def("prepare_capture", &DeviceLane::PrepareCapture, "device"_a)
      .def("before_replay", &DeviceLane::BeforeReplay, "device"_a, "stream"_a)
      .def("replayed", &DeviceLane::Replayed, "graph"_a, "The ticket of one more replay of a graph.")
      .def("look", &DeviceLane::Look, "ticket"_a)
      .def("take", &DeviceLane::Take, "ticket"_a, "DeviceRows; None where they are lost, or under way.")
      .def("drop", &DeviceLane::Drop, "ticket"_a)
      .def("put_raw", &DeviceLane::PutRaw, "device"_a, "stream"_a, "addresses"_a, "sizes"_a,
           "One (why it was refused, or an empty text; ticket) for each.")
      .def("look_raw", &DeviceLane::LookRaw, "ticket"_a)
      .def("raw_address", &DeviceLane::RawAddress, "ticket"_a,
           "Where the bytes lie until `release_raw`; 0 where they have not arrived.")
      .def("release_raw", &DeviceLane::ReleaseRaw, "ticket"_a)
      .def("leave", &DeviceLane::Leave)
      .def_prop_ro("raw_device_bytes", &DeviceLane::raw_device_bytes)
      .def_prop_ro("raw_pinned_bytes", &DeviceLane::raw_pinned_bytes)
      .def_prop_ro("trouble", &DeviceLane::trouble)
      .def_prop_ro("device_bytes", &DeviceLane::device_bytes)
      .def_prop_ro("pinned_bytes", &DeviceLane::pinned_bytes);
  m->def(
      "dtype_number",
      [](const std::string& name) { return static_cast<int>(DTypeFromName(name).value_or(DType::kInvalid)); },
      "name"_a, "tdbg/tensor.h's number of an element type; 0 of an unknown one.");
}

}  // namespace tdbg::python

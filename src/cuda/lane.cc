#include "cuda/lane.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "base/hash.h"

namespace tdbg::cuda {
namespace {

constexpr size_t kMaxPlans =
    1024;  // of all kinds; past that the one not used for the longest time makes room
constexpr size_t kMaxPlansOfAKind = 8;  // whose rings are full, before the device counts as far behind
// Blocks of memory are powers of two from here on, so that what one shape has left is good for the next.
constexpr uint64_t kSmallestOnDevice = 16u << 10, kSmallestPinned = 128u << 10;
constexpr unsigned kPortable = 1, kDeviceMap = 2, kWithoutTiming = 2, kNonBlocking = 1;

// Words of a slot that the device may be writing once more, where a graph is replayed faster than we read:
// what is torn is found out afterwards, by the slot's own `begun`.
#if defined(__SANITIZE_THREAD__)
__attribute__((no_sanitize("thread")))
#endif
void CopyWords(void* to, const void* from, uint64_t bytes) {
  auto* const out = static_cast<uint64_t*>(to);
  const auto* const in = static_cast<const uint64_t*>(from);
  for (uint64_t i = 0; i < bytes / 8; ++i) out[i] = __atomic_load_n(in + i, __ATOMIC_RELAXED);
}

// A statistic that a kernel does not compute would be 0 of every tensor on a device.
static_assert(sizeof(Row) == sizeof(Summary) + 4 * sizeof(uint32_t));

Summary SummaryOf(const Row& row) {
  return {row.count,
          row.nan_count,
          row.pos_inf_count,
          row.neg_inf_count,
          row.zero_count,
          row.min,
          row.max,
          row.mean,
          row.variance,
          row.m3,
          row.m4,
          row.l1,
          row.l2,
          row.abs_min,
          row.abs_max};
}

}  // namespace

/// What a batch is but for its addresses: batches of one kind share a plan.
struct Lane::Kind {
  std::vector<TensorSpec> tensors;
  std::span<const DerivedSpec> derived;
  uint64_t key = 0;

  Kind(int device, uint64_t stream, std::span<const Item> items, std::span<const DerivedSpec> statistics)
      : derived(statistics) {
    tensors.reserve(items.size());
    std::vector<uint64_t> words = {static_cast<uint64_t>(device), stream, items.size()};
    for (const Item& item : items) {
      tensors.push_back({item.elements, item.dtype, item.flags});
      words.push_back(item.elements);
      words.push_back(static_cast<uint64_t>(item.dtype) << 32 | item.flags);
    }
    for (const DerivedSpec& d : statistics) {
      words.insert(words.end(),
                   {d.tensor, d.outer, d.units, d.inner, static_cast<uint64_t>(d.statistic.kind)});
      for (const double p : d.statistic.parameters) words.push_back(__builtin_bit_cast(uint64_t, p));
    }
    key = base::Hash64(std::as_bytes(std::span(words)));
  }
};

/// A kind's memory on a device, and how far it is.
struct Lane::Prepared {
  int device = 0;
  uint64_t stream = 0;
  uint64_t key = 0;
  std::vector<TensorSpec> tensors;
  std::vector<DerivedSpec> statistics;
  Layout layout;
  Plan plan = {};
  DevicePointer memory = 0;
  uint64_t memory_bytes = 0;
  unsigned char* pinned = nullptr;  // the ring, and behind it what was uploaded
  uint64_t pinned_bytes = 0;
  uint64_t launched = 0, taken = 0;  // steps
  uint64_t used_at = 0;              // the ticket of its last one
  bool captured = false;
  std::deque<Ticket> under_way;  // from sequence taken + 1 on

  bool HasRoom() const { return launched - taken < plan.slots; }
};

struct Lane::Functions {
  Handle module = nullptr;
  bool complete = false;  // all of them are there
  std::map<std::string, Handle, std::less<>> by_name;
};

Lane::Lane(const Driver* driver, std::span<const std::byte> image, LaneOptions options)
    : connection_(driver), driver_(driver), image_(image), options_(options) {}

Lane::~Lane() {
  if (!connection_.usable()) return;
  const auto in = [this](int device, const auto& give_back) {
    const Connection::Entered entered(&connection_, device);
    if (!entered.ok()) return false;
    const Connection::Relaxed relaxed(&connection_);
    return relaxed.ok() && give_back();
  };
  for (const auto& entry : asides_) {
    const Aside& aside = entry.second;
    const bool destroyed = in(entry.first, [&] {
      return (aside.event == nullptr || Check(driver_->EventDestroy(aside.event), "cuEventDestroy")) &&
             (aside.stream == nullptr || Check(driver_->StreamDestroy(aside.stream), "cuStreamDestroy"));
    });
    if (!destroyed) return;
  }
  for (const auto& plan : plans_) {
    Collect(plan.get());
    // Not freed: a captured graph may be replayed after us, and a kernel that is under way still writes.
    if (plan->captured || plan->launched != plan->taken) continue;
    const bool freed = in(plan->device, [&] {
      return Check(driver_->MemFree(plan->memory), "cuMemFree") &&
             Check(driver_->MemFreeHost(plan->pinned), "cuMemFreeHost");
    });
    if (!freed) return;
  }
  for (const Block& block : idle_) {
    if (!in(block.device, [&] { return Check(driver_->MemFree(block.memory), "cuMemFree"); })) return;
  }
  // A process may train a thousand times. The frees above have waited for what ran of the kernels.
  for (const auto& entry : functions_) {
    const int device = entry.first;
    const Handle module = entry.second->module;
    const bool used = std::ranges::any_of(plans_, [device](const std::unique_ptr<Prepared>& plan) {
      return plan->device == device && (plan->captured || plan->launched != plan->taken);
    });
    if (used || module == nullptr) continue;
    if (!in(device, [&] { return Check(driver_->ModuleUnload(module), "cuModuleUnload"); })) return;
  }
}

/// The kernels in the context of a device, which is entered. Null: the driver failed, or memory is out.
auto Lane::FunctionsOf(int device) -> Functions* {
  std::unique_ptr<Functions>& found = functions_[device];
  if (found == nullptr) found = std::make_unique<Functions>();
  if (!found->complete) {
    const Connection::Relaxed relaxed(&connection_);
    found->complete = relaxed.ok() && Load(device, found.get());
  }
  return found->complete && connection_.usable() ? found.get() : nullptr;
}

/// What is loaded already waits where memory is out: the next batch tries again.
bool Lane::Load(int device, Functions* functions) {
  if (functions->module == nullptr) {
    Handle module = nullptr;
    const Error error = driver_->ModuleLoadData(&module, image_.data());
    if (error == kOutOfMemory) return false;
    if (error != kSuccess) {
      connection_.Fail("device " + std::to_string(device) +
                       " takes none of the kernels that tdbg has, nor can its driver make " +
                       "them: cuModuleLoadData: " + driver_->NameOf(error));
      return false;
    }
    functions->module = module;
  }
  // Drivers that load lazily, as they do by default, load a kernel here.
  const auto get = [&](const char* name) {
    Handle function = nullptr;
    const Error error = driver_->ModuleGetFunction(&function, functions->module, name);
    if (error == kOutOfMemory || !Check(error, "cuModuleGetFunction")) return false;
    functions->by_name[name] = function;
    return true;
  };
  for (const char* name : kSummarize) {
    if (!get(name)) return false;
  }
  return get(kDerive) && get(kDeliver);
}

/// Memory for a kind of batch, initialized in the order of the stream. Null: none is left, or the driver
/// failed.
auto Lane::Make(int device, uint64_t stream, const Kind& kind) -> Prepared* {
  auto made = std::make_unique<Prepared>();
  const uint32_t buckets = TypicalBuckets(kind.tensors);
  // How many slots there are decides about the ring alone: laid out twice only where they differ from the
  // most.
  auto layout = MakeLayout(kind.tensors, kind.derived, options_.most_slots, buckets);
  if (!layout.ok()) return nullptr;
  const uint64_t fitting = options_.ring_bytes / std::max<uint64_t>(1, layout->plan.slot_bytes);
  const auto slots =
      static_cast<uint32_t>(std::clamp<uint64_t>(fitting, options_.fewest_slots, options_.most_slots));
  if (slots != options_.most_slots) layout = MakeLayout(kind.tensors, kind.derived, slots, buckets);
  if (!layout.ok()) return nullptr;
  made->layout = *std::move(layout);
  // The block of a large model is never shared: rounding it up would waste memory.
  const auto block = [](uint64_t bytes, uint64_t smallest) {
    return bytes > (uint64_t{1} << 20) ? bytes : std::bit_ceil(std::max(bytes, smallest));
  };
  const uint64_t device_bytes = block(made->layout.device_bytes, kSmallestOnDevice);
  const uint64_t pinned_bytes =
      block(made->layout.ring_bytes + made->layout.constants.size(), kSmallestPinned);

  const auto reuse = [&](const auto& plan) {
    return plan->device == device && plan->stream == stream && !plan->captured &&
           plan->launched == plan->taken && plan->memory_bytes >= device_bytes &&
           plan->pinned_bytes >= pinned_bytes;
  };
  if (plans_.size() >= kMaxPlans || device_bytes_ + device_bytes > options_.device_bytes ||
      pinned_bytes_ + pinned_bytes > options_.pinned_bytes) {
    auto oldest = plans_.end();
    for (auto p = plans_.begin(); p != plans_.end(); ++p) {
      if (reuse(*p) && (oldest == plans_.end() || (*p)->used_at < (*oldest)->used_at)) oldest = p;
    }
    if (oldest == plans_.end()) return nullptr;
    made->memory = (*oldest)->memory, made->memory_bytes = (*oldest)->memory_bytes;
    made->pinned = (*oldest)->pinned, made->pinned_bytes = (*oldest)->pinned_bytes;
    std::erase(by_key_[(*oldest)->key], oldest->get());
    plans_.erase(oldest);
  } else {
    // What is allocated here would break a capture on another stream of this thread, were it not for this
    // mode.
    int mode = kCaptureModeRelaxed;
    if (!Check(driver_->ExchangeCaptureMode(&mode), "cuThreadExchangeStreamCaptureMode")) return nullptr;
    void* pinned = nullptr;
    Error on_device = kSuccess;
    made->memory_bytes = device_bytes;
    const auto idle = std::ranges::find_if(
        idle_, [&](const Block& b) { return b.device == device && b.bytes >= device_bytes; });
    if (idle != idle_.end()) {
      made->memory = idle->memory, made->memory_bytes = idle->bytes;
      idle_.erase(idle);
    } else {
      on_device = driver_->MemAlloc(&made->memory, device_bytes);
    }
    const Error on_host = on_device == kSuccess
                              ? driver_->MemHostAlloc(&pinned, pinned_bytes, kPortable | kDeviceMap)
                              : kSuccess;
    // Kept for the next step, which tries again: freeing waits for the device, and would in every step.
    if (on_host == kOutOfMemory) idle_.push_back({device, made->memory, made->memory_bytes});
    if (!Check(driver_->ExchangeCaptureMode(&mode), "cuThreadExchangeStreamCaptureMode")) return nullptr;
    if (on_device == kOutOfMemory || on_host == kOutOfMemory) return nullptr;
    if (!Check(on_device, "cuMemAlloc") || !Check(on_host, "cuMemHostAlloc")) return nullptr;
    made->pinned = static_cast<unsigned char*>(pinned), made->pinned_bytes = pinned_bytes;
    device_bytes_ += made->memory_bytes;
    pinned_bytes_ += made->pinned_bytes;
  }
  const Layout& l = made->layout;
  std::memset(made->pinned, 0, l.ring_bytes);
  if (!l.constants.empty()) std::memcpy(made->pinned + l.ring_bytes, l.constants.data(), l.constants.size());
  DevicePointer ring = 0;
  if (!Check(driver_->MemHostGetDevicePointer(&ring, made->pinned, 0), "cuMemHostGetDevicePointer"))
    return nullptr;
  const auto on = reinterpret_cast<Handle>(stream);
  if (!Check(driver_->SetBytesAsync(made->memory, 0, l.device_bytes, on), "cuMemsetD8Async") ||
      !Check(driver_->CopyToDeviceAsync(made->memory, made->pinned + l.ring_bytes, l.constants.size(), on),
             "cuMemcpyHtoDAsync")) {
    return nullptr;
  }
  made->plan = l.At(made->memory, ring);
  made->layout.constants = {};
  made->device = device, made->stream = stream, made->key = kind.key;
  made->tensors = kind.tensors;
  made->statistics.assign(kind.derived.begin(), kind.derived.end());
  plans_.push_back(std::move(made));
  return plans_.back().get();
}

Refusal Lane::LaunchAll(Prepared* plan, std::span<const Item> items, uint64_t tag) {
  const Functions* const functions = FunctionsOf(plan->device);
  if (functions == nullptr) return trouble().empty() ? Refusal::kMemory : Refusal::kClosed;
  const auto on = reinterpret_cast<Handle>(plan->stream);
  Pointers pointers;
  for (KernelLaunch launch : plan->layout.launches) {
    for (uint32_t i = 0; i < launch.pointers; ++i) {
      pointers.p[i] = reinterpret_cast<const void*>(items[launch.launch.first_tensor + i].address);
    }
    void* parameters[] = {&pointers, &plan->plan, &launch.launch};
    const Handle function = functions->by_name.find(launch.kernel)->second;
    const Error error =
        driver_->LaunchKernel(function, launch.grid, 1, 1, kThreads, 1, 1, 0, on, parameters, nullptr);
    if (error != kSuccess) return NotLaunched(*plan, error, launch.kernel);
  }
  void* parameters[] = {&plan->plan, &tag};
  const Handle function = functions->by_name.find(kDeliver)->second;
  const Error error = driver_->LaunchKernel(function, plan->layout.deliver_grid(), 1, 1, kThreads, 1, 1, 0,
                                            on, parameters, nullptr);
  return error == kSuccess ? Refusal::kNone : NotLaunched(*plan, error, kDeliver);
}

/// A kernel's first launch may want memory of the device for its stacks. Where there is none the step is left
/// out, as without memory for its plan; what was launched of it before has counted into tables that nothing
/// empties now.
Refusal Lane::NotLaunched(const Prepared& plan, Error error, const char* kernel) {
  if (error != kOutOfMemory) {
    (void)Check(error, kernel);
    return Refusal::kClosed;
  }
  const uint64_t bytes = uint64_t{plan.plan.table_words} * sizeof(uint32_t);
  if (bytes == 0) return Refusal::kMemory;
  const bool emptied = Check(driver_->SetBytesAsync(reinterpret_cast<uintptr_t>(plan.plan.tables), 0, bytes,
                                                    reinterpret_cast<Handle>(plan.stream)),
                             "cuMemsetD8Async");
  return emptied ? Refusal::kMemory : Refusal::kClosed;
}

Ticket Lane::Issue(Prepared* plan) {
  const Ticket ticket = next_ticket_++;
  ++plan->launched;
  plan->used_at = ticket;
  plan->under_way.push_back(ticket);
  batches_.emplace(ticket, Batch{plan, TicketState::kUnderWay, false, {}});
  return ticket;
}

auto Lane::Launch(int device, uint64_t stream, std::span<const Item> items,
                  std::span<const DerivedSpec> derived) -> Put {
  if (!connection_.usable()) return {Refusal::kClosed};
  for (const Item& item : items) {
    if (!IsSummarized(static_cast<uint32_t>(item.dtype)) || item.elements > kMaxElements)
      return {Refusal::kKind};
  }
  const Connection::Entered entered(&connection_, device);
  if (!entered.ok()) return {Refusal::kClosed};
  int status = kNoCapture;
  const Error asked = driver_->StreamIsCapturing(reinterpret_cast<Handle>(stream), &status);
  // The default stream, while somebody captures another one: nothing may be launched on it.
  if (asked == kCaptureImplicit) return {Refusal::kCapturing};
  if (!Check(asked, "cuStreamIsCapturing")) return {Refusal::kClosed};

  if (status == kActiveCapture) return LaunchIntoGraph(device, stream, items, derived);
  if (status != kNoCapture) return {Refusal::kCapturing};  // a broken one

  const Kind kind(device, stream, items, derived);
  std::vector<Prepared*>& plans = by_key_[kind.key];
  Prepared* plan = nullptr;
  for (Prepared* const p : plans) {
    if (!p->HasRoom()) Collect(p);
    if (p->HasRoom()) {
      plan = p;
      break;
    }
  }
  if (plan == nullptr) {
    if (plans.size() >= kMaxPlansOfAKind) return {Refusal::kFull};
    if (FunctionsOf(device) == nullptr) return {trouble().empty() ? Refusal::kMemory : Refusal::kClosed};
    plan = Make(device, stream, kind);
    if (plan == nullptr) {
      return {!trouble().empty() ? Refusal::kClosed : plans.empty() ? Refusal::kMemory : Refusal::kFull};
    }
    by_key_[kind.key].push_back(plan);
  }
  const Refusal refused = LaunchAll(plan, items, next_ticket_);
  if (refused != Refusal::kNone) return {refused};
  return {Refusal::kNone, Issue(plan)};
}

/// Eager steps and replays may overlap, so each captured batch has memory of its own. It is set on a stream
/// that nobody captures, else every replay would set it once more.
auto Lane::LaunchIntoGraph(int device, uint64_t stream, std::span<const Item> items,
                           std::span<const DerivedSpec> derived) -> Put {
  const auto aside = asides_.find(device);
  const auto functions = functions_.find(device);
  if (aside == asides_.end() || aside->second.event == nullptr || functions == functions_.end() ||
      !functions->second->complete) {
    return {Refusal::kCapturing};
  }
  const Handle on = aside->second.stream;
  Prepared* const plan =
      Make(device, reinterpret_cast<uintptr_t>(on), Kind(device, /*stream=*/0, items, derived));
  if (plan == nullptr || !Check(driver_->EventRecord(aside->second.event, on), "cuEventRecord")) {
    return {trouble().empty() ? Refusal::kCapturing : Refusal::kClosed};
  }
  plan->captured = true;
  plan->stream = stream;
  captured_.push_back(plan);
  const auto graph = static_cast<uint32_t>(captured_.size());
  const Refusal refused = LaunchAll(plan, items, graph);
  if (refused == Refusal::kNone) return {Refusal::kNone, 0, graph};
  // What of it is in the graph writes to memory of ours that nobody reads.
  return {refused == Refusal::kMemory ? Refusal::kCapturing : refused};
}

void Lane::PrepareCapture(int device) {
  if (!connection_.usable()) return;
  const Connection::Entered entered(&connection_, device);
  if (!entered.ok() || FunctionsOf(device) == nullptr) return;
  Aside& aside = asides_[device];
  const Connection::Relaxed relaxed(&connection_);
  // Where memory is out, the next capture tries again.
  const auto made = [this](Handle* handle, Error error, const char* what) {
    if (error != kSuccess) *handle = nullptr;
    return error == kSuccess || (error != kOutOfMemory && Check(error, what));
  };
  if (!relaxed.ok()) return;
  if (aside.stream == nullptr &&
      !made(&aside.stream, driver_->StreamCreate(&aside.stream, kNonBlocking), "cuStreamCreate")) {
    return;
  }
  if (aside.event == nullptr) {
    (void)made(&aside.event, driver_->EventCreate(&aside.event, kWithoutTiming), "cuEventCreate");
  }
}

void Lane::BeforeReplay(int device, uint64_t stream) {
  const auto aside = asides_.find(device);
  if (!connection_.usable() || aside == asides_.end() || aside->second.event == nullptr) return;
  const Connection::Entered entered(&connection_, device);
  if (!entered.ok()) return;
  const auto on = reinterpret_cast<Handle>(stream);
  int status = kNoCapture;
  if (driver_->StreamIsCapturing(on, &status) != kSuccess || status != kNoCapture) return;
  (void)Check(driver_->StreamWaitEvent(on, aside->second.event, 0), "cuStreamWaitEvent");
}

auto Lane::Replayed(uint32_t graph) -> Ticket {
  if (graph == 0 || graph > captured_.size() || !connection_.in_its_process()) return 0;
  Prepared* const plan = captured_[graph - 1];
  Collect(plan);
  return Issue(plan);
}

/// Reads what has arrived: from here on its slots may be written again.
void Lane::Collect(Prepared* plan) {
  while (!plan->under_way.empty()) {
    const uint64_t due = plan->taken + 1;
    const unsigned char* const slot = plan->pinned + (due - 1) % plan->plan.slots * plan->plan.slot_bytes;
    const auto* const header = reinterpret_cast<const SlotHeader*>(slot);
    const uint64_t sequence = __atomic_load_n(&header->sequence, __ATOMIC_ACQUIRE);
    if (sequence < due) return;
    const auto batch = batches_.find(plan->under_way.front());
    Batch& b = batch->second;
    b.state = TicketState::kLost;
    if (sequence == due) Read(plan, slot, due, &b);
    plan->under_way.pop_front();
    ++plan->taken;
    if (b.dropped) batches_.erase(batch);
  }
}

void Lane::Read(Prepared* prepared, const unsigned char* slot, uint64_t sequence, Batch* batch) {
  const Plan& plan = prepared->plan;
  const uint64_t buckets_at = BucketsAt(plan.tensor_count, plan.derived_values, plan.value_bytes);
  const auto* const live = reinterpret_cast<const SlotHeader*>(slot);
  const uint32_t buckets = std::min(__atomic_load_n(&live->buckets, __ATOMIC_RELAXED), plan.bucket_capacity);
  const uint64_t bytes = (buckets_at + buckets * sizeof(Bucket) + 7) / 8 * 8;
  if (slot_.size() < bytes) slot_.resize(bytes);
  CopyWords(slot_.data(), slot, bytes);
  __atomic_thread_fence(__ATOMIC_ACQUIRE);
  if (__atomic_load_n(&live->begun, __ATOMIC_RELAXED) != sequence) return;  // written again meanwhile
  if (reinterpret_cast<const SlotHeader*>(slot_.data())->version != kAbiVersion) return;

  Arrival& a = batch->arrival;
  const auto* const rows = reinterpret_cast<const Row*>(slot_.data() + RowsAt());
  const auto* const all = reinterpret_cast<const Bucket*>(slot_.data() + buckets_at);
  a.tensors.resize(plan.tensor_count);
  a.buckets.reserve(buckets);
  for (uint32_t i = 0; i < plan.tensor_count; ++i) {
    const Row& row = rows[i];
    const Tensor& spec = prepared->layout.tensors[i];
    Arrival::Tensor& t = a.tensors[i];
    t.summary = SummaryOf(row);
    t.present = (row.flags & kPresent) != 0;
    t.first_bucket = static_cast<uint32_t>(a.buckets.size());
    if ((spec.flags & kHistogram) != 0) {
      t.buckets_lost = (row.flags & kBucketsLost) != 0;
      if (!t.buckets_lost && uint64_t{row.first_bucket} + row.bucket_count <= buckets) {
        for (uint32_t k = 0; k < row.bucket_count; ++k) {
          const Bucket& b = all[row.first_bucket + k];
          a.buckets.push_back({static_cast<int16_t>(b.bucket), b.count});
        }
        t.buckets = row.bucket_count;
      }
    }
    if ((spec.flags & kValues) != 0) {
      t.first_byte = spec.values;
      t.bytes = static_cast<uint32_t>(spec.n * ItemBytes(spec.code));
    }
  }
  const unsigned char* const values = slot_.data() + ValuesAt(plan.tensor_count, plan.derived_values);
  a.values.resize(plan.value_bytes);
  if (plan.value_bytes != 0) std::memcpy(a.values.data(), values, plan.value_bytes);
  a.derived.resize(plan.derived_values);
  if (plan.derived_values != 0) {
    std::memcpy(a.derived.data(), slot_.data() + DerivedAt(plan.tensor_count),
                plan.derived_values * sizeof(double));
  }
  a.derived_at = prepared->layout.derived;
  a.derived_at.push_back(plan.derived_values);
  batch->state = TicketState::kArrived;
}

TicketState Lane::Look(Ticket ticket) {
  const auto batch = batches_.find(ticket);
  if (batch == batches_.end() || !connection_.in_its_process()) return TicketState::kLost;
  if (batch->second.state == TicketState::kUnderWay) Collect(batch->second.plan);
  return batch->second.state;
}

std::optional<Arrival> Lane::Take(Ticket ticket) {
  const TicketState state = Look(ticket);
  const auto batch = batches_.find(ticket);
  if (state == TicketState::kUnderWay || batch == batches_.end()) return std::nullopt;
  std::optional<Arrival> arrival;
  if (state == TicketState::kArrived) arrival = std::move(batch->second.arrival);
  batches_.erase(batch);
  return arrival;
}

void Lane::Drop(Ticket ticket) {
  const auto batch = batches_.find(ticket);
  if (batch == batches_.end()) return;
  if (batch->second.state == TicketState::kUnderWay) {
    batch->second.dropped = true;
  } else {
    batches_.erase(batch);
  }
}

}  // namespace tdbg::cuda

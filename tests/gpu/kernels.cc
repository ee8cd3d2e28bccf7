// The kernels of src/cuda on a real GPU.
//
//   tdbg_gpu_kernels           are they right: each case's rows, buckets and derived statistics must be, bit
//   by bit, what the same
//                              source gives on the CPU, eagerly and replayed by a CUDA graph
//   tdbg_gpu_kernels --bench   how fast: share of a read-only kernel's bandwidth, by type, with and without
//   histogram
//
// Ends with 77 ("skipped") where there is no GPU. Needs nothing but the driver: it may be built elsewhere and
// carried.
#include <algorithm>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "cuda/image.h"
#include "cuda/testing/host_plan.h"
#include "driver.h"

namespace tdbg::gpu {
namespace {

using namespace tdbg::cuda;  // NOLINT: a program about this room

constexpr int kSkipped = 77;

struct Gpu {
  Driver cu;
  Handle module = nullptr, stream = nullptr;

  Handle Function(const char* name) const {
    Handle f = nullptr;
    TDBG_CU(cu, GetFunction(&f, module, name));
    return f;
  }
};

class DevicePlan {
 public:
  DevicePlan(const Gpu& gpu, std::span<const TensorSpec> tensors, std::span<const DerivedSpec> derived,
             uint32_t slots, uint32_t buckets)
      : gpu_(gpu), layout_(*MakeLayout(tensors, derived, slots, buckets)) {
    const Driver& cu = gpu.cu;
    TDBG_CU(cu, Alloc(&memory_, layout_.device_bytes));
    TDBG_CU(cu, Fill(memory_, 0, layout_.device_bytes));
    TDBG_CU(cu, Upload(memory_, layout_.constants.data(), layout_.constants.size()));
    constexpr unsigned kPortableAndMapped = 3;
    TDBG_CU(cu, HostAlloc(&ring_, layout_.ring_bytes, kPortableAndMapped));
    std::memset(ring_, 0, layout_.ring_bytes);
    Address ring = 0;
    TDBG_CU(cu, HostPointer(&ring, ring_, 0));
    plan_ = layout_.At(memory_, ring);
    // Fills, and copies from memory that is not pinned, are carried out on the default stream, and may be
    // under way when the call returns; ours knows nothing of that one.
    TDBG_CU(cu, StreamSynchronize(nullptr));
  }
  ~DevicePlan() {
    gpu_.cu.Free(memory_);
    gpu_.cu.FreeHost(ring_);
  }
  DevicePlan(const DevicePlan&) = delete;
  DevicePlan& operator=(const DevicePlan&) = delete;

  void Step(std::span<const Address> pointers, uint64_t tag) {
    const Driver& cu = gpu_.cu;
    for (const KernelLaunch& l : layout_.launches) {
      Pointers p = {};
      for (uint32_t i = 0; i < l.pointers; ++i) {
        p.p[i] = reinterpret_cast<const void*>(static_cast<uintptr_t>(pointers[l.launch.first_tensor + i]));
      }
      Launch launch = l.launch;
      void* params[] = {&p, &plan_, &launch};
      TDBG_CU(cu,
              Launch(gpu_.Function(l.kernel), l.grid, 1, 1, kThreads, 1, 1, 0, gpu_.stream, params, nullptr));
    }
    void* params[] = {&plan_, &tag};
    TDBG_CU(cu, Launch(gpu_.Function(kDeliver), layout_.deliver_grid(), 1, 1, kThreads, 1, 1, 0, gpu_.stream,
                       params, nullptr));
  }

  const std::byte* ring() const { return static_cast<const std::byte*>(ring_); }
  const Layout& layout() const { return layout_; }

 private:
  const Gpu& gpu_;
  Layout layout_;
  Plan plan_ = {};
  Address memory_ = 0;
  void* ring_ = nullptr;
};

/// Some tensors' bytes; where in their allocation they begin says how they are aligned.
struct Case {
  std::string name;
  std::vector<TensorSpec> tensors;
  std::vector<DerivedSpec> derived;
  std::vector<std::vector<std::byte>> bytes;
  std::vector<size_t> offsets;

  void Add(DType dtype, std::vector<std::byte> of, uint32_t flags, size_t elements_off = 0) {
    tensors.push_back({of.size() / ItemSize(dtype), dtype, flags});
    offsets.push_back(elements_off * ItemSize(dtype));
    bytes.push_back(std::move(of));
  }
};

std::vector<std::byte> Random(size_t n, std::mt19937_64& random) {
  std::vector<std::byte> b(n);
  for (std::byte& x : b) x = static_cast<std::byte>(random());
  return b;
}
std::vector<std::byte> Floats(size_t n, double mean, double deviation, std::mt19937_64& random,
                              size_t nan_every = 0) {
  std::normal_distribution<float> normal(static_cast<float>(mean), static_cast<float>(deviation));
  std::vector<std::byte> b(n * 4);
  for (size_t i = 0; i < n; ++i) {
    const float x =
        nan_every != 0 && i % nan_every == 0 ? std::numeric_limits<float>::quiet_NaN() : normal(random);
    std::memcpy(b.data() + 4 * i, &x, 4);
  }
  return b;
}
std::vector<std::byte> UpperHalves(const std::vector<std::byte>& floats) {
  std::vector<std::byte> b;
  for (size_t i = 2; i < floats.size(); i += 4) b.insert(b.end(), floats.begin() + i, floats.begin() + i + 2);
  return b;
}

std::vector<Case> Cases() {
  std::mt19937_64 random(1);
  std::vector<Case> cases;
  constexpr uint32_t kAll = kStatistics | kHistogram;
  Case sizes = {"sizes", {}, {}, {}, {}};
  for (const size_t n : {1, 2, 7, 255, 256, 257, 1000, 61439, 61440, 61441, 200000}) {
    for (const uint32_t flags : {uint32_t{kStatistics}, kAll}) {
      sizes.Add(DType::kFloat32, Floats(n, 0.1, 1, random), flags, n % 5);
      sizes.Add(DType::kBFloat16, UpperHalves(Floats(n, 0.1, 1e-3, random)), flags, n % 9);
    }
  }
  cases.push_back(std::move(sizes));
  Case odd = {"NaN, constants, zeros, levels", {}, {}, {}, {}};
  odd.Add(DType::kFloat32, Floats(100000, 0, 1, random, 5), kAll);
  odd.Add(DType::kFloat32, Floats(100000, 0, 1, random, 1), kAll);
  odd.Add(DType::kFloat32, Floats(100000, 3, 0, random), kAll);
  odd.Add(DType::kFloat32, std::vector<std::byte>(400000), kAll);
  odd.Add(DType::kFloat32, Floats(100000, 1e6, 1e-2, random), kAll);
  cases.push_back(std::move(odd));
  Case bits = {"any bits of every type", {}, {}, {}, {}};
  for (uint32_t code = kBool; code <= kFloat8E5M2FNUZ; ++code) {
    if (code == kComplex128) continue;  // the device's hypot may differ by two units in the last place
    const auto dtype = static_cast<DType>(code);
    bits.Add(dtype, Random(70001 * ItemSize(dtype), random), kAll, 1);
  }
  cases.push_back(std::move(bits));
  Case many = {"2,500 tensors", {}, {}, {}, {}};
  for (int i = 0; i < 2500; ++i)
    many.Add(DType::kFloat32, Floats(static_cast<size_t>(i % 50), 0, 1, random), kAll);
  cases.push_back(std::move(many));
  Case derived = {"derived statistics and values", {}, {}, {}, {}};
  derived.Add(DType::kFloat32, Floats(64 * 50 * 49, 0, 1, random), kAll);
  derived.Add(DType::kBFloat16, UpperHalves(Floats(1000 * 300, 0, 1, random)), kStatistics);
  derived.Add(DType::kFloat32, Floats(3, 0, 1, random), kValues);
  for (const char* id : {"count_above(0)", "count_within(-1,1)", "sums(1)", "value_counts(0,1)"}) {
    derived.derived.push_back({0, 64, 50, 49, *Statistic::FromId(id)});
    derived.derived.push_back({1, 1000, 300, 1, *Statistic::FromId(id)});
  }
  cases.push_back(std::move(derived));
  return cases;
}

/// Whether three eager steps and three replays of a graph give the CPU's bits, each.
bool Check(const Gpu& gpu, const Case& c) {
  const Driver& cu = gpu.cu;
  constexpr uint32_t kBuckets = 1u << 20;
  HostPlan want(c.tensors, c.derived, 1, kBuckets);
  std::vector<const void*> host;
  std::vector<std::vector<std::byte>> padded;
  std::vector<Address> device;
  for (size_t i = 0; i < c.bytes.size(); ++i) {
    Address a = 0;
    TDBG_CU(cu, Alloc(&a, c.bytes[i].size() + 512));
    if (!c.bytes[i].empty()) TDBG_CU(cu, Upload(a + c.offsets[i], c.bytes[i].data(), c.bytes[i].size()));
    device.push_back(a + c.offsets[i]);
    host.push_back(c.bytes[i].empty() ? static_cast<const void*>(&c) : c.bytes[i].data());
  }
  want.Step(host, 0);
  const std::vector<std::byte> expected = want.Bits(1);
  DevicePlan plan(gpu, c.tensors, c.derived, 2, kBuckets);
  Handle graph = nullptr, replay = nullptr;
  TDBG_CU(cu, BeginCapture(gpu.stream, 1));  // thread-local mode
  plan.Step(device, 7);
  TDBG_CU(cu, EndCapture(gpu.stream, &graph));
  TDBG_CU(cu, Instantiate(&replay, graph, 0));
  bool good = true;
  for (uint64_t step = 1; step <= 6; ++step) {
    if (step <= 3) {
      plan.Step(device, step);
    } else {
      TDBG_CU(cu, GraphLaunch(replay, gpu.stream));
    }
    TDBG_CU(cu, StreamSynchronize(gpu.stream));
    const ArrivedRing ring = {plan.ring(), &plan.layout()};
    const SlotHeader& h = ring.Header(step);
    const bool arrived = h.sequence == step && h.begun == step && h.tag == (step <= 3 ? step : 7);
    const bool equal = arrived && ring.Bits(step) == expected;
    if (!equal)
      std::printf("  step %d: %s\n", static_cast<int>(step), arrived ? "other bits" : "did not arrive");
    good = good && equal;
  }
  for (size_t i = 0; i < device.size(); ++i) cu.Free(device[i] - c.offsets[i]);
  std::printf("%s: %s\n", good ? "ok" : "FAILED", c.name.c_str());
  return good;
}

/// Milliseconds of the best of `rounds`.
template <class F>
double Time(const Gpu& gpu, F&& enqueue, int rounds = 20) {
  const Driver& cu = gpu.cu;
  Handle begin = nullptr, end = nullptr;
  TDBG_CU(cu, EventCreate(&begin, 0));
  TDBG_CU(cu, EventCreate(&end, 0));
  double best = 1e9;
  for (int i = 0; i < rounds; ++i) {
    TDBG_CU(cu, EventRecord(begin, gpu.stream));
    enqueue();
    TDBG_CU(cu, EventRecord(end, gpu.stream));
    TDBG_CU(cu, EventSynchronize(end));
    float ms = 0;
    TDBG_CU(cu, EventElapsed(&ms, begin, end));
    best = std::min<double>(best, ms);
  }
  return best;
}

void Bench(const Gpu& gpu) {
  const Driver& cu = gpu.cu;
  size_t free = 0, total = 0;
  TDBG_CU(cu, MemGetInfo(&free, &total));
  const uint64_t elements = std::min<uint64_t>(uint64_t{1} << 30, free / 8 / kChunk * kChunk);
  Address data = 0;
  TDBG_CU(cu, Alloc(&data, elements * 4));
  const auto fill = [&](const std::vector<std::byte>& piece) {
    for (uint64_t at = 0; at < elements * 4; at += piece.size()) {
      TDBG_CU(cu, Upload(data + at, piece.data(), std::min<uint64_t>(piece.size(), elements * 4 - at)));
    }
  };
  std::mt19937_64 random(1);
  Address out = 0;
  TDBG_CU(cu, Alloc(&out, 16));
  const auto read = [&](uint64_t bytes) {
    void* params[] = {&data, &bytes, &out};
    TDBG_CU(cu, Launch(gpu.Function(kReadOnly), 2048, 1, 1, kThreads, 1, 1, 0, gpu.stream, params, nullptr));
  };
  std::printf(
      "| %.2f G elements | read only, ms | statistics | with histogram | share of read bandwidth "
      "|\n|---|---|---|---|---|\n",
      static_cast<double>(elements) * 1e-9);
  const auto row = [&](const char* name, DType dtype) {
    const double only = Time(gpu, [&] { read(elements * ItemSize(dtype)); });
    double ms[2];
    for (const bool histogram : {false, true}) {
      const TensorSpec spec = {elements, dtype, histogram ? kStatistics | kHistogram : uint32_t{kStatistics}};
      DevicePlan plan(gpu, {&spec, 1}, {}, 2, 1u << 15);
      ms[histogram] = Time(gpu, [&] { plan.Step({&data, 1}, 0); });
    }
    std::printf("| %s | %.3f | %.3f | %.3f | %.2f, with histogram %.2f |\n", name, only, ms[0], ms[1],
                only / ms[0], only / ms[1]);
  };
  fill(Floats(1 << 24, 0, 1e-3, random));
  row("float32", DType::kFloat32);
  const std::vector<std::byte> narrow = UpperHalves(Floats(1 << 24, 0, 1e-3, random));
  fill(narrow);
  row("bfloat16", DType::kBFloat16);
  row("float16", DType::kFloat16);
  row("float8_e4m3fn", DType::kFloat8E4M3FN);
  fill(Floats(1 << 24, 0, 1, random, 5000));
  row("float32, NaN in every chunk", DType::kFloat32);
  fill(std::vector<std::byte>(1 << 24));
  row("float32, zeros", DType::kFloat32);
  cu.Free(data);
  cu.Free(out);
}

int Main(bool bench) {
  Gpu gpu;
  if (const char* why = gpu.cu.Open()) {
    std::printf("skipped: %s\n", why);
    return kSkipped;
  }
  const Driver& cu = gpu.cu;
  int device = 0, version = 0, major = 0, minor = 0;
  char name[128] = "";
  TDBG_CU(cu, DeviceGet(&device, 0));
  TDBG_CU(cu, DriverGetVersion(&version));
  TDBG_CU(cu, DeviceGetName(name, sizeof name, device));
  TDBG_CU(cu, DeviceGetAttribute(&major, 75, device));
  TDBG_CU(cu, DeviceGetAttribute(&minor, 76, device));
  std::printf("%s, compute capability %d.%d, driver of CUDA %d.%d\n", name, major, minor, version / 1000,
              version % 1000 / 10);
  Handle context = nullptr;
  TDBG_CU(cu, PrimaryRetain(&context, device));
  TDBG_CU(cu, SetCurrent(context));
  TDBG_CU(cu, ModuleLoadData(&gpu.module, Image().data()));
  TDBG_CU(cu, StreamCreate(&gpu.stream, 1));
  // A driver that loads lazily loads a kernel here, which no capture allows.
  for (const char* kernel : kSummarize) gpu.Function(kernel);
  for (const char* kernel : {kDerive, kDeliver, kReadOnly}) gpu.Function(kernel);
  if (bench) {
    Bench(gpu);
    return 0;
  }
  bool good = true;
  for (const Case& c : Cases()) good = Check(gpu, c) && good;
  return good ? 0 : 1;
}

}  // namespace
}  // namespace tdbg::gpu

int main(int argc, char** argv) {
  return tdbg::gpu::Main(argc > 1 && std::string_view(argv[1]) == "--bench");
}

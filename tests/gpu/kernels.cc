// The kernels of src/cuda on a real GPU.
//
//   tdbg_gpu_kernels [--only TEXT] [--image FILE]...
//       are they right: each case's rows, buckets and derived statistics must be, bit by bit, what the same
//       source gives on the CPU, eagerly and replayed by a CUDA graph
//   tdbg_gpu_kernels --bench [--only TEXT] [--image FILE]...
//       how fast: share of a read-only kernel's bandwidth, by type, with and without histogram
//
// --only: the cases, or rows, whose name has TEXT in it.
// --image: of the kernels in this file (a fat binary, or machine code for this GPU) in place of the built-in
// ones. Of several the same rows are measured in turns, in one process: what compares two versions.
//
// Ends with 77 ("skipped") where there is no GPU. Needs nothing but the driver: it may be built elsewhere and
// carried.
#include <algorithm>
#include <cstring>
#include <fstream>
#include <functional>
#include <iterator>
#include <limits>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <utility>
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
  std::string image = "built-in";

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
    Deliver(tag);
  }
  /// The end of a step alone: what the chunks of the step before came to, once more.
  void Deliver(uint64_t tag) {
    const Driver& cu = gpu_.cu;
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
  Case large = {"more chunks than are merged at once", {}, {}, {}, {}};
  large.Add(DType::kFloat32, Floats(257 * kChunk + 3, 0.1, 1, random, 5000001), kAll);
  large.Add(DType::kUInt8, Random(600 * kChunk, random), kAll);
  large.Add(DType::kFloat32, Floats(256 * kChunk, 0.1, 1, random), kStatistics);
  cases.push_back(std::move(large));
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
  std::printf("%s: %s, image %s\n", good ? "ok" : "FAILED", c.name.c_str(), gpu.image.c_str());
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

void Bench(const std::vector<Gpu>& gpus, std::string_view only) {
  const Driver& cu = gpus[0].cu;
  size_t free = 0, total = 0;
  TDBG_CU(cu, MemGetInfo(&free, &total));
  constexpr uint64_t kParts = 128;  // of a model that has as many tensors
  const uint64_t part = std::min<uint64_t>((uint64_t{1} << 30) / kParts, free / 8 / kParts) / kChunk * kChunk;
  const uint64_t elements = kParts * part;
  Address data = 0;
  TDBG_CU(cu, Alloc(&data, elements * 4));
  std::function<std::vector<std::byte>()> filling;  // due before the next row
  const auto fill = [&] {
    if (!filling) return;
    const std::vector<std::byte> piece = std::exchange(filling, {})();
    for (uint64_t at = 0; at < elements * 4; at += piece.size()) {
      TDBG_CU(cu, Upload(data + at, piece.data(), std::min<uint64_t>(piece.size(), elements * 4 - at)));
    }
    TDBG_CU(cu, StreamSynchronize(nullptr));
  };
  std::mt19937_64 random(1);
  Address out = 0;
  TDBG_CU(cu, Alloc(&out, 16));
  std::printf(
      "| %.2f G elements | image | read only, ms | statistics | with histogram | of which delivery "
      "| share of read bandwidth |\n|---|---|---|---|---|---|---|\n",
      static_cast<double>(elements) * 1e-9);
  const auto row = [&](const std::string& name, DType dtype, uint64_t tensors = 1) {
    if (name.find(only) == std::string::npos) return;
    fill();
    uint64_t bytes = elements * ItemSize(dtype);
    std::vector<Address> pointers;
    for (uint64_t i = 0; i < tensors; ++i) pointers.push_back(data + i * bytes / tensors);
    for (const Gpu& gpu : gpus) {
      const double read = Time(gpu, [&] {
        void* params[] = {&data, &bytes, &out};
        TDBG_CU(cu,
                Launch(gpu.Function(kReadOnly), 2048, 1, 1, kThreads, 1, 1, 0, gpu.stream, params, nullptr));
      });
      double ms[2], deliver = 0;
      for (const bool histogram : {false, true}) {
        const std::vector<TensorSpec> specs(
            tensors,
            {elements / tensors, dtype, histogram ? kStatistics | kHistogram : uint32_t{kStatistics}});
        DevicePlan plan(gpu, specs, {}, 2, 1u << 15);
        ms[histogram] = Time(gpu, [&] { plan.Step(pointers, 0); });
        deliver = Time(gpu, [&] { plan.Deliver(0); });
      }
      std::printf("| %s | %s | %.3f | %.3f | %.3f | %.3f | %.2f, with histogram %.2f |\n", name.c_str(),
                  gpu.image.c_str(), read, ms[0], ms[1], deliver, read / ms[0], read / ms[1]);
      std::fflush(stdout);
    }
  };
  filling = [&] { return Floats(1 << 24, 0, 1e-3, random); };
  row("float32", DType::kFloat32);
  row("float32, 128 tensors", DType::kFloat32, kParts);
  filling = [&] { return UpperHalves(Floats(1 << 24, 0, 1e-3, random)); };
  row("bfloat16", DType::kBFloat16);
  row("bfloat16, 128 tensors", DType::kBFloat16, kParts);
  row("float16", DType::kFloat16);
  row("float8_e4m3fn", DType::kFloat8E4M3FN);
  filling = [&] { return Floats(1 << 24, 0, 1, random, 5000); };
  row("float32, NaN in every chunk", DType::kFloat32);
  filling = [&] { return UpperHalves(Floats(1 << 24, 0, 1, random, 5000)); };
  row("bfloat16, NaN in every chunk", DType::kBFloat16);
  filling = [&] { return std::vector<std::byte>(1 << 24); };
  row("float32, zeros", DType::kFloat32);
  row("bfloat16, zeros", DType::kBFloat16);
  row("float8_e4m3fn, zeros", DType::kFloat8E4M3FN);
  cu.Free(data);
  cu.Free(out);
}

/// The kernels of an image, ready: a driver that loads lazily loads them here, which no capture allows.
void Load(Gpu& gpu, const void* image) {
  TDBG_CU(gpu.cu, ModuleLoadData(&gpu.module, image));
  for (const char* kernel : kSummarize) gpu.Function(kernel);
  for (const char* kernel : {kDerive, kDeliver, kReadOnly}) gpu.Function(kernel);
}

int Main(std::span<char* const> arguments) {
  bool bench = false;
  std::string_view only;
  std::vector<std::string> images;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string_view argument = arguments[i];
    if (argument == "--bench") {
      bench = true;
    } else if (argument == "--only" && i + 1 < arguments.size()) {
      only = arguments[++i];
    } else if (argument == "--image" && i + 1 < arguments.size()) {
      images.emplace_back(arguments[++i]);
    } else {
      std::fprintf(stderr, "usage: tdbg_gpu_kernels [--bench] [--only TEXT] [--image FILE]...\n");
      return 2;
    }
  }
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
  TDBG_CU(cu, StreamCreate(&gpu.stream, 1));
  std::vector<Gpu> gpus;
  for (const std::string& path : images) {
    std::ifstream file(path, std::ios::binary);
    const std::string bytes((std::istreambuf_iterator<char>(file)), {});
    if (bytes.empty()) {
      std::fprintf(stderr, "%s: cannot be read\n", path.c_str());
      return 2;
    }
    gpus.push_back(gpu);
    gpus.back().image = path.substr(path.rfind('/') + 1);
    Load(gpus.back(), bytes.data());
  }
  if (gpus.empty()) {
    Load(gpu, Image().data());
    gpus.push_back(gpu);
  }
  if (bench) {
    Bench(gpus, only);
    return 0;
  }
  bool good = true;
  for (const Case& c : Cases()) {
    if (c.name.find(only) == std::string::npos) continue;
    for (const Gpu& each : gpus) good = Check(each, c) && good;
  }
  return good ? 0 : 1;
}

}  // namespace
}  // namespace tdbg::gpu

int main(int argc, char** argv) {
  return tdbg::gpu::Main(std::span<char* const>(argv + 1, static_cast<size_t>(argc - 1)));
}

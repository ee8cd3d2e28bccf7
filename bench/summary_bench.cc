// Question:  how much of the memory's speed does Summarize reach, with and without the histogram?
// Workload:  64 MiB of normal values on 4 KiB pages (torch's default on the CPU), and small tensors.
// Baseline:  the best of several plain read loops over as much memory in the same state in the same run.
//
// Machines are noisy, so every round times every candidate once, in turn, and a candidate's ratio is
// taken within the round. Reported: the median over rounds, and the 10th and 90th percentile.
//
// Each candidate, a read loop as well, finds its memory in no cache: a server's last-level cache may hold one
// of the buffers and not all, and loops that read the first one five times in a row had it there while the
// rest came from memory. --warm leaves them where they are: with --mib 1, the kernels' speed without the
// memory's.
//
//   summary_bench [--rounds N] [--mib N] [--warm 1] [--kernels VARIANT] [--json FILE]
#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "read_loops.h"
#include "stats/variants.h"
#include "tdbg/summary.h"

namespace {

using tdbg::DType;

class Pages {
 public:
  explicit Pages(size_t bytes) : bytes_(bytes) {
    data_ = static_cast<std::byte*>(
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    if (data_ == MAP_FAILED) std::abort();
    madvise(data_, bytes, MADV_NOHUGEPAGE);
  }
  ~Pages() { munmap(data_, bytes_); }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  std::byte* data() const { return data_; }

  void Evict() const {
#if defined(__x86_64__)
    for (size_t i = 0; i < bytes_; i += 64) __builtin_ia32_clflush(data_ + i);
    __builtin_ia32_mfence();
#endif
  }

 private:
  std::byte* data_;
  size_t bytes_;
};

// Of this thread, which never waits: what others had of the core meanwhile is not in it.
double CpuSeconds() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

double Seconds(const std::function<void()>& f) {
  const double start = CpuSeconds();
  f();
  return CpuSeconds() - start;
}

struct Spread {
  double low, median, high;
};

Spread SpreadOf(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  const auto at = [&](double q) {
    return v[static_cast<size_t>(q * static_cast<double>(v.size() - 1) + 0.5)];
  };
  return {at(0.1), at(0.5), at(0.9)};
}

volatile uint64_t g_sink;

std::string ProcessorName() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  }
  return "unknown processor";
}

struct Candidate {
  std::string name;
  const Pages* pages;
  std::function<void()> run;
  std::vector<double> seconds;
};

enum class Values { kNormal, kRectified, kProducts };

/// Of a finite value in float16's normal range, cut off; smaller ones become 0.
uint16_t HalfOf(float v) {
  const uint32_t bits = std::bit_cast<uint32_t>(v);
  const uint32_t magnitude = bits & 0x7fffffff;
  const uint32_t half = magnitude < 113u << 23 ? 0 : (magnitude >> 13) - (112u << 10);
  return static_cast<uint16_t>(bits >> 16 & 0x8000) | static_cast<uint16_t>(half);
}

/// Products of three normal values are what gradients look like: one in a hundred is 15 octaves below the
/// largest.
void Fill(std::byte* at, size_t bytes, DType dtype, Values values) {
  std::mt19937_64 random(1);
  std::normal_distribution<float> normal(0.001f, 0.02f);
  const size_t n = bytes / ItemSize(dtype);
  for (size_t i = 0; i < n; ++i) {
    float v = normal(random);
    if (values == Values::kRectified && v < 0) v = 0;
    if (values == Values::kProducts) v *= normal(random) * normal(random);
    const auto top = static_cast<uint16_t>(std::bit_cast<uint32_t>(v) >> 16);
    const uint16_t half = HalfOf(v);
    const double wide = v * 1.1;
    switch (dtype) {
      case DType::kFloat64:
        std::memcpy(at + 8 * i, &wide, 8);
        break;
      case DType::kBFloat16:
        std::memcpy(at + 2 * i, &top, 2);
        break;
      case DType::kFloat16:
        std::memcpy(at + 2 * i, &half, 2);
        break;
      default:
        std::memcpy(at + 4 * i, &v, 4);
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  int rounds = 41;
  size_t mib = 64;
  const char* json = nullptr;
  const char* kernels = "";
  bool warm = false;
  for (int i = 1; i + 1 < argc; i += 2) {
    if (std::strcmp(argv[i], "--rounds") == 0) rounds = std::atoi(argv[i + 1]);
    if (std::strcmp(argv[i], "--mib") == 0) mib = static_cast<size_t>(std::atoi(argv[i + 1]));
    if (std::strcmp(argv[i], "--json") == 0) json = argv[i + 1];
    if (std::strcmp(argv[i], "--kernels") == 0) kernels = argv[i + 1];
    if (std::strcmp(argv[i], "--warm") == 0) warm = std::atoi(argv[i + 1]) != 0;
  }
  const std::vector<std::string> variants = tdbg::stats::KernelVariants();
  if (!tdbg::stats::UseKernels(kernels)) {
    std::fprintf(stderr, "no kernels \"%s\" on this processor; there are:", kernels);
    for (const std::string& v : variants) std::fprintf(stderr, " %s", v.c_str());
    std::fprintf(stderr, "\n");
    return 2;
  }
  const std::string variant = *kernels != 0 ? kernels : variants.empty() ? "scalar" : variants.front();
  const std::string processor = ProcessorName();
  const size_t bytes = mib << 20;
  tdbg::Summarizer summarizer;
  tdbg::Summary summary;
  tdbg::Histogram histogram;

  const Pages f32(bytes), relu(bytes), products(bytes), constant(bytes), bf16(bytes), f16(bytes), f64(bytes);
  Fill(f32.data(), bytes, DType::kFloat32, Values::kNormal);
  Fill(relu.data(), bytes, DType::kFloat32, Values::kRectified);
  Fill(products.data(), bytes, DType::kFloat32, Values::kProducts);
  Fill(bf16.data(), bytes, DType::kBFloat16, Values::kNormal);
  Fill(f16.data(), bytes, DType::kFloat16, Values::kNormal);
  Fill(f64.data(), bytes, DType::kFloat64, Values::kNormal);
  for (size_t i = 0; i < bytes; i += 4) std::memcpy(constant.data() + i, "\x00\x00\x20\x3e", 4);

  const auto summarize = [&](const char* name, const Pages& pages, DType dtype, bool with_histogram) {
    const auto run = [&, dtype, with_histogram] {
      const int64_t shape[] = {static_cast<int64_t>(bytes / ItemSize(dtype))};
      const tdbg::Status status = summarizer.Summarize({pages.data(), dtype, shape, {}}, &summary,
                                                       with_histogram ? &histogram : nullptr);
      if (!status.ok()) std::abort();
    };
    return Candidate{name, &pages, run, {}};
  };
  std::vector<Candidate> all = {
      {"read, 1 stream", &f32, [&] { g_sink = Read1(f32.data(), bytes); }, {}},
      {"read, 4 vectors", &f32, [&] { g_sink = Read4(f32.data(), bytes); }, {}},
      {"read, 8 vectors", &f32, [&] { g_sink = Read8(f32.data(), bytes); }, {}},
      {"read, prefetching 2 KiB ahead", &f32, [&] { g_sink = ReadAhead2K(f32.data(), bytes); }, {}},
      {"read, prefetching 8 KiB ahead", &f32, [&] { g_sink = ReadAhead8K(f32.data(), bytes); }, {}},
      summarize("float32", f32, DType::kFloat32, false),
      summarize("float32 + histogram", f32, DType::kFloat32, true),
      summarize("float32 rectified", relu, DType::kFloat32, false),
      summarize("float32 rectified + histogram", relu, DType::kFloat32, true),
      summarize("float32 heavy-tailed + histogram", products, DType::kFloat32, true),
      summarize("float32 constant + histogram", constant, DType::kFloat32, true),
      summarize("bfloat16", bf16, DType::kBFloat16, false),
      summarize("bfloat16 + histogram", bf16, DType::kBFloat16, true),
      summarize("float16", f16, DType::kFloat16, false),
      summarize("float16 + histogram", f16, DType::kFloat16, true),
      summarize("float64", f64, DType::kFloat64, false),
      summarize("float64 + histogram", f64, DType::kFloat64, true),
  };
  const size_t readers = 5;

  for (Candidate& c : all) c.run();
  std::vector<std::vector<double>> ratios(all.size());
  std::vector<double> best_reads;
  for (int r = 0; r < rounds; ++r) {
    std::vector<double> seconds;
    for (Candidate& c : all) {
      if (!warm) c.pages->Evict();
      seconds.push_back(Seconds(c.run));
    }
    const double best = *std::min_element(seconds.begin(), seconds.begin() + readers);
    best_reads.push_back(static_cast<double>(bytes) / best / 1e9);
    for (size_t i = 0; i < all.size(); ++i) {
      ratios[i].push_back(best / seconds[i]);
      all[i].seconds.push_back(seconds[i]);
    }
  }

  FILE* out = json != nullptr ? std::fopen(json, "w") : nullptr;
  const Spread read = SpreadOf(best_reads);
  std::printf("%s, kernels %s\n", processor.c_str(), variant.c_str());
  std::printf("pages of 4 KiB, %zu MiB%s, %d rounds; best read loop %.1f GB/s (%.1f-%.1f)\n", mib,
              warm ? ", left in the caches" : "", rounds, read.median, read.low, read.high);
  std::printf("%-32s %8s %8s %17s\n", "", "GB/s", "ratio", "10 %-90 %");
  if (out != nullptr) {
    std::fprintf(out,
                 "{\"processor\": \"%s\", \"kernels\": \"%s\", \"page_bytes\": 4096, \"mib\": %zu, "
                 "\"rounds\": %d, \"read_gb_per_s\": %.3f, \"large\": [",
                 processor.c_str(), variant.c_str(), mib, rounds, read.median);
  }
  for (size_t i = 0; i < all.size(); ++i) {
    const Spread s = SpreadOf(ratios[i]);
    const double rate = static_cast<double>(bytes) / SpreadOf(all[i].seconds).median / 1e9;
    std::printf("%-32s %8.1f %8.2f      %5.2f - %5.2f\n", all[i].name.c_str(), rate, s.median, s.low, s.high);
    if (out != nullptr) {
      std::fprintf(out,
                   "%s{\"name\": \"%s\", \"gb_per_s\": %.3f, \"ratio\": %.4f, \"low\": %.4f, \"high\": %.4f}",
                   i != 0 ? ", " : "", all[i].name.c_str(), rate, s.median, s.low, s.high);
    }
  }

  // Many tensors in a row, as in a step: none is in the first-level cache for long.
  std::printf("\n%-32s %12s %12s %12s\n", "float32 tensor of", "ns", "+ histogram", "+ encoded");
  if (out != nullptr) std::fprintf(out, "], \"small\": [");
  bool first = true;
  for (const int64_t n : {1, 10, 64, 256, 1024, 2048, 4096, 16384, 65536}) {
    const int tensors = static_cast<int>(std::clamp<int64_t>((2 << 20) / 4 / n, 1, 200));
    double ns[3];
    std::vector<double> samples[3];
    std::vector<uint8_t> encoded;
    for (int r = 0; r < std::max(rounds, 3); ++r) {
      for (int kind = 0; kind < 3; ++kind) {
        const double s = Seconds([&] {
          for (int t = 0; t < tensors; ++t) {
            const tdbg::TensorView view{f32.data() + t * n * 4, DType::kFloat32, {&n, 1}, {}};
            if (!summarizer.Summarize(view, &summary, kind != 0 ? &histogram : nullptr).ok()) std::abort();
            if (kind == 2) {
              encoded.clear();
              tdbg::EncodeHistogram(histogram, &encoded);
            }
          }
        });
        samples[kind].push_back(s / tensors * 1e9);
      }
    }
    for (int kind = 0; kind < 3; ++kind) ns[kind] = SpreadOf(samples[kind]).median;
    std::printf("%-32lld %12.0f %12.0f %12.0f\n", static_cast<long long>(n), ns[0], ns[1], ns[2]);
    if (out != nullptr) {
      std::fprintf(out, "%s{\"elements\": %lld, \"ns\": %.1f, \"ns_histogram\": %.1f, \"ns_encoded\": %.1f}",
                   first ? "" : ", ", static_cast<long long>(n), ns[0], ns[1], ns[2]);
    }
    first = false;
  }
  if (out != nullptr) {
    std::fprintf(out, "]}\n");
    std::fclose(out);
  }
  return 0;
}

#include "cuda/testing/fake_driver.h"

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "cuda/driver.h"
#include "cuda/testing/host_kernels.h"

namespace {

using tdbg::cuda::DevicePointer;
using tdbg::cuda::Error;
using tdbg::cuda::Handle;
using tdbg::cuda::HostLaunch;
using Work = std::function<void()>;

constexpr Error kInvalidValue = 1, kNotFound = 500, kCaptureInvalidated = 901;

/// Pinned memory. With `immediate`, kernels write to a shadow of it, and its host sees that later.
struct Pinned {
  size_t bytes = 0;
  std::vector<uint64_t> shadow;
  std::vector<uint64_t> sent;  // the shadow as of the last launch that wrote to it
  std::vector<uint64_t> published;
};

/// Each has a thread of its own, which does its work in order and knows nothing of the others.
struct Stream {
  std::deque<Work> work;
  std::thread thread;
  bool busy = false;
};

/// A place in a stream's work, which another stream waits for. An event that is recorded again is another
/// place, and who waits for the first one still does.
struct Place {
  bool reached = false;
};

struct Capture {
  std::vector<Work> graph;
  bool broken = false;
};

class Fake {
 public:
  Fake() { FromEnvironment(); }

  static Fake& It() {
    static Fake* const fake = new Fake;  // outlives whatever still calls at exit
    return *fake;
  }

  /// Every driver function begins here. Not kSuccess: what it returns.
  Error Called(const char* symbol, bool forbidden_in_captures = false) {
    if (getpid() != process_) std::abort();
    const std::lock_guard lock(mutex_);
    ++calls_[symbol];
    ++all_calls_;
    if (dead_ != 0) return dead_;
    if (fail_in_ > 0 && --fail_in_ == 0) {
      if (fail_code_ >= 700) dead_ = fail_code_;
      changed_.notify_all();
      return fail_code_;
    }
    if (current_device_ < 0 && contexts_of_thread == 0 && NeedsContext(symbol)) {
      return tdbg::cuda::kInvalidContext;
    }
    if (forbidden_in_captures && capture_mode_of_thread != tdbg::cuda::kCaptureModeRelaxed &&
        !captures_.empty()) {
      for (auto& [stream, capture] : captures_) capture.broken = true;
      return tdbg::cuda::kCaptureUnsupported;
    }
    return 0;
  }

  bool Set(const std::string& word) {
    const size_t equals = word.find('=');
    const std::string name = word.substr(0, equals);
    const std::string value = equals == std::string::npos ? "" : word.substr(equals + 1);
    const long long number = std::atoll(value.c_str());
    const std::lock_guard lock(mutex_);
    if (name == "immediate") {
      immediate_ = true;
    } else if (name == "delay_us") {
      delay_us_ = static_cast<uint64_t>(number);
    } else if (name == "fail") {
      fail_in_ = number;
      const size_t colon = value.find(':');
      fail_code_ = colon == std::string::npos ? 999 : std::atoi(value.c_str() + colon + 1);
    } else if (name == "memory") {
      memory_left_ = number;
    } else if (name == "seed") {
      random_.seed(static_cast<uint64_t>(number));
    } else if (name == "version") {
      version_ = static_cast<int>(number);
    } else if (name == "image") {
      image_error_ = static_cast<Error>(number);
    } else if (name == "device") {
      current_device_ = static_cast<int>(number);
    } else if (name == "hold") {
      hold_ = number != 0;
      changed_.notify_all();
    } else {
      return false;
    }
    return true;
  }

  void Reset() {
    Set("hold=0");
    Drain();
    {
      const std::lock_guard lock(mutex_);
      immediate_ = hold_ = false;
      delay_us_ = 0;
      fail_in_ = 0;
      dead_ = 0;
      memory_left_ = int64_t{1} << 40;
      version_ = 12040;
      image_error_ = 0;
      current_device_ = 0;
      captures_.clear();
      graphs_.clear();
      calls_.clear();
      all_calls_ = 0;
      random_.seed(1);
    }
    FromEnvironment();
  }

  uint64_t Calls(const char* symbol) {
    const std::lock_guard lock(mutex_);
    return symbol == nullptr ? all_calls_ : calls_[symbol];
  }

  void Drain() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] {
      for (const auto& [handle, stream] : streams_) {
        if (stream->busy || !stream->work.empty()) return false;
      }
      return true;
    });
  }

  // Memory
  // ---------------------------------------------------------------------------------------------------

  Error Allocate(size_t bytes, bool pinned, void** out) {
    const std::lock_guard lock(mutex_);
    if (static_cast<int64_t>(bytes) > memory_left_) return tdbg::cuda::kOutOfMemory;
    memory_left_ -= static_cast<int64_t>(bytes);
    const size_t words = (bytes + 7) / 8;
    auto* const memory = static_cast<uint64_t*>(std::aligned_alloc(256, (words * 8 + 255) / 256 * 256));
    std::memset(memory, 0xa5, words * 8);  // whoever counts on zeros finds out
    if (pinned) {
      Pinned p;
      p.bytes = words * 8;
      pinned_.emplace(memory, std::move(p));
    } else {
      device_.emplace(memory, bytes);
    }
    *out = memory;
    return 0;
  }
  size_t memory_left() {
    const std::lock_guard lock(mutex_);
    return static_cast<size_t>(std::max<int64_t>(0, memory_left_));
  }
  Error Free(void* memory) {
    const std::lock_guard lock(mutex_);
    if (pinned_.erase(static_cast<uint64_t*>(memory)) + device_.erase(static_cast<uint64_t*>(memory)) == 0) {
      return kInvalidValue;
    }
    std::free(memory);
    return 0;
  }
  DevicePointer DeviceAddressOf(void* host) {
    const std::lock_guard lock(mutex_);
    const auto found = pinned_.find(static_cast<uint64_t*>(host));
    if (found == pinned_.end()) return 0;
    Pinned& p = found->second;
    if (!immediate_) return reinterpret_cast<uintptr_t>(host);
    p.shadow.assign(p.bytes / 8, 0);
    std::memcpy(p.shadow.data(), host, p.bytes);
    p.sent = p.published = p.shadow;
    return reinterpret_cast<uintptr_t>(p.shadow.data());
  }

  // Streams
  // ----------------------------------------------------------------------------------------------------

  Error Enqueue(uint64_t stream, Work work) {
    std::unique_lock lock(mutex_);
    if (const auto capture = captures_.find(stream); capture != captures_.end()) {
      if (capture->second.broken) return kCaptureInvalidated;
      capture->second.graph.push_back(std::move(work));
      return 0;
    }
    if (stream == 0 && !captures_.empty()) {
      for (auto& [other, capture] : captures_) capture.broken = true;
      return tdbg::cuda::kCaptureImplicit;
    }
    Add(stream, std::move(work), &lock);
    return 0;
  }
  Error CaptureStatus(uint64_t stream, int* status) {
    const std::lock_guard lock(mutex_);
    const auto capture = captures_.find(stream);
    if (stream == 0 && !captures_.empty() && capture == captures_.end()) return tdbg::cuda::kCaptureImplicit;
    *status = capture == captures_.end() ? 0 : capture->second.broken ? 2 : 1;
    return 0;
  }
  void BeginCapture(uint64_t stream) {
    const std::lock_guard lock(mutex_);
    captures_[stream];
  }
  uint64_t EndCapture(uint64_t stream) {
    const std::lock_guard lock(mutex_);
    Capture capture = std::move(captures_[stream]);
    captures_.erase(stream);
    if (capture.broken) return 0;
    graphs_.push_back(std::move(capture.graph));
    return graphs_.size();
  }
  void Replay(uint64_t graph, uint64_t stream) {
    std::unique_lock lock(mutex_);
    const std::vector<Work> work = graphs_.at(graph - 1);
    for (const Work& w : work) Add(stream, w, &lock);
  }

  // Events
  // -----------------------------------------------------------------------------------------------------

  Handle NewEvent() {
    const std::lock_guard lock(mutex_);
    events_[++last_event_];  // of no place: who waits for it does not wait
    return reinterpret_cast<Handle>(last_event_);
  }
  Error DestroyEvent(Handle event) {
    const std::lock_guard lock(mutex_);
    return events_.erase(reinterpret_cast<uintptr_t>(event)) == 1 ? 0 : kInvalidValue;
  }
  Error Record(Handle event, uint64_t stream) {
    const auto place = std::make_shared<Place>();
    {
      const std::lock_guard lock(mutex_);
      const auto found = events_.find(reinterpret_cast<uintptr_t>(event));
      if (found == events_.end()) return kInvalidValue;
      found->second = place;
    }
    return Enqueue(stream, [this, place] {
      const std::lock_guard lock(mutex_);
      place->reached = true;
      changed_.notify_all();
    });
  }
  Error WaitFor(Handle event, uint64_t stream) {
    std::shared_ptr<Place> place;
    {
      const std::lock_guard lock(mutex_);
      const auto found = events_.find(reinterpret_cast<uintptr_t>(event));
      if (found == events_.end()) return kInvalidValue;
      place = found->second;
    }
    if (place == nullptr) return 0;
    return Enqueue(stream, [this, place] {
      std::unique_lock lock(mutex_);
      changed_.wait(lock,
                    [&] { return place->reached || dead_ != 0; });  // nobody reaches it in a dead context
    });
  }

  uint64_t Random(uint64_t below) {
    const std::lock_guard lock(mutex_);
    return below == 0 ? 0 : random_() % below;
  }
  int version() const { return version_; }
  Error image_error() const { return image_error_; }
  int current_device() const { return current_device_; }

  inline static thread_local int capture_mode_of_thread = 0;
  inline static thread_local int contexts_of_thread = 0;  // that were pushed

 private:
  static bool NeedsContext(std::string_view symbol) {
    return symbol != "cuDeviceGet" && !symbol.starts_with("cuDevicePrimaryCtx") &&
           symbol != "cuCtxPushCurrent_v2";
  }

  void FromEnvironment() {
    const char* const words = std::getenv("TDBG_FAKE_CUDA");
    std::string rest = words == nullptr ? "" : words;
    while (!rest.empty()) {
      const size_t comma = rest.find(',');
      if (!Set(rest.substr(0, comma))) std::abort();
      rest = comma == std::string::npos ? "" : rest.substr(comma + 1);
    }
  }

  void Add(uint64_t handle, Work work, std::unique_lock<std::mutex>* lock) {
    if (immediate_) {
      lock->unlock();
      work();
      lock->lock();
      // What its kernels have written reaches the host with the stream's thread.
      std::vector<std::pair<uint64_t*, std::vector<uint64_t>>> seen;
      for (auto& [host, p] : pinned_) {
        if (p.shadow == p.sent) continue;  // another stream's, and none of this one's business
        p.sent = p.shadow;
        seen.emplace_back(host, p.shadow);
      }
      work = [this, seen = std::move(seen)] { Publish(seen); };
    }
    std::unique_ptr<Stream>& stream = streams_[handle];
    if (stream == nullptr) {
      stream = std::make_unique<Stream>();
      stream->thread = std::thread([this, s = stream.get()] { Run(s); });
      stream->thread.detach();
    }
    stream->work.push_back(std::move(work));
    changed_.notify_all();
  }

  /// A slot's sequence is its first word and is written last, so the words go from the end to the beginning;
  /// those that are as they were belong to whoever reads them.
  void Publish(const std::vector<std::pair<uint64_t*, std::vector<uint64_t>>>& seen) {
    const std::lock_guard lock(mutex_);
    for (const auto& [host, words] : seen) {
      const auto found = pinned_.find(host);
      if (found == pinned_.end() || found->second.published.size() != words.size()) continue;
      std::vector<uint64_t>& published = found->second.published;
      for (size_t i = words.size(); i-- > 0;) {
        if (words[i] == published[i]) continue;
        published[i] = words[i];
        __atomic_store_n(host + i, words[i], __ATOMIC_RELEASE);
      }
    }
  }

  void Run(Stream* stream) {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return !stream->work.empty() && !hold_; });
      const Work work = std::move(stream->work.front());
      stream->work.pop_front();
      stream->busy = true;
      const uint64_t delay = delay_us_ == 0 ? 0 : random_() % delay_us_;
      const bool dead = dead_ != 0;
      lock.unlock();
      if (delay != 0) std::this_thread::sleep_for(std::chrono::microseconds(delay));
      if (!dead) work();  // a context that has died carries nothing out any more
      lock.lock();
      stream->busy = false;
      changed_.notify_all();
    }
  }

  const pid_t process_ = getpid();
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<uint64_t, std::unique_ptr<Stream>> streams_;
  std::map<uint64_t*, Pinned> pinned_;
  std::map<uint64_t*, size_t> device_;
  std::map<uintptr_t, std::shared_ptr<Place>> events_;  // by handle: the place that it was last recorded at
  uintptr_t last_event_ = 0;
  std::map<uint64_t, Capture> captures_;
  std::vector<std::vector<Work>> graphs_;
  std::map<std::string, uint64_t> calls_;
  uint64_t all_calls_ = 0;
  std::mt19937_64 random_{1};
  bool immediate_ = false, hold_ = false;
  uint64_t delay_us_ = 0;
  int64_t fail_in_ = 0;
  Error fail_code_ = 0, dead_ = 0, image_error_ = 0;
  int64_t memory_left_ = int64_t{1} << 40;
  int version_ = 12040, current_device_ = 0;
};

uint64_t Number(Handle handle) { return reinterpret_cast<uintptr_t>(handle); }
void* Address(DevicePointer pointer) { return reinterpret_cast<void*>(static_cast<uintptr_t>(pointer)); }

/// What cuModuleGetFunction gives: the kernels' names live as long as the process.
const char* Interned(const char* name) {
  static std::mutex mutex;
  static std::set<std::string>* const names = new std::set<std::string>;
  const std::lock_guard lock(mutex);
  return names->insert(name).first->c_str();
}

}  // namespace

extern "C" {

void fake_cuda_reset() { Fake::It().Reset(); }
int fake_cuda_set(const char* word) { return Fake::It().Set(word) ? 1 : 0; }
uint64_t fake_cuda_calls(const char* symbol) { return Fake::It().Calls(symbol); }
void fake_cuda_drain() { Fake::It().Drain(); }
void fake_cuda_begin_capture(uint64_t stream) { Fake::It().BeginCapture(stream); }
uint64_t fake_cuda_end_capture(uint64_t stream) { return Fake::It().EndCapture(stream); }
void fake_cuda_replay(uint64_t graph, uint64_t stream) { Fake::It().Replay(graph, stream); }

#define CALLED(...) \
  if (const Error error = Fake::It().Called(__func__ __VA_OPT__(, ) __VA_ARGS__); error != 0) return error

Error cuDriverGetVersion(int* version) {
  *version = Fake::It().version();
  return 0;
}
Error cuGetErrorName(Error error, const char** name) {
  *name = error == 2     ? "CUDA_ERROR_OUT_OF_MEMORY"
          : error == 700 ? "CUDA_ERROR_ILLEGAL_ADDRESS"
          : error == 900 ? "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"
                         : "CUDA_ERROR_OF_A_TEST";
  return 0;
}
Error cuCtxGetDevice(int* device) {
  CALLED();
  *device = Fake::It().current_device();
  return 0;
}
Error cuDeviceGet(int* device, int ordinal) {
  CALLED();
  *device = ordinal;
  return 0;
}
Error cuDevicePrimaryCtxGetState(int, unsigned* flags, int* active) {
  CALLED();
  *flags = 0;
  *active = 1;
  return 0;
}
Error cuDevicePrimaryCtxRetain(Handle* context, int device) {
  CALLED();
  *context = reinterpret_cast<Handle>(static_cast<intptr_t>(device + 1));
  return 0;
}
Error cuCtxPushCurrent_v2(Handle) {
  CALLED();
  ++Fake::contexts_of_thread;
  return 0;
}
Error cuCtxPopCurrent_v2(Handle*) {
  CALLED();
  --Fake::contexts_of_thread;
  return 0;
}
Error cuModuleLoadData(Handle* module, const void*) {
  CALLED(true);
  if (const Error error = Fake::It().image_error(); error != 0) return error;
  *module = reinterpret_cast<Handle>(1);
  return 0;
}
Error cuModuleUnload(Handle) {
  CALLED(true);
  Fake::It().Drain();
  return 0;
}
Error cuModuleGetFunction(Handle* function, Handle, const char* name) {
  CALLED(true);  // it may be the one that loads: CUDA_MODULE_LOADING=LAZY, the default
  *function = const_cast<char*>(Interned(name));
  return 0;
}
Error cuLaunchKernel(Handle function, unsigned grid, unsigned, unsigned, unsigned, unsigned, unsigned,
                     unsigned, Handle stream, void** parameters, void**) {
  CALLED();
  std::shared_ptr<HostLaunch> launch = HostLaunch::Make(static_cast<const char*>(function), grid, parameters);
  if (launch == nullptr) return kNotFound;
  return Fake::It().Enqueue(Number(stream), [launch] { launch->Run(1 + Fake::It().Random(1u << 20)); });
}
Error cuMemGetInfo_v2(size_t* free, size_t* total) {
  CALLED();
  *free = Fake::It().memory_left();
  *total = size_t{1} << 40;
  return 0;
}
Error cuMemAlloc_v2(DevicePointer* pointer, size_t bytes) {
  CALLED(true);
  void* memory = nullptr;
  const Error error = Fake::It().Allocate(bytes, false, &memory);
  *pointer = reinterpret_cast<uintptr_t>(memory);
  return error;
}
Error cuMemFree_v2(DevicePointer pointer) {
  CALLED(true);
  Fake::It().Drain();  // the real one waits, too
  return Fake::It().Free(Address(pointer));
}
Error cuMemHostAlloc(void** memory, size_t bytes, unsigned) {
  CALLED(true);
  return Fake::It().Allocate(bytes, true, memory);
}
Error cuMemHostGetDevicePointer_v2(DevicePointer* pointer, void* host, unsigned) {
  CALLED();
  *pointer = Fake::It().DeviceAddressOf(host);
  return *pointer == 0 ? kInvalidValue : 0;
}
Error cuMemFreeHost(void* memory) {
  CALLED(true);
  Fake::It().Drain();
  return Fake::It().Free(memory);
}
Error cuMemcpyHtoDAsync_v2(DevicePointer to, const void* from, size_t bytes, Handle stream) {
  CALLED();
  return Fake::It().Enqueue(Number(stream), [=] { std::memcpy(Address(to), from, bytes); });
}
Error cuMemcpyDtoDAsync_v2(DevicePointer to, DevicePointer from, size_t bytes, Handle stream) {
  CALLED();
  return Fake::It().Enqueue(Number(stream), [=] { std::memcpy(Address(to), Address(from), bytes); });
}
Error cuMemcpyDtoHAsync_v2(void* to, DevicePointer from, size_t bytes, Handle stream) {
  CALLED();
  return Fake::It().Enqueue(Number(stream), [=] { std::memcpy(to, Address(from), bytes); });
}
Error cuMemsetD8Async(DevicePointer to, unsigned char value, size_t count, Handle stream) {
  CALLED();
  return Fake::It().Enqueue(Number(stream), [=] { std::memset(Address(to), value, count); });
}
Error cuMemsetD32Async(DevicePointer to, unsigned value, size_t count, Handle stream) {
  CALLED();
  return Fake::It().Enqueue(Number(stream), [=] {
    for (size_t i = 0; i < count; ++i)
      __atomic_store_n(static_cast<unsigned*>(Address(to)) + i, value, __ATOMIC_RELEASE);
  });
}
Error cuStreamCreate(Handle* stream, unsigned) {
  CALLED();
  static std::atomic<uintptr_t> next{1u << 20};
  *stream = reinterpret_cast<Handle>(next.fetch_add(1));
  return 0;
}
Error cuStreamIsCapturing(Handle stream, int* status) {
  CALLED();
  return Fake::It().CaptureStatus(Number(stream), status);
}
Error cuThreadExchangeStreamCaptureMode(int* mode) {
  CALLED();
  std::swap(*mode, Fake::capture_mode_of_thread);
  return 0;
}

Error cuStreamDestroy_v2(Handle) {
  CALLED();
  return 0;  // what is on it is carried out; its thread waits for more, which never comes
}

Error cuEventCreate(Handle* event, unsigned) {
  CALLED();
  *event = Fake::It().NewEvent();
  return 0;
}
Error cuEventDestroy_v2(Handle event) {
  CALLED();
  return Fake::It().DestroyEvent(event);
}
Error cuEventRecord(Handle event, Handle stream) {
  CALLED();
  return Fake::It().Record(event, Number(stream));
}
Error cuStreamWaitEvent(Handle stream, Handle event, unsigned) {
  CALLED();
  return Fake::It().WaitFor(event, Number(stream));
}
}

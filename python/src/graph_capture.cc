#include "graph_capture.h"

#include <dlfcn.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <array>
#include <deque>
#include <mutex>
#include <tuple>
#include <utility>

#include "fingerprint.h"
#include "number.h"

namespace tdbg::python {

namespace nb = nanobind;
using namespace nb::literals;

// TensorFlow's C interface: opaque to us but for pointers and numbers.
struct TF_OpDefinitionBuilder;
struct TF_KernelBuilder;
struct TF_OpKernelConstruction;
struct TF_OpKernelContext;
struct TF_ShapeInferenceContext;
struct TF_ShapeHandle;
struct TF_Status;
struct TF_Tensor;

namespace {

/// The functions that we call, as tensorflow/c/{ops,kernels,tf_tensor,tf_status}.h declare them.
struct Interface {
  TF_Status* (*NewStatus)();
  void (*DeleteStatus)(TF_Status*);
  int (*GetCode)(const TF_Status*);
  const char* (*Message)(const TF_Status*);
  TF_OpDefinitionBuilder* (*NewOpDefinitionBuilder)(const char* name);
  void (*OpDefinitionBuilderAddAttr)(TF_OpDefinitionBuilder*, const char*);
  void (*OpDefinitionBuilderAddInput)(TF_OpDefinitionBuilder*, const char*);
  void (*OpDefinitionBuilderAddOutput)(TF_OpDefinitionBuilder*, const char*);
  void (*OpDefinitionBuilderSetIsStateful)(TF_OpDefinitionBuilder*, bool);
  void (*OpDefinitionBuilderSetShapeInferenceFunction)(TF_OpDefinitionBuilder*,
                                                       void (*)(TF_ShapeInferenceContext*, TF_Status*));
  void (*RegisterOpDefinition)(TF_OpDefinitionBuilder*, TF_Status*);
  TF_ShapeHandle* (*NewShapeHandle)();
  void (*DeleteShapeHandle)(TF_ShapeHandle*);
  void (*ShapeInferenceContextGetInput)(TF_ShapeInferenceContext*, int, TF_ShapeHandle*, TF_Status*);
  void (*ShapeInferenceContextSetOutput)(TF_ShapeInferenceContext*, int, TF_ShapeHandle*, TF_Status*);
  TF_KernelBuilder* (*NewKernelBuilder)(const char* op, const char* device,
                                        void* (*create)(TF_OpKernelConstruction*),
                                        void (*compute)(void*, TF_OpKernelContext*), void (*destroy)(void*));
  void (*RegisterKernelBuilder)(const char* kernel, TF_KernelBuilder*, TF_Status*);
  void (*OpKernelConstruction_GetAttrInt64)(TF_OpKernelConstruction*, const char*, int64_t*, TF_Status*);
  void (*GetInput)(TF_OpKernelContext*, int, TF_Tensor**, TF_Status*);
  void (*SetOutput)(TF_OpKernelContext*, int, const TF_Tensor*, TF_Status*);
  void (*OpKernelContext_Failure)(TF_OpKernelContext*, TF_Status*);
  void (*DeleteTensor)(TF_Tensor*);
  void* (*TensorData)(const TF_Tensor*);
  size_t (*TensorByteSize)(const TF_Tensor*);
  int (*TensorType)(const TF_Tensor*);
  int (*NumDims)(const TF_Tensor*);
  int64_t (*Dim)(const TF_Tensor*, int);
};

Interface tf;  // filled by Install, before any operation is

/// Looks all functions up; the name of the first that is missing.
const char* Load(void* library, Interface* to) {
  const char* missing = nullptr;
  const auto find = [&]<typename F>(F*& function, const char* name) {
    function = reinterpret_cast<F*>(dlsym(library, name));
    if (function == nullptr && missing == nullptr) missing = name;
  };
#define TDBG_FIND(name) find(to->name, "TF_" #name)
  TDBG_FIND(NewStatus);
  TDBG_FIND(DeleteStatus);
  TDBG_FIND(GetCode);
  TDBG_FIND(Message);
  TDBG_FIND(NewOpDefinitionBuilder);
  TDBG_FIND(OpDefinitionBuilderAddAttr);
  TDBG_FIND(OpDefinitionBuilderAddInput);
  TDBG_FIND(OpDefinitionBuilderAddOutput);
  TDBG_FIND(OpDefinitionBuilderSetIsStateful);
  TDBG_FIND(OpDefinitionBuilderSetShapeInferenceFunction);
  TDBG_FIND(RegisterOpDefinition);
  TDBG_FIND(NewShapeHandle);
  TDBG_FIND(DeleteShapeHandle);
  TDBG_FIND(ShapeInferenceContextGetInput);
  TDBG_FIND(ShapeInferenceContextSetOutput);
  TDBG_FIND(NewKernelBuilder);
  TDBG_FIND(RegisterKernelBuilder);
  TDBG_FIND(OpKernelConstruction_GetAttrInt64);
  TDBG_FIND(GetInput);
  TDBG_FIND(SetOutput);
  TDBG_FIND(OpKernelContext_Failure);
  TDBG_FIND(DeleteTensor);
  TDBG_FIND(TensorData);
  TDBG_FIND(TensorByteSize);
  TDBG_FIND(TensorType);
  TDBG_FIND(NumDims);
  TDBG_FIND(Dim);
#undef TDBG_FIND
  return missing;
}

/// From TensorFlow's number of a type (tensorflow/c/tf_datatype.h); kInvalid for types that are not recorded.
DType DTypeOf(int type) {
  constexpr auto kTypes = [] {
    std::array<DType, 24> types{};
    types.fill(DType::kInvalid);
    types[1] = DType::kFloat32, types[2] = DType::kFloat64, types[3] = DType::kInt32;
    types[4] = DType::kUInt8, types[5] = DType::kInt16, types[6] = DType::kInt8;
    types[9] = DType::kInt64, types[10] = DType::kBool, types[14] = DType::kBFloat16;
    types[17] = DType::kUInt16, types[19] = DType::kFloat16, types[22] = DType::kUInt32;
    types[23] = DType::kUInt64;
    return types;
  }();
  return type >= 0 && type < std::ssize(kTypes) ? kTypes[static_cast<size_t>(type)] : DType::kInvalid;
}

struct Slot {
  std::shared_ptr<GraphCapture::State> state;
  enum class Kind { kTensor, kNumber, kBatch } kind;
  TensorSpec spec;
  Place place;
  Run::Id id = Run::kNotWanted;
  bool defined = false;
};

/// All slots of the process. A graph may outlive the run that it recorded into, so none is taken away; that
/// is some hundred bytes for a tensor of a function that was traced.
struct Slots {
  std::mutex mutex;
  std::deque<Slot> all;

  int64_t Add(Slot slot) {
    const std::lock_guard lock(mutex);
    all.push_back(std::move(slot));
    return std::ssize(all) - 1;
  }
  Slot* At(int64_t number) {
    const std::lock_guard lock(mutex);
    return number >= 0 && number < std::ssize(all) ? &all[static_cast<size_t>(number)] : nullptr;
  }
};

Slots& TheSlots() {
  static auto* const slots = new Slots;  // kernels may run while the process ends
  return *slots;
}

}  // namespace

struct GraphCapture::State {
  std::mutex mutex;  // guards the rest, and the slots' definitions
  Run* run = nullptr;
  std::optional<BatchMark> batch;

  void Record(Slot* slot, const TF_Tensor* tensor);
};

void GraphCapture::State::Record(Slot* slot, const TF_Tensor* tensor) {
  const std::lock_guard lock(mutex);
  if (run == nullptr) return;
  const DType dtype = DTypeOf(tf.TensorType(tensor));
  const void* data = tf.TensorData(tensor);
  const size_t bytes = tf.TensorByteSize(tensor);
  if (dtype == DType::kInvalid) return;
  if (slot->kind == Slot::Kind::kNumber) {
    if (bytes >= ItemSize(dtype)) run->PutScalar(slot->id, NumberAt(data, dtype));
    return;
  }
  std::vector<int64_t> shape(static_cast<size_t>(tf.NumDims(tensor)));
  for (size_t i = 0; i < shape.size(); ++i) shape[i] = tf.Dim(tensor, static_cast<int>(i));
  if (slot->kind == Slot::Kind::kBatch) {
    batch = {std::nullopt, dtype, std::move(shape)};
    if (bytes > 0) batch->fingerprint = Fingerprint(reinterpret_cast<uintptr_t>(data), bytes);
    return;
  }
  TensorSpec& spec = slot->spec;
  if (!slot->defined || spec.dtype != dtype || (!spec.variable_shape && spec.shape != shape)) {
    slot->defined = true;
    spec.dtype = dtype;
    spec.shape = shape;
    TensorSpec described = spec;
    if (described.unit_axis >= std::ssize(shape)) described.unit_axis = -1;
    slot->id = run->Define(described);
  }
  if (slot->id != Run::kNotWanted && bytes > 0) run->Put(slot->id, {data, dtype, shape, {}}, slot->place);
}

namespace {

void* Create(TF_OpKernelConstruction* construction) {
  TF_Status* const status = tf.NewStatus();
  int64_t number = -1;
  tf.OpKernelConstruction_GetAttrInt64(construction, "slot", &number, status);
  tf.DeleteStatus(status);
  return TheSlots().At(number);
}

void Compute(void* slot_pointer, TF_OpKernelContext* context) {
  TF_Status* const status = tf.NewStatus();
  TF_Tensor* tensor = nullptr;
  tf.GetInput(context, 0, &tensor, status);
  if (tf.GetCode(status) == 0) {
    auto* const slot = static_cast<Slot*>(slot_pointer);
    try {
      if (slot != nullptr) slot->state->Record(slot, tensor);
    } catch (...) {  // no memory: the training goes on without this value
    }
    tf.SetOutput(context, 0, tensor, status);
    tf.DeleteTensor(tensor);
  }
  // Then there is no output, and TensorFlow must not go on as if there were.
  if (tf.GetCode(status) != 0) tf.OpKernelContext_Failure(context, status);
  tf.DeleteStatus(status);
}

void SameShape(TF_ShapeInferenceContext* context, TF_Status* status) {
  TF_ShapeHandle* const handle = tf.NewShapeHandle();
  tf.ShapeInferenceContextGetInput(context, 0, handle, status);
  if (tf.GetCode(status) == 0) tf.ShapeInferenceContextSetOutput(context, 0, handle, status);
  tf.DeleteShapeHandle(handle);
}

std::string Register() {
  TF_Status* const status = tf.NewStatus();
  TF_OpDefinitionBuilder* const operation = tf.NewOpDefinitionBuilder(GraphCapture::kOperation);
  tf.OpDefinitionBuilderAddAttr(operation, "T: type");
  tf.OpDefinitionBuilderAddAttr(operation, "slot: int");
  tf.OpDefinitionBuilderAddInput(operation, "value: T");
  tf.OpDefinitionBuilderAddOutput(operation, "same: T");
  tf.OpDefinitionBuilderSetIsStateful(operation, true);  // neither left out nor merged with its like
  tf.OpDefinitionBuilderSetShapeInferenceFunction(operation, SameShape);
  tf.RegisterOpDefinition(operation, status);
  if (tf.GetCode(status) == 0) {
    tf.RegisterKernelBuilder(GraphCapture::kOperation,
                             tf.NewKernelBuilder(GraphCapture::kOperation, "CPU", Create, Compute, nullptr),
                             status);
  }
  std::string error = tf.GetCode(status) == 0 ? "" : tf.Message(status);
  tf.DeleteStatus(status);
  return error;
}

}  // namespace

std::string GraphCapture::Install(const std::string& library) {
  static const auto* const outcome = new std::string([&]() -> std::string {
    void* const handle = dlopen(library.c_str(), RTLD_NOW | RTLD_NOLOAD);
    if (handle == nullptr) return library + " is not loaded";
    if (const char* missing = Load(handle, &tf)) return library + " has no " + missing;
    return Register();
  }());
  return *outcome;
}

GraphCapture::GraphCapture(Run* run) : run_(run), state_(std::make_shared<State>()) {}

GraphCapture::~GraphCapture() { End(); }

int64_t GraphCapture::AddTensor(const TensorSpec& spec, int sub) {
  return TheSlots().Add({state_, Slot::Kind::kTensor, spec, {static_cast<uint16_t>(sub), StepPoint::kNone}});
}

int64_t GraphCapture::AddNumber(Run::Id series) {
  return TheSlots().Add({state_, Slot::Kind::kNumber, {}, {}, series, true});
}

int64_t GraphCapture::AddBatch() { return TheSlots().Add({state_, Slot::Kind::kBatch, {}, {}}); }

void GraphCapture::Begin() {
  const std::lock_guard lock(state_->mutex);
  state_->run = run_;
  state_->batch.reset();
}

std::optional<BatchMark> GraphCapture::End() {
  const std::lock_guard lock(state_->mutex);
  state_->run = nullptr;
  return std::exchange(state_->batch, std::nullopt);
}

void BindGraphCapture(nb::module_* m) {
  nb::class_<GraphCapture>(*m, "GraphCapture",
                           "Numbers of the operations that record tensors of TensorFlow's graphs.")
      .def(nb::init<Run*>(), "run"_a, nb::keep_alive<1, 2>())
      .def_static("install", &GraphCapture::Install, "library"_a,
                  "Registers the operation, once; why that cannot be done, or an empty text.")
      .def_prop_ro_static("OPERATION", [](nb::handle) { return GraphCapture::kOperation; })
      .def(
          "tensor",
          [](GraphCapture& capture, std::string name, std::string short_name, std::string kind,
             std::string module_kind, bool variable_shape, int unit_axis,
             std::vector<std::string> collections, int sub) {
            TensorSpec spec;
            spec.name = std::move(name);
            spec.short_name = std::move(short_name);
            spec.kind = std::move(kind);
            spec.module_kind = std::move(module_kind);
            spec.variable_shape = variable_shape;
            spec.unit_axis = unit_axis;
            spec.collections = std::move(collections);
            return capture.AddTensor(spec, sub);
          },
          "name"_a, "short_name"_a, "kind"_a, "module_kind"_a, "variable_shape"_a, "unit_axis"_a,
          "collections"_a, "sub"_a = 0)
      .def("number", &GraphCapture::AddNumber, "series"_a)
      .def("batch", &GraphCapture::AddBatch)
      .def("begin", &GraphCapture::Begin, "Operations put into the run's open step, until `end`.")
      .def(
          "end",
          [](GraphCapture& capture)
              -> std::optional<std::tuple<std::optional<uint32_t>, std::string, std::vector<int64_t>>> {
            const auto batch = capture.End();
            if (!batch) return std::nullopt;
            return std::tuple(batch->fingerprint, std::string(DTypeName(batch->dtype)), batch->shape);
          },
          "(fingerprint, name of the dtype, shape) of the step's batch, or None. The fingerprint of an empty "
          "one "
          "is None.");
}

}  // namespace tdbg::python

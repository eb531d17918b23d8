#include "tegula/dlpack.hpp"

#include <fmt/format.h>

#include <cstdint>
#include <iterator>
#include <string>

#include "tegula/error.hpp"
#include "tegula/stream.hpp"
#include "tegula/tensor.hpp"

namespace tegula {
namespace {

struct DlpackType {
  DType dtype;
  DLDataType dl;
};
constexpr DlpackType dlpack_types[] = {
    {boolean, {kDLBool, 8, 1}},     {i8, {kDLInt, 8, 1}},
    {i16, {kDLInt, 16, 1}},         {i32, {kDLInt, 32, 1}},
    {i64, {kDLInt, 64, 1}},         {u8, {kDLUInt, 8, 1}},
    {u32, {kDLUInt, 32, 1}},        {e4m3, {kDLFloat8_e4m3fn, 8, 1}},
    {e5m2, {kDLFloat8_e5m2, 8, 1}}, {f16, {kDLFloat, 16, 1}},
    {bf16, {kDLBfloat, 16, 1}},     {f32, {kDLFloat, 32, 1}},
    {f64, {kDLFloat, 64, 1}},
};

// What operators take as bytes: scales that are exponents, and pairs of numbers of 4 bits.
constexpr DLDataType dlpack_bytes[] = {{kDLFloat8_e8m0fnu, 8, 1}, {kDLFloat4_e2m1fn, 4, 2}};

bool are_equal(DLDataType a, DLDataType b) {
  return a.code == b.code && a.bits == b.bits && a.lanes == b.lanes;
}

DLDataType dl_type(DType dtype) { return dlpack_types[static_cast<int>(dtype.code)].dl; }

std::string kind_of(std::uint8_t code) {
  constexpr const char* kinds[] = {"integers", "unsigned integers", "floats", "opaque handles",
                                   "bfloats",  "complex numbers",   "truths"};
  return code < std::size(kinds) ? kinds[code] : fmt::format("type code {}", code);
}

DType dtype_from(DLDataType dl) {
  for (const DlpackType& row : dlpack_types)
    if (are_equal(row.dl, dl)) return row.dtype;
  for (const DLDataType& bytes : dlpack_bytes)
    if (are_equal(bytes, dl)) return u8;
  throw ArgumentError(fmt::format("DLPack tensor of {} of {} bits in {} lanes: no dtype corresponds",
                                  kind_of(dl.code), dl.bits, dl.lanes));
}

DLDevice dl_device(const Device& device) {
  return {device.is_cpu() ? kDLCPU : kDLCUDA, static_cast<std::int32_t>(device.is_cpu() ? 0 : device.index)};
}

Device device_from(const DLDevice& dl) {
  switch (static_cast<int>(dl.device_type)) {
    case kDLCPU:
    case kDLCUDAHost:
      return {DeviceKind::cpu, 0};
    case kDLCUDA:
    case kDLCUDAManaged:
      return {DeviceKind::cuda, dl.device_id};
    default:
      throw ArgumentError(
          fmt::format("DLPack tensor on a device of type {}: only cpu (1), cuda (2), pinned (3) and managed "
                      "(13) memory is supported",
                      static_cast<int>(dl.device_type)));
  }
}

// What a managed tensor points to: the owner of the elements and its own copy of the shape.
template <class Managed>
struct Context {
  Managed managed{};
  TensorRef ref;
  std::shared_ptr<void> owner;

  static void destroy(Managed* self) { delete static_cast<Context*>(self->manager_ctx); }
};

template <class Managed>
Managed* export_tensor(const TensorRef& ref, std::shared_ptr<void> owner) {
  auto context = std::make_unique<Context<Managed>>();
  context->ref = ref;
  context->owner = std::move(owner);
  context->managed.manager_ctx = context.get();
  context->managed.deleter = Context<Managed>::destroy;
  DLTensor& dl = context->managed.dl_tensor;
  dl.data = ref.data;
  dl.device = dl_device(ref.device);
  dl.ndim = ref.rank();
  dl.dtype = dl_type(ref.dtype);
  dl.shape = context->ref.shape.data();
  dl.strides = context->ref.strides.data();
  dl.byte_offset = 0;
  return &context.release()->managed;
}

DLManagedTensorVersioned* export_versioned(const TensorRef& ref, std::shared_ptr<void> owner) {
  auto* managed = export_tensor<DLManagedTensorVersioned>(ref, std::move(owner));
  managed->version = {1, 0};
  managed->flags = 0;
  return managed;
}

void* begin_of(const DLTensor& dl) {
  if (dl.data == nullptr) return nullptr;
  std::uintptr_t begin = 0;
  if (__builtin_add_overflow(reinterpret_cast<std::uintptr_t>(dl.data), dl.byte_offset, &begin) ||
      dl.byte_offset > std::uint64_t{PTRDIFF_MAX})
    throw ArgumentError(
        fmt::format("DLPack tensor whose byte offset {} is outside the address space", dl.byte_offset));
  return reinterpret_cast<void*>(begin);
}

TensorRef import_ref(const DLTensor& dl) {
  if (dl.ndim < 0 || (dl.ndim > 0 && dl.shape == nullptr)) {
    throw ArgumentError(fmt::format("DLPack tensor with {} dimensions and no shape", dl.ndim));
  }
  const DType dtype = dtype_from(dl.dtype);
  const Device device = device_from(dl.device);
  Shape shape(dl.shape, dl.shape + dl.ndim);
  Shape strides = dl.strides ? Shape(dl.strides, dl.strides + dl.ndim) : row_major_strides(shape);
  void* data = begin_of(dl);
  TensorRef ref(data, dtype, std::move(shape), std::move(strides), device);
  if (nelements(ref) > 0) {
    if (data == nullptr) throw ArgumentError(fmt::format("DLPack tensor {} without data", describe(ref)));
    if (reinterpret_cast<std::uintptr_t>(data) % dtype.bytes() != 0) {
      throw ArgumentError(fmt::format("DLPack tensor {} whose data is not aligned to its {} bytes",
                                      describe(ref), dtype.bytes()));
    }
  }
  byte_range(ref);  // refuses strides that leave the address space
  return ref;
}

template <class Managed>
Tensor import_tensor(Managed* managed) {
  if (managed == nullptr) throw ArgumentError("DLPack tensor is a null pointer");
  TensorRef ref = view_dlpack(*managed);
  // Not in shared_ptr's constructor: that would call the deleter if it fails to allocate.
  struct Owner {
    Managed* managed = nullptr;
    ~Owner() {
      if (managed && managed->deleter) managed->deleter(managed);
    }
  };
  auto owner = std::make_shared<Owner>();
  owner->managed = managed;
  return Tensor::adopt(std::move(ref), std::move(owner));
}

// Work queued on `second` from now on follows what is queued on `first`.
void order(const Stream& first, const Stream& second) {
  if (first.handle() == second.handle()) return;
  Event event(first.device());
  event.record(first);
  second.wait(event);
}

}  // namespace

DLManagedTensor* to_dlpack(const TensorRef& tensor) {
  return export_tensor<DLManagedTensor>(tensor, nullptr);
}
DLManagedTensor* to_dlpack(const Tensor& tensor) {
  return export_tensor<DLManagedTensor>(tensor.ref(), tensor.owner());
}
DLManagedTensorVersioned* to_dlpack_versioned(const TensorRef& tensor) {
  return export_versioned(tensor, nullptr);
}
DLManagedTensorVersioned* to_dlpack_versioned(const Tensor& tensor) {
  return export_versioned(tensor.ref(), tensor.owner());
}

Tensor from_dlpack(DLManagedTensor* tensor) { return import_tensor(tensor); }
Tensor from_dlpack(DLManagedTensorVersioned* tensor) { return import_tensor(tensor); }

DLManagedTensor* to_dlpack(const Tensor& tensor, const Stream& consumer) {
  order(current_stream(tensor.device()), consumer);
  return to_dlpack(tensor);
}
DLManagedTensorVersioned* to_dlpack_versioned(const Tensor& tensor, const Stream& consumer) {
  order(current_stream(tensor.device()), consumer);
  return to_dlpack_versioned(tensor);
}
Tensor from_dlpack(DLManagedTensor* tensor, const Stream& producer) {
  order(producer, current_stream(producer.device()));
  return import_tensor(tensor);
}
Tensor from_dlpack(DLManagedTensorVersioned* tensor, const Stream& producer) {
  order(producer, current_stream(producer.device()));
  return import_tensor(tensor);
}

TensorRef view_dlpack(const DLManagedTensor& tensor) { return import_ref(tensor.dl_tensor); }
TensorRef view_dlpack(const DLManagedTensorVersioned& tensor) {
  if (tensor.version.major != 1) {
    throw ArgumentError(fmt::format("DLPack tensor of version {}.{}: only version 1 is supported",
                                    tensor.version.major, tensor.version.minor));
  }
  return import_ref(tensor.dl_tensor);
}

}  // namespace tegula

// Tensors in memory: a TensorRef describes a tensor that is owned elsewhere, a Tensor owns its elements.
//
// Shapes and strides count elements. Strides may be zero (a repeated element) or negative.
// A wrong shape, index or dtype throws an ArgumentError that states what was expected and what was given.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "tegula/dtype.hpp"

struct DLManagedTensor;           // DLPack up to 0.8
struct DLManagedTensorVersioned;  // DLPack from 1.0 on

TEGULA_API_BEGIN
namespace tegula {

enum class DeviceKind : std::uint8_t { cpu, cuda };

struct Device {
  DeviceKind kind = DeviceKind::cpu;
  int index = 0;
  static constexpr Device cpu() { return {}; }
  static constexpr Device cuda(int index = 0) { return {DeviceKind::cuda, index}; }
  bool is_cpu() const { return kind == DeviceKind::cpu; }
  std::string name() const;  // "cpu", "cuda:1"
  friend bool operator==(const Device&, const Device&) = default;
};

using Shape = std::vector<std::int64_t>;

// The dtype that corresponds to a C++ type.
template <class T>
constexpr DType dtype_of() {
  static_assert(std::is_arithmetic_v<T>, "only bool, integers, float and double are element types of C++");
  if constexpr (std::is_same_v<T, bool>) {
    return boolean;
  } else if constexpr (std::is_floating_point_v<T>) {
    static_assert(sizeof(T) <= 8, "long double is not an element type");
    return sizeof(T) == 4 ? f32 : f64;
  } else if constexpr (std::is_signed_v<T>) {
    return sizeof(T) == 1 ? i8 : sizeof(T) == 2 ? i16 : sizeof(T) == 4 ? i32 : i64;
  } else {
    static_assert(sizeof(T) == 1 || sizeof(T) == 4, "u16 and u64 are not element types");
    return sizeof(T) == 1 ? u8 : u32;
  }
}

// Whether elements of `type` may be read as T: the type itself, or the bits of an f16, bf16 or fp8 float
// as an unsigned integer of that width.
template <class T>
constexpr bool is_accessible_as(DType type) {
  if constexpr (std::is_same_v<T, std::uint16_t>) {
    return type.is_floating() && type.bits() == 16;
  } else {
    return type == dtype_of<T>() ||
           (std::is_same_v<T, std::uint8_t> && type.is_floating() && type.bits() == 8);
  }
}

struct TensorRef {
  void* data = nullptr;
  DType dtype = f32;
  Shape shape;
  Shape strides;
  Device device;

  TensorRef() = default;
  TensorRef(void* data, DType dtype, Shape shape, Device device = {});  // contiguous, row-major
  TensorRef(void* data, DType dtype, Shape shape, Shape strides, Device device = {});

  int rank() const { return static_cast<int>(shape.size()); }
  // Extent and stride of a dimension; negative numbers count from the last one.
  std::int64_t size(int dim) const;
  std::int64_t stride(int dim) const;

  // Distance in elements from `data` to the element at `index`, which is checked.
  std::int64_t offset(std::span<const std::int64_t> index) const;

  template <class T>
  T* data_as() const {
    check_access(is_accessible_as<std::remove_const_t<T>>(dtype), sizeof(T));
    return static_cast<T*>(data);
  }
  template <class T, class... I>
  T& at(I... index) const {
    const std::array<std::int64_t, sizeof...(I)> at_index{static_cast<std::int64_t>(index)...};
    return data_as<T>()[host_offset(at_index)];
  }
  // The element as a number, whatever its dtype; `set` rounds to nearest even, saturates fp8, truncates
  // and saturates integers (NaN becomes 0), as casts of the language do.
  double get(std::span<const std::int64_t> index) const;
  double get(std::initializer_list<std::int64_t> index) const { return get(std::span(index)); }
  void set(std::span<const std::int64_t> index, double value) const;
  void set(std::initializer_list<std::int64_t> index, double value) const { set(std::span(index), value); }

  // Views of the same elements.
  TensorRef slice(int dim, std::int64_t begin, std::int64_t end, std::int64_t step = 1) const;
  TensorRef select(int dim, std::int64_t index) const;  // drops the dimension
  TensorRef flip(int dim) const;
  TensorRef transpose(int dim_a, int dim_b) const;
  TensorRef permute(std::span<const int> dims) const;
  TensorRef permute(std::initializer_list<int> dims) const { return permute(std::span(dims)); }
  TensorRef expand(const Shape& shape) const;  // repeats dimensions of extent 1 and adds leading ones
  // The same elements in another shape; one extent may be -1. Throws if no strides describe the result.
  TensorRef reshape(const Shape& shape) const;
  std::optional<TensorRef> try_reshape(const Shape& shape) const;  // empty instead of throwing

 private:
  void check_access(bool accessible, std::size_t bytes) const;
  std::int64_t host_offset(std::span<const std::int64_t> index) const;
};

// Product of the extents. Throws an ArgumentError if one is negative or the product overflows.
std::int64_t nelements(const Shape& shape);
std::int64_t nelements(const TensorRef& tensor);
Shape row_major_strides(const Shape& shape);
// Whether the elements are in row-major order without gaps.
bool is_contiguous(const TensorRef& tensor);

// Addresses [begin, end) that enclose all elements; empty for a tensor without elements.
struct ByteRange {
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
  bool overlaps(const ByteRange& other) const {
    return begin < end && other.begin < other.end && begin < other.end && other.begin < end;
  }
};
ByteRange byte_range(const TensorRef& tensor);

std::string describe(const Shape& shape);       // "[2, 3]"
std::string describe(const TensorRef& tensor);  // "f32 [2, 3] strides [3, 1]"

// Copies elements between tensors of the same shape, converting the dtype as casts of the language do. The
// two must not overlap. Tensors of one dtype on the same device are copied in the order of its current stream
// if they are contiguous, or few commands copy their rows; any other copy that involves a device goes through
// host memory and is complete on return.
void copy_elements(const TensorRef& from, const TensorRef& to);

// A tensor with its elements, which are 64-byte aligned and reference-counted: copies and views of a Tensor
// share them, `clone` copies them.
//
// The memory of a tensor on a CUDA device belongs to the stream that was current when it was created. If it
// is used on another stream, that use must be complete before the last copy of the Tensor is destroyed.
class Tensor {
 public:
  Tensor() : Tensor(empty({0}, f32)) {}

  static Tensor empty(Shape shape, DType dtype, const Device& device = {});  // elements are undefined
  static Tensor zeros(Shape shape, DType dtype, const Device& device = {});
  static Tensor full(Shape shape, DType dtype, double value);
  static Tensor arange(std::int64_t count, DType dtype, double start = 0, double step = 1);
  // The results of the random factories depend only on their arguments.
  static Tensor random_normal(Shape shape, DType dtype, std::uint64_t seed, double mean = 0,
                              double deviation = 1);
  static Tensor random_uniform(Shape shape, DType dtype, std::uint64_t seed, double low = 0, double high = 1);
  static Tensor random_integers(Shape shape, DType dtype, std::uint64_t seed, std::int64_t low,
                                std::int64_t high);  // low <= x < high
  // The values in row-major order, converted to `dtype`.
  template <class T>
  static Tensor from(const std::vector<T>& values, Shape shape, DType dtype = dtype_of<T>()) {
    Tensor result = empty(std::move(shape), dtype_of<T>());
    result.check_count(values.size());
    T* out = result.ref_.data_as<T>();
    for (const T& value : values) *out++ = value;
    return result.to(dtype);
  }
  template <class T>
  static Tensor from(const std::vector<T>& values) {
    return from(values, {static_cast<std::int64_t>(values.size())});
  }
  // A view of memory that `owner` keeps alive.
  static Tensor adopt(TensorRef ref, std::shared_ptr<void> owner);

  const TensorRef& ref() const { return ref_; }
  operator const TensorRef&() const { return ref_; }
  const std::shared_ptr<void>& owner() const { return owner_; }

  void* data() const { return ref_.data; }
  DType dtype() const { return ref_.dtype; }
  const Shape& shape() const { return ref_.shape; }
  const Shape& strides() const { return ref_.strides; }
  const Device& device() const { return ref_.device; }
  int rank() const { return ref_.rank(); }
  std::int64_t size(int dim) const { return ref_.size(dim); }
  std::int64_t nelements() const { return tegula::nelements(ref_.shape); }
  std::size_t nbytes() const { return static_cast<std::size_t>(nelements()) * ref_.dtype.bytes(); }

  template <class T>
  T* data_as() const {
    return ref_.data_as<T>();
  }
  template <class T, class... I>
  T& at(I... index) const {
    return ref_.at<T>(index...);
  }
  double get(std::initializer_list<std::int64_t> index) const { return ref_.get(index); }
  double get(std::span<const std::int64_t> index) const { return ref_.get(index); }
  void set(std::initializer_list<std::int64_t> index, double value) const { ref_.set(index, value); }
  void set(std::span<const std::int64_t> index, double value) const { ref_.set(index, value); }
  // All elements in row-major order as C++ values, converted as by `to`.
  template <class T>
  std::vector<T> values() const {
    const Tensor converted = to(Device::cpu()).to(dtype_of<T>()).contiguous();
    const T* begin = converted.data_as<T>();
    return std::vector<T>(begin, begin + nelements());
  }

  // Views: they share the elements.
  Tensor slice(int dim, std::int64_t begin, std::int64_t end, std::int64_t step = 1) const {
    return view(ref_.slice(dim, begin, end, step));
  }
  Tensor select(int dim, std::int64_t index) const { return view(ref_.select(dim, index)); }
  Tensor flip(int dim) const { return view(ref_.flip(dim)); }
  Tensor transpose(int dim_a, int dim_b) const { return view(ref_.transpose(dim_a, dim_b)); }
  Tensor permute(std::span<const int> dims) const { return view(ref_.permute(dims)); }
  Tensor permute(std::initializer_list<int> dims) const { return view(ref_.permute(dims)); }
  Tensor expand(const Shape& shape) const { return view(ref_.expand(shape)); }
  // A view if strides can describe it, otherwise a contiguous copy.
  Tensor reshape(const Shape& shape) const;

  // This tensor if it already has that form, otherwise a copy.
  Tensor contiguous() const;
  Tensor to(DType dtype) const;
  Tensor to(const Device& device) const;  // copies are contiguous
  Tensor clone() const;                   // on the same device

 private:
  Tensor(TensorRef ref, std::shared_ptr<void> owner) : ref_(std::move(ref)), owner_(std::move(owner)) {}
  Tensor view(TensorRef ref) const { return Tensor(std::move(ref), owner_); }
  void check_count(std::size_t values) const;

  TensorRef ref_;
  std::shared_ptr<void> owner_;
};

// Describes the first position where two tensors differ by more than `absolute + relative * |b|`; empty if
// there is none. NaN equals NaN, infinities equal themselves; different shapes are a difference, different
// dtypes are not.
std::optional<std::string> first_difference(const TensorRef& a, const TensorRef& b, double absolute = 0,
                                            double relative = 0);
bool equal(const TensorRef& a, const TensorRef& b);
bool all_close(const TensorRef& a, const TensorRef& b, double absolute, double relative = 0);
double max_abs_difference(const TensorRef& a, const TensorRef& b);  // NaN if only one side is NaN

// DLPack in both directions (the structures are in tegula/dlpack.hpp). The description of a TensorRef borrows
// the elements, that of a Tensor keeps them alive; its `deleter` frees it.
DLManagedTensor* to_dlpack(const TensorRef& tensor);
DLManagedTensor* to_dlpack(const Tensor& tensor);
DLManagedTensorVersioned* to_dlpack_versioned(const TensorRef& tensor);
DLManagedTensorVersioned* to_dlpack_versioned(const Tensor& tensor);
// The Tensor takes over the description and calls its deleter when the last owner is destroyed. If this
// throws (an unknown device or dtype), the description still belongs to the caller.
Tensor from_dlpack(DLManagedTensor* tensor);
Tensor from_dlpack(DLManagedTensorVersioned* tensor);
// Refers to the elements of a description that the caller still owns.
TensorRef view_dlpack(const DLManagedTensor& tensor);
TensorRef view_dlpack(const DLManagedTensorVersioned& tensor);

}  // namespace tegula
TEGULA_API_END

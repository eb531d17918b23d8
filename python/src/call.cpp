#include "call.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "array_interface.hpp"
#include "dtypes.hpp"
#include "errors.hpp"
#include "exchange.hpp"
#include "in_flight.hpp"
#include "tegula/dlpack.hpp"
#include "tegula/error.hpp"
#include "torch_tensors.hpp"

namespace tegula::python {

namespace {

// The elements of what `name` exports.
template <class Managed>
TensorRef view(const char* name, const Managed& exported) {
  try {
    return view_dlpack(exported);
  } catch (const ArgumentError& error) { throw ArgumentError(fmt::format("{}: {}", name, error.what())); }
}

constexpr char plain_name[] = "dltensor", versioned_name[] = "dltensor_versioned";
constexpr std::uint64_t read_only_flag = 1;

[[noreturn]] void refuse_export(const char* name, nb::handle object, nb::python_error& error) {
  if (passes_through(error)) throw error;
  refuse_nested(name, object);
  std::string text = nb::str(error.value()).c_str();
  text.resize(std::min(text.find('\n'), text.size()));  // PyTorch adds a trace of its own calls
  nb::raise_from(error, PyExc_TypeError, "%s: the array cannot be read through DLPack: %s", name,
                 text.c_str());
}

bool is_on_cuda(const char* name, nb::handle object) {
  const nb::object device = object.attr("__dlpack_device__")();
  int kind = 0;
  const bool is_pair = PyTuple_Check(device.ptr()) && PyTuple_Size(device.ptr()) == 2;
  if (!is_pair || !nb::try_cast<int>(device[0], kind))
    throw nb::type_error(
        fmt::format("{}: __dlpack_device__ returns {}, but DLPack defines a device type and a number", name,
                    nb::repr(device).c_str())
            .c_str());
  return kind == kDLCUDA || kind == kDLCUDAManaged;
}

// DLPack's numbers of the stream that an export is for.
constexpr int no_stream = -1, default_stream = 1;

nb::dict stream_option(const char* name, nb::handle object) {
  nb::dict option;
  if (is_on_cuda(name, object)) option["stream"] = class_of(object).tells_stream ? no_stream : default_stream;
  return option;
}

// The dtype of a tensor of PyTorch with floats of 8 bits, which some of its versions do not export.
std::optional<DType> float8_of(nb::handle object) {
  if (!class_of(object).tensor_of_torch) return std::nullopt;
  const nb::object dtype = object.attr("dtype");
  const std::string type = nb::str(dtype).c_str();
  if (type == "torch.float8_e4m3fn") return e4m3;
  if (type == "torch.float8_e5m2") return e5m2;
  return std::nullopt;
}

// The object's capsule; none if it refuses to export itself but can be read otherwise.
nb::object dlpack_of(const char* name, nb::handle object) {
  if (!nb::hasattr(object, "__dlpack__"))
    throw nb::type_error(
        fmt::format(
            "{}: expected an array with __dlpack__, given {}; convert it, for example by numpy.asarray", name,
            nb::type_name(object.type()).c_str())
            .c_str());
  try {
    nb::dict options = stream_option(name, object);
    options["max_version"] = nb::make_tuple(1, 0);
    try {
      return object.attr("__dlpack__")(**options);
    } catch (nb::python_error& error) {
      if (!error.matches(PyExc_TypeError)) throw;
    }
    // Libraries from before DLPack 1.0 do not know the version.
    return object.attr("__dlpack__")(**stream_option(name, object));
  } catch (nb::python_error& error) {
    if (passes_through(error)) throw;
    if (nb::hasattr(object, "__array_interface__") || float8_of(object)) return nb::none();
    refuse_export(name, object, error);
  }
}

template <class Managed>
Managed* contents(const nb::object& capsule, const char* name) {
  return static_cast<Managed*>(PyCapsule_GetPointer(capsule.ptr(), name));
}

// What a capsule's consumer does not take over, its destructor frees.
template <class Managed, const char* name>
nb::object make_capsule(Managed* managed) {
  PyObject* capsule = PyCapsule_New(managed, name, [](PyObject* self) {
    if (!PyCapsule_IsValid(self, name)) return;
    auto* unused = static_cast<Managed*>(PyCapsule_GetPointer(self, name));
    unused->deleter(unused);
  });
  if (capsule == nullptr) {
    managed->deleter(managed);
    throw nb::python_error();
  }
  return nb::steal(capsule);
}

// A tensor that the library has made, on a GPU by work of a stream.
struct NewArray {
  Tensor tensor;
  std::optional<Stream> stream;
};

bool wants_version(const nb::kwargs& options) {
  return options.contains("max_version") && !options["max_version"].is_none() &&
         nb::cast<int>(options["max_version"][0]) >= 1;
}

// The stream for which an array is exported; none if it need not wait.
std::optional<Stream> consumer_of(const NewArray& array, const nb::kwargs& options) {
  const Device& device = array.tensor.device();
  if (device.is_cpu()) return std::nullopt;
  if (!options.contains("stream") || options["stream"].is_none()) return Stream::of_default(device);
  const auto number = nb::cast<std::intptr_t>(options["stream"]);
  if (number == no_stream) return std::nullopt;
  return number <= default_stream ? Stream::of_default(device)
                                  : Stream::wrap(reinterpret_cast<void*>(number), device);
}

nb::object dlpack(const NewArray& array, const nb::kwargs& options) {
  const std::optional<Stream> consumer = consumer_of(array, options);
  std::optional<StreamScope> scope;
  if (consumer) scope.emplace(*array.stream);
  if (wants_version(options))
    return make_capsule<DLManagedTensorVersioned, versioned_name>(
        consumer ? to_dlpack_versioned(array.tensor, *consumer) : to_dlpack_versioned(array.tensor));
  return make_capsule<DLManagedTensor, plain_name>(consumer ? to_dlpack(array.tensor, *consumer)
                                                            : to_dlpack(array.tensor));
}

nb::tuple dlpack_device(const NewArray& array) {
  const Device& device = array.tensor.device();
  return nb::make_tuple(static_cast<int>(device.is_cpu() ? kDLCPU : kDLCUDA), device.index);
}

// The module of the package that names and makes arrays of other libraries.
nb::object arrays() { return nb::module_::import_("tegula._arrays"); }

nb::object new_array(const Like& like, const Shape& shape, DType dtype) {
  if (class_of(like.array).plain_tensor) {
    nb::object tensor = new_torch_tensor(shape, dtype, like.ref.device);
    if (tensor.is_valid()) return tensor;
  }
  nb::list extents;
  for (const std::int64_t extent : shape) extents.append(extent);
  const nb::object name = dtype == like.ref.dtype ? nb::none() : nb::object(nb::str(python_name(dtype)));
  // The function is kept: to look for it takes longer than to call it.
  static const nb::handle empty = nb::object(arrays().attr("empty")).release();
  return empty(like.array, nb::tuple(extents), name);
}

}  // namespace

Call::Array Call::array_of_bytes(const char* name, nb::handle tensor, DType dtype) {
  const nb::object bytes = nb::module_::import_("torch").attr("uint8");
  owners_.push_back(tensor.attr("detach")().attr("view")(bytes));
  Array array = import_array(name, owners_.back());
  array.ref.dtype = dtype;
  return array;
}

// Reads an array through its buffer, through a DLPack capsule, through its bytes, or through NumPy's
// description.
Call::Array Call::exported_array(const char* name, nb::handle object) {
  if (class_of(object).array_of_numpy) {
    if (std::optional<DescribedArray> described = read_buffer(object)) {
      owners_.push_back(nb::borrow(object));
      return {std::move(described->ref), described->read_only};
    }
  }
  nb::object capsule = dlpack_of(name, object);
  Array array;
  if (capsule.is_none()) {
    if (const std::optional<DType> dtype = float8_of(object)) return array_of_bytes(name, object, *dtype);
    DescribedArray described = read_array_interface(name, object);
    return {std::move(described.ref), described.read_only};
  }
  if (PyCapsule_IsValid(capsule.ptr(), versioned_name)) {
    const auto* managed = contents<DLManagedTensorVersioned>(capsule, versioned_name);
    array.ref = view(name, *managed);
    array.read_only = managed->flags & read_only_flag;
  } else if (PyCapsule_IsValid(capsule.ptr(), plain_name)) {
    array.ref = view(name, *contents<DLManagedTensor>(capsule, plain_name));
  } else {
    throw nb::type_error(fmt::format("{}: __dlpack__ returns no DLPack capsule", name).c_str());
  }
  owners_.push_back(std::move(capsule));
  return array;
}

Call::Array Call::import_array(const char* name, nb::handle object) {
  Array array;
  const ArrayClass& known = class_of(object);
  if (known.api == nullptr) {
    array = exported_array(name, object);
  } else {
    DLManagedTensor described{};
    if (known.api->view_object(object.ptr(), &described.dl_tensor) != 0) {
      nb::python_error error;
      const std::optional<DType> dtype = float8_of(object);
      if (!dtype) refuse_export(name, object, error);
      return array_of_bytes(name, object, *dtype);
    }
    array.ref = view(name, described);
  }
  check_device(name, array.ref.device);
  if (array.ref.device.is_cpu()) return array;
  on_device_.push_back(object);
  if (!stream_) stream_ = stream_of(object, array.ref.device);
  holds_foreign_ = holds_foreign_ || !known.tells_stream;
  return array;
}

void Call::check_device(const char* name, const Device& device) {
  if (first_.empty()) {
    first_ = name, device_ = device;
  } else if (device != device_) {
    // The second name is shortened: of `attention, argument 'q'` only the last word is printed.
    throw nb::value_error(fmt::format("{} is on {}, and {} on {}; move one of them to the other's device",
                                      name, device.name(), first_.substr(first_.rfind(' ') + 1),
                                      device_.name())
                              .c_str());
  }
}

TensorRef Call::input(const char* name, nb::handle object) {
  if (!class_of(object).tensor_of_torch) return import_array(name, object).ref;
  nb::object stored = stored_as_it_is(object);
  if (!stored.is_valid()) return import_array(name, object).ref;
  owners_.push_back(std::move(stored));
  return import_array(name, owners_.back()).ref;
}

Output Call::output(const char* name, nb::handle given, const Like& like, const std::optional<Shape>& shape,
                    DType dtype) {
  Output result{nb::borrow(given), {}, like.array};
  if (given.is_none()) {
    if (shape) result.array = new_array(like, *shape, dtype);
    if (!result.array.is_none()) result.ref = import_array(name, result.array).ref;
    return result;
  }
  if (class_of(given).tensor_of_torch && stored_as_it_is(given).is_valid())
    throw nb::value_error(fmt::format("{}: the memory of the tensor does not contain its elements (is_neg, "
                                      "or zeros without memory); pass an ordinary tensor",
                                      name)
                              .c_str());
  Array array = import_array(name, given);
  if (array.read_only)
    throw nb::value_error(fmt::format("{}: the array is read-only; pass a writable one", name).c_str());
  result.ref = std::move(array.ref);
  return result;
}

Tensor Call::new_tensor(const Shape& shape, DType dtype, const Device& device) const {
  std::optional<StreamScope> scope;
  if (stream_) scope.emplace(*stream_);
  return Tensor::empty(shape, dtype, device);
}

void Call::keep_arrays() {
  std::vector<nb::object> kept = std::move(owners_);
  for (nb::handle array : on_device_) kept.push_back(nb::borrow(array));
  keep_until_done(*stream_, std::move(kept));
}

nb::object Call::result(const Tensor& tensor, const Output& output) const {
  if (!output.array.is_none()) return output.array;
  if (!output.like.is_valid()) return nb::cast(NewArray{tensor, stream_});
  return arrays().attr("as_kind_of")(output.like, nb::cast(NewArray{tensor, stream_}));
}

void define_array(nb::module_& module) {
  nb::class_<NewArray>(module, "Array", "An array of Tegula; other libraries take it over by from_dlpack.")
      .def("__dlpack__", dlpack, "The array as a DLPack capsule.")
      .def("__dlpack_device__", dlpack_device, "DLPack's device type, and the index of the device.")
      .def(
          "float64",
          [](const NewArray& array) {
            return NewArray{array.tensor.to(f64), array.stream};
          },
          "A copy of float64.");
}

}  // namespace tegula::python

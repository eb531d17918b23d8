#include "exchange.hpp"

#include <unordered_map>

namespace tegula::python {

namespace nb = nanobind;

namespace {

const ExchangeApi* find_api(nb::handle type) {
  const nb::object capsule = nb::getattr(type, "__dlpack_c_exchange_api__", nb::none());
  if (!PyCapsule_IsValid(capsule.ptr(), "dlpack_exchange_api")) return nullptr;
  const auto* api =
      static_cast<const ExchangeApi*>(PyCapsule_GetPointer(capsule.ptr(), "dlpack_exchange_api"));
  return api->header.version.major == 1 && api->view_object != nullptr ? api : nullptr;
}

// Libraries that are not loaded have made no array, and are not loaded for that.
nb::object loaded(const char* library) {
  return nb::module_::import_("sys").attr("modules").attr("get")(library);
}

bool derives_from(nb::handle type, const char* library, const char* base) {
  const nb::object module = loaded(library);
  return !module.is_none() && PyType_IsSubtype(reinterpret_cast<PyTypeObject*>(type.ptr()),
                                               reinterpret_cast<PyTypeObject*>(module.attr(base).ptr()));
}

ArrayClass describe_class(nb::handle type) {
  ArrayClass result;
  result.api = find_api(type);
  result.tensor_of_torch = derives_from(type, "torch", "Tensor");
  if (result.tensor_of_torch) {
    const nb::object torch = loaded("torch");
    result.plain_tensor = type.is(torch.attr("Tensor")) || type.is(torch.attr("nn").attr("Parameter"));
  }
  const nb::object numpy = loaded("numpy");
  result.array_of_numpy = !numpy.is_none() && type.is(numpy.attr("ndarray"));
  result.tells_stream = result.tensor_of_torch || derives_from(type, "cupy", "ndarray") ||
                        (result.api != nullptr && result.api->current_stream != nullptr);
  return result;
}

}  // namespace

const ArrayClass& class_of(nb::handle object) {
  // Looking for attributes that are missing is slow. Classes are kept, so that no other takes their address.
  static auto* known = new std::unordered_map<PyObject*, ArrayClass>();
  const nb::handle type = object.type();
  const auto found = known->find(type.ptr());
  if (found != known->end()) return found->second;
  const ArrayClass described = describe_class(type);
  type.inc_ref();
  return known->emplace(type.ptr(), described).first->second;
}

Stream stream_of(nb::handle object, const Device& device) {
  const ArrayClass& known = class_of(object);
  if (known.api != nullptr && known.api->current_stream != nullptr) {
    void* handle = nullptr;
    if (known.api->current_stream(kDLCUDA, device.index, &handle) != 0) throw nb::python_error();
    return Stream::wrap(handle, device);
  }
  if (!known.tells_stream) return Stream::of_default(device);
  const nb::object handle =
      known.tensor_of_torch
          ? nb::module_::import_("torch.cuda").attr("current_stream")(device.index).attr("cuda_stream")
          : nb::module_::import_("cupy.cuda").attr("get_current_stream")(device.index).attr("ptr");
  return Stream::wrap(reinterpret_cast<void*>(nb::cast<std::uintptr_t>(handle)), device);
}

}  // namespace tegula::python

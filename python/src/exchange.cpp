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
bool is_of(nb::handle object, const char* library, const char* type) {
  const nb::object module = nb::module_::import_("sys").attr("modules").attr("get")(library);
  return !module.is_none() && nb::isinstance(object, module.attr(type));
}

}  // namespace

const ExchangeApi* exchange_api(nb::handle object) {
  // The lookup of an attribute that is missing is slow. Classes are kept, so that no other takes their
  // address.
  static auto* known = new std::unordered_map<PyObject*, const ExchangeApi*>();
  const nb::handle type = object.type();
  const auto found = known->find(type.ptr());
  if (found != known->end()) return found->second;
  const ExchangeApi* api = find_api(type);
  type.inc_ref();
  known->emplace(type.ptr(), api);
  return api;
}

bool is_tensor_of_torch(nb::handle object) { return is_of(object, "torch", "Tensor"); }

bool tells_stream(nb::handle object) {
  return is_tensor_of_torch(object) || is_of(object, "cupy", "ndarray");
}

Stream stream_of(nb::handle object, const Device& device) {
  const ExchangeApi* api = exchange_api(object);
  if (api != nullptr && api->current_stream != nullptr) {
    void* handle = nullptr;
    if (api->current_stream(kDLCUDA, device.index, &handle) != 0) throw nb::python_error();
    return Stream::wrap(handle, device);
  }
  nb::object handle;
  if (is_tensor_of_torch(object))
    handle = nb::module_::import_("torch.cuda").attr("current_stream")(device.index).attr("cuda_stream");
  else if (is_of(object, "cupy", "ndarray"))
    handle = nb::module_::import_("cupy.cuda").attr("get_current_stream")(device.index).attr("ptr");
  else
    return Stream::of_default(device);
  return Stream::wrap(reinterpret_cast<void*>(nb::cast<std::uintptr_t>(handle)), device);
}

}  // namespace tegula::python

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

bool is_torch(nb::handle object) {
  const nb::object torch = nb::module_::import_("sys").attr("modules").attr("get")("torch");
  return !torch.is_none() && nb::isinstance(object, torch.attr("Tensor"));
}

Stream stream_of(nb::handle object, const Device& device) {
  const ExchangeApi* api = exchange_api(object);
  if (api != nullptr && api->current_stream != nullptr) {
    void* handle = nullptr;
    if (api->current_stream(kDLCUDA, device.index, &handle) != 0) throw nb::python_error();
    return Stream::wrap(handle, device);
  }
  if (!is_torch(object)) return Stream::of_default(device);
  const nb::object stream = nb::module_::import_("torch").attr("cuda").attr("current_stream")(device.index);
  return Stream::wrap(reinterpret_cast<void*>(nb::cast<std::uintptr_t>(stream.attr("cuda_stream"))), device);
}

}  // namespace tegula::python

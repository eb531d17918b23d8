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

}  // namespace tegula::python

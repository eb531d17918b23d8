// DLPack's functions in C, by which a library exports its arrays without the detour over a method and a
// capsule:
// `__dlpack_c_exchange_api__` of the class, DLPack 1.3 (https://github.com/dmlc/dlpack, dlpack.h).
#pragma once
#include <nanobind/nanobind.h>

#include "tegula/dlpack.hpp"
#include "tegula/stream.hpp"

namespace tegula::python {

struct ExchangeApi {
  struct Header {
    DLPackVersion version;
    Header* previous;
  };
  using SetError = void (*)(void* context, const char* kind, const char* message);

  Header header;
  int (*allocate)(DLTensor* prototype, DLManagedTensorVersioned** out, void* context, SetError set_error);
  int (*from_object)(void* object, DLManagedTensorVersioned** out);
  int (*to_object)(DLManagedTensorVersioned* tensor, void** out);
  // The description is valid as long as the object and its elements stay as they are.
  int (*view_object)(void* object, DLTensor* out);
  int (*current_stream)(DLDeviceType device, std::int32_t index, void** out);
};

// The functions of the object's class; null if it has none of a version that is understood.
const ExchangeApi* exchange_api(nanobind::handle object);

bool is_tensor_of_torch(nanobind::handle object);
// Whether the object's library, without such functions, is one that tells its current stream: PyTorch or
// CuPy. Its arrays are used on that stream; those of others on the default stream, for which they are
// exported.
bool tells_stream(nanobind::handle object);
// The stream to which the object's library gives the work of the thread.
Stream stream_of(nanobind::handle object, const Device& device);

}  // namespace tegula::python

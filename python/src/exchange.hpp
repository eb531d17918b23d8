// How the libraries of arrays export them. DLPack's functions in C do so without the detour over a method and
// a capsule: `__dlpack_c_exchange_api__` of the class, DLPack 1.3 (https://github.com/dmlc/dlpack, dlpack.h).
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

// What is known of a class of arrays.
struct ArrayClass {
  const ExchangeApi* api = nullptr;  // null if it has none of a version that is understood
  bool tensor_of_torch = false;      // or of a class derived from it
  bool plain_tensor = false;         // torch.Tensor or torch.nn.Parameter itself
  bool array_of_numpy = false;       // numpy.ndarray itself
  // Whether its library is one that tells its current stream: PyTorch, CuPy, or one with such functions. Its
  // arrays are used on that stream; those of others on the default stream, for which they are exported.
  bool tells_stream = false;
};
const ArrayClass& class_of(nanobind::handle object);

// The stream to which the object's library gives the work of the thread.
Stream stream_of(nanobind::handle object, const Device& device);

}  // namespace tegula::python

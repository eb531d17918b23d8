// Streams, events and graphs of CUDA devices.
//
//   const Stream stream = Stream::create();
//   gemm.on(stream)(a, b, c);                      // returns at once
//   // Waits, and throws if an assertion of a kernel has failed:
//   stream.synchronize();
//
// Calls without a stream go to the thread's current one, which is the device's default stream unless a
// StreamScope chose another.
#pragma once
#include <functional>
#include <memory>

#include "tegula/tensor.hpp"

TEGULA_API_BEGIN
namespace tegula {

// The number of usable CUDA devices; 0 without a driver.
int cuda_device_count();

class Event;

// A queue of work that a device executes in order. Copies refer to the same stream, which lives as long as
// any of them.
class Stream {
 public:
  // The default stream of the device (stream 0).
  static Stream of_default(const Device& device = Device::cuda());
  static Stream create(const Device& device = Device::cuda());
  // Wraps a stream of another library (a cudaStream_t or CUstream), which must outlive all use.
  static Stream wrap(void* handle, const Device& device = Device::cuda());

  Device device() const;
  void* handle() const;  // a CUstream
  // Waits for all work of the stream. If a kernel failed, throws a ProgramError with the user's line for an
  // assertion, otherwise a DeviceError.
  void synchronize() const;
  // Later work of this stream waits for the event.
  void wait(const Event& event) const;
  bool is_capturing() const;
  // Whether this library owns the stream; false for one that was wrapped.
  bool is_owned() const;

 private:
  struct State;
  explicit Stream(std::shared_ptr<const State> state) : state_(std::move(state)) {}
  std::shared_ptr<const State> state_;
};

// The stream to which this thread's calls go unless they name another.
Stream current_stream(const Device& device = Device::cuda());

// Makes a stream the current one of this thread until the end of the scope.
class StreamScope {
 public:
  explicit StreamScope(const Stream& stream);
  ~StreamScope();
  StreamScope(const StreamScope&) = delete;
  StreamScope& operator=(const StreamScope&) = delete;

 private:
  int device_;
  std::shared_ptr<const Stream> before_;
};

// A point in the work of a stream.
class Event {
 public:
  explicit Event(const Device& device = Device::cuda());
  void record(const Stream& stream);
  void record() { record(current_stream(device())); }
  Device device() const;
  void* handle() const;  // a CUevent
  bool is_done() const;
  void synchronize() const;
  // The time between two events that have both happened.
  static double milliseconds(const Event& begin, const Event& end);

 private:
  struct State;
  std::shared_ptr<const State> state_;
};

// Waits for all work of the device; throws as Stream::synchronize does.
void synchronize(const Device& device = Device::cuda());

// Calls that are recorded once and replayed without the host's work.
class Graph {
 public:
  // Records what `body` does on the stream instead of doing it. The body must not wait for the stream,
  // allocate tensors or read results of kernels. The arguments of its calls must outlive the graph.
  static Graph capture(const Stream& stream, const std::function<void()>& body);
  void launch(const Stream& stream) const;

 private:
  struct State;
  explicit Graph(std::shared_ptr<const State> state) : state_(std::move(state)) {}
  std::shared_ptr<const State> state_;
};

// DLPack between streams of a CUDA device, otherwise as in tegula/tensor.hpp. `consumer`, on which the other
// library will use the tensor, waits for work queued on the current stream; the current stream waits for work
// queued on `producer`.
DLManagedTensor* to_dlpack(const Tensor& tensor, const Stream& consumer);
DLManagedTensorVersioned* to_dlpack_versioned(const Tensor& tensor, const Stream& consumer);
Tensor from_dlpack(DLManagedTensor* tensor, const Stream& producer);
Tensor from_dlpack(DLManagedTensorVersioned* tensor, const Stream& producer);

}  // namespace tegula
TEGULA_API_END

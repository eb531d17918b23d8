// Streams, events and graphs of CUDA devices.
//
//   const Stream stream = Stream::create();
//   gemm.on(stream)(a, b, c);                      // returns at once
//   // Waits. A failed assertion of a kernel is thrown here:
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

// How many CUDA devices can be used; 0 without a driver.
int cuda_device_count();

class Event;

// Work of a device, done in order. Copies refer to the same stream, which lives as long as any of them.
class Stream {
 public:
  // The stream that other libraries call stream 0 of the device.
  static Stream of_default(const Device& device = Device::cuda());
  static Stream create(const Device& device = Device::cuda());
  // A stream of another library (a cudaStream_t or CUstream), which must outlive all use of it.
  static Stream wrap(void* handle, const Device& device = Device::cuda());

  Device device() const;
  void* handle() const;  // a CUstream
  // Waits for all work of the stream. Throws the error of a kernel that failed: a ProgramError for an
  // assertion, with the user's line, otherwise a DeviceError.
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

// The stream that this thread's calls go to unless they name one.
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
  // From one event to another, both done.
  static double milliseconds(const Event& begin, const Event& end);

 private:
  struct State;
  std::shared_ptr<const State> state_;
};

// Waits for all work of the device; throws as Stream::synchronize does.
void synchronize(const Device& device = Device::cuda());

// Calls that are recorded once and replayed without the host's part of the work.
class Graph {
 public:
  // What `body` does on the stream is recorded, not done. It may not wait for the stream, allocate tensors
  // or read what kernels write. The arguments of its calls must outlive the graph.
  static Graph capture(const Stream& stream, const std::function<void()>& body);
  void launch(const Stream& stream) const;

 private:
  struct State;
  explicit Graph(std::shared_ptr<const State> state) : state_(std::move(state)) {}
  std::shared_ptr<const State> state_;
};

// DLPack between streams of a CUDA device, otherwise as in tegula/tensor.hpp: `consumer`, on which the other
// side will use the tensor, waits for what is queued on the current stream; the current stream waits for what
// `producer` has queued.
DLManagedTensor* to_dlpack(const Tensor& tensor, const Stream& consumer);
DLManagedTensorVersioned* to_dlpack_versioned(const Tensor& tensor, const Stream& consumer);
Tensor from_dlpack(DLManagedTensor* tensor, const Stream& producer);
Tensor from_dlpack(DLManagedTensorVersioned* tensor, const Stream& producer);

}  // namespace tegula
TEGULA_API_END

#include "cuda/streams.hpp"

#include <fmt/format.h>

#include <vector>

#include "cuda/gpu.hpp"
#include "cuda/reports.hpp"
#include "tegula/error.hpp"

namespace tegula {

using cuda::CurrentContext, cuda::Driver, cuda::driver, cuda::Gpu;

namespace {

// The current stream of the thread for each device; null means the default stream.
thread_local std::vector<std::shared_ptr<const Stream>> chosen;

std::shared_ptr<const Stream>& chosen_for(int device) {
  const auto index = static_cast<std::size_t>(device);
  if (chosen.size() <= index) chosen.resize(index + 1);
  return chosen[index];
}

const Gpu& gpu_of(const Device& device) {
  if (!device.is_cpu()) return Gpu::get(device.index);
  throw ArgumentError("streams, events and graphs belong to a CUDA device, not to the cpu");
}

}  // namespace

struct Stream::State {
  const Gpu& gpu;
  cuda::StreamHandle handle;
  enum class Kind { of_default, own, foreign } kind;

  State(const Gpu& gpu, cuda::StreamHandle handle, Kind kind) : gpu(gpu), handle(handle), kind(kind) {}
  ~State() {
    if (kind == Kind::own) driver().StreamDestroy(handle);
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
};

bool Stream::is_owned() const { return state_->kind != State::Kind::foreign; }

Stream Stream::of_default(const Device& device) {
  return Stream(std::make_shared<State>(gpu_of(device), nullptr, State::Kind::of_default));
}

Stream Stream::create(const Device& device) {
  const Gpu& gpu = gpu_of(device);
  const CurrentContext current(gpu);
  cuda::StreamHandle handle = nullptr;
  driver()(driver().StreamCreate, &handle, 0u);
  return Stream(std::make_shared<State>(gpu, handle, State::Kind::own));
}

Stream Stream::wrap(void* handle, const Device& device) {
  const auto kind = handle == nullptr ? State::Kind::of_default : State::Kind::foreign;
  return Stream(std::make_shared<State>(gpu_of(device), static_cast<cuda::StreamHandle>(handle), kind));
}

Device Stream::device() const { return Device::cuda(state_->gpu.index()); }
void* Stream::handle() const { return state_->handle; }

void Stream::synchronize() const {
  const CurrentContext current(state_->gpu);
  driver()(driver().StreamSynchronize, state_->handle);
  state_->gpu.reports().check();
}

void Stream::wait(const Event& event) const {
  const CurrentContext current(state_->gpu);
  driver()(driver().StreamWaitEvent, state_->handle, static_cast<cuda::EventHandle>(event.handle()), 0u);
}

bool Stream::is_capturing() const {
  const CurrentContext current(state_->gpu);
  auto status = cuda::CaptureStatus::none;
  const Driver& d = driver();
  const int code = d.StreamIsCapturing(state_->handle, &status);
  // The default stream would join the capture of another one, so nothing can be queued to it either.
  if (code == cuda::capture_implicit) return true;
  if (code != cuda::success) d.fail(code, d.StreamIsCapturing.name());
  return status != cuda::CaptureStatus::none;
}

Stream current_stream(const Device& device) {
  const std::shared_ptr<const Stream>& stream = chosen_for(gpu_of(device).index());
  return stream ? *stream : Stream::of_default(device);
}

StreamScope::StreamScope(const Stream& stream) : device_(stream.device().index) {
  before_ = std::exchange(chosen_for(device_), std::make_shared<const Stream>(stream));
}

StreamScope::~StreamScope() { chosen_for(device_) = std::move(before_); }

void synchronize(const Device& device) {
  const Gpu& gpu = gpu_of(device);
  const CurrentContext current(gpu);
  driver()(driver().CtxSynchronize);
  gpu.reports().check();
}

struct Event::State {
  const Gpu& gpu;
  cuda::EventHandle handle = nullptr;

  explicit State(const Gpu& gpu) : gpu(gpu) {
    const CurrentContext current(gpu);
    driver()(driver().EventCreate, &handle, 0u);
  }
  ~State() { driver().EventDestroy(handle); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
};

Event::Event(const Device& device) : state_(std::make_shared<State>(gpu_of(device))) {}

Device Event::device() const { return Device::cuda(state_->gpu.index()); }
void* Event::handle() const { return state_->handle; }

void Event::record(const Stream& stream) {
  const CurrentContext current(state_->gpu);
  driver()(driver().EventRecord, state_->handle, cuda::handle_of(stream));
}

bool Event::is_done() const {
  const Driver& d = driver();
  const int code = d.EventQuery(state_->handle);
  if (code != cuda::success && code != cuda::not_ready) d.fail(code, d.EventQuery.name());
  return code == cuda::success;
}

void Event::synchronize() const { driver()(driver().EventSynchronize, state_->handle); }

double Event::milliseconds(const Event& begin, const Event& end) {
  float result = 0;
  driver()(driver().EventElapsedTime, &result, begin.state_->handle, end.state_->handle);
  return result;
}

struct Graph::State {
  const Gpu& gpu;
  cuda::GraphHandle graph = nullptr;
  cuda::GraphExecHandle exec = nullptr;

  explicit State(const Gpu& gpu) : gpu(gpu) {}
  ~State() {
    if (exec) driver().GraphExecDestroy(exec);
    if (graph) driver().GraphDestroy(graph);
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
};

Graph Graph::capture(const Stream& stream, const std::function<void()>& body) {
  const Gpu& gpu = gpu_of(stream.device());
  const CurrentContext current(gpu);
  const Driver& d = driver();
  auto state = std::make_shared<State>(gpu);
  const cuda::StreamHandle queue = cuda::handle_of(stream);
  d(d.StreamBeginCapture, queue, cuda::CaptureMode::thread_local_);
  try {
    const StreamScope scope(stream);
    body();
  } catch (...) {
    d.StreamEndCapture(queue, &state->graph);
    throw;
  }
  d(d.StreamEndCapture, queue, &state->graph);
  d(d.GraphInstantiate, &state->exec, state->graph, std::uint64_t{0});
  return Graph(std::move(state));
}

void Graph::launch(const Stream& stream) const {
  const CurrentContext current(state_->gpu);
  driver()(driver().GraphLaunch, state_->exec, cuda::handle_of(stream));
}

}  // namespace tegula

// How long a function takes, as tegula::time() measures it.
#include "tegula/time.hpp"

#include <nanobind/stl/vector.h>

#include "call.hpp"
#include "operators.hpp"
#include "tegula/stream.hpp"

namespace tegula::python {

namespace {

// `device` is negative for the host. `stream` is the handle of the stream that the function's work goes to, 0
// for the default one. The function runs with the lock of the interpreter, as any function does.
std::vector<double> time_of(const nb::callable& work, int device, std::uintptr_t stream, int rounds,
                            bool flush) {
  const TimeOptions options{.rounds = rounds, .flush = flush};
  const auto call = [&] { work(); };
  if (device < 0) return time(call, Device::cpu(), options).seconds;
  const Device own = Device::cuda(device);
  const StreamScope scope(stream != 0 ? Stream::wrap(reinterpret_cast<void*>(stream), own)
                                      : Stream::of_default(own));
  return time(call, own, options).seconds;
}

}  // namespace

void define_time(nb::module_& module) {
  module.def("time", time_of, nb::arg("work"), nb::arg("device"), nb::arg("stream"), nb::arg("rounds"),
             nb::arg("flush"));
}

}  // namespace tegula::python

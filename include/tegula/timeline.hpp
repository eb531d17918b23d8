// What happens inside a block of a kernel, and when. Every group of 128 threads, of producer and consumers
// alike, reads the clock at each of its events. The kernel is recompiled for this and runs slightly longer.
//
//   record_timeline(gemm_relu(128, 128, 64), Target::cuda(), a, b, c).write("gemm.json");
//
// chrome://tracing and ui.perfetto.dev open such a file. On Target::emulated_sm90() the clock counts events.
#pragma once
#include <array>
#include <span>
#include <string>
#include <vector>

#include "tegula/runtime.hpp"

TEGULA_API_BEGIN
namespace tegula {

struct TimelineOptions {
  int blocks = 4;     // the first of each grid
  int events = 4094;  // at most, per group of threads
};

struct Timeline {
  struct Event {
    int grid = 0, block = 0;
    std::string role;  // "consumers 0", "producer"; "warps 0" in a kernel without roles
    std::string words, place;
    double begin = 0, end = 0;  // in microseconds since the first event
  };
  std::vector<Event> events;  // in order within each role, where one event ends when the next begins

  std::string json() const;
  void write(const std::string& path) const;
};

// The target must execute CUDA code; the arguments are those of a call.
Timeline record_timeline_in_order(const lang::Kernel& kernel, Target target, std::span<const Argument> args,
                                  TimelineOptions options = {});
template <class... Args>
requires(std::convertible_to<const Args&, Argument>&&...) Timeline
    record_timeline(const lang::Kernel& kernel, Target target, const Args&... args) {
  return record_timeline_in_order(kernel, target, std::array<Argument, sizeof...(Args)>{Argument(args)...});
}

}  // namespace tegula
TEGULA_API_END

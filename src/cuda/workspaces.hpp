// Memory of kernels' workspaces: one block for each stream, because the work of a stream is done in order.
// A call that is captured into a graph gets blocks of that capture, which live as long as the graph.
#pragma once
#include <cstddef>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "cuda/gpu.hpp"

namespace tegula::cuda {

class Workspaces {
 public:
  explicit Workspaces(const Gpu& gpu) : gpu_(gpu) {}

  // Counters that are zero before a kernel and that it leaves so, and memory for `bytes` more. Valid for what
  // is queued while the lease lives; no other call can queue work with them meanwhile.
  struct Lease {
    std::unique_lock<std::mutex> lock;
    DeviceAddress counters = 0;
    DeviceAddress memory = 0;
  };
  Lease lease(StreamHandle stream, std::size_t bytes);

 private:
  struct Block {
    DeviceAddress address = 0;
    std::size_t bytes = 0;
  };
  // The block of a stream, or of a stream within a capture.
  struct Place {
    std::mutex mutex;
    Block block;
  };
  // What a graph holds of a place until it is destroyed.
  struct Held {
    Workspaces* from;
    Block block;
  };

  Place& place(StreamHandle stream, std::uint64_t capture);
  void grow(Place& place, StreamHandle stream, std::size_t bytes);
  Block take_for_capture(std::size_t bytes);
  void grow_captured(Place& place, GraphHandle graph, std::size_t bytes);
  static void give_back(void* held);

  const Gpu& gpu_;
  std::mutex mutex_;
  std::map<std::pair<StreamHandle, std::uint64_t>, Place> places_;
  std::vector<Block> free_;  // of graphs that are gone
};

}  // namespace tegula::cuda

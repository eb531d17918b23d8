// Memory for the workspaces of a kernel's calls, reused from call to call, because fresh memory costs a page
// fault per 4 KiB.
#pragma once
#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

namespace tegula {

class WorkspacePool {
 public:
  static constexpr std::size_t alignment = 64;

  WorkspacePool() : kept_(std::make_shared<Kept>()) {}
  // Comes back to the pool when its last owner is gone; then a later call gets it, if it is large enough and
  // not more than four times too large. A DeviceError if there is no memory.
  std::shared_ptr<void> take(std::size_t bytes) const;

 private:
  struct Block {
    std::unique_ptr<void, void (*)(void*)> memory;
    std::size_t bytes;
  };
  struct Kept {
    std::mutex mutex;
    std::vector<Block> blocks;
  };
  std::shared_ptr<Kept> kept_;
};

}  // namespace tegula

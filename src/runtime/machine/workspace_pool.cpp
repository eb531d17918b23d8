#include "runtime/machine/workspace_pool.hpp"

#include <fmt/format.h>

#include <cstdlib>

#include "tegula/error.hpp"

namespace tegula {

std::shared_ptr<void> WorkspacePool::take(std::size_t bytes) const {
  bytes = (bytes + alignment - 1) / alignment * alignment;
  Block block{{nullptr, std::free}, bytes};
  std::vector<Block> unfit;  // freed without the lock
  {
    std::lock_guard lock(kept_->mutex);
    while (!kept_->blocks.empty() && !block.memory) {
      Block last = std::move(kept_->blocks.back());
      kept_->blocks.pop_back();
      if (last.bytes >= bytes && last.bytes / 4 <= bytes)
        block = std::move(last);
      else
        unfit.push_back(std::move(last));
    }
  }
  if (!block.memory) block.memory.reset(std::aligned_alloc(alignment, bytes));
  if (!block.memory) throw DeviceError(fmt::format("no memory for {} bytes of workspaces", bytes));
  void* const memory = block.memory.get();
  // The owner holds the block, and the pool's list even if the pool is gone.
  auto owned = std::make_shared<Block>(std::move(block));
  return {memory, [kept = kept_, owned](void*) {
            std::lock_guard lock(kept->mutex);
            kept->blocks.push_back(std::move(*owned));
          }};
}

}  // namespace tegula

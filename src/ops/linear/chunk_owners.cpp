#include "ops/linear/chunk_owners.hpp"

#include <algorithm>
#include <bit>

namespace tegula::ops {

tegula::Tensor listed_owners(Launch& launch, const TensorRef& fences, std::int64_t tokens,
                             const ChunkOwners& c) {
  const std::int64_t sequences = std::max<std::int64_t>(fences.size(0) - 1, 0);
  const tegula::Tensor owners = launch.scratch({(tokens + sequences * c.more) / c.rows + sequences}, i32);
  const std::int64_t steps = std::bit_width(static_cast<std::uint64_t>(sequences));
  launch(c, chunk_owners_kernel, {{"cu_seqlens", fences}, {"steps", steps}, {"chunk_owners", owners}});
  return owners;
}

void share_chunk_owners(const BoundCall& call, Launch& launch, const ChunkOwners& c) {
  if (!call.has("cu_seqlens") || launch.shares("chunk_owners")) return;
  launch.share("chunk_owners", listed_owners(launch, call.given("cu_seqlens"), call.dim("tokens"), c));
}

using namespace lang;
using lang::Tensor;

Kernel chunk_owners_kernel(const ChunkOwners& c) {
  constexpr int of_block = 128;
  return kernel(instance_name("chunk_owners", c), [&] {
    Dim fences("fences"), chunks("chunks");
    Tensor begins = input("cu_seqlens", {fences}, i32);
    Expr steps = scalar("steps", i32);
    Tensor owners = output("chunk_owners", {chunks}, i32);
    grid(ceildiv(chunks, of_block), {.threads = of_block}, [&](Index x) {
      Fragment own({of_block}, i32);
      parallel(own, [&](Index i) {
        Var low = 0, high = fences - 2;
        serial(steps, [&](Index) {
          when(low < high, [&] {
            Expr middle = (low + high) / 2, next = middle + 1;
            Expr ends = first_chunk(begins, next, c.rows, c.more) > x * of_block + i;
            low = select(ends, low, next);
            high = select(ends, middle, high);
          });
        });
        own(i) = low;
      });
      copy(own, owners.at(x * of_block));
    });
  });
}

}  // namespace tegula::ops

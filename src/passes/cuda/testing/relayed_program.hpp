// For tests: programs whose steps multiply what the step before made.
#pragma once
#include <ostream>

#include "tegula/lang.hpp"

namespace tegula::passes::testing {

struct RelayCase {
  const char* name;
  int rings = 1;  // that are relayed
  DType type = bf16;
  bool twice = false;            // read by two products of a step
  bool by_elements = false;      // written by a loop over elements
  bool in_part = false;          // written but for its first columns
  bool read_behind = false;      // the write of the step, too
  bool in_branch = false;        // written in some steps only
  bool read_by_threads = false;  // after the loop
};

inline void PrintTo(const RelayCase& c, std::ostream* out) { *out << c.name; }

inline void write(const RelayCase& c, const lang::Fragment& weights, lang::Shared& carried,
                  const lang::Expr& step) {
  using namespace lang;
  if (c.in_part) {
    parallel(128, 64, [&](Index i, Index j) { carried(i, 64 + j) = weights(i, 64 + j); });
  } else if (c.in_branch) {
    when(step % 2 == 0, [&] { copy(weights, carried); });
  } else if (c.by_elements) {
    parallel(carried, [&](Index i, Index j) { carried(i, j) = weights(i, j); });
  } else {
    copy(weights, carried);
  }
}

// Each step multiplies what the one before made, and makes the next one's.
inline lang::Kernel relay_program(const RelayCase& c) {
  using namespace lang;
  return kernel("relay", [&] {
    Dim n("n"), heads("heads");
    lang::Tensor a = input("a", {128, 64}, c.type), x = input("x", {heads, n, 64}, c.type),
                 out = output("out", {128, 64}, f32);
    grid(1, {.threads = 256}, [&](Index) {
      Shared left({128, 64}, c.type), carried("carried", {128, 128}, c.type);
      copy(a.at(0, 0), left);
      clear(carried);
      Fragment sum({128, 64}, f32, 0);
      const auto add = [&] { gemm(carried.T(), left, sum); };
      serial(heads, [&](Index h) {
        pipelined(ceildiv(n, 128), {.stages = 2}, [&](Index step) {
          Shared tile({128, 64}, c.type);
          copy(x.slice(h).at(step * 128, 0), tile);
          Fragment weights({128, 128}, f32, 0);
          gemm(left, tile.T(), weights);
          add();
          if (c.twice) add();
          write(c, weights.to(c.type), carried, step);
          if (c.read_behind) add();
        });
        add();
      });
      if (c.read_by_threads) parallel(sum, [&](Index i, Index j) { sum(i, j) += f32(carried(i, j)); });
      copy(sum, out.at(0, 0));
    });
  });
}

inline const RelayCase relays[] = {
    {.name = "copied"},
    {.name = "f16", .type = f16},
    {.name = "read_twice", .twice = true},
    {.name = "written_by_elements", .by_elements = true},
    {.name = "written_in_part", .rings = 0, .in_part = true},
    {.name = "read_behind_the_write", .rings = 0, .read_behind = true},
    {.name = "written_in_a_branch", .rings = 0, .in_branch = true},
    {.name = "read_by_threads", .rings = 0, .read_by_threads = true},
};

}  // namespace tegula::passes::testing

// For tests: programs whose steps multiply what the step before made.
#pragma once
#include <functional>
#include <ostream>

#include "tegula/lang.hpp"

namespace tegula::passes::testing {

// Where products read the tile outside of the loop that passes it on, and how that runs.
enum class Around : std::uint8_t {
  heads,     // behind the loop, which runs for each head
  in_front,  // in front of it, too
  one_step,  // behind the only step, known before
  each,      // in front and behind for each head
  twice,     // behind each of two loops, and in front of one for each head
  refilled,  // for each head in front of the loop, which is filled first
};

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
  bool updated = false;          // elements are written from what they were
  Around around = Around::heads;
};

// Whether a product of each block reads the tile, however many heads there are.
inline bool is_always_read(const RelayCase& c) {
  return c.around == Around::in_front || c.around == Around::one_step || c.around == Around::twice;
}

inline void PrintTo(const RelayCase& c, std::ostream* out) { *out << c.name; }

inline void write(const RelayCase& c, const lang::Fragment& weights, lang::Shared& carried,
                  const lang::Expr& step) {
  using namespace lang;
  if (c.in_part) {
    parallel(128, 64, [&](Index i, Index j) { carried(i, 64 + j) = weights(i, 64 + j); });
  } else if (c.in_branch) {
    when(step % 2 == 0, [&] { copy(weights, carried); });
  } else if (c.updated) {
    parallel(carried, [&](Index i, Index j) {
      carried(i, j) = c.type(f32(carried(i, j)) * 0.5f + f32(weights(i, j)));
    });
  } else if (c.by_elements) {
    parallel(carried, [&](Index i, Index j) { carried(i, j) = weights(i, j); });
  } else {
    copy(weights, carried);
  }
}

using Steps = std::function<void(const lang::Expr& count, const lang::Expr& head)>;

inline void run_around(Around around, const lang::Expr& heads, const lang::Expr& count, const Steps& steps,
                       const std::function<void()>& add, const std::function<void()>& fill) {
  using namespace lang;
  const bool for_each_head = around == Around::heads || around == Around::each || around == Around::refilled;
  if (around == Around::in_front) add();
  if (around == Around::in_front) steps(count, lang::Expr(0));
  if (around == Around::one_step) steps(lang::Expr(1), lang::Expr(0));
  if (around == Around::twice) {
    steps(count, lang::Expr(0)), add();
    steps(count, lang::Expr(1)), add(), add();
    serial(heads, [&](Index h) { steps(count, h); });
  }
  if (for_each_head)
    serial(heads, [&](Index h) {
      if (around == Around::refilled) fill();
      if (around != Around::heads) add();
      steps(count, h);
      if (around != Around::refilled) add();
    });
  if (!for_each_head) add();
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
      if (c.around != Around::refilled) clear(carried);
      Fragment sum({128, 64}, f32, 0);
      const auto add = [&] { gemm(carried.T(), left, sum); };
      const auto steps = [&](const lang::Expr& count, const lang::Expr& h) {
        pipelined(count, {.stages = 2}, [&](Index step) {
          Shared tile({128, 64}, c.type);
          copy(x.slice(h).at(step * 128, 0), tile);
          Fragment weights({128, 128}, f32, 0);
          gemm(left, tile.T(), weights);
          add();
          if (c.twice) add();
          write(c, weights.to(c.type), carried, step);
          if (c.read_behind) add();
        });
      };
      run_around(c.around, heads, ceildiv(n, 128), steps, add, [&] { clear(carried); });
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
    {.name = "updated", .rings = 0, .updated = true},
    {.name = "read_in_front", .around = Around::in_front},
    {.name = "one_step", .around = Around::one_step},
    {.name = "read_in_front_and_behind", .around = Around::each},
    {.name = "two_loops", .around = Around::twice},
    {.name = "refilled", .around = Around::refilled},
};

}  // namespace tegula::passes::testing

// Code between the issue of products and their wait: sums of the step before that are read or changed there,
// sums that begin with a constant, loops of one step, branches. ptxas has nothing to remark on, and no
// spills.
#include <gtest/gtest.h>

#include "codegen/cuda/testing/texts.hpp"
#include "codegen/cuda/wgmma_instruction.hpp"

namespace tegula::codegen {
namespace products_test {

using namespace lang;

constexpr int n = 64, steps = 3;

// Small integers, of which all sums are exact in any order.
Data integers(const Shape& shape, DType type) { return Data::random_integers(shape, type, 5, -1, 2); }

// What the forms share: rows of X in `steps` chunks, flags of the steps, results of the steps and at the end.
struct Chunks {
  explicit Chunks(Program& p)
      : X(p.in(integers({steps * n, n}, bf16))),
        flags(p.in(Data::random_integers({steps}, i32, 7, 0, 2))),
        out(p.out({steps * n, n}, f32)),
        last(p.out({n, n}, f32)) {}
  lang::Tensor X, flags, out, last;

  // The body of each step gets its number, its chunk, and the state.
  void pipeline(const std::function<void(Index, Shared&, Fragment&)>& step) const {
    grid(1, {.threads = 128}, [&](Index) {
      Fragment state({n, n}, f32, 0);
      pipelined(steps, {.stages = 2}, [&](Index c) {
        Shared x({n, n}, bf16);
        lang::copy(X.at(c * n), x);
        step(c, x, state);
      });
      lang::copy(state, last.at(0));
    });
  }
};

// One step of two products, whose sums begin with that constant.
enum class Loop { pipelined, serial, unrolled };
void one_step(Program& p, Loop kind, float first) {
  const Chunks k(p);
  grid(steps, {.threads = 128}, [&](Index x) {
    Fragment o({n, n}, f32, first), a({n, n}, f32, first);
    const auto step = [&](Index d) {
      Shared q({n, n}, bf16), w({n, n}, bf16);
      lang::copy(k.X.at(x * n + d, 0), q);
      lang::copy(k.X.at(0, 0), w);
      lang::gemm(q, w, o);
      lang::gemm(q, w.T(), a);
    };
    kind == Loop::serial     ? serial(1, step)
    : kind == Loop::unrolled ? unrolled(1, step)
                             : pipelined(1, {.stages = 2}, step);
    Shared v({n, n}, bf16);
    lang::copy(k.X.at(n, 0), v);
    lang::gemm(a.to(bf16), v, o);
    lang::copy(o, k.out.at(x * n, 0));
  });
}

// The state of the step before, rounded, is multiplied after the first product of the step.
void read_in_flight(Program& p, bool scaled) {
  Chunks(p).pipeline([&](Index, Shared& x, Fragment& state) {
    Shared rounded({n, n}, bf16);
    Fragment a({n, n}, f32, 0), o({n, n}, f32, 0);
    lang::gemm(x, x.T(), a);
    if (scaled) parallel(state, [&](Index i, Index j) { state(i, j) *= f32(0.5f); });
    lang::copy(state, rounded);
    lang::gemm(x, rounded, o);
    lang::gemm(a.to(bf16), x, o);
    lang::gemm(x.T(), x, state);
    parallel(state, [&](Index i, Index j) { state(i, j) = min(state(i, j) + o(i, j), 16); });
  });
}

// Two sums that cross the steps, both read while products are in flight.
void two_states(Program& p) {
  const Chunks k(p);
  grid(1, {.threads = 128}, [&](Index) {
    Fragment s({n, n}, f32, 0), t({n, n}, f32, 1);
    pipelined(steps, {.stages = 2}, [&](Index c) {
      Shared x({n, n}, bf16), of_s({n, n}, bf16), of_t({n, n}, bf16);
      lang::copy(k.X.at(c * n), x);
      Fragment a({n, n}, f32, 0), b({n, n}, f32, 0), o({n, n}, f32, 0);
      lang::gemm(x, x.T(), a);
      lang::copy(s, of_s);
      lang::gemm(x, of_s, o);
      lang::gemm(x.T(), x, b);
      lang::copy(t, of_t);
      lang::gemm(x, of_t, o);
      lang::gemm(a.to(bf16), x, o);
      lang::copy(o, k.out.at(c * n));
      lang::gemm(b.to(bf16), x, s);
      lang::gemm(x.T(), x, t);
      for (Fragment* sum : {&s, &t})
        parallel(*sum, [&](Index i, Index j) { (*sum)(i, j) = max(min((*sum)(i, j), 8), -8); });
    });
    lang::copy(s, k.last.at(0));
  });
}

void reduced_in_flight(Program& p) {
  const Chunks k(p);
  k.pipeline([&](Index c, Shared& x, Fragment& state) {
    Fragment a({n, n}, f32, 0);
    lang::gemm(x, x.T(), a);
    const Fragment rows = reduce_sum(state);
    parallel(a, [&](Index i, Index j) { a(i, j) += rows(i); });
    lang::copy(a, k.out.at(c * n));
    lang::gemm(x.T(), x, state);
  });
}

// A sum that begins, while another product is in flight, with a constant or with elements.
void begun_in_flight(Program& p, bool constant) {
  const Chunks k(p);
  k.pipeline([&](Index c, Shared& x, Fragment& state) {
    Fragment a({n, n}, f32, 0), b({n, n}, f32);
    lang::gemm(x, x.T(), a);
    parallel(b, [&](Index i, Index j) { b(i, j) = constant ? Expr(f32(3)) : f32(x(i, j)); });
    lang::gemm(x.T(), x, b);
    parallel(a, [&](Index i, Index j) { a(i, j) += b(i, j); });
    lang::copy(a, k.out.at(c * n));
    lang::gemm(x, x, state);
  });
}

enum class Chosen { product, two_products, either, behind_another, all_but_loads, inner_loop };
void chosen_step(Program& p, Chosen what) {
  const Chunks k(p);
  k.pipeline([&](Index c, Shared& x, Fragment& state) {
    const Expr taken = k.flags(c) > 0;
    const auto one = [&] { lang::gemm(x.T(), x, state); };
    const auto other = [&] { lang::gemm(x, x, state); };
    switch (what) {
      case Chosen::product:
        when(taken, one);
        break;
      case Chosen::two_products:
        when(taken, [&] { one(), other(); });
        break;
      case Chosen::either:
        when(taken, one).otherwise(other);
        break;
      case Chosen::behind_another: {
        Fragment a({n, n}, f32, 0);
        lang::gemm(x, x.T(), a);
        when(taken, one);
        lang::copy(a, k.out.at(c * n));
        break;
      }
      case Chosen::all_but_loads:
        when(taken, [&] {
          Fragment a({n, n}, f32, 0);
          lang::gemm(x, x.T(), a);
          lang::gemm(a.to(bf16), x, state);
          parallel(state, [&](Index i, Index j) { state(i, j) = min(state(i, j), 16); });
        });
        break;
      case Chosen::inner_loop:
        when(taken, [&] { pipelined(1, [&](Index) { one(); }); });
        break;
    }
  });
}

// Loads and product of a step within the branch, where all threads do the same.
void chosen_with_loads(Program& p, int rows, bool either) {
  const auto a = p.in(integers({rows, steps * n}, bf16)), b = p.in(integers({n, steps * n}, bf16)),
             flags = p.in(Data::random_integers({steps}, i32, 7, 0, 2)), out = p.out({rows, n}, f32);
  grid(1, [&](Index) {
    Fragment sum({rows, n}, f32, 0);
    pipelined(steps, [&](Index s) {
      const auto step = [&] {
        Shared x({rows, n}, bf16), y({n, n}, bf16);
        lang::copy(a.at(0, s * n), x);
        lang::copy(b.at(0, s * n), y);
        lang::gemm(x, y.T(), sum);
      };
      When chosen = when(flags(s) > 0, step);
      if (either) std::move(chosen).otherwise(step);
    });
    lang::copy(sum, out.at(0));
  });
}

void one_step_in_steps(Program& p) {
  const Chunks k(p);
  k.pipeline([&](Index c, Shared& x, Fragment& state) {
    Fragment a({n, n}, f32, 0), b({n, n}, f32, 0);
    pipelined(1, [&](Index) {
      lang::gemm(x, x.T(), a);
      lang::gemm(x, x, b);
    });
    parallel(b, [&](Index i, Index j) { b(i, j) -= a(i, j); });
    lang::copy(b, k.out.at(c * n));
    lang::gemm(x.T(), x, state);
  });
}

const Case cases[] = {
    {"a pipelined loop of one step", [](Program& p) { one_step(p, Loop::pipelined, 0); }},
    {"a serial loop of one step", [](Program& p) { one_step(p, Loop::serial, 0); }},
    {"an unrolled loop of one step", [](Program& p) { one_step(p, Loop::unrolled, 0); }},
    {"one step whose sums begin with another constant", [](Program& p) { one_step(p, Loop::pipelined, 2); }},
    {"one step within others", one_step_in_steps},
    {"a state that is read in flight", [](Program& p) { read_in_flight(p, false); }},
    {"a state that is scaled in flight", [](Program& p) { read_in_flight(p, true); }},
    {"two states that are read in flight", two_states},
    {"a state whose rows are summed in flight", reduced_in_flight},
    {"a sum that begins in flight with a constant", [](Program& p) { begun_in_flight(p, true); }},
    {"a sum that begins in flight with elements", [](Program& p) { begun_in_flight(p, false); }},
    {"a chosen product", [](Program& p) { chosen_step(p, Chosen::product); }},
    {"two chosen products", [](Program& p) { chosen_step(p, Chosen::two_products); }},
    {"one product or another", [](Program& p) { chosen_step(p, Chosen::either); }},
    {"a chosen product behind another", [](Program& p) { chosen_step(p, Chosen::behind_another); }},
    {"a chosen step", [](Program& p) { chosen_step(p, Chosen::all_but_loads); }},
    {"a chosen loop of one step", [](Program& p) { chosen_step(p, Chosen::inner_loop); }},
    {"a chosen step with its loads", [](Program& p) { chosen_with_loads(p, n, false); }},
    {"a chosen step of two warp groups", [](Program& p) { chosen_with_loads(p, 2 * n, false); }},
    {"one step with its loads or another", [](Program& p) { chosen_with_loads(p, 2 * n, true); }},
};

TEST(Products, AreNeverSerialised) {
  expect_agreement(cases, tegula::Target::emulated_sm90());
  for (const Case& one : cases) {
    SCOPED_TRACE(one.name);
    expect_good_code(Comparison(std::span(&one, 1)).kernel(), 90);
  }
}

struct Written {
  WgmmaInstruction instruction;
  const char *name, *parts[3];  // of the text
};

// Each has a name of its own, by which a program holds its function once.
TEST(WgmmaInstruction, IsNamedAndWrittenByItsOperands) {
  const Written cases[] = {
      {{64, "bf16", 16, false, false, false},
       "wgmma_n64_bf16",
       {"m64n64k16.f32.bf16.bf16 ", "1, 1, 0, 0;", "TG_SUMS_32(d)"}},
      {{128, "f16", 16, true, false, true},
       "wgmma_n128_f16_registers_tb",
       {"const uint32_t* a", "1, 1, 1;", "TG_PLACES_64"}},
      {{32, "f16", 16, false, true, false, -1, true},
       "wgmma_n32_f16_words_ta",
       {"m64n32k16.f16.f16.f16 ", "1, 1, 1, 0;", "\"+r\"(d[7])"}},
      {{256, "e4m3", 32, false, false, false},
       "wgmma_n256_e4m3",
       {"m64n256k32.f32.e4m3.e4m3 ", "add, 1, 1;", "TG_SUMS_128(d)"}},
      {{64, "s8", 32, false, false, false},
       "wgmma_n64_s8",
       {"m64n64k32.s32.s8.s8 ", "add;", "TG_INTEGER_SUMS_32(d)"}},
      {{64, "bf16", 32, false, false, true, 1},
       "wgmma_n64_bf16_tb_sparse1",
       {"mma_async.sp.sync", "uint32_t metadata, ", "%34, 1, add"}},
  };
  for (const Written& c : cases) {
    EXPECT_EQ(c.instruction.name(), c.name);
    const std::string text = c.instruction.text();
    for (const char* part : c.parts) EXPECT_NE(text.find(part), std::string::npos) << part << " in " << text;
  }
}

}  // namespace products_test
}  // namespace tegula::codegen

// Blocks whose threads are those of several CTAs, on the emulated Hopper beside the interpreter; and what
// keeps a block in one CTA.
#include <gtest/gtest.h>

#include "codegen/cuda_program.hpp"
#include "emulation/testing/compared.hpp"
#include "runtime/testing/watchdog.hpp"

namespace tegula::emulation {
namespace spread_blocks_test {

using namespace lang;
using tegula::Tensor;

constexpr std::chrono::seconds most_time{60};

// What a block does with a row of `out`, given the row of x, and its number.
using Row = std::function<void(const lang::Tensor& x, const lang::Tensor& out, const Index& row)>;

struct SpreadCase {
  std::string name;
  GridOptions options;
  Row row;
  std::string refused = {};  // words of the note, if the block stays in one CTA
};
void PrintTo(const SpreadCase& c, std::ostream* out) { *out << c.name; }

constexpr int rows = 3, features = 5003;

lang::Kernel program(const SpreadCase& c) {
  return kernel("spread", [&] {
    Dim M("M"), N("N");
    lang::Tensor x = input("x", {M, N}, f32), out = output("out", {M, N}, f32, {.zero = true});
    grid(M, c.options, [&](Index row) { c.row(x.slice(row), out.slice(row), row); });
  });
}

// Each piece of a row, from the last one if it is read `again`.
void each_piece(const lang::Tensor& x, int piece, bool again,
                const std::function<void(const Expr& first, Fragment& own)>& body) {
  const Expr pieces = ceildiv(x.extent(0), piece);
  pipelined(pieces, {.stages = 4}, [&](Index n) {
    Expr first = (again ? pieces - 1 - n : Expr(n)) * piece;
    Fragment own = load(x.at(first), {piece}, f32);
    body(first, own);
  });
}

// Every element above the row's mean, divided by the largest: three exchanges, pieces read twice.
Row centred(int piece) {
  return [=](const lang::Tensor& x, const lang::Tensor& out, const Index&) {
    Fragment sum({piece}, f32, 0), most({piece}, f32, -1e30f);
    Fragment positive({piece}, boolean, false);
    each_piece(x, piece, false, [&](const Expr&, Fragment& own) {
      parallel(own, [&](Index j) {
        sum(j) += own(j);
        most(j) = max(most(j), own(j));
        positive(j) = positive(j) || own(j) > 2;
      });
    });
    const Var mean = reduce_sum(sum).scalar() / f32(x.extent(0)), largest = reduce_max(most).scalar();
    const Expr some = reduce_any(positive).scalar();
    each_piece(x, piece, true, [&](const Expr& first, Fragment& own) {
      parallel(own, [&](Index j) { own(j) = select(some, (own(j) - mean) / largest, 0.f); });
      copy(own, out.at(first));
    });
  };
}

// Sums within a loop, in which every step needs the one of all threads before it.
void running(const lang::Tensor& x, const lang::Tensor& out, const Index&) {
  constexpr int piece = 1024;
  Var before = 0.0f;
  serial(ceildiv(x.extent(0), piece), [&](Index n) {
    Fragment own = load(x.at(n * piece), {piece}, f32);
    Expr all = reduce_sum(own).scalar();
    parallel(own, [&](Index j) { own(j) += before; });
    before += all;
    copy(own, out.at(n * piece));
  });
}

// Elements that another CTA's threads have written to a tensor.
void through_tensor(const lang::Tensor& x, const lang::Tensor& out, const Index&) {
  Fragment own = load(x.at(0), {2048}, f32);
  copy(own, out.at(0));
  parallel(own, [&](Index j) { own(j) = out((j + 700) % 2048) + 1; });
  copy(own, out.at(2048));
}

// The same before the first sum.
void sum_of_tensor(const lang::Tensor& x, const lang::Tensor& out, const Index&) {
  Fragment own = load(x.at(0), {2048}, f32);
  copy(own, out.at(0));
  parallel(own, [&](Index j) { own(j) = out((j + 700) % 2048) + 1; });
  const Expr all = reduce_sum(own).scalar();
  parallel(own, [&](Index j) { own(j) -= all; });
  copy(own, out.at(2048));
}

// What one thread writes.
void one_number(const lang::Tensor& x, const lang::Tensor& out, const Index& row) {
  out(0) = reduce_sum(load(x.at(0), {4096}, f32)).scalar() + f32(row);
}

void by_scan(const lang::Tensor& x, const lang::Tensor& out, const Index&) {
  copy(scan_sum(load(x.at(0), {1024}, f32)), out.at(0));
}
void by_tile(const lang::Tensor& x, const lang::Tensor& out, const Index&) {
  Shared tile({1024}, f32);
  copy(x.at(0), tile);
  parallel(1024, [&](Index j) { out(j) = tile(1023 - j); });
}
void by_other_threads(const lang::Tensor& x, const lang::Tensor& out, const Index&) {
  Fragment own = load(x.at(0), {1024}, f32), turned({1024}, f32);
  parallel(1024, [&](Index j) { turned(j) = own(1023 - j); });
  copy(turned, out.at(0));
}
void by_columns(const lang::Tensor& x, const lang::Tensor& out, const Index&) {
  copy(reduce_sum(load(x.at(0), {4096}, f32).reshape({64, 64}), 0), out.at(0));
}
void asserting(const lang::Tensor& x, const lang::Tensor& out, const Index&) {
  assert_that(x(0) < 1e9f, "small");
  copy(load(x.at(0), {1024}, f32), out.at(0));
}

const std::vector<SpreadCase> cases{
    {"two", {.threads = 128, .cluster = 2}, centred(1024)},
    {"four", {.threads = 32, .cluster = 4}, centred(512)},
    {"eight", {.threads = 128, .cluster = 8}, centred(4096)},
    {"running", {.threads = 64, .cluster = 4}, running},
    {"through_tensor", {.threads = 64, .cluster = 8}, through_tensor},
    {"sum_of_tensor", {.threads = 128, .cluster = 4}, sum_of_tensor},
    {"one_number", {.threads = 128, .cluster = 4}, one_number},
    {"two_vectors_a_thread", {.threads = 64, .cluster = 2}, centred(1024), "16 bytes each"},
    {"scan", {.threads = 64, .cluster = 2}, by_scan, "a scan"},
    {"tile", {.threads = 64, .cluster = 2}, by_tile, "in shared memory"},
    {"other_threads", {.threads = 64, .cluster = 2}, by_other_threads, "change their threads"},
    {"columns", {.threads = 64, .cluster = 2}, by_columns, "different elements"},
    {"assertion", {.threads = 64, .cluster = 2}, asserting, "an assertion"},
    {"many_blocks",
     {.threads = 64, .cluster = 2, .blocks_per_processor = 2},
     one_number,
     ".blocks_per_processor"},
};

class SpreadBlocks : public ::testing::TestWithParam<SpreadCase> {};

TEST_P(SpreadBlocks, GiveTheSameOrHaveANote) {
  const SpreadCase& c = GetParam();
  const lang::Kernel own = program(c);
  const Watchdog watchdog(c.name, most_time);
  if (c.refused.empty())
    expect_as_interpreted(own, {Tensor::random_normal({rows, features}, f32, 5)}, {rows, features}, 2e-3);
  const codegen::CudaProgram printed = codegen::print_cuda(Signature(own.ir()), {90});
  const int ctas = c.refused.empty() ? c.options.cluster : 1;
  EXPECT_EQ(printed.kernels[0].ctas, ctas);
  EXPECT_EQ(printed.kernels[0].threads, c.options.threads);
  std::string notes;
  for (const std::string& note : passes::format(printed.notes)) notes += note + "\n";
  EXPECT_EQ(notes.find(".cluster is not followed") != std::string::npos, !c.refused.empty()) << notes;
  EXPECT_NE(notes.find(c.refused), std::string::npos) << notes;
}

INSTANTIATE_TEST_SUITE_P(Programs, SpreadBlocks, ::testing::ValuesIn(cases),
                         [](const auto& info) { return info.param.name; });

}  // namespace spread_blocks_test
}  // namespace tegula::emulation

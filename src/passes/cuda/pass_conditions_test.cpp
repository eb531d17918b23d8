// Passes of grids without roles: a program that has what the pass looks for, and one of the same kind that
// lacks it.
#include <gtest/gtest.h>

#include "passes/cuda/testing/plans.hpp"

namespace tegula::passes {
namespace pass_conditions_test {

using namespace lang;

bool changes(const Kernel& kernel, const char* pass, int architecture) {
  bool result = false;
  plan_for_cuda(*kernel.ir(), {architecture}, {}, [&](const PassRun& own) {
    result |= own.pass == std::string_view(pass) && own.before != own.after;
  });
  return result;
}

// Sums of rows that come as fragments; `looped`: one row after the other, or all at once.
Kernel rows_as_fragments(bool looped) {
  return kernel("rows", [&] {
    Dim rows("rows");
    Tensor x = input("x", {rows, 1024}, f32), y = output("y", {1024}, f32);
    grid(1, {.threads = 256}, [&](Index) {
      Fragment sum({1024}, f32, 0);
      const auto add = [&](const Expr& row) {
        Fragment own = load(x.slice(row), {1024});
        parallel(sum, [&](Index i) { sum(i) += own(i); });
      };
      if (looped)
        pipelined(rows, {.stages = 4}, [&](Index row) { add(row); });
      else
        serial(rows, [&](Index row) { add(row); });
      copy(sum, y);
    });
  });
}
Kernel pipelined_rows() { return rows_as_fragments(true); }
Kernel serial_rows() { return rows_as_fragments(false); }

// A step of a transform; `apart`: between elements that other lanes have, or within registers.
Kernel butterfly(int apart) {
  return kernel("butterfly", [&] {
    Dim rows("rows");
    Tensor x = inout("x", {rows, 1024}, f32);
    grid(rows, {.threads = 128}, [&](Index row) {
      Fragment own = load(x.slice(row), {1024});
      parallel(512 / apart, apart, [&](Index i, Index j) {
        Expr a = own(i * (2 * apart) + j), b = own(i * (2 * apart) + apart + j);
        own(i * (2 * apart) + j) = a + b;
        own(i * (2 * apart) + apart + j) = a - b;
      });
      copy(own, x.slice(row));
    });
  });
}
Kernel of_other_lanes() { return butterfly(32); }
Kernel of_neighbours() { return butterfly(1); }

// Rows of which a block with a processor for itself sums up elements, its own or those of a neighbour.
Kernel copied(int shift) {
  return kernel("copied", [&] {
    Dim rows("rows");
    Tensor x = input("x", {rows, 8192}, f32), y = output("y", {8192}, f32);
    grid(1, {.threads = 1024}, [&](Index) {
      Fragment sum({8192}, f32, 0);
      pipelined(rows, {.stages = 3}, [&](Index row) {
        Shared own({8192}, f32);
        copy(x.slice(row), own);
        parallel(sum, [&](Index i) { sum(i) += own((i + shift) % 8192); });
      });
      copy(sum, y);
    });
  });
}
Kernel own_elements() { return copied(0); }
Kernel elements_of_others() { return copied(4096); }

Kernel sparse_product(int k) {
  return kernel("sparse", [&] {
    Tensor a = input("a", {64, k / 2}, bf16), metadata = input("metadata", {64, k / 8}, u8);
    Tensor b = input("b", {k, 64}, bf16), c = output("c", {64, 64}, f32);
    grid(1, {.threads = 128}, [&](Index) {
      Shared values({64, k / 2}, bf16), places({64, k / 8}, u8), right({k, 64}, bf16);
      copy(a.at(0, 0), values), copy(metadata.at(0, 0), places), copy(b.at(0, 0), right);
      Fragment sum({64, 64}, f32, 0);
      gemm_sparse(values, places, right, sum);
      copy(sum, c.at(0, 0));
    });
  });
}
Kernel sparse_of_odd_depth() { return sparse_product(40); }
Kernel sparse_of_whole_steps() { return sparse_product(64); }

Kernel product_of_f32(Precision precision) {
  return kernel("product", [&] {
    Tensor a = input("a", {64, 64}, f32), b = input("b", {64, 64}, f32), c = output("c", {64, 64}, f32);
    grid(1, {.threads = 128}, [&](Index) {
      Shared left({64, 64}, f32), right({64, 64}, f32);
      copy(a.at(0, 0), left), copy(b.at(0, 0), right);
      Fragment sum({64, 64}, f32, 0);
      gemm(left, right, sum, {.precision = precision});
      copy(sum, c.at(0, 0));
    });
  });
}
Kernel in_two_numbers() { return product_of_f32(Precision::tf32x3); }
Kernel as_they_are() { return product_of_f32(Precision::ieee); }

struct PassCase {
  const char* name;
  const char* pass;
  bool changes;
  Kernel (*kernel)();
  int architecture = 90;
};

void PrintTo(const PassCase& c, std::ostream* out) { *out << c.name; }

class PassesOfPlainGrids : public ::testing::TestWithParam<PassCase> {};

TEST_P(PassesOfPlainGrids, ChangeWhatTheyLookFor) {
  const PassCase& c = GetParam();
  EXPECT_EQ(changes(c.kernel(), c.pass, c.architecture), c.changes);
}

INSTANTIATE_TEST_SUITE_P(
    Passes, PassesOfPlainGrids,
    ::testing::Values(PassCase{"fragments_of_steps", "fragments_ahead", true, pipelined_rows},
                      PassCase{"fragments_of_serial_steps", "fragments_ahead", false, serial_rows},
                      PassCase{"elements_of_other_lanes", "exchange_registers", true, of_other_lanes},
                      PassCase{"elements_of_neighbours", "exchange_registers", false, of_neighbours},
                      PassCase{"own_elements", "own_copies", true, own_elements},
                      PassCase{"elements_of_others", "own_copies", false, elements_of_others},
                      PassCase{"sparse_of_odd_depth", "expand_sparse", true, sparse_of_odd_depth},
                      PassCase{"sparse_of_whole_steps", "expand_sparse", false, sparse_of_whole_steps},
                      PassCase{"in_two_numbers", "round_operands", true, in_two_numbers},
                      PassCase{"as_they_are", "round_operands", false, as_they_are}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace pass_conditions_test
}  // namespace tegula::passes

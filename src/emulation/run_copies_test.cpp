// Tiles whose rows end within pieces come ahead as runs of memory, however a program is written.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "emulation/testing/compared.hpp"

namespace tegula::emulation {
namespace run_copies_test {

constexpr int rows = 11;  // the last tile lacks some

struct Place {
  const lang::Tensor &x, &y, &out;
  int width;
};
struct Written {
  const char* name;
  void (*body)(const Place&);
  const char* has = "tg::load_from_run<";
  const char* begun = "tg::bring_rows<";
};

const Written all_written[] = {
    {"rows_in_registers",
     [](const Place& p) {
       using namespace lang;
       Fragment sum({2, p.width}, f32, 0);
       pipelined(ceildiv(p.x.extent(0), 2), {.stages = 3}, [&](Index step) {
         Shared tile({2, p.width}, p.x.type());
         copy(p.x.at(step * 2), tile);
         Fragment own({2, p.width}, f32);
         copy(tile, own);
         Fragment most = reduce_max(own);
         parallel(sum, [&](Index i, Index j) { sum(i, j) += own(i, j) - most(i); });
         copy(own, p.out.at(step * 2));
       });
       copy(reduce_sum(sum, 0), p.out.slice(0).at(0));
     }},
    {"elements_where_they_are_needed",
     [](const Place& p) {
       using namespace lang;
       Shared factors({p.width}, p.y.type());
       copy(p.y.slice(3).at(0), factors);
       Fragment sum({1, p.width}, f32, 0);
       pipelined(p.x.extent(0), {.stages = 3}, [&](Index step) {
         Shared tile({1, p.width}, p.x.type()), other({1, p.width}, p.y.type());
         copy(p.x.at(step), tile);
         copy(p.y.at(step), other);
         Fragment shape({1, p.width}, f32);
         Fragment along = reduce_sum(map(
             shape, [&](Index i, Index j) { return f32(tile(i, j)) * f32(other(i, j)) * f32(factors(j)); }));
         parallel(sum, [&](Index i, Index j) { sum(i, j) += f32(tile(i, j)) * along(i); });
         parallel(shape, [&](Index i, Index j) {
           shape(i, j) = f32(other(i, j)) * f32(factors(j)) + f32(tile(i, j));
         });
         copy(shape, p.out.at(step));
       });
       copy(sum, p.out.at(2));
     },
     "tg::lift_row<"},
    {"slices",
     [](const Place& p) {
       using namespace lang;
       pipelined(p.x.extent(0), {.stages = 2}, [&](Index step) {
         Shared tile({p.width}, p.x.type());
         copy(p.x.slice(p.x.extent(0) - 1 - step).at(0), tile);
         Fragment own({p.width}, f32);
         copy(tile, own);
         const Var sum = reduce_sum(own).scalar();
         parallel(own, [&](Index j) { own(j) -= sum; });
         copy(own, p.out.slice(step).at(0));
       });
     },
     "tg::load_from_run<",
     "tg::begin_run("},  // it is not known that rows are not before the first one: by elements
    {"parts_of_rows",
     [](const Place& p) {
       using namespace lang;
       pipelined(ceildiv(p.width, 64) * 4, {.stages = 3}, [&](Index step) {
         Shared tile({64}, p.x.type());
         copy(p.x.slice(step % 4 + 2).at(step / 4 * 64), tile);
         Fragment own({64}, f32);
         parallel(own, [&](Index j) { own(j) = f32(tile(j)) * 2; });
         copy(own, p.out.slice(step % 4).at(step / 4 * 64));
       });
     },
     "tg::run_in("},
    {"some_steps_left_out",
     [](const Place& p) {
       using namespace lang;
       Fragment sum({3, p.width}, f32, 0);
       pipelined(ceildiv(p.x.extent(0), 3), {.stages = 3}, [&](Index step) {
         when(step % 2 == 0, [&] {
           Shared tile({3, p.width}, p.x.type());
           copy(p.x.at(step * 3), tile);
           parallel(sum, [&](Index i, Index j) { sum(i, j) += f32(tile(i, j)); });
         });
       });
       copy(sum, p.out.at(4));
     }},
};

void PrintTo(const Written& c, std::ostream* out) { *out << c.name; }

lang::Kernel runs(const Written& c, int width, DType type, DType other, int threads) {
  using namespace lang;
  return kernel("runs", [&] {
    Dim M("M");
    lang::Tensor x = input("x", {M, width}, type), y = input("y", {M, width}, other),
                 out = output("out", {M, width}, f32);
    grid(1, {.threads = threads}, [&](Index) { c.body({x, y, out, width}); });
  });
}

class RunCopies : public ::testing::TestWithParam<Written> {};

// Rows of `x` and `y` are in wider tensors if it is said so.
void expect_runs(const lang::Kernel& program, int width, DType type, DType other, int before, int behind) {
  const int wide = before + width + behind;
  const auto made = [&](DType own, std::uint64_t seed) {
    return Tensor::random_normal({rows, wide}, f32, seed).to(own).slice(1, before, before + width);
  };
  const Tensor x = made(type, 3), y = made(other, 4);
  const auto result = [&](Target target) {
    const Tensor out = Tensor::full({rows, width}, f32, 77);
    compile(program, target).call_in_order(std::vector<Argument>{x, y, out});
    return out.values<double>();
  };
  const auto wanted = result(Target::interpreter());
  for (const Target target : {Target::emulated_sm90(), Target::emulated()}) {
    const auto got = result(target);
    for (std::size_t i = 0; i < got.size(); ++i)
      ASSERT_NEAR(got[i], wanted[i], 1e-3 + 0.01 * std::abs(wanted[i])) << "element " << i;
  }
}

TEST_P(RunCopies, AreShiftedWhereTheyAreRead) {
  for (const int width : {65, 1001}) {
    SCOPED_TRACE(width);
    const lang::Kernel program = runs(GetParam(), width, bf16, bf16, 64);
    expect_runs(program, width, bf16, bf16, 0, 0);
    const std::string text = codegen::print_cuda(Signature(program.ir()), {90}).text;
    EXPECT_NE(text.find(GetParam().begun), std::string::npos) << text;
    if (width == 1001) { EXPECT_NE(text.find(GetParam().has), std::string::npos) << text; }
  }
}

TEST_P(RunCopies, AreOfAnyDtype) {
  const DType types[][2] = {{f16, bf16}, {f32, f32}, {bf16, f32}, {e4m3, bf16}};
  for (const auto& [type, other] : types) {
    SCOPED_TRACE(std::string(type.name()) + " beside " + std::string(other.name()));
    expect_runs(runs(GetParam(), 259, type, other, 32), 259, type, other, 0, 0);
  }
}

TEST_P(RunCopies, BeginAnywhereInWiderRows) {
  for (const auto& [before, behind] : {std::pair(1, 0), std::pair(3, 8)}) {
    SCOPED_TRACE(before * 100 + behind);
    expect_runs(runs(GetParam(), 257, bf16, bf16, 96), 257, bf16, bf16, before, behind);
  }
}

// Warps have a row, whose sums fewer lanes than a warp's add up.
TEST(RunCopies, AreAddedUpByLanesOfManyWarps) {
  for (const int warps : {9, 11, 17, 22}) {
    SCOPED_TRACE(warps);
    const int threads = warps * 32, width = threads * 8 - 7;
    const lang::Kernel program = runs(all_written[1], width, bf16, bf16, threads);
    const std::string text = codegen::print_cuda(Signature(program.ir()), {90}).text;
    EXPECT_NE(text.find(fmt::format("tg::across_some_parts<tg::Add, {}, 1>(", warps)), std::string::npos)
        << text;
    expect_runs(program, width, bf16, bf16, 0, 0);
  }
}

// What loops read more than once is shifted once.
TEST(RunCopies, AreLaidDownWhereTheyAreReadAgain) {
  const auto text_of = [](const Written& c) {
    return codegen::print_cuda(Signature(runs(c, 1001, bf16, bf16, 64).ir()), {90}).text;
  };
  const std::string again = text_of(all_written[1]), once = text_of(all_written[0]);
  EXPECT_NE(again.find("tg::lay_row<1001, 64>("), std::string::npos) << again;
  EXPECT_EQ(again.find("tg::load_from_run<"), std::string::npos) << again;
  EXPECT_EQ(once.find("tg::lay_row<"), std::string::npos) << once;
}

INSTANTIATE_TEST_SUITE_P(Written, RunCopies, ::testing::ValuesIn(all_written),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace run_copies_test
}  // namespace tegula::emulation

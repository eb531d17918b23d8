// The front end records what the program says, and refuses what it must not say.
#include "tegula/lang.hpp"

#include <gtest/gtest.h>

#include "ir/ir.hpp"
#include "ir/print.hpp"
#include "ir/visit.hpp"

namespace {

using namespace tegula::lang;
namespace ir = tegula::ir;

struct GemmTile {
  int m, n, k;
};

Kernel gemm_relu(int N, int K, GemmTile t) {
  return kernel("gemm_relu", [&] {
    Dim M("M");
    Tensor A = input("A", {M, K}, f16), B = input("B", {K, N}, f16), C = output("C", {M, N}, f16);
    grid(ceildiv(N, t.n), ceildiv(M, t.m), {.order = Order::grouped(8)}, [&](Index bx, Index by) {
      Fragment acc({t.m, t.n}, f32, 0);
      pipelined(ceildiv(K, t.k), {.stages = 3}, [&](Index k) {
        Shared As({t.m, t.k}, f16), Bs({t.k, t.n}, f16);
        copy(A.at(by * t.m, k * t.k), As);
        copy(B.at(k * t.k, bx * t.n), Bs);
        gemm(As, Bs, acc);
      });
      parallel(acc, [&](Index i, Index j) { acc(i, j) = max(acc(i, j), 0); });
      copy(acc, C.at(by * t.m, bx * t.n));
    });
  });
}

TEST(Lang, RecordsAGemm) {
  auto k = gemm_relu(256, 512, {64, 64, 32}).ir();
  EXPECT_EQ(k->name, "gemm_relu");
  ASSERT_EQ(k->parameters.size(), 3u);
  ASSERT_EQ(k->grids.size(), 1u);
  auto& grid = k->grids[0];
  EXPECT_EQ(ir::constant_value(grid.extents[0]), 4);
  EXPECT_EQ(grid.hints.group, 8);
  ASSERT_EQ(grid.body.size(), 5u);  // declare, fill, loop, relu, copy
  EXPECT_TRUE(ir::as<ir::Declare>(grid.body[0]));
  EXPECT_TRUE(ir::as<ir::Fill>(grid.body[1]));
  auto* loop = ir::as<ir::For>(grid.body[2]);
  ASSERT_TRUE(loop);
  EXPECT_EQ(loop->kind, ir::LoopKind::pipelined);
  EXPECT_EQ(loop->stages, 3);
  EXPECT_TRUE(ir::as<ir::Gemm>(loop->body.back()));
  auto* relu = ir::as<ir::For>(grid.body[3]);
  ASSERT_TRUE(relu);
  ASSERT_EQ(relu->body.size(), 2u);
  EXPECT_TRUE(ir::as<ir::Load>(relu->body[0]));
  EXPECT_TRUE(ir::as<ir::Store>(relu->body[1]));
}

// A name is kept, and numbered where a parameter or another tile has it.
TEST(Lang, TilesHaveNames) {
  std::vector<std::string> names;
  kernel("named", [&] {
    Tensor X = input("x", {64}, f32);
    grid(1, [&](Index) {
      Shared a("x", {64}, f32), b("rows", {64}, f32), c({64}, f32), d("s1", {64}, f32), e({64}, f32);
      Fragment f("rows", {64}, f32), g({64}, f32), h("rows", {64}, f32, 0);
      for (const Tile* tile : std::initializer_list<const Tile*>{&a, &b, &c, &d, &e, &f, &g, &h})
        names.push_back(tile->view()->buffer->name);
    });
  });
  EXPECT_EQ(names, (std::vector<std::string>{"x1", "rows", "s0", "s1", "s2", "rows1", "f0", "rows2"}));
}

// A view of a view is clipped by both ranges.
TEST(Lang, SlicesCompose) {
  auto k = kernel("slices", [&] {
             Dim T("T");
             Tensor X = input("X", {T, 4, 8}, f32), begin = input("begin", {2}, i32);
             grid(1, [&](Index) {
               Expr b = begin(0), e = begin(1);
               Tensor x = X.slice(range(b, e), 2).slice(range(1, 5));
               EXPECT_EQ(x.rank(), 2);
               auto& dims = x.view()->dims;
               EXPECT_EQ(dims[0].axis, 0);
               EXPECT_EQ(dims[1].axis, -1);
               EXPECT_EQ(dims[2].axis, 1);
               EXPECT_EQ(dims[0].low->op, ir::Op::max);
               EXPECT_EQ(dims[0].high->op, ir::Op::min);
               EXPECT_FALSE(dims[2].low);
               EXPECT_EQ(ir::constant_value(x.view()->extents[0]), 4);
             });
           }).ir();
  EXPECT_EQ(k->grids.size(), 1u);
}

TEST(Lang, TransposesAndReshapesTiles) {
  kernel("views", [&] {
    Dim T("T");
    input("X", {T}, f32);
    grid(1, [&](Index) {
      Shared s({8, 4}, f32);
      EXPECT_EQ(s.T().extent(0), 4);
      EXPECT_EQ(s.T().view()->dims[0].axis, 1);
      EXPECT_EQ(s.reshape({2, 16}).extent(1), 16);
      EXPECT_EQ(s.slice(all, range(1, 3)).extent(1), 2);
      EXPECT_EQ(s.slice(3).rank(), 1);
    });
  });
}

// Long expressions become values, so that sharing them does not blow up trees.
TEST(Lang, LargeExpressionsAreComputedOnce) {
  auto k = kernel("large", [&] {
             Tensor Y = output("Y", {4}, i32);
             grid(4, [&](Index b) {
               std::optional<Expr> x(b);
               for (int i = 0; i < 64; ++i) {
                 Expr next = *x + *x;
                 x.emplace(next);
               }
               Y(b) = *x;
             });
           }).ir();
  EXPECT_LT(k->grids[0].body.size(), 64u);
  EXPECT_GT(k->grids[0].body.size(), 4u);
}

TEST(Lang, LiteralsTakeTheTypeOfTheOtherOperand) {
  kernel("literals", [&] {
    Tensor Y = output("Y", {4}, f64);
    grid(1, [&](Index b) {
      Expr x = Y(0);
      EXPECT_EQ((x * 2).type(), f64);
      EXPECT_EQ((x + 0.5f).type(), f64);
      EXPECT_EQ((b + 1).type(), i32);
      EXPECT_EQ((u32(b) & 255).type(), u32);
      EXPECT_EQ((b < 3).type(), boolean);
      EXPECT_EQ(f32(b).type(), f32);
      for (const DType type : {i8, i16, u8, i32}) {
        Shared s({1}, type);
        EXPECT_EQ((s(0) - 8).type(), i32) << type.name();
        EXPECT_EQ((s(0) - 8u).type(), i32) << type.name();
        EXPECT_EQ((s(0) + b).type(), i32) << type.name();
        EXPECT_EQ(type(b).type().kind(), tegula::Kind::integer) << type.name();
      }
    });
  });
}

TEST(Lang, ErrorsNameTheLineAndTheTrace) {
  int line = 0;
  auto reusable = [&](Loc at) {
    Trace trace("reusable", at);
    line = __LINE__ + 1;
    Fragment f({4, 0}, f32);
  };
  try {
    kernel("k", [&] {
      Tensor Y = output("Y", {4}, f32);
      grid(1, [&](Index) { reusable(Loc::current()); });
    });
    FAIL();
  } catch (const ProgramError& error) {
    EXPECT_NE(std::string(error.what()).find("lang_test.cpp:" + std::to_string(line)), std::string::npos)
        << error.what();
    EXPECT_NE(std::string(error.what()).find("in reusable, called at"), std::string::npos);
    EXPECT_EQ(static_cast<int>(error.where().line()), line);
  }
}

// What stands in no other file than the user's, also where a template evaluates the place.
struct Misplaced {
  const char* name;
  void (*mistake)(Tensor Y, Index i);
};
#define MISPLACED(name, ...)                                                       \
  {                                                                                \
    name, []([[maybe_unused]] Tensor Y, [[maybe_unused]] Index i) { __VA_ARGS__; } \
  }
const Misplaced misplaced[] = {
    MISPLACED("second index", Y(i, 0.5f) = 0),
    MISPLACED("second index of a tile", Shared s({4, 4}, f32); s(i, 0.5f) = 0),
    MISPLACED("second offset", Fragment f({4, 4}, f32, 0); copy(f, Y.at(i, 0.5f))),
    MISPLACED("tile of emplace_back", std::vector<Shared> s;
              s.emplace_back(std::initializer_list<int>{4, 0}, f32)),
    MISPLACED("tile of make_unique", auto s = std::make_unique<Shared>(std::initializer_list<int>{0}, f32)),
    MISPLACED("variable of optional", std::optional<Var> v; v.emplace(0);
              parallel(4, [&](Index) { *v = 1; })),
    MISPLACED("row of a function object", Fragment f({4, 4}, f32); Var v = 0.5f;
              gather(Y, std::function<Expr(Index)>([&](Index) { return Expr(v); }), f)),
    MISPLACED("converted row", Fragment f({4, 4}, f32); Var v = 0.5f; gather(
                  Y, [&](Index) -> Var& { return v; }, f)),
    MISPLACED("converted condition", Var v = 0; loop_while([&]() -> Var& { return v; }, [] {})),
    MISPLACED("condition of a function object", Var v = 0;
              loop_while(std::function<Expr()>([&]() -> Expr { return v; }), [] {})),
    MISPLACED("order of accumulate", Fragment f({4, 4}, f32, 0); Var v = 0.5f;
              accumulate(Y.at(0), f, {.order = v})),
    MISPLACED("extents from numbers", const float wrong[] = {1, 2};
              Tensor t = Y.reshape(Extents(wrong, wrong + 2))),
    MISPLACED("variable to variable", Var v = 0; Var w = 0; parallel(4, [&](Index) { v = w; })),
};
#undef MISPLACED

TEST(Lang, PlacesAreTheUsers) {
  for (const Misplaced& c : misplaced) {
    try {
      kernel("k", [&] {
        Dim N("N");
        Tensor Y = inout("Y", {N, 4}, f32);
        grid(N, [&](Index i) { c.mistake(Y, i); });
      });
      ADD_FAILURE() << c.name << " is accepted";
    } catch (const ProgramError& error) {
      EXPECT_NE(std::string(error.where().file_name()).find("lang_test.cpp"), std::string::npos)
          << c.name << ": " << error.what();
      EXPECT_EQ(std::string(error.what()).find(".hpp"), std::string::npos) << c.name << ": " << error.what();
    }
  }
}

// Nor do statements and tiles have places in headers, which the interpreter's errors would name.
TEST(Lang, PlacesInTheKernelAreTheUsers) {
  auto k = kernel("k", [&] {
             std::vector<Dim> dims;
             dims.emplace_back("N");
             Tensor Y = inout("Y", {dims[0], 4}, f32);
             grid(dims[0], [&](Index i) {
               std::vector<Shared> s;
               s.emplace_back(std::initializer_list<int>{4}, f32);
               std::vector<Expr> values;
               Var v = 0;
               values.emplace_back(v);
               s[0](0) = Y(i, 1);
               Y(i, 0) = s[0](0) + f32(values[0]);
             });
           }).ir();
  const auto expect_place = [](const Loc& at) {
    EXPECT_NE(std::string(at.file_name()).find("lang_test.cpp"), std::string::npos) << at.file_name();
  };
  for (auto& dim : k->dims) expect_place(dim.variable->at);
  ir::for_each_stmt(*k, [&](const ir::Stmt& stmt) {
    expect_place(stmt->at);
    if (auto* declared = ir::as<ir::Declare>(stmt)) expect_place(declared->tile->at);
    ir::for_each_expr(stmt, [&](const ir::Expr& e) {
      ir::for_each_node(e, [&](const ir::Expr& node) {
        if (node->at.line() != 0) expect_place(node->at);
      });
    });
  });
}

// Shapes are put together as other vectors are.
TEST(Lang, ExtentsAreJoined) {
  kernel("k", [&] {
    Dim N("N");
    Extents shape{N, 2}, more{3, N + 1};
    shape.insert(shape.begin() + 1, more.begin(), more.end());
    Tensor X = input("X", shape, f32);
    EXPECT_EQ(X.rank(), 4);
    grid(1, [&](Index) {
      EXPECT_EQ(ir::constant_value(X.view()->extents[1]), 3);
      EXPECT_EQ(ir::constant_value(X.view()->extents[3]), 2);
      EXPECT_EQ(Expr(1).type(), i32);
      EXPECT_EQ(Expr(0.0f).type(), f32);
    });
  });
}

void count_to(Index) { serial(4, [](Index) {}); }
void in_blocks() { grid(2, count_to); }

TEST(Lang, BodiesMayBeFunctions) {
  int left = 2;
  auto counted = [left]() mutable {
    if (left-- > 0) in_blocks();
  };
  EXPECT_EQ(kernel("k", in_blocks).ir()->grids.size(), 1u);
  EXPECT_EQ(kernel("k", counted).ir()->grids.size(), 1u);
}

TEST(Lang, AnIndexMayBeANumber) {
  const Kernel first_row = kernel("first_row", [] {
    Tensor A = input("A", {4, 8}, f32), Out = output("Out", {2, 8}, f32);
    grid(1, [&](Index) {
      Fragment rows({2, 8}, f32, 0);
      gather(A, [&](Index) { return Index(0); }, rows);
      copy(rows, Out);
    });
  });
  EXPECT_NE(ir::print(*first_row.ir()).find("-> 0)"), std::string::npos) << ir::print(*first_row.ir());
}

TEST(Lang, OtherwiseFollowsItsWhen) {
  auto k = kernel("branches", [&] {
             Tensor Y = output("Y", {4}, f32);
             grid(4, [&](Index b) { when(b < 2, [&] { Y(b) = 1; }).otherwise([&] { Y(b) = 2; }); });
           }).ir();
  auto* branch = ir::as<ir::If>(k->grids[0].body[0]);
  ASSERT_TRUE(branch);
  EXPECT_EQ(branch->then.size(), 1u);
  EXPECT_EQ(branch->otherwise.size(), 1u);
}

}  // namespace

// Operands that are parts of tiles in rings, reshaped tiles, or of few rows and columns: blocks keep their
// roles, every product is multiplied by wgmma and right, and the assembler has no remarks and spills nothing.
#include <gtest/gtest.h>

#include "codegen/cuda/testing/texts.hpp"
#include "passes/cuda/testing/operand_forms.hpp"

namespace tegula::codegen {
namespace operands_test {

using namespace lang;
using enum passes::testing::Operand;
using passes::testing::Operand, passes::testing::with_operand;

constexpr int tiles_of_operand = 3;  // one a step

struct OperandForm {
  const char* name;
  int m, n, k, threads;
  Operand a = transposed, b = transposed;
  DType type = bf16;
  bool swap = false;
};

// The tile of each step follows that of the step before.
lang::Tensor tiles_of(Program& p, const std::vector<int>& tile, DType type) {
  Shape shape(tile.begin(), tile.end());
  shape[0] *= tiles_of_operand;
  return p.in(Data::random_integers(shape, type, 5, -2, 3));
}

// out = Σ a b over the steps, each with tiles of its own. Sums of small integers are exact in any order.
void product_of(Program& p, const OperandForm& form) {
  using passes::testing::tile_shape;
  const auto a_shape = tile_shape(form.a, form.m, form.k), b_shape = tile_shape(form.b, form.k, form.n);
  const auto a_tiles = tiles_of(p, a_shape, form.type), b_tiles = tiles_of(p, b_shape, form.type),
             out = p.out({form.m, form.n}, f32);
  grid(1, {.threads = form.threads}, [&](Index) {
    Fragment sum({form.m, form.n}, f32, 0);
    pipelined(tiles_of_operand, {.stages = 2}, [&](Index s) {
      const auto shared = [&](const lang::Tensor& all) {
        return [&](const std::vector<int>& shape) {
          Shared tile = passes::testing::shared_tile(shape, form.type);
          lang::copy(all.at(s * shape[0]), tile);
          return tile;
        };
      };
      const auto fragment = [&](const lang::Tensor& all) {
        return [&](const std::vector<int>& shape) {
          return load(all.at(s * shape[0]), {shape[0], shape[1]});
        };
      };
      const Expr which = s % 2;
      with_operand(form.a, form.m, form.k, which, shared(a_tiles), fragment(a_tiles), [&](const auto& a) {
        with_operand(form.b, form.k, form.n, which, shared(b_tiles), fragment(b_tiles), [&](const auto& b) {
          GemmOptions options;
          if (form.swap) options.swap = true;
          lang::gemm(a, b, sum, options);
        });
      });
    });
    lang::copy(sum, out.at(0, 0));
  });
}

const OperandForm forms[] = {
    {"a_part_along_k", 64, 64, 64, 128, columns},
    {"a_part_along_k_of_8_bits", 64, 64, 32, 128, columns, transposed, e4m3},
    {"a_rows", 128, 64, 64, 256, rows},
    {"a_chosen", 64, 64, 32, 128, chosen},
    {"a_reshaped", 64, 64, 64, 128, reshaped},
    {"a_columns_of_a_fragment", 64, 64, 32, 128, fragment_part},
    {"b_columns", 64, 64, 64, 128, shared, columns},
    {"b_columns_inside_a_block", 64, 32, 32, 128, shared, columns},
    {"b_columns_from_inside_a_block", 64, 120, 32, 128, shared, last_columns},
    {"b_part_along_k", 64, 64, 32, 128, shared, rows},
    {"b_chosen", 64, 64, 32, 128, shared, chosen},
    {"b_reshaped", 64, 64, 32, 128, shared, reshaped},
    {"blocks_of_b_shared_by_groups", 64, 64, 64, 256, shared, shared},
    {"thirds_of_blocks", 64, 96, 32, 256, shared, shared},
    {"parts_of_many_blocks", 64, 448, 16, 256, shared, shared},
    {"more_than_an_instruction", 64, 272, 32, 128, shared, shared},
    {"few_rows", 16, 128, 64, 128, shared, transposed},
    {"few_rows_along_n", 8, 64, 64, 128, shared, shared},
    {"few_rows_transposed", 32, 128, 32, 256, transposed, shared},
    {"few_rows_of_two_groups", 16, 64, 64, 256, shared, shared},
    {"few_rows_of_8_bits", 48, 64, 128, 128, shared, transposed, e4m3},
    {"few_rows_from_registers", 16, 64, 64, 128, fragment, transposed},
    {"few_rows_of_parts", 24, 64, 32, 128, columns, rows},
    {"96_rows", 96, 64, 32, 128, shared, shared},
    {"exchanged_where_asked", 64, 128, 32, 128, shared, shared, bf16, true},
};

template <std::size_t... i>
std::vector<Case> cases_of(std::index_sequence<i...>) {
  return {{forms[i].name, [](Program& p) { product_of(p, forms[i]); }}...};
}
const std::vector<Case> products_of_forms = cases_of(std::make_index_sequence<std::size(forms)>());

TEST(OperandForms, AreMultipliedByWgmmaInBlocksWithRoles) {
  const CudaProgram program = print_cuda(Signature(Comparison(products_of_forms).kernel().ir()), {90});
  ASSERT_EQ(program.kernels.size(), products_of_forms.size());
  for (std::size_t i = 0; i < products_of_forms.size(); ++i) {
    const std::string& way = program.kernels[i].way;
    EXPECT_TRUE(way.starts_with("roles") && way.find("1 by wgmma") != std::string::npos)
        << products_of_forms[i].name << ": " << way;
  }
  // The only notes are on a few rows from registers, which are moved.
  for (const passes::Note& note : program.notes)
    EXPECT_EQ(note.kind, passes::NoteKind::through_shared_memory) << passes::format(note);
  EXPECT_EQ(program.notes.size(), 1u);
}

// Attention of few queries, whose weights go through shared memory on their way to the second product.
void few_queries(Program& p, int rows, int threads) {
  constexpr int keys = 64, dim = 64;
  const auto random = [&](int count, std::uint64_t seed) {
    return p.in(Data::random_normal({count, dim}, bf16, seed));
  };
  const auto q = random(rows, 1), k = random(tiles_of_operand * keys, 2),
             v = random(tiles_of_operand * keys, 3), out = p.out({rows, dim}, f32);
  grid(1, {.threads = threads}, [&](Index) {
    Shared queries({rows, dim}, bf16);
    lang::copy(q.at(0, 0), queries);
    Fragment sum({rows, dim}, f32, 0), largest({rows}, f32, -inf), total({rows}, f32, 0);
    pipelined(tiles_of_operand, {.stages = 2}, [&](Index j) {
      Shared own_keys({keys, dim}, bf16), values({keys, dim}, bf16);
      lang::copy(k.at(j * keys), own_keys);
      lang::copy(v.at(j * keys), values);
      Fragment scores({rows, keys}, f32, 0);
      lang::gemm(queries, own_keys.T(), scores);
      const Fragment before = clone(largest);
      reduce_max(scores, largest);
      parallel(scores, [&](Index i, Index c) { scores(i, c) = exp2(scores(i, c) - largest(i)); });
      parallel(sum, [&](Index i, Index c) { sum(i, c) *= exp2(before(i) - largest(i)); });
      parallel(total, [&](Index i) { total(i) *= exp2(before(i) - largest(i)); });
      reduce_sum(scores, total);
      lang::gemm(scores.to(bf16), values, sum);
    });
    parallel(sum, [&](Index i, Index c) { sum(i, c) /= total(i); });
    lang::copy(sum, out.at(0, 0));
  });
}

TEST(OperandForms, OfFewQueriesAreMultipliedByWgmma) {
  const Case cases[] = {{"8 queries", [](Program& p) { few_queries(p, 8, 128); }, 0.03},
                        {"16 queries", [](Program& p) { few_queries(p, 16, 128); }, 0.03},
                        {"48 queries of two warp groups", [](Program& p) { few_queries(p, 48, 256); }, 0.03}};
  for (const auto& kernel : print_cuda(Signature(Comparison(cases).kernel().ir()), {90}).kernels)
    EXPECT_TRUE(kernel.way.starts_with("roles") && kernel.way.ends_with("2 by wgmma")) << kernel.way;
  expect_agreement(cases, tegula::Target::emulated_sm90());
  expect_good_code(Comparison(cases).kernel(), 90);
}

// Each warp group multiplies its own part of a tile that all use.
void of_groups(Program& p) {
  constexpr int n = 64;
  const auto q = p.in(Data::random_integers({2, n, n}, bf16, 5, -2, 3)),
             k = p.in(Data::random_integers({tiles_of_operand * n, n}, bf16, 6, -2, 3)),
             out = p.out({tiles_of_operand * 2, n, n}, f32);
  grid(1, {.threads = 256}, [&](Index) {
    Shared queries({2, n, n}, bf16);
    lang::copy(q.at(0, 0, 0), queries);
    pipelined(tiles_of_operand, {.stages = 2}, [&](Index i) {
      Shared keys({n, n}, bf16);
      lang::copy(k.at(i * n), keys);
      each_group(2, Group::warpgroup, [&](Index g) {
        Fragment scores({n, n}, f32, 0);
        lang::gemm(queries.slice(g), keys.T(), scores);
        lang::copy(scores, out.slice(i * 2 + g));
      });
    });
  });
}

TEST(OperandForms, OfGroupsAreMultipliedByWgmma) {
  const Case cases[] = {{"groups", of_groups}};
  const auto kernels = print_cuda(Signature(Comparison(cases).kernel().ir()), {90}).kernels;
  EXPECT_TRUE(kernels[0].way.starts_with("roles") && kernels[0].way.ends_with("1 by wgmma"))
      << kernels[0].way;
  expect_agreement(cases, tegula::Target::emulated_sm90());
  expect_good_code(Comparison(cases).kernel(), 90);
}

// Scores that threads write to shared memory are an operand of two products, whose results go to columns of
// one tensor.
void of_one_writing(Program& p) {
  constexpr int n = 64;
  const auto q = p.in(Data::random_integers({n, n}, bf16, 5, 0, 2)),
             k = p.in(Data::random_integers({tiles_of_operand * n, n}, bf16, 6, 0, 2)),
             out = p.out({tiles_of_operand * n, 2 * n}, f32);
  grid(1, {.threads = 256}, [&](Index) {
    Shared queries({n, n}, bf16);
    lang::copy(q.at(0, 0), queries);
    pipelined(tiles_of_operand, {.stages = 2}, [&](Index i) {
      Shared keys({n, n}, bf16), weights({n, n}, bf16);
      lang::copy(k.at(i * n), keys);
      Fragment scores({n, n}, f32, 0), left({n, n}, f32, 0), right({n, n}, f32, 0);
      lang::gemm(queries, keys.T(), scores);
      lang::copy(scores, weights);
      const auto to_left = out.slice(all, range(0, n)), to_right = out.slice(all, range(n, 2 * n));
      lang::gemm(weights, keys, left);
      parallel(left, [&](Index r, Index d) { to_left(i * n + r, d) = left(r, d); });
      lang::gemm(weights.T(), queries, right);
      parallel(right, [&](Index r, Index d) { to_right(i * n + r, d) = right(r, d); });
    });
  });
}

TEST(OperandForms, AreMadeVisibleOnce) {
  const Case cases[] = {{"one writing", of_one_writing}};
  const std::string text = print_cuda(Signature(Comparison(cases).kernel().ir()), {90}).text;
  int meetings = 0;
  for (std::size_t at = 0; (at = text.find("tg::team_sync<14, 256>", at)) != std::string::npos; ++at)
    ++meetings;
  EXPECT_EQ(meetings, 1) << "behind the scores, of which there are two halves\n" << text;
  expect_agreement(cases, tegula::Target::emulated_sm90());
  expect_good_code(Comparison(cases).kernel(), 90);
}

// Scores of queries of n features with tiles of as many keys, which `fill(step, keys)` writes.
template <class Fill>
void scores_of(Program& p, int rows, int n, const Fill& fill) {
  const auto q = p.in(Data::random_integers({rows, n}, bf16, 5, 0, 2)),
             out = p.out({tiles_of_operand * rows, rows}, f32);
  grid(1, {.threads = 256}, [&](Index) {
    Shared queries({rows, n}, bf16);
    lang::copy(q.at(0, 0), queries);
    pipelined(tiles_of_operand, {.stages = 2}, [&](Index i) {
      Shared keys({rows, n}, bf16);
      fill(i, keys);
      Fragment scores({rows, rows}, f32, 0);
      lang::gemm(queries, keys.T(), scores);
      lang::copy(scores, out.at(i * rows));
    });
  });
}

// Rows of a record in two tensors, whose limits are between pieces of 16 elements.
void of_two_records(Program& p) {
  constexpr int n = 64, first_features = 48;
  const auto first = p.in(Data::random_integers({tiles_of_operand * n, first_features}, e4m3, 6, 0, 2)),
             last = p.in(Data::random_integers({tiles_of_operand * n, n - first_features}, bf16, 7, 0, 2));
  scores_of(p, n, n, [&](const Index& i, Shared& keys) {
    parallel(keys, [&](Index r, Index d) {
      Expr row = i * n + r;
      keys(r, d) = select(d < first_features, first(row, d), last(row, d - first_features));
    });
  });
}

// Pages of such rows, too many for a thread to hold: a number may be that of no page, and the last rows end
// within a tile.
void of_pages_of_records(Program& p) {
  constexpr int rows = 64, n = 256, first_features = 192, pages = 3;
  const auto table = p.in(Data::random_integers({tiles_of_operand}, i32, 8, 0, pages + 1)),
             first = p.in(Data::random_integers({pages, rows, first_features}, e4m3, 6, 0, 2)),
             last = p.in(Data::random_integers({pages, rows, n - first_features}, bf16, 7, 0, 2));
  scores_of(p, rows, n, [&](const Index& i, Shared& keys) {
    Expr page = table(i);
    parallel(keys, [&](Index r, Index d) {
      Expr own = select(i * rows + r < tiles_of_operand * rows - 5, page, -1);
      keys(r, d) = select(d < first_features, first(own, r, d), last(own, r, d - first_features));
    });
  });
}

TEST(OperandForms, OfPagesOfRecordsMoveInRangesOfColumns) {
  const Case cases[] = {{"pages of records", of_pages_of_records}};
  const std::string text = print_cuda(Signature(Comparison(cases).kernel().ir()), {90}).text;
  EXPECT_NE(text.find("_ < 192) {"), std::string::npos) << "each thread has one of the tensors\n" << text;
  expect_agreement(cases, tegula::Target::emulated_sm90());
  expect_good_code(Comparison(cases).kernel(), 90);
}

// Rows that a list has, some of them no rows; `in_pages`: they are found by a page and a place there, with a
// factor for each row.
template <bool in_pages>
void of_listed_records(Program& p) {
  constexpr int rows = 64, n = 256, first_features = 192, page = 16, all_rows = 80;
  const Shape places = in_pages ? Shape{all_rows / page, page} : Shape{all_rows};
  const auto joined = [&](std::int64_t features) {
    Shape shape = places;
    shape.push_back(features);
    return shape;
  };
  const auto list = p.in(Data::random_integers({tiles_of_operand * rows - 5}, i32, 8, -2, all_rows + 3)),
             first = p.in(Data::random_integers(joined(first_features), e4m3, 6, 0, 2)),
             last = p.in(Data::random_integers(joined(n - first_features), bf16, 7, 0, 2)),
             factors = p.in(Data::random_integers({all_rows}, f32, 9, 1, 3));
  const auto at = [&](const lang::Tensor& of, const Expr& row, const Expr& d) -> Expr {
    return in_pages ? of(row / page, row % page, d) : of(row, d);
  };
  scores_of(p, rows, n, [&](const Index& i, Shared& keys) {
    parallel(keys, [&](Index r, Index d) {
      Expr place = i * rows + r, row = select(place < list.extent(0), list(place), -1);
      Expr value = at(first, row, d), scaled = in_pages ? value * factors(row) : value;
      keys(r, d) = select(d < first_features, scaled, at(last, row, d - first_features));
    });
  });
}

TEST(OperandForms, OfListedRecordsComeInRangesOfColumns) {
  const Case cases[] = {{"listed records", of_listed_records<false>},
                        {"listed records in pages", of_listed_records<true>}};
  for (const Case& own : cases) {
    const Case one[] = {own};
    const std::string text = print_cuda(Signature(Comparison(one).kernel().ir()), {90}).text;
    EXPECT_NE(text.find("_ < 192) {"), std::string::npos) << "each thread has one of the tensors\n" << text;
    EXPECT_NE(text.find("tg::copy_async("), std::string::npos) << "and the other has no registers\n" << text;
  }
  expect_agreement(cases, tegula::Target::emulated_sm90());
  expect_good_code(Comparison(cases).kernel(), 90);
}

TEST(OperandForms, OfTwoRecordsComeInPieces) {
  const Case cases[] = {{"two records", of_two_records}};
  const std::string text = print_cuda(Signature(Comparison(cases).kernel().ir()), {90}).text;
  EXPECT_NE(text.find("? tg::load_pack<16>("), std::string::npos) << "each piece asks\n" << text;
  EXPECT_EQ(text.find("63 < 48"), std::string::npos) << "the tile does not";
  expect_agreement(cases, tegula::Target::emulated_sm90());
  expect_good_code(Comparison(cases).kernel(), 90);
}

// Sums of the same product, each of 32 instructions with two operands in shared memory.
template <int sums>
void equal_sums(Program& p) {
  constexpr int rows = 64, n = 512;
  const auto a = tiles_of(p, {rows, n}, bf16), b = p.in(Data::random_integers({rows, n}, bf16, 6, -2, 3));
  std::vector<lang::Tensor> out;
  for (int i = 0; i < sums; ++i) out.push_back(p.out({rows, rows}, f32));
  grid(1, {.threads = 128}, [&](Index) {
    Shared right({rows, n}, bf16);
    lang::copy(b, right);
    std::vector<Fragment> sum;
    for (int i = 0; i < sums; ++i) sum.emplace_back(std::initializer_list<int>{rows, rows}, f32, 0);
    pipelined(tiles_of_operand, {.stages = 1}, [&](Index s) {
      Shared left({rows, n}, bf16);
      lang::copy(a.at(s * rows, 0), left);
      for (Fragment& own : sum) lang::gemm(left, right.T(), own);
    });
    for (int i = 0; i < sums; ++i) lang::copy(sum[i], out[i]);
  });
}

// Of 256 places of a step each product finds its own; 192 are kept from one to the next.
TEST(OperandForms, OfManyProductsAreFoundForEach) {
  const Case few[] = {{"three sums", equal_sums<3>}}, many[] = {{"four sums", equal_sums<4>}};
  EXPECT_EQ(print_cuda(Signature(Comparison(few).kernel().ir()), {90}).text.find("operand_apart"),
            std::string::npos);
  const std::string text = print_cuda(Signature(Comparison(many).kernel().ir()), {90}).text;
  EXPECT_NE(text.find("tg::operand_apart<64, 64>("), std::string::npos) << text;
  expect_agreement(many, tegula::Target::emulated_sm90());
  expect_good_code(Comparison(many).kernel(), 90);
}

TEST(OperandForms, AreMultipliedRight) {
  expect_agreement(products_of_forms, tegula::Target::emulated_sm90());
  expect_good_code(Comparison(products_of_forms).kernel(), 90);
}

}  // namespace operands_test
}  // namespace tegula::codegen

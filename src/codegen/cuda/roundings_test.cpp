// Values are rounded once: not where a small type holds them anyway, and not where whoever reads them rounds.
#include <gtest/gtest.h>

#include "codegen/cuda/testing/texts.hpp"

namespace tegula::codegen {
namespace roundings_test {

using namespace lang;

constexpr int n = 64;

struct Row {
  Case form;
  int of_elements = 0;  // roundings one by one, in the text
};

// Elements through a fragment of their own type, and of another one.
template <const DType& type, const DType& held>
void through_fragment(Program& p) {
  const auto x = p.in(Data::random_normal({n, n}, type, 1)), y = p.out({n, n}, type),
             sums = p.out({n}, compute_type(held));
  grid(1, {.threads = 128}, [&](Index) {
    Fragment own({n, n}, held);
    lang::copy(x.at(0), own);
    lang::copy(own, y.at(0));
    lang::copy(reduce_max(own), sums.at(0));
  });
}

enum class Reader { product, two_products, product_and_store, product_and_sum, narrow_sum };

// A fragment of a small type that is computed element by element, and who reads it.
template <const DType& type, Reader reader>
void filled(Program& p) {
  const auto x = p.in(Data::random_integers({n, n}, i8, 1, -3, 4)),
             z = p.in(Data::random_integers({n, n}, type, 2, -2, 3)), o = p.out({n, n}, f32),
             y = p.out({n, n}, type), sums = p.out({n}, f32);
  grid(1, {.threads = 128}, [&](Index) {
    Fragment w({n, n}, type), acc({n, n}, f32, 0);
    Shared b({n, n}, type);
    lang::copy(z.at(0), b);
    parallel(w, [&](Index i, Index j) { w(i, j) = f32(x(i, j)) * f32(0.3f) + f32(1.0f); });
    if (reader != Reader::narrow_sum) lang::gemm(w, b, acc);
    if (reader == Reader::two_products) lang::gemm(w, b.T(), acc);
    if (reader == Reader::product_and_store) lang::copy(w, y.at(0));
    if (reader == Reader::product_and_sum || reader == Reader::narrow_sum)
      lang::copy(reduce_max(w), sums.at(0));
    lang::copy(acc, o.at(0));
  });
}

// What a product reads changes between two of them: the second change starts from what was rounded.
void changed_again(Program& p) {
  const auto x = p.in(Data::random_normal({n, n}, f32, 1)),
             z = p.in(Data::random_integers({n, n}, bf16, 2, -2, 3)), o = p.out({n, n}, f32);
  grid(1, {.threads = 128}, [&](Index) {
    Fragment w({n, n}, bf16), acc({n, n}, f32, 0);
    Shared b({n, n}, bf16);
    lang::copy(z.at(0), b);
    parallel(w, [&](Index i, Index j) { w(i, j) = x(i, j) * f32(0.3f); });
    lang::gemm(w, b, acc);
    parallel(w, [&](Index i, Index j) { w(i, j) = w(i, j) * f32(1.7f); });
    lang::gemm(w, b, acc);
    lang::copy(acc, o.at(0));
  });
}

// A tile that is turned, from memory to memory; `doubled` ones are computed.
template <bool doubled>
void turned_bytes(Program& p) {
  const auto x = p.in(Data::random_integers({n, n}, e4m3, 1, -3, 4)), y = p.out({n, n}, e4m3);
  grid(1, {.threads = 128}, [&](Index) {
    Shared rows({n, n}, e4m3), columns({n, n}, e4m3);
    lang::copy(x.at(0), rows);
    parallel(columns, [&](Index i, Index j) {
      if (doubled)
        columns(i, j) = rows(j, i) * 2;
      else
        columns(i, j) = rows(j, i);
    });
    lang::copy(columns, y.at(0));
  });
}

// Copies by elements, of bytes and then of other types: what is known of the first is no longer of the next.
void bytes_before_others(Program& p) {
  const auto x = p.in(Data::random_integers({4, 3}, e4m3, 1, -3, 4)), y = p.out({4, 3}, e4m3);
  const auto z = p.in(Data::random_integers({4, 3}, f16, 2, -3, 4)), w = p.out({4, 3}, f16);
  grid(1, {.threads = 128}, [&](Index) {
    for (int i = 0; i < 4; ++i) {
      Shared bytes({3}, e4m3), others({3}, f16);
      lang::copy(x.slice(i), bytes);
      lang::copy(bytes, y.slice(i));
      lang::copy(z.slice(i), others);
      lang::copy(others, w.slice(i));
    }
  });
}

// Sums differ in their last bits by the order of the products.
constexpr double of_order = 2e-6;

const Row rows[] = {
    {{"bf16 as bf16", through_fragment<bf16, bf16>}},
    {{"f16 as f16", through_fragment<f16, f16>}},
    {{"e4m3 as e4m3", through_fragment<e4m3, e4m3>}},
    {{"e4m3 as bf16", through_fragment<e4m3, bf16>}},
    {{"i8 as i8", through_fragment<i8, i8>}},
    {{"f16 as bf16", through_fragment<f16, bf16>}, 1},
    {{"f32 as bf16", through_fragment<f32, bf16>}, 1},
    {{"bf16 for a product", filled<bf16, Reader::product>, of_order}},
    {{"f16 for a product", filled<f16, Reader::product>, of_order}},
    {{"bf16 for two products", filled<bf16, Reader::two_products>, of_order}},
    {{"bf16 for a product and memory", filled<bf16, Reader::product_and_store>, of_order}},
    {{"bf16 for a product and a sum", filled<bf16, Reader::product_and_sum>, of_order}, 1},
    {{"bf16 for a sum", filled<bf16, Reader::narrow_sum>}, 1},
    {{"bf16 that changes again", changed_again, of_order}, 2},
};

int count(const std::string& text, const std::string& piece) {
  int result = 0;
  for (std::size_t at = text.find(piece); at != std::string::npos; at = text.find(piece, at + 1)) ++result;
  return result;
}

TEST(Roundings, OfBytesThatAreOnlyMovedAreNone) {
  const Case cases[] = {
      {"moved", turned_bytes<false>}, {"doubled", turned_bytes<true>}, {"before_others", bytes_before_others}};
  for (const Case& form : cases) {
    const Comparison one(std::span(&form, 1));
    const std::string text = print_cuda(Signature(one.kernel().ir()), {90}).text;
    EXPECT_EQ(text.find("tg::load(") == std::string::npos, form.name == std::string("moved")) << text;
  }
  for (const tegula::Target target : {tegula::Target::emulated(), tegula::Target::emulated_sm90()})
    expect_agreement(cases, target);
}

TEST(Roundings, AreDoneOnce) {
  std::vector<Case> cases;
  for (const Row& row : rows) {
    cases.push_back(row.form);
    const Comparison one(std::span(&row.form, 1));
    for (const int architecture : {80, 90}) {
      const std::string text = print_cuda(Signature(one.kernel().ir()), {architecture}).text;
      const bool found = text.find("tg::rounded<") != std::string::npos;
      EXPECT_EQ(found, row.of_elements > 0) << row.form.name << "\n" << text;
      if (row.of_elements > 1) {
        EXPECT_GE(count(text, "tg::rounded<"), row.of_elements) << row.form.name;
      }
    }
  }
  for (const tegula::Target target :
       {tegula::Target::cpu(), tegula::Target::emulated(), tegula::Target::emulated_sm90()})
    expect_agreement(cases, target);
}

}  // namespace roundings_test
}  // namespace tegula::codegen

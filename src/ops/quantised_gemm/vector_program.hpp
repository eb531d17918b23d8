// What the programs of a matrix times a vector on a GPU and on a CPU share.
#pragma once
#include "ops/products/low_bits.hpp"
#include "ops/quantised_gemm/vector.hpp"

namespace tegula::ops {

struct QuantisedVectorBase {
  const QuantisedVector& c;
  const QuantisedWeights& w = c.weights;
  lang::Dim rows{"rows"}, n{"n"}, k{"k"}, groups{"groups"};
  lang::Tensor a = lang::input("a", {rows, k}, c.type);
  QuantisedMatrix matrix = QuantisedInputs(w, {}, n, k, groups).all;
  lang::Tensor tensor_scale = c.tensor_scale ? lang::input("tensor_scale", {1}, f32) : a;
  lang::Tensor row_scale = c.row_scale ? lang::input("row_scale", {rows}, f32) : a;
  lang::Tensor bias = c.bias ? lang::input("bias", {n}, *c.bias) : a;
  lang::Tensor out = lang::output("out", {rows, n}, c.out);
  int in_word = w.stored().in_element();

  // The column of number e of a word.
  lang::Expr column(const lang::Expr& word, const lang::Expr& e) const;
  // The group of all numbers of a word.
  lang::Expr group_of(const lang::Expr& word) const;
  // The number of column `at`, 0 beyond the last one.
  lang::Expr number_of_a(const lang::Expr& at) const;
  // The sums of rows from `row` on, with all that remains to be done.
  void store(lang::Fragment& sum, const lang::Expr& row) const;
};

// On a CPU: sums of products of the bytes of words.
void run_on_cpu(const QuantisedVectorBase& base);

}  // namespace tegula::ops

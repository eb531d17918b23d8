#include <algorithm>

#include "ops/nsa/gates.hpp"
#include "ops/reference/reference.hpp"
#include "ops/schema/gradient.hpp"
#include "tegula/ops/nsa_combine.hpp"

namespace tegula::ops {

namespace {

using namespace lang;
using lang::Tensor;

CombineInstance combine_plan(const Bound<NsaCombine>& c) {
  return combine_instance(c.type("compressed"), c.type("gates"), c.has("window"), c.small_dim("d"));
}

// The branches with the names of their tensors before which stands `prefix`.
template <class Declare>
std::vector<Tensor> branches(const CombineInstance& c, const Dim& rows, const std::string& prefix,
                             const Declare& declare) {
  std::vector<Tensor> result;
  for (const char* name : {"compressed", "selected", "window"})
    if (c.window || std::string_view(name) != "window")
      result.push_back(declare(prefix + name, Extents{rows, c.columns}, c.type));
  return result;
}

// Of a branch, for the rows of a tile.
Fragment weights_of(const Tensor& gates, int branch, const Expr& row, int rows) {
  Fragment weights = load(gates.slice(all, branch).at(row), {rows}, f32);
  weigh_gates(weights);
  return weights;
}

Kernel combine_forward(const CombineInstance& c) {
  return kernel(instance_name("nsa_combine", c), [&] {
    Dim rows("rows"), count("branches");
    const auto from = branches(c, rows, "", [](const std::string& name, const Extents& e, DType type) {
      return input(name, e, type);
    });
    Tensor gates = input("gates", {rows, count}, c.gates), out = output("out", {rows, c.columns}, c.type);
    grid(ceildiv(rows, c.rows), [&](Index block) {
      Expr row = block * c.rows;
      Fragment sum({c.rows, c.columns}, f32, 0);
      for (std::size_t branch = 0; branch < from.size(); ++branch) {
        Fragment values = load(from[branch].at(row), {c.rows, c.columns}, f32);
        Fragment weights = weights_of(gates, static_cast<int>(branch), row, c.rows);
        parallel(sum, [&](Index i, Index j) { sum(i, j) += weights(i) * values(i, j); });
      }
      copy(sum, out.at(row));
    });
  });
}

}  // namespace

CombineInstance combine_instance(DType type, DType gates, bool window, int features) {
  return {type, gates, window, features, std::clamp(8192 / std::max(features, 1), 1, 16)};
}

Kernel combine_backward(const CombineInstance& c) {
  return kernel(instance_name("nsa_combine_backward", c), [&] {
    Dim rows("rows"), count("branches");
    const auto from = branches(c, rows, "", [](const std::string& name, const Extents& e, DType type) {
      return input(name, e, type);
    });
    const auto to = branches(c, rows, "d", [](const std::string& name, const Extents& e, DType type) {
      return output(name, e, type);
    });
    Tensor gates = input("gates", {rows, count}, c.gates), dout = input("dout", {rows, c.columns}, c.type);
    Tensor dgates = output("dgates", {rows, count}, c.gates);
    std::optional<Tensor> added[3];
    if (c.more_selected) added[1].emplace(input("more_selected", {rows, c.columns}, c.type));
    if (c.more_window) added[2].emplace(input("more_window", {rows, c.columns}, c.type));
    grid(ceildiv(rows, c.rows), [&](Index block) {
      Expr row = block * c.rows;
      Fragment given = load(dout.at(row), {c.rows, c.columns}, f32);
      for (std::size_t branch = 0; branch < from.size(); ++branch) {
        Fragment values = load(from[branch].at(row), {c.rows, c.columns}, f32);
        Fragment weights = weights_of(gates, static_cast<int>(branch), row, c.rows);
        parallel(values, [&](Index i, Index j) { values(i, j) *= given(i, j); });
        Fragment slopes = reduce_sum(values);
        parallel(slopes, [&](Index i) { slopes(i) *= weights(i) * (1.f - weights(i)); });
        copy(slopes, dgates.slice(all, static_cast<int>(branch)).at(row));
        parallel(values, [&](Index i, Index j) { values(i, j) = weights(i) * given(i, j); });
        if (added[branch]) {
          Fragment more = load(added[branch]->at(row), {c.rows, c.columns}, f32);
          parallel(values, [&](Index i, Index j) { values(i, j) += more(i, j); });
        }
        copy(values, to[branch].at(row));
      }
    });
  });
}

namespace {

template <class E>
void combine_formula(const Bound<NsaCombine>& c, E& exact) {
  const std::int64_t rows = c.dim("rows"), d = c.dim("d"), count = c.dim("branches");
  auto *gates = exact.data("gates"), *out = exact.data("out");
  decltype(gates) from[] = {exact.data("compressed"), exact.data("selected"), exact.data_if("window")};
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t branch = 0; branch < count; ++branch) {
      const typename E::Number weight = weight_of_gate(gates[i * count + branch]);
      for (std::int64_t j = 0; j < d; ++j) out[i * d + j] += weight * from[branch][i * d + j];
    }
}

}  // namespace

tegula::Tensor sum_by_gates(const std::array<TensorRef, 3>& branches, const TensorRef& gates) {
  tegula::Tensor result = tegula::Tensor::zeros(branches[1].shape, f64);
  each_element(result.shape(), [&](const Shape& at) {
    double sum = 0;
    for (std::int64_t branch = 0; branch < gates.size(-1); ++branch)
      sum += branches.at(static_cast<std::size_t>(branch)).get(at) *
             weight_of_gate(gates.get(with_last(at, branch)));
    result.set(at, sum);
  });
  return result;
}

const OperatorSchema& nsa_combine_schema() {
  using Op = NsaCombine;
  static const OperatorSchema table =
      Schema<Op>("nsa_combine", "the branches of native sparse attention, summed by their gates")
          .in(&Op::compressed, "compressed", "... d", floats, "attention over compressed entries")
          .in(&Op::selected, "selected", "... d", same_as("compressed"), "attention over selected blocks")
          .in(&Op::gates, "gates", "... branches", floats, meaning_of_gates)
          .in(&Op::window, "window", "... d", same_as("compressed"), "attention over a sliding window")
          .out(&Op::out, "out", "... d", same_as("compressed"), sum_of_branches)
          .with([](Schema<Op>& all) { require_gates(all, "branches == (window ? 3 : 2)"); })
          .require("compressed", "1 <= d & d <= 4096", "1 to 4096 features", "split the heads")
          .source("Yuan et al. 2025, Native Sparse Attention: the gated sum of its branches")
          .gradient("nsa_combine_backward")
          .flops("2*rows*d*branches")
          .examples({{"ragged", "...=37 d=20 branches=3 window"},
                     {"two_f16", "...=2,7 d=64 branches=2 f16"},
                     {"batched_bf16", "...=2,3,5 d=128 branches=3 bf16 gates:f32 window"}})
          .measured({{"65536x16_bf16", "...=65536,16 d=128 branches=3 bf16 window"},
                     {"8192x64_bf16", "...=8192,64 d=128 branches=3 bf16 window"}})
          .maps({{"features",
                  "...=16384,16 branches=3 bf16",
                  {"d=20", "d=32", "d=64", "d=80", "d=96", "d=100", "d=127", "d=128", "d=192", "d=256"},
                  {"window", "branches=2", "window ...=262144", "window ...=260000,1", "window f16",
                   "window f32", "window gates:f32"}}})
          .run(combine_plan, combine_forward, combine_formula<Exact>);
  return table;
}

const OperatorSchema& nsa_combine_backward_schema() {
  return gradient_table<combine_plan, combine_backward, combine_formula<Traced>>(nsa_combine_schema(),
                                                                                 "5*rows*d*branches");
}

}  // namespace tegula::ops

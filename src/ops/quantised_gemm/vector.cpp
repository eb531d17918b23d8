#include "ops/quantised_gemm/vector.hpp"

#include "lang/packed_numbers.hpp"
#include "ops/quantised_gemm/vector_program.hpp"

namespace tegula::ops {

using namespace lang;
using lang::Tensor;

namespace {

constexpr int vector_threads = 128, words_of_thread = 4, words_of_step = vector_threads * words_of_thread;
// Rows whose words are in registers at a time, and those of a block, which share the vector.
constexpr int words_of_piece = 16;  // of the turned vector, whose rows the copy engine takes
constexpr int rows_at_once = 4, rows_of_block = 16, rows_of_block_scaled_last = 8;

struct GpuVector : QuantisedVectorBase {
  Expr of_group(const Tensor& numbers, bool by_group, const Expr& row, const Expr& group) const {
    return by_group ? Expr(numbers(group, row)) : Expr(numbers(row, group));
  }

  // Scales of whole rows are left to the end of a row: threads have registers for more words.
  bool scales_last() const { return w.group == 0 && !w.zeros; }
  Expr scale(const Expr& row, const Expr& group) const {
    return scale_of(of_group(matrix.scales, w.by_group, row, group), w.scale);
  }

  void add_number(Fragment& sum, const Fragment& words, int e, const Fragment& x) const {
    parallel(sum, [&](Index i, Index j) {
      sum(i, j) += packed_as_f32(w.stored(), words(i, j), place(e)) * f32(x(j));
    });
  }

  // The sums of a step's words, each with the scale of its group.
  void add_step(Fragment& sums, const Tensor& vector, const Expr& row, const Expr& first) const {
    const Fragment words = load(matrix.b.elements().at(row, first), {rows_at_once, words_of_step});
    std::vector<Fragment> numbers;
    numbers.reserve(in_word);
    for (int e = 0; e < in_word; ++e) numbers.push_back(load(vector.slice(e).at(first), {words_of_step}));
    if (scales_last()) {
      for (int e = 0; e < in_word; ++e) add_number(sums, words, e, numbers[e]);
      return;
    }
    Fragment sum({rows_at_once, words_of_step}, f32, 0), total({words_of_step}, f32, 0);
    for (int e = 0; e < in_word; ++e) {
      const Fragment& x = numbers[e];
      add_number(sum, words, e, x);
      if (w.zeros) parallel(total, [&](Index j) { total(j) += f32(x(j)); });
    }
    parallel(sums, [&](Index i, Index j) {
      Expr group = group_of(first + j), own = min(row + i, n - 1);
      Expr less = w.zeros ? sum(i, j) - f32(of_group(*matrix.zeros, w.zeros_by_group, own, group)) * total(j)
                          : Expr(sum(i, j));
      sums(i, j) += less * scale(own, group);
    });
  }

  // The vector with numbers e of all words side by side, as threads that have words side by side read them.
  Tensor turned_vector() const {
    Expr words = ceildiv(k, in_word);
    Tensor result = workspace("turned", {in_word, ceildiv(words, words_of_piece) * words_of_piece}, c.type);
    grid(ceildiv(words, vector_threads), in_word, {.threads = vector_threads}, [&](Index x, Index e) {
      Fragment own({vector_threads}, c.type);
      parallel(own, [&](Index i) { own(i) = number_of_a(column(x * vector_threads + i, e)); });
      copy(own, result.slice(e).at(x * vector_threads));
    });
    return result;
  }

  // Where number e of a word is.
  PackedPlace place(int e) const {
    const int half = in_word / 2, bit = e % half * w.bits();
    return PackedPlace{bit, e >= half ? std::optional(Expr(true)) : std::optional(Expr(false)), false};
  }

  void run() const {
    const Tensor turned = turned_vector();
    const int rows = scales_last() ? rows_of_block_scaled_last : rows_of_block;
    grid(ceildiv(n, rows), {.threads = vector_threads}, [&](Index block) {
      serial(rows / rows_at_once, [&](Index step) {
        Expr row = block * rows + step * rows_at_once;
        Fragment sums({rows_at_once, words_of_step}, f32, 0);
        serial(ceildiv(k, words_of_step * in_word),
               [&](Index step) { add_step(sums, turned, row, step * words_of_step); });
        Fragment sum = reduce_sum(sums);
        if (scales_last()) parallel(sum, [&](Index i) { sum(i) *= scale(min(row + i, n - 1), Operand(0)); });
        store(sum, row);
      });
    });
  }
};

}  // namespace

Expr QuantisedVectorBase::column(const Expr& word, const Expr& e) const {
  if (!w.packed) return word * in_word + e;
  return word / 8 * 64 + word % 2 * 32 + e / 4 * 16 + e / 2 % 2 * 8 + word % 8 / 2 * 2 + e % 2;
}

Expr QuantisedVectorBase::group_of(const Expr& word) const {
  if (w.group == 0) return 0;
  const bool in_order = !w.packed || w.group >= 64;
  return min((in_order ? word * in_word : column(word, 0)) / w.group, groups - 1);
}

Expr QuantisedVectorBase::number_of_a(const Expr& at) const {
  return select(at < k, a(0, min(at, k - 1)), 0);
}

void QuantisedVectorBase::store(Fragment& sum, const Expr& row) const {
  parallel(sum, [&](Index i) {
    if (c.tensor_scale) sum(i) *= tensor_scale(0);
    if (c.row_scale) sum(i) *= row_scale(0);
  });
  if (c.bias) {
    Fragment added = load(bias.at(row), {static_cast<int>(sum.extent(0))}, f32);
    parallel(sum, [&](Index i) { sum(i) += added(i); });
  }
  copy(sum, out.slice(0).at(row));
}

Kernel quantised_vector_program(const QuantisedVector& c) {
  return kernel(instance_name("quantised_vector", c), [&] {
    if (!c.on_cpu) return GpuVector{{c}}.run();
    run_on_cpu(QuantisedVectorBase{c});
  });
}

}  // namespace tegula::ops

#include "ops/quantised_gemm/vector.hpp"

#include <algorithm>
#include <numeric>

#include "lang/packed_numbers.hpp"
#include "ops/products/low_bits.hpp"

namespace tegula::ops {

using namespace lang;
using lang::Tensor;

namespace {

constexpr int vector_threads = 128, words_of_thread = 4, words_of_step = vector_threads * words_of_thread;
// Rows whose words are in registers at a time, and those of a block, which share the vector.
constexpr int words_of_piece = 16;  // of the turned vector, whose rows the copy engine takes
constexpr int rows_at_once = 4, rows_of_block = 16, rows_of_block_scaled_last = 8;
// Rows of a block on a CPU, and the words of a step, whose sums lanes hold.
constexpr int cpu_rows = 16, most_cpu_words = 128;

struct VectorProgram {
  const QuantisedVector& c;
  const QuantisedWeights& w = c.weights;
  Dim rows{"rows"}, n{"n"}, k{"k"}, groups{"groups"};
  Tensor a = input("a", {rows, k}, c.type);
  QuantisedMatrix matrix = QuantisedInputs(w, {}, n, k, groups).all;
  Tensor tensor_scale = c.tensor_scale ? input("tensor_scale", {1}, f32) : a;
  Tensor row_scale = c.row_scale ? input("row_scale", {rows}, f32) : a;
  Tensor bias = c.bias ? input("bias", {n}, *c.bias) : a;
  Tensor out = output("out", {rows, n}, c.out);
  int in_word = w.stored().in_element();

  // The column of number e of a word.
  Expr column(const Expr& word, const Expr& e) const {
    if (!w.packed) return word * in_word + e;
    return word / 8 * 64 + word % 2 * 32 + e / 4 * 16 + e / 2 % 2 * 8 + word % 8 / 2 * 2 + e % 2;
  }
  PackedPlace place(int e) const {
    const int half = in_word / 2, bit = e % half * w.bits();
    return PackedPlace{bit, e >= half ? std::optional(Expr(true)) : std::optional(Expr(false)), false,
                       c.on_cpu};
  }
  Expr of_group(const Tensor& numbers, bool by_group, const Expr& row, const Expr& group) const {
    return by_group ? Expr(numbers(group, row)) : Expr(numbers(row, group));
  }

  // The group of all numbers of a word.
  Expr group_of(const Expr& word) const {
    if (w.group == 0) return 0;
    const bool in_order = !w.packed || w.group >= 64;
    return min((in_order ? word * in_word : column(word, 0)) / w.group, groups - 1);
  }

  // Scales of whole rows are left to the end of a row: threads have registers for more words.
  bool scales_last() const { return !c.on_cpu && w.group == 0 && !w.zeros; }
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

  void store(Fragment& sum, const Expr& row) const {
    if (scales_last()) parallel(sum, [&](Index i) { sum(i) *= scale(min(row + i, n - 1), Operand(0)); });
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

  // The vector with numbers e of all words side by side, as threads that have words side by side read them.
  Tensor turned_vector() const {
    Expr words = ceildiv(k, in_word);
    const DType type = c.on_cpu ? f32 : c.type;
    Tensor result = workspace("turned", {in_word, ceildiv(words, words_of_piece) * words_of_piece}, type);
    grid(ceildiv(words, vector_threads), in_word, {.threads = vector_threads}, [&](Index x, Index e) {
      Fragment own({vector_threads}, type);
      parallel(own, [&](Index i) {
        Expr at = column(x * vector_threads + i, e);
        Expr x_at = select(at < k, a(0, min(at, k - 1)), 0);
        own(i) = c.on_cpu ? f32(x_at) : x_at;
      });
      copy(own, result.slice(e).at(x * vector_threads));
    });
    return result;
  }

  // Words of a group, and of a step of a CPU, which are of whole groups or of one.
  int group_words() const { return w.group / in_word; }
  int cpu_words() const {
    if (w.group == 0 || most_cpu_words % group_words() == 0) return most_cpu_words;
    return std::gcd(most_cpu_words, group_words());
  }
  int groups_of_step() const { return w.group == 0 ? 1 : std::max(1, cpu_words() / group_words()); }
  // Of the word j of a step.
  Expr group_of_step(const Index& j) const {
    if (groups_of_step() == 1) return 0;
    return w.packed && w.group < 64 ? j / 8 * 2 + j % 2 : j / group_words();
  }

  // Scales or zeros of the groups of a step, [rows, groups].
  Shared step_numbers(const Tensor& numbers, bool by_group, const Expr& row, const Expr& first) const {
    const int groups = groups_of_step();
    Expr group = group_of(first);
    const auto decoded = [&](const Shared& stored) {
      Shared result({static_cast<int>(stored.extent(0)), static_cast<int>(stored.extent(1))}, f32);
      parallel(result, [&](Index i, Index j) { result(i, j) = f32(scale_of(stored(i, j), numbers.type())); });
      return result;
    };
    Shared stored({by_group ? groups : cpu_rows, by_group ? cpu_rows : groups}, numbers.type());
    copy(by_group ? numbers.at(group, row) : numbers.at(row, group), stored);
    if (!by_group) return decoded(stored);
    Shared result({cpu_rows, groups}, f32);
    copy(decoded(stored).T(), result);
    return result;
  }

  // Lanes multiply all numbers of a word before its sum is scaled.
  void add_words(Fragment& sums, const Tensor& vector, const Expr& row, const Expr& first) const {
    const int count = cpu_words();
    const Fragment words = load(matrix.b.elements().at(row, first), {cpu_rows, count});
    const Shared scales = step_numbers(matrix.scales, w.by_group, row, first);
    std::optional<Shared> zeros;
    if (w.zeros) zeros.emplace(step_numbers(*matrix.zeros, w.zeros_by_group, row, first));
    std::vector<Fragment> numbers;
    for (int e = 0; e < in_word; ++e) numbers.push_back(load(vector.slice(e).at(first), {count}));
    parallel(sums, [&](Index i, Index j) {
      Expr group = group_of_step(j), word = words(i, j);
      Operand sum = f32(0);
      for (int e = 0; e < in_word; ++e) {
        Expr number = packed_as_f32(w.stored(), word, place(e));
        sum = Operand(sum + (zeros ? number - (*zeros)(i, group) : number) * numbers[e](j));
      }
      sums(i, j) += sum * scales(i, group);
    });
  }

  void run_on_cpu() const {
    const Tensor turned = turned_vector();
    const int count = cpu_words();
    grid(ceildiv(n, cpu_rows), [&](Index block) {
      Expr row = block * cpu_rows;
      Fragment sums({cpu_rows, count}, f32, 0);
      serial(ceildiv(k, count * in_word), [&](Index step) { add_words(sums, turned, row, step * count); });
      Fragment sum = reduce_sum(sums);
      store(sum, row);
    });
  }

  void run() const {
    if (c.on_cpu) return run_on_cpu();
    const Tensor turned = turned_vector();
    const int rows = scales_last() ? rows_of_block_scaled_last : rows_of_block;
    grid(ceildiv(n, rows), {.threads = vector_threads}, [&](Index block) {
      serial(rows / rows_at_once, [&](Index step) {
        Expr row = block * rows + step * rows_at_once;
        Fragment sums({rows_at_once, words_of_step}, f32, 0);
        serial(ceildiv(k, words_of_step * in_word),
               [&](Index step) { add_step(sums, turned, row, step * words_of_step); });
        Fragment sum = reduce_sum(sums);
        store(sum, row);
      });
    });
  }
};

}  // namespace

Kernel quantised_vector_program(const QuantisedVector& c) {
  return kernel(instance_name("quantised_vector", c), [&] { VectorProgram{c}.run(); });
}

}  // namespace tegula::ops

// A matrix of quantised weights times one vector by the lanes of a CPU.
#include <algorithm>
#include <functional>
#include <numeric>

#include "ops/quantised_gemm/vector_program.hpp"

namespace tegula::ops {

using namespace lang;
using lang::Tensor;

namespace {

// Rows that numbers of the vector are loaded for, and whose sums are in registers over the words of a step;
// scales are brought for all rows of a block and the steps of a part.
constexpr int cpu_rows_at_once = 4, turned_words = 128, most_part_words = 1024, most_scales = 8192;

// The parts and steps of words, and the scales and zeros of their groups.
struct CpuSteps {
  const QuantisedVectorBase& base;
  const QuantisedWeights& w = base.w;

  // Rows of a block: those whose scales are in a line of memory, where the scales of a group lie side by
  // side.
  int rows() const { return w.by_group ? 512 / w.scale.bits() : 16; }
  int group_words() const { return w.group / base.in_word; }
  // So many words or fewer, which are of whole groups or of one.
  int words_within(int most) const {
    if (w.group == 0 || most % group_words() == 0) return most;
    return std::gcd(most, group_words());
  }
  int step_words() const { return words_within(base.c.step); }
  int part_words() const {
    if (w.group == 0) return most_part_words;
    return words_within(
        std::max(step_words(), std::min(most_part_words, most_scales / rows() * group_words())));
  }
  Expr steps() const { return ceildiv(base.k, step_words() * base.in_word); }
  int groups_in(int words) const { return w.group == 0 ? 1 : std::max(1, words / group_words()); }
  // Of the word j of a step: its number among those of the step.
  Expr group_of(const Index& j) const {
    if (groups_in(step_words()) == 1) return 0;
    return w.packed && w.group < 64 ? j / 8 * 2 + j % 2 : j / group_words();
  }
  // The place of a step's groups among those of a part.
  Expr place_of(const Expr& step) const {
    if (groups_in(part_words()) == 1) return 0;
    return groups_in(step_words()) > 1 ? step : step * step_words() / group_words();
  }

  // Scales or zeros of the groups of a part, [rows, places, groups of a step].
  Shared numbers(const Tensor& stored_numbers, bool by_group, const Expr& row, const Expr& first) const {
    Expr group = base.group_of(first);
    const DType type = stored_numbers.type();
    const int groups = groups_in(part_words());
    const auto decoded = [&](const Shared& stored) {
      Shared result({static_cast<int>(stored.extent(0)), static_cast<int>(stored.extent(1))}, f32);
      parallel(result, [&](Index i, Index j) { result(i, j) = f32(scale_of(stored(i, j), type)); });
      return result;
    };
    const auto brought = [&](DType as) {
      Shared stored({by_group ? groups : rows(), by_group ? rows() : groups}, as);
      copy(by_group ? stored_numbers.at(group, row) : stored_numbers.at(row, group), stored);
      return stored;
    };
    // Floats are converted on their way.
    Shared floats = type == u8 ? decoded(brought(type)) : brought(f32);
    const int of_step = groups_in(step_words());
    const std::vector<int> extents{rows(), groups / of_step, of_step};
    if (!by_group) return floats.reshape(extents);
    Shared result({rows(), groups}, f32);
    copy(floats.T(), result);
    return result.reshape(extents);
  }
  Shared scales(const Expr& row, const Expr& first) const {
    return numbers(base.matrix.scales, w.by_group, row, first);
  }
  std::optional<Shared> zeros(const Expr& row, const Expr& first) const {
    if (!w.zeros) return std::nullopt;
    return numbers(*base.matrix.zeros, w.zeros_by_group, row, first);
  }
};

// Words of which each of four bytes is the same.
std::uint32_t in_all_bytes(int byte) { return 0x01010101u * static_cast<std::uint32_t>(byte); }

// The numbers of the vector that a word meets are integers of 16 bits in units of their own, which the
// largest of them decides; their bytes multiply those of the word, whose integers are bytes after a shift.
// Units are powers of two, so that of numbers of 8 bits only those that are small beside the largest are
// rounded; those of 11 bits have a third byte where the result is not rounded.
// Floats of 4 bits are such integers in units of one half. The sums of a word are exact.
class BytesOnCpu {
 public:
  explicit BytesOnCpu(const QuantisedVectorBase& base) : base_(base) {}

  void run() const {
    grid(padded() / turned_words, [&](Index block) { turn(block * turned_words); });
    const int rows = steps_.rows();
    grid(ceildiv(base_.n, rows), [&](Index block) {
      Shared sums({rows}, f32);
      parallel(sums, [&](Index i) { sums(i) = 0.0f; });
      const int in_part = steps_.part_words() / steps_.step_words();
      serial(ceildiv(steps_.steps(), in_part),
             [&](Index part) { add_part(sums, block * rows, part * in_part); });
      Fragment sum({rows}, f32);
      copy(sums, sum);
      base_.store(sum, block * rows);
    });
  }

 private:
  const QuantisedVectorBase& base_;
  const QuantisedWeights& w_ = base_.w;
  CpuSteps steps_{base_};
  int shifts_ = 8 / w_.bits();  // after each of which the numbers of a word begin its bytes
  // The bytes of a number of the vector; those of i8 are their own.
  int digits_ = base_.c.type == i8 ? 1 : base_.c.type == f16 && base_.c.out == f32 ? 3 : 2;
  int rows_of_bytes_ = digits_ * shifts_;

  Expr words() const { return ceildiv(base_.k, base_.in_word); }
  Expr padded() const { return ceildiv(words(), base_.c.step) * base_.c.step; }
  // The bytes, from the highest, of the numbers after each shift, and in a last row what makes up for the
  // excess of the word's integers; units, and the sums of a word's numbers.
  Tensor bytes_ = workspace("bytes", {rows_of_bytes_ + 1, padded()}, u32);
  Tensor units_ = workspace("units", {w_.zeros ? 2 : 1, padded()}, f32);

  static constexpr int largest_e2m1 = 12;  // in units of one half

  bool is_signed() const { return w_.stored().code == PackedType::Code::signed_integer; }
  int least() const {
    if (is_e2m1(w_.format)) return -largest_e2m1;
    return is_signed() ? -(1 << (w_.bits() - 1)) : 0;
  }
  // The integers of a word that begin its bytes after a shift, each less the least one.
  Expr integers(const Expr& word, int shift) const {
    Expr from_least = is_signed() ? word ^ (w_.bits() == 8 ? in_all_bytes(0x80) : in_all_bytes(0x88)) : word;
    if (w_.bits() == 8) return from_least;
    Expr moved = shift == 0 ? from_least : from_least >> static_cast<std::uint32_t>(shift * w_.bits());
    return moved & in_all_bytes((1 << w_.bits()) - 1);
  }

  void turn(const Expr& first) const {
    const auto numbers = [&](DType type) { return Fragment({turned_words}, type); };
    std::vector<Fragment> x;
    for (int e = 0; e < base_.in_word; ++e) {
      x.push_back(numbers(f32));
      parallel(x.back(), [&](Index i) { x.back()(i) = f32(base_.number_of_a(base_.column(first + i, e))); });
    }
    Fragment units = numbers(f32);
    parallel(units, [&](Index i) { units(i) = digits_ > 1 ? unit_of(x, i) : Expr(f32(1)); });
    if (is_e2m1(w_.format))
      copy(map(units, [&](Index i) { return units(i) * 0.5f; }), units_.slice(0).at(first));
    else
      copy(units, units_.slice(0).at(first));
    std::vector<Fragment> integers;
    for (int e = 0; e < base_.in_word; ++e) {
      integers.push_back(numbers(i32));
      parallel(integers.back(), [&](Index i) {
        const float most = digits_ > 1 ? most_units() : 128.0f;
        integers.back()(i) = i32(round(clamp(x[e](i) / units(i), -most, most)));
      });
    }
    store_bytes(integers, first);
    store_sums(integers, units, first);
  }

  static constexpr float least_unit = 0x1p-149f, least_normal = 0x1p-126f;
  // The sum of a word fits 32 bits.
  float most_units() const { return digits_ > 2 ? 0x1p20f : 127 * 256 + 127; }
  // A subnormal number itself.
  static Expr next_power_of_two(const Expr& x) {
    constexpr std::uint32_t mantissa = 0x7fffff, exponent = 0x7f800000;
    return select(x < least_normal, x, bitcast((bitcast(x, u32) + mantissa) & exponent, f32));
  }
  // NaN if one of the numbers is not finite.
  Expr unit_of(const std::vector<Fragment>& x, const Index& i) const {
    Operand largest = f32(0), zero = f32(0);
    for (const Fragment& number : x) {
      largest = Operand(max(largest, abs(number(i))));
      zero = Operand(zero + number(i) * 0.0f);
    }
    return next_power_of_two(max(largest / most_units(), least_unit)) + zero;
  }

  void store_bytes(const std::vector<Fragment>& integers, const Expr& first) const {
    for (int row = 0; row < rows_of_bytes_; ++row) {
      Fragment own({turned_words}, u32);
      parallel(own, [&](Index i) {
        Operand all = u32(0);
        for (int byte = 0; byte < 4; ++byte) {
          Expr number = u32(integers[byte * shifts_ + row % shifts_](i));
          all = Operand(
              all | (byte_of(number, digits_ - 1 - row / shifts_) << static_cast<std::uint32_t>(8 * byte)));
        }
        own(i) = all;
      });
      copy(own, bytes_.slice(row).at(first));
    }
  }
  // Digit 0 is the lowest one; all are from -128 on.
  Expr byte_of(const Expr& number, int digit) const {
    std::uint32_t less = 0;
    for (int lower = 0; lower + 1 < digits_; ++lower) less += 128u << (8 * lower);
    Expr byte = ((number + less) >> static_cast<std::uint32_t>(8 * digit)) & 255u;
    return digit + 1 < digits_ ? byte ^ 128u : byte;
  }

  void store_sums(const std::vector<Fragment>& integers, const Fragment& units, const Expr& first) const {
    Fragment sums({turned_words}, i32, 0), excess({turned_words}, u32);
    for (const Fragment& x : integers) parallel(sums, [&](Index i) { sums(i) += x(i); });
    parallel(excess, [&](Index i) { excess(i) = u32(sums(i) * (least() - w_.stored().excess)); });
    copy(excess, bytes_.slice(rows_of_bytes_).at(first));
    if (!w_.zeros) return;
    Fragment whole({turned_words}, f32);
    parallel(whole, [&](Index i) { whole(i) = f32(sums(i)) * units(i); });
    copy(whole, units_.slice(1).at(first));
  }

  // The steps of a part from step `first` on, for a few rows after the other: lines of the next ones are
  // fetched while these are multiplied.
  void add_part(Shared& sums, const Expr& row, const Expr& first) const {
    const Shared scales = steps_.scales(row, first * steps_.step_words());
    const std::optional<Shared> zeros = steps_.zeros(row, first * steps_.step_words());
    Expr count = min(steps_.part_words() / steps_.step_words(), steps_.steps() - first);
    serial(steps_.rows() / cpu_rows_at_once, [&](Index rows) {
      std::vector<Fragment> totals;
      for (int i = 0; i < cpu_rows_at_once; ++i)
        totals.push_back(Fragment(std::initializer_list<int>{}, f32, 0));
      serial(count, [&](Index step) {
        Expr word = (first + step) * steps_.step_words();
        std::vector<Fragment> products;
        for (int i = 0; i < cpu_rows_at_once; ++i) products.push_back(Fragment({steps_.step_words()}, f32));
        parallel(steps_.step_words(), [&](Index j) {
          std::vector<Expr> bytes, units;
          for (int each = 0; each <= rows_of_bytes_; ++each) bytes.push_back(bytes_(each, word + j));
          for (int each = 0; each < (zeros ? 2 : 1); ++each) units.push_back(units_(each, word + j));
          Expr place = steps_.place_of(step), group = steps_.group_of(j);
          for (int i = 0; i < cpu_rows_at_once; ++i) {
            Expr own = rows * cpu_rows_at_once + i;
            Expr sum = f32(sum_of_word(base_.matrix.b.elements()(row + own, word + j), bytes)) * units[0];
            products[i](j) =
                (zeros ? sum - (*zeros)(own, place, group) * units[1] : sum) * scales(own, place, group);
          }
        });
        for (int i = 0; i < cpu_rows_at_once; ++i) reduce_sum(products[i], totals[i]);
      });
      for (int i = 0; i < cpu_rows_at_once; ++i)
        parallel(1, [&](Index) { sums(rows * cpu_rows_at_once + i) += totals[i].scalar(); });
    });
  }

  Expr sum_of_word(const Expr& word, const std::vector<Expr>& bytes) const {
    std::vector<Operand> of_digits(digits_ - 1, Operand(i32(0)));
    of_digits.push_back(Operand(i32(bytes.back())));
    for (int shift = 0; shift < shifts_; ++shift) {
      const Bytes own = bytes_of(word, shift);
      for (int digit = 0; digit < digits_; ++digit)
        of_digits[digit] = dot_of_bytes(of_digits[digit], own, bytes[digit * shifts_ + shift]);
    }
    Operand sum = of_digits[0];
    for (int digit = 1; digit < digits_; ++digit) sum = Operand(sum * 256 + of_digits[digit]);
    return Expr(sum);
  }
  // The number from a bit of a word on, less the least one.
  using Bytes = std::function<Expr(std::uint32_t bit)>;
  Bytes bytes_of(const Expr& word, int shift) const {
    if (is_e2m1(w_.format)) return [=](std::uint32_t bit) { return e2m1(word, shift, bit); };
    Expr own = integers(word, shift);
    return [=](std::uint32_t bit) { return i32(u8(own >> bit)); };
  }
  // One of sixteen numbers, which lanes look up.
  static Expr e2m1(const Expr& word, int shift, std::uint32_t bit) {
    constexpr std::uint32_t magnitudes = 0xc8643210u;
    const auto bits = [&](std::uint32_t mask) {
      return (word >> (bit + 4 * static_cast<std::uint32_t>(shift))) & mask;
    };
    const auto magnitude = [&] { return i32((magnitudes >> (bits(7) * 4u)) & 15u); };
    return select(bits(8) == 0u, largest_e2m1 + magnitude(), largest_e2m1 - magnitude());
  }
  static Operand dot_of_bytes(const Operand& sum, const Bytes& a, const Expr& b) {
    Operand result = sum;
    for (std::uint32_t bit = 0; bit < 32; bit += 8) result = Operand(result + a(bit) * i32(i8(b >> bit)));
    return Operand(Expr(result));
  }
};

}  // namespace

int vector_step(std::int64_t words) {
  int step = 512;
  while (step > 128 && words % step != 0) step /= 2;
  return step;
}

void run_on_cpu(const QuantisedVectorBase& base) { BytesOnCpu(base).run(); }

}  // namespace tegula::ops

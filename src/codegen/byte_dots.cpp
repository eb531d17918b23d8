#include "codegen/byte_dots.hpp"

#include <algorithm>
#include <array>
#include <optional>

#include "ir/arithmetic.hpp"
#include "ir/visit.hpp"

namespace tegula::codegen {

using namespace ir;

namespace {

constexpr int bytes_of_word = 4, byte_bits = 8;

// A byte of a word.
struct Byte {
  Expr word;
  int index;
};

// The byte that a cast to a type of 8 bits takes from a word.
std::optional<Byte> byte_of(const Expr& e, DType type) {
  Expr taken = e;
  while (taken->op == Op::cast && taken->type == i32) taken = taken->args[0];
  if (taken->op != Op::cast || taken->type != type) return std::nullopt;
  const Expr& from = taken->args[0];
  if (from->held() != u32) return std::nullopt;
  if (from->op != Op::shr || !is_constant(from->args[1])) return Byte{from, 0};
  const std::int64_t bits = constant_value(from->args[1]);
  if (bits % byte_bits != 0 || bits < 0 || bits >= bytes_of_word * byte_bits) return std::nullopt;
  return Byte{from->args[0], static_cast<int>(bits / byte_bits)};
}

// A function of half of the bits of a byte of a word.
struct OfHalfByte {
  Byte byte;
  ByteTable table;
};

// Some of the four bits of half a byte of a variable: (word >> shift) & mask, or what a shift leaves of the
// word.
struct BitsOfHalf {
  Expr word;
  int half, shift;  // from the lowest bit of the half
  std::uint32_t mask;
};
constexpr int half_bits = 4, word_bits = bytes_of_word * byte_bits;

std::optional<BitsOfHalf> bits_of_half(const Expr& e) {
  if (e->held() != u32) return std::nullopt;
  const bool is_masked = e->op == Op::bit_and && is_constant(e->args[1]);
  const Expr& from = is_masked ? e->args[0] : e;
  const bool is_moved = from->op == Op::shr && is_constant(from->args[1]);
  if (!is_masked && !is_moved) return std::nullopt;
  const std::int64_t bits = is_moved ? constant_value(from->args[1]) : 0;
  if (bits < 0 || bits >= word_bits) return std::nullopt;
  const int half = static_cast<int>(bits) / half_bits, shift = static_cast<int>(bits) % half_bits;
  const std::int64_t mask =
      is_masked ? constant_value(e->args[1]) : (std::int64_t{1} << (word_bits - bits)) - 1;
  const Expr& word = is_moved ? from->args[0] : from;
  if (word->op != Op::variable || mask << shift >= 1 << half_bits) return std::nullopt;
  return BitsOfHalf{word, half, shift, static_cast<std::uint32_t>(mask)};
}

// Finds the half of which all variables of an expression are.
class HalfOfByte {
 public:
  explicit HalfOfByte(const Expr& e) { visit(e); }
  const std::optional<BitsOfHalf>& found() const { return found_; }

 private:
  std::optional<BitsOfHalf> found_;
  bool fails_ = false;

  void visit(const Expr& e) {
    if (fails_) return;
    if (const auto bits = bits_of_half(e)) {
      if (!found_) found_ = bits;
      fails_ = found_->half != bits->half || !equal(found_->word, bits->word);
    } else if (e->op == Op::variable) {
      fails_ = true;
    } else {
      for (const Expr& arg : e->args) visit(arg);
    }
    if (fails_) found_ = std::nullopt;
  }
};

std::optional<OfHalfByte> function_of_half(const Expr& e) {
  constexpr int largest = 200;
  if (e->held() != i32 || e->size > largest) return std::nullopt;
  const auto own = HalfOfByte(e).found();
  if (!own) return std::nullopt;
  OfHalfByte result{{own->word, own->half / 2}, {{}, own->half % 2 == 1}};
  for (std::uint32_t number = 0; number < result.table.values.size(); ++number) {
    const Expr known = rewrite(e, [&](const Expr& node) {
      const auto bits = bits_of_half(node);
      return bits ? constant(u32, std::int64_t{number >> bits->shift & bits->mask}, node->at) : node;
    });
    const Value value = evaluate(known, [](const VariablePtr& v) { return invalid_value(v->type); });
    if (value.invalid || value.integer < 0 || value.integer > 255) return std::nullopt;
    result.table.values[number] = static_cast<std::uint8_t>(value.integer);
  }
  return result;
}

// Products of bytes of the same words, as far as they are found.
struct Found {
  ByteDot dot;
  std::array<Expr, bytes_of_word> products;

  bool is_whole() const {
    return std::all_of(products.begin(), products.end(),
                       [](const Expr& product) { return product != nullptr; });
  }
};

// The bytes of a product, with the table of the first one, if it has one.
struct BytesOfProduct {
  Byte a, b;
  std::optional<ByteTable> table = {};
};
std::optional<BytesOfProduct> bytes_of(const Expr& first, const Expr& second) {
  const auto b = byte_of(second, i8);
  if (!b) return std::nullopt;
  if (const auto a = byte_of(first, u8)) return BytesOfProduct{*a, *b};
  const auto a = function_of_half(first);
  return a ? std::optional(BytesOfProduct{a->byte, *b, a->table}) : std::nullopt;
}

bool add_product(const Expr& term, std::vector<Found>& found) {
  if (term->op != Op::mul) return false;
  auto bytes = bytes_of(term->args[0], term->args[1]);
  if (!bytes) bytes = bytes_of(term->args[1], term->args[0]);
  if (!bytes || bytes->a.index != bytes->b.index) return false;
  const auto index = static_cast<std::size_t>(bytes->a.index);
  for (Found& other : found) {
    Expr& place = other.products[index];
    if (place || other.dot.table != bytes->table || !equal(other.dot.a, bytes->a.word) ||
        !equal(other.dot.b, bytes->b.word))
      continue;
    place = term;
    return true;
  }
  found.push_back({{bytes->a.word, bytes->b.word, bytes->table}, {}});
  found.back().products[index] = term;
  return true;
}

void add_terms(const Expr& e, std::vector<Expr>& terms) {
  if (e->op != Op::add) return terms.push_back(e);
  for (const Expr& arg : e->args) add_terms(arg, terms);
}

}  // namespace

SumOfBytes sum_of_bytes(const Expr& sum) {
  SumOfBytes result;
  if (sum->op != Op::add || sum->held() != i32) return result;
  std::vector<Expr> terms;
  add_terms(sum, terms);
  std::vector<Found> found;
  for (const Expr& term : terms)
    if (!add_product(term, found)) result.others.push_back(term);
  for (const Found& each : found) {
    if (each.is_whole()) {
      result.dots.push_back(each.dot);
      continue;
    }
    result.is_unfinished = true;
    for (const Expr& product : each.products)
      if (product) result.others.push_back(product);
  }
  return result;
}

}  // namespace tegula::codegen

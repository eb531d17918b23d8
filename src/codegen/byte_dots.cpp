#include "codegen/byte_dots.hpp"

#include <algorithm>
#include <array>
#include <optional>

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

// Products of bytes of the same words, as far as they are found.
struct Found {
  ByteDot dot;
  std::array<Expr, bytes_of_word> products;

  bool is_whole() const {
    return std::all_of(products.begin(), products.end(),
                       [](const Expr& product) { return product != nullptr; });
  }
};

bool add_product(const Expr& term, std::vector<Found>& found) {
  if (term->op != Op::mul) return false;
  auto a = byte_of(term->args[0], u8), b = byte_of(term->args[1], i8);
  if (!a || !b) a = byte_of(term->args[1], u8), b = byte_of(term->args[0], i8);
  if (!a || !b || a->index != b->index) return false;
  for (Found& other : found) {
    Expr& place = other.products[static_cast<std::size_t>(a->index)];
    if (place || !equal(other.dot.a, a->word) || !equal(other.dot.b, b->word)) continue;
    place = term;
    return true;
  }
  found.push_back({{a->word, b->word}, {}});
  found.back().products[static_cast<std::size_t>(a->index)] = term;
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

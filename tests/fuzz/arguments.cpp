#include "fuzz/arguments.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

namespace tegula::fuzz {
namespace {

double random_float(Random& random, DType type, const Nature& contract) {
  if (contract.dyadic) {
    const auto most = static_cast<std::int64_t>(std::ldexp(contract.bound, -contract.step));
    return std::ldexp(static_cast<double>(random.between(-most, most)), contract.step);
  }
  const double special[] = {0.0,  -0.0, INFINITY, -INFINITY, NAN,   1e-40, -1e-42, 1e38, -3e38,
                            1e-5, 448,  57344,    65504,     65520, 1.0,   0.1,    6e-8, 1e-7};
  if (random.chance(30)) return random.pick_from(special);
  if (random.chance(15))
    return decode(type, random.bits() & (type.bits() == 64 ? ~0ull : (1ull << type.bits()) - 1));
  const int exponent = random.chance(15) ? random.number(-17, 9) : random.number(-26, -18);
  return std::ldexp(static_cast<double>(random.between(-1 << 24, 1 << 24)), exponent);
}

std::int64_t random_integer(Random& random, const Nature& contract) {
  const std::int64_t edges[] = {contract.low, contract.high, 0, std::min<std::int64_t>(contract.high, 1)};
  return random.chance(20) ? random.pick_from(edges) : random.between(contract.low, contract.high);
}

std::uint64_t random_bits(Random& random, DType type, const Nature& contract) {
  if (!type.is_floating()) return static_cast<std::uint64_t>(random_integer(random, contract));
  return encode(type, random_float(random, type, contract));
}

// A tensor of this shape that may not be dense: with steps, reversed, permuted or padded.
Tensor laid_out(int layout, const Shape& shape, DType type, Tensor& base) {
  Shape wide = shape;
  const int last = static_cast<int>(shape.size()) - 1;
  if (layout == 1) wide[static_cast<std::size_t>(last)] *= 2;
  if (layout == 2) std::reverse(wide.begin(), wide.end());
  if (layout == 4) {
    for (std::int64_t& extent : wide) ++extent;
  }
  base = Tensor::zeros(wide, type);
  if (layout == 1) return base.slice(last, 0, wide.back(), 2);
  if (layout == 3) return base.flip(0);
  if (layout == 2) {
    std::vector<int> order;
    for (int d = last; d >= 0; --d) order.push_back(d);
    return base.permute(order);
  }
  if (layout < 4) return base;
  Tensor inner = base;
  for (int d = 0; d <= last; ++d) inner = inner.slice(d, 0, shape[static_cast<std::size_t>(d)]);
  return inner;
}

}  // namespace

Argument Given::argument() const {
  if (is_tensor) return tensor;
  return std::visit([](const auto& n) { return Argument(n); }, number);
}

Given Given::clone() const {
  if (!is_tensor) return *this;
  Given result = *this;
  result.tensor = laid_out(layout, tensor.shape(), tensor.dtype(), result.base);
  std::memcpy(result.base.data(), base.data(), base.nbytes());
  return result;
}

Given random_tensor(Random& random, DType type, const Shape& shape, const Nature& contract,
                    int dense_percent) {
  Given result;
  result.is_tensor = true;
  const bool dense = shape.empty() || random.chance(dense_percent);
  result.layout = dense ? 0 : random.number(1, 4);
  result.tensor = laid_out(result.layout, shape, type, result.base);
  auto* bytes = static_cast<std::byte*>(result.base.data());
  const auto size = static_cast<std::size_t>(type.bytes());
  for (std::size_t at = 0; at < result.base.nbytes(); at += size) {
    const std::uint64_t bits = random_bits(random, type, contract);
    std::memcpy(bytes + at, &bits, size);
  }
  return result;
}

Given random_number(Random& random, DType type, const Nature& contract) {
  Given result;
  if (type.is_boolean())
    result.number = random.chance(50);
  else if (type.is_floating())
    result.number = random_float(random, type, contract);
  else
    result.number = random_integer(random, contract);
  return result;
}

std::vector<Given> Program::clone_arguments() const {
  std::vector<Given> result;
  for (const Given& argument : arguments) result.push_back(argument.clone());
  return result;
}

}  // namespace tegula::fuzz

#include "fuzz/check.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>

namespace tegula::fuzz {
namespace {

std::uint64_t bits_at(const Tensor& tensor, const Shape& index) {
  std::uint64_t bits = 0;
  const std::int64_t offset = tensor.ref().offset(index) * tensor.dtype().bytes();
  std::memcpy(&bits, static_cast<const std::byte*>(tensor.data()) + offset,
              static_cast<std::size_t>(tensor.dtype().bytes()));
  return bits;
}

// A few subnormal numbers; where exp2 may give 0 for its result, all of them.
double smallest(DType type) {
  if (type == f32 || type == bf16) return 0x1p-126;
  return type == f64 ? 4 * 5e-324 : 4 * decode(type, 1);
}

// Within the relative error, or a few of the type's smallest numbers; an infinity may be the largest number.
bool is_close(double a, double b, double error, DType type) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  const double largest = type == f64                   ? 1.79e308
                         : type == f32 || type == bf16 ? 3.38e38
                         : type == f16                 ? 65472
                                                       : 416;
  if (std::isinf(a) || std::isinf(b)) {
    return a == b || (std::signbit(a) == std::signbit(b) && std::min(std::fabs(a), std::fabs(b)) >= largest);
  }
  return std::fabs(a - b) <= error * std::max(std::fabs(a), std::fabs(b)) + smallest(type);
}

bool same(std::uint64_t a, std::uint64_t b, DType type, const Nature& contract) {
  if (a == b) return true;
  if (!type.is_floating()) return false;
  const double x = decode(type, a), y = decode(type, b);
  if (std::isnan(x) && std::isnan(y)) return true;
  if (x == 0 && y == 0) return contract.loose_zero;
  return !contract.is_exact() && is_close(x, y, contract.worst_error(), type);
}

std::string text_of(std::uint64_t bits, DType type) {
  if (type.is_floating()) return fmt::format("{} ({:#x})", decode(type, bits), bits);
  return fmt::format("{:#x}", bits);
}

bool advance(Shape& index, const Shape& shape) {
  for (std::size_t d = shape.size(); d-- > 0;) {
    if (++index[d] < shape[d]) return true;
    index[d] = 0;
  }
  return false;
}

std::string tensor_difference(const ir::Buffer& buffer, const Nature& contract, const Tensor& a,
                              const Tensor& b) {
  Shape index(a.shape().size());
  if (a.nelements() == 0) return "";
  do {
    const std::uint64_t x = bits_at(a, index), y = bits_at(b, index);
    if (!same(x, y, a.dtype(), contract)) {
      return fmt::format("{}[{}] of type {} ({}) is {}, expected {}", buffer.name, fmt::join(index, ", "),
                         buffer.type.name(), describe(contract, buffer.type), text_of(y, a.dtype()),
                         text_of(x, a.dtype()));
    }
  } while (advance(index, a.shape()));
  return "";
}

// Memory between the elements of the view belongs to nobody.
bool has_same_gaps(const Given& before, const Given& after) {
  Given filled = before.clone();
  copy_elements(after.tensor, filled.tensor);
  return std::memcmp(filled.base.data(), after.base.data(), after.base.nbytes()) == 0;
}

}  // namespace

std::string difference(const Program& program, const std::vector<Given>& expected,
                       const std::vector<Given>& found) {
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const ir::BufferPtr& buffer = program.kernel->parameters[i].tensor;
    if (buffer == nullptr) continue;
    const Nature& contract = program.contracts.buffers.at(buffer.get());
    std::string text = tensor_difference(*buffer, contract, expected[i].tensor, found[i].tensor);
    if (!text.empty()) return text;
    if (found[i].layout != 0 && !has_same_gaps(program.arguments[i], found[i]))
      return fmt::format("memory between the elements of {} was written", buffer->name);
  }
  return "";
}

std::vector<Verdict> check(std::span<const Program> programs, std::span<const Executor> executors) {
  std::vector<Verdict> verdicts(programs.size());
  std::vector<std::size_t> valid;  // their places in `programs`
  std::vector<Program> kept;
  const std::vector<Outcome> expected = executors[0].run(programs);
  for (std::size_t i = 0; i < programs.size(); ++i) {
    verdicts[i].reason = expected[i].error;
    verdicts[i].discarded = !expected[i].error.empty();
    if (verdicts[i].discarded) continue;
    valid.push_back(i);
    kept.push_back(programs[i]);
    if (const std::string broken = broken_contract(programs[i]); !broken.empty())
      verdicts[i].failure = Failure{"contract", broken};
  }
  for (const Executor& executor : executors.subspan(1)) {
    std::vector<std::size_t> places;
    std::vector<Program> served;
    for (std::size_t k = 0; k < kept.size(); ++k) {
      if (executor.serves && !executor.serves(kept[k])) continue;
      places.push_back(valid[k]);
      served.push_back(kept[k]);
    }
    if (served.empty()) continue;
    const std::vector<Outcome> outcomes = executor.run(served);
    for (std::size_t k = 0; k < served.size(); ++k) {
      Verdict& verdict = verdicts[places[k]];
      if (verdict.failure) continue;
      const std::string& error = outcomes[k].error;
      const std::string text =
          error.empty() ? difference(served[k], expected[places[k]].arguments, outcomes[k].arguments) : error;
      if (!text.empty()) verdict.failure = Failure{executor.name, text};
    }
  }
  return verdicts;
}

}  // namespace tegula::fuzz

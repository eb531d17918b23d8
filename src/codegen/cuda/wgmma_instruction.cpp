#include "codegen/cuda/wgmma_instruction.hpp"

#include <fmt/format.h>

namespace tegula::codegen {

namespace {

std::string list(int from, int count) {
  std::string result;
  for (int i = 0; i < count; ++i) result += fmt::format("{}%{}", i == 0 ? "" : ", ", from + i);
  return result;
}

}  // namespace

std::string WgmmaInstruction::name() const {
  return fmt::format("wgmma_n{}_{}{}{}{}{}{}", n, type, sums_of_f16 ? "_words" : "",
                     a_in_registers ? "_registers" : "", a_transposed ? "_ta" : "", b_transposed ? "_tb" : "",
                     selector < 0 ? "" : fmt::format("_sparse{}", selector));
}

// The registers of the sum in the instruction and as operands of the assembly; the device header lists those
// of all numbers but words.
std::string WgmmaInstruction::places() const {
  return sums_of_f16 ? list(0, registers()) : fmt::format("\" TG_PLACES_{} \"", registers());
}
std::string WgmmaInstruction::sums() const {
  if (!sums_of_f16)
    return fmt::format("{}_{}(d)", is_of_integers() ? "TG_INTEGER_SUMS" : "TG_SUMS", registers());
  std::string result;
  for (int i = 0; i < registers(); ++i) result += fmt::format("{}\"+r\"(d[{}])", i == 0 ? "" : ", ", i);
  return result;
}

// Whether operands in shared memory are transposed; only those of 16 bits can be.
std::string WgmmaInstruction::orders() const {
  if (type != "f16" && type != "bf16") return "";
  return fmt::format("{}, {}", a_in_registers ? "" : a_transposed ? ", 1" : ", 0", b_transposed ? 1 : 0);
}

std::string WgmmaInstruction::text() const {
  const int registers = this->registers(), operands = a_in_registers ? 4 : 1;
  const std::string a = a_in_registers ? fmt::format("{{{}}}", list(registers, 4)) : list(registers, 1);
  const bool integers = is_of_integers(), sparse = selector >= 0;
  const int behind = registers + operands + 1;  // operand B
  return fmt::format(
      "TG_DEVICE void {}({} (&d)[{}], {}, uint64_t b, {}int add) {{\n"
      "  asm volatile(\"{{\\n.reg .pred add;\\nsetp.ne.b32 add, %{}, 0;\\n\"\n"
      "               \"wgmma.mma_async{}.sync.aligned.m64n{}k{}.{}.{}.{} {{{}}}, {}, %{}, "
      "{}add{}{};\\n}}\"\n"
      "               : {}\n"
      "               : {}, \"l\"(b), {}\"r\"(add));\n}}\n",
      name(),
      integers      ? "int"
      : sums_of_f16 ? "uint32_t"
                    : "float",
      registers, a_in_registers ? "const uint32_t* a" : "uint64_t a", sparse ? "uint32_t metadata, " : "",
      behind + sparse, sparse ? ".sp" : "", n, k,
      integers      ? "s32"
      : sums_of_f16 ? "f16"
                    : "f32",
      type, type, places(), a, registers + operands, sparse ? fmt::format("%{}, {}, ", behind, selector) : "",
      integers ? "" : ", 1, 1", orders(), sums(),
      a_in_registers ? "\"r\"(a[0]), \"r\"(a[1]), \"r\"(a[2]), \"r\"(a[3])" : "\"l\"(a)",
      sparse ? "\"r\"(metadata), " : "");
}

}  // namespace tegula::codegen

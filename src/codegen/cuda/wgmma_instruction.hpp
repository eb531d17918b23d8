// The instruction by which a warp group multiplies, as a function of the printed program.
#pragma once
#include <string>

namespace tegula::codegen {

struct WgmmaInstruction {
  int n;
  std::string type;  // as in PTX: f16, bf16, tf32, e4m3, e5m2, s8 or u8
  int k;
  bool a_in_registers, a_transposed, b_transposed;
  int selector = -1;         // of a sparse A: which pair of each four threads has the metadata
  bool sums_of_f16 = false;  // in words of two

  std::string name() const;
  std::string text() const;  // the function of that name: d = a b, or d += a b if `add`

 private:
  bool is_of_integers() const { return type == "s8" || type == "u8"; }
  int registers() const { return sums_of_f16 ? n / 4 : n / 2; }
  std::string places() const;
  std::string sums() const;
  std::string orders() const;
};

}  // namespace tegula::codegen

#include "layout/byte_operand.hpp"

#include "tegula/error.hpp"

namespace tegula::layout {

Layout wgmma_byte_operand_a(std::int64_t m, std::int64_t k, const Division& groups) {
  constexpr std::int64_t rows_of_group = 64, columns_of_quad = 16;
  internal_assert(k % (2 * columns_of_quad) == 0, "an instruction multiplies 32 bytes along k");
  const std::int64_t step = rows_of_group * groups.along_m;
  Digits threads{digit(2, 1, 4, 4), digit(2, 0, 8, 1), digit(2, 0, 4, 16),
                 digit(2, 0, groups.along_m, rows_of_group), replica(2, groups.along_n)};
  Digits registers{digit(2, 1, 2, 1), digit(2, 0, 2, 8), digit(2, 1, 2, 2),
                   digit(2, 1, k / columns_of_quad, columns_of_quad),
                   digit(2, 0, (m + step - 1) / step, step)};
  return {{m, k}, std::move(threads), std::move(registers)};
}

}  // namespace tegula::layout

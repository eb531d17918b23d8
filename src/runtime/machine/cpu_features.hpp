// The instruction sets and cache sizes of the processor.
#pragma once
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace tegula {

// Instruction sets for which CPU kernels are printed, from the least to the most capable.
enum class Isa { portable, avx2, avx512 };

inline constexpr Isa all_isas[] = {Isa::portable, Isa::avx2, Isa::avx512};

std::string_view isa_name(Isa isa);  // "portable", "avx2", "avx512"
// Compiler flags that allow the instruction set.
std::span<const std::string_view> isa_flags(Isa isa);

// Whether processor and operating system support it.
bool is_supported(Isa isa);
// The best one of this machine, or TEGULA_ISA; an ArgumentError if that is unknown or unsupported.
Isa best_isa();

// Whether kernels may use the tile registers of AMX for products of bf16: the processor has them, the
// operating system grants them to this process, and TEGULA_ISA asks for no set in particular.
bool has_tile_registers();
// The same of the instructions of AVX512-BF16, which multiply pairs.
bool has_products_of_pairs();
// TegulaCall::has_tiles of this machine.
int way_of_bf16_products();

// Whether kernels may multiply bytes by the instructions of AVX512-VNNI; not if TEGULA_ISA asks for a set.
bool has_dots_of_bytes();
// The same of the instructions of AVX512-VBMI, which look bytes up in tables of 64.
bool has_tables_of_bytes();

// The size of the second-level cache of one core.
std::size_t l2_bytes();

}  // namespace tegula

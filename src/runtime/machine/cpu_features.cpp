#include "runtime/machine/cpu_features.hpp"

#include <fmt/format.h>
#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#endif
#include <unistd.h>

#include <array>

#include "runtime/machine/environment.hpp"
#include "tegula/error.hpp"

namespace tegula {
namespace {

using namespace std::string_view_literals;

constexpr std::array avx2_flags = {"-mavx2"sv, "-mfma"sv, "-mf16c"sv, "-mbmi"sv, "-mbmi2"sv};
constexpr std::array avx512_flags = {"-mavx2"sv,    "-mfma"sv,      "-mf16c"sv,     "-mbmi"sv,     "-mbmi2"sv,
                                     "-mavx512f"sv, "-mavx512bw"sv, "-mavx512dq"sv, "-mavx512vl"sv};

// The builtin asks cpuid, and xgetbv whether the operating system saves the registers.
bool has_avx2() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi") &&
         __builtin_cpu_supports("bmi2");
#else
  return false;
#endif
}

bool has_avx512() {
#if defined(__x86_64__)
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
#else
  return false;
#endif
}

// The system saves the registers of the threads that may use them, and asks to be told before.
bool asks_for_tile_registers() {
#if defined(__x86_64__) && defined(SYS_arch_prctl)
  constexpr unsigned bf16_bit = 1u << 22, tile_bit = 1u << 24;
  constexpr long request_permission = 0x1023, tile_data = 18;
  unsigned a = 0, b = 0, c = 0, d = 0;
  const bool exist = __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & bf16_bit) && (d & tile_bit);
  return exist && syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
#else
  return false;
#endif
}

}  // namespace

std::string_view isa_name(Isa isa) {
  constexpr std::string_view names[] = {"portable", "avx2", "avx512"};
  return names[static_cast<int>(isa)];
}

std::span<const std::string_view> isa_flags(Isa isa) {
  switch (isa) {
    case Isa::portable:
      return {};
    case Isa::avx2:
      return avx2_flags;
    case Isa::avx512:
      return avx512_flags;
  }
  return {};
}

bool is_supported(Isa isa) {
  switch (isa) {
    case Isa::portable:
      return true;
    case Isa::avx2:
      return has_avx2();
    case Isa::avx512:
      return has_avx512();
  }
  return false;
}

Isa best_isa() {
  if (const auto wanted = environment(Variable::isa)) {
    for (const Isa isa : all_isas) {
      if (isa_name(isa) != *wanted) continue;
      if (is_supported(isa)) return isa;
      throw ArgumentError(fmt::format("TEGULA_ISA={}: this processor does not support it", *wanted));
    }
    throw ArgumentError(fmt::format("TEGULA_ISA={}: must be portable, avx2 or avx512", *wanted));
  }
  return has_avx512() ? Isa::avx512 : has_avx2() ? Isa::avx2 : Isa::portable;
}

bool has_tile_registers() {
  if (environment(Variable::isa)) return false;
  static const bool granted = asks_for_tile_registers();
  return granted;
}

bool has_products_of_pairs() {
#if defined(__x86_64__)
  return !environment(Variable::isa) && has_avx512() && __builtin_cpu_supports("avx512bf16");
#else
  return false;
#endif
}

// Either way, kernels narrow to bf16 by the instruction of pairs, which every processor with tile registers
// has.
int way_of_bf16_products() { return !has_products_of_pairs() ? 0 : has_tile_registers() ? 1 : 2; }

bool has_dots_of_bytes() {
#if defined(__x86_64__)
  return !environment(Variable::isa) && has_avx512() && __builtin_cpu_supports("avx512vnni");
#else
  return false;
#endif
}

bool has_tables_of_bytes() {
#if defined(__x86_64__)
  return !environment(Variable::isa) && has_avx512() && __builtin_cpu_supports("avx512vbmi");
#else
  return false;
#endif
}

std::size_t l2_bytes() {
  const long bytes = sysconf(_SC_LEVEL2_CACHE_SIZE);
  return bytes > 0 ? static_cast<std::size_t>(bytes) : std::size_t{1} << 20;
}

}  // namespace tegula

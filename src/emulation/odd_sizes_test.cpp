// Tiles without dims, and pieces of one byte.
#include <gtest/gtest.h>

#include "device/embedded.hpp"
#include "emulation/testing/compared.hpp"
#include "runtime/execution/host_compiler.hpp"
#include "runtime/files/file_io.hpp"
#include "runtime/testing/watchdog.hpp"

namespace tegula::emulation {
namespace odd_sizes_test {

constexpr std::chrono::seconds most_time{60};

// A fragment of one element that is loaded before others are, and a tile of one that is stored as a row.
lang::Kernel without_dims() {
  using namespace lang;
  return kernel("without_dims", [] {
    lang::Tensor x = input("x", {32}, f32), out = output("out", {36}, f32);
    grid(4, [&](Index g) {
      Fragment one({}, f32), eight({8}, f32);
      copy(x.slice(g), one);
      copy(x.slice(range(g * 8, g * 8 + 8)), eight);
      parallel(eight, [&](Index i) { eight(i) = eight(i) + one.scalar(); });
      copy(eight, out.at(g * 8));
      Shared last({}, f32);
      copy(x.slice(31 - g), last);
      copy(last.reshape({1}), out.slice(range(32 + g, 33 + g)));
    });
  });
}

TEST(OddSizes, TilesWithoutDimsAreLoaded) {
  const Watchdog watchdog("tiles without dims", most_time);
  expect_as_interpreted(without_dims(), {Tensor::random_normal({32}, f32, 1)}, {36}, 0,
                        {Target::emulated(), Target::emulated_sm90(), Target::cpu()});
}

// Pieces of a row of bytes, with what follows them in registers and in memory left alone.
TEST(OddSizes, PiecesHaveTheirOwnBytes) {
  HostCompiler::Source source{R"(#include "kernel.cuh"
template <int n>
static int copied() {
  struct { tg::Pack<uint8_t, n> pack; uint32_t behind; } own;
  own.behind = 7;
  alignas(16) uint8_t from[32], to[32] = {};
  for (int i = 0; i < 32; ++i) from[i] = uint8_t(200 + i);
  own.pack = tg::load_pack<n>(from);
  tg::store_pack(to, own.pack);
  int same = own.behind == 7;
  for (int i = 0; i < 32; ++i) same += to[i] == (i < n ? from[i] : 0);
  return same;
}
extern "C" int copies() { return copied<1>() + copied<2>() + copied<4>() + copied<8>() + copied<16>() + copied<32>(); }
)",
                              {"-std=c++17", "-O0", "-w", "-fstack-protector-all"},
                              {}};
  for (auto* files : {&embedded::cuda_headers(), &embedded::emulation_headers()}) {
    for (auto& file : *files) {
      std::erase_if(source.headers, [&](auto& known) { return known.name == file.name; });
      source.headers.push_back({std::string(file.name), std::string(file.text)});
    }
  }
  const TemporaryDirectory directory;
  const KernelCache cache(directory.file("cache"), 1 << 30);
  EXPECT_EQ(host_compiler()->load(source, cache).function<int()>("copies")(), 6 * 33);
}

}  // namespace odd_sizes_test
}  // namespace tegula::emulation

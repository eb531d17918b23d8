#include "device_data.hpp"

#include <algorithm>
#include <cmath>

namespace programs {
namespace {

constexpr int part = 16384;    // elements of a block
constexpr int samples = 4096;  // of a result

Expr mixed(const Expr& x) {
  Expr once = (x ^ (x >> u32(16))) * u32(0x7feb352d);
  Expr twice = (once ^ (once >> u32(15))) * u32(0x846ca68b);
  return twice ^ (twice >> u32(16));
}
// Sums of four equally likely numbers, with mean 0 and deviation 1.
Expr normal_of(const Expr& bits) {
  constexpr float middle = 4 * 32767.5F, deviation = 37837.0F;
  Expr more = mixed(bits + u32(0x9e3779b9));
  Expr sum = f32(bits & 0xffffu) + f32(bits >> u32(16)) + f32(more & 0xffffu) + f32(more >> u32(16));
  return (sum - middle) / deviation;
}

enum class Kind { normal, between, bits };

Kernel fill_of(DType type, Kind kind) {
  return kernel("random", [&] {
    Dim n("n");
    Tensor y = output("y", {n}, type);
    Expr low = scalar("low", f32), width = scalar("width", f32), seed = scalar("seed", u32);
    grid(ceildiv(n, part), {.threads = 256}, [&](Index block) {
      parallel(part, [&](Index i) {
        Expr at = block * part + i, bits = mixed(u32(at) ^ mixed(seed));
        when(at < n, [&] {
          if (kind == Kind::bits)
            y(at) = type.bits() == 32 ? bits : type(bits & 255u);
          else if (kind == Kind::normal)
            y(at) = type(low + normal_of(bits) * width);
          else
            y(at) = type(low + f32(bits >> u32(8)) * 0x1p-24f * width);
        });
      });
    });
  });
}

Kernel oddities_of(DType type) {
  return kernel("oddities", [&] {
    Dim n("n");
    Tensor y = input("y", {n}, type), counts = output("counts", {2}, i32, {.zero = true});
    grid(ceildiv(n, part), {.threads = 256}, [&](Index block) {
      parallel(part, [&](Index i) {
        Expr at = block * part + i;
        when(at < n, [&] {
          Expr x = f32(y(at));
          when(isnan(x), [&] { atomic_add(counts(0), 1); });
          when(abs(x) == inf, [&] { atomic_add(counts(1), 1); });
        });
      });
    });
  });
}

Kernel sampled(DType type) {
  return kernel("sampled", [&] {
    Dim n("n");
    Tensor y = input("y", {n}, type), values = output("values", {samples}, f32);
    Expr step = scalar("step", i32), count = scalar("count", i32);
    grid(samples / 256, {.threads = 256}, [&](Index block) {
      parallel(256, [&](Index i) {
        Expr at = block * 256 + i;
        when(at < count, [&] { values(at) = f32(y(at * step)); }).otherwise([&] { values(at) = 0.0f; });
      });
    });
  });
}

Data flat(const Data& x) { return x.reshape({x.nelements()}); }

void fill(const Data& to, Kind kind, double low, double width, std::uint32_t seed) {
  if (to.nelements() == 0) return;
  tegula::compile(fill_of(to.dtype(), kind), tegula::Target::cuda())(flat(to), low, width, seed);
}

}  // namespace

Data random_on_device(const Random& random, std::uint32_t seed) {
  Shape shape = random.shape;
  if (random.row > 0) shape.back() = random.row;
  const Data whole = Data::empty(shape, random.type, tegula::Device::cuda());
  if (random.limits)
    fill(whole, Kind::between, random.limits->first, random.limits->second - random.limits->first, seed);
  else
    fill(whole, random.type.is_floating() ? Kind::normal : Kind::bits, 0, random.deviation, seed);
  return random.row > 0 ? whole.slice(whole.rank() - 1, 0, random.shape.back()) : whole;
}

Data unwritten_on_device(const Result& result) {
  const Data whole = Data::empty(result.shape, result.type, tegula::Device::cuda());
  fill(whole, Kind::between, result.type.is_floating() ? NAN : 77, 0, 0);
  return whole;
}

Oddities oddities(const Data& result) {
  if (!result.dtype().is_floating()) return {};
  const Data counts = Data::empty({2}, i32, tegula::Device::cuda());
  tegula::compile(oddities_of(result.dtype()), tegula::Target::cuda())(flat(result), counts);
  const auto values = counts.values<std::int64_t>();
  return {values[0], values[1]};
}

Sample sample_of(const Data& result) {
  const std::int64_t n = result.nelements();
  Sample sample;
  // Odd, so that places walk through the columns.
  sample.step = std::max<std::int64_t>(1, (n - 1) / samples);
  if (sample.step > 1 && sample.step % 2 == 0) --sample.step;
  const std::int64_t count = std::min<std::int64_t>(samples, (n + sample.step - 1) / sample.step);
  const Data values = Data::empty({samples}, f32, tegula::Device::cuda());
  tegula::compile(sampled(result.dtype()), tegula::Target::cuda())(flat(result), values, sample.step, count);
  sample.values = values.slice(0, 0, count).values<double>();
  return sample;
}

}  // namespace programs

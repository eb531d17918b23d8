#include "workloads.hpp"

#include <fmt/format.h>

#include <cmath>
#include <memory>

#include "pool.hpp"
#include "tegula/ops.hpp"

namespace tegula::bench {
namespace {

constexpr std::int64_t most_elements = std::int64_t{400'000'000};

const Pool& pool(DType type) {
  if (type == e4m3) {
    static const Pool pool(e4m3, most_elements);
    return pool;
  }
  static const Pool of_bf16(bf16, most_elements), of_f16(f16, most_elements);
  return type == bf16 ? of_bf16 : of_f16;
}

double relative(double result, double exact, double scale) { return std::abs(result - exact) / scale; }

// c = a b with a [m, k] and b [k, n], or [n, k] if transposed.
Workload gemm_workload(DType type, std::int64_t m, std::int64_t n, std::int64_t k, bool transposed) {
  Workload workload;
  workload.name = fmt::format("gemm {} {}x{}x{} {}", type.name(), m, n, k, transposed ? "nt" : "nn");
  workload.flops = 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  workload.prepare = [=] {
    const std::int64_t begin_b = behind(0, {m, k});
    const Tensor a = pool(type).take({m, k}, 0);
    const Tensor b = pool(type).take(transposed ? Shape{n, k} : Shape{k, n}, begin_b);
    const Tensor c = unwritten({m, n}, type == e4m3 ? bf16 : type);
    const auto error = [=] {
      double worst = 0;
      for (const std::int64_t i : {std::int64_t{0}, m / 2 + 1, m - 1}) {
        const std::int64_t j = (i * 7919) % n;
        double exact = 0;
        for (std::int64_t l = 0; l < k; ++l)
          exact += double{pool(type).at(0, i * k + l)} *
                   pool(type).at(begin_b, transposed ? j * k + l : l * n + j);
        const double result = c.select(0, i).slice(0, j, j + 1).values<double>()[0];
        worst = worse(worst, relative(result, exact, std::sqrt(static_cast<double>(k))));
      }
      return worst;
    };
    return Workload::Ready{[=] { ops::gemm(a, b, {.transpose_b = transposed, .out = c.ref()}); }, error};
  };
  return workload;
}

struct AttentionShape {
  std::int64_t batch, length, heads, dim;
  std::int64_t group = 1;   // heads of q for one of k
  std::int64_t window = 0;  // keys that a query sees at most, 0: all
  bool decode = false;      // one query
  std::int64_t queries() const { return decode ? 1 : length; }
};

// The first sequence of those that a tensor holds, or the only one.
double exact_attention(const AttentionShape& s, bool causal, std::int64_t k_begin, std::int64_t v_begin,
                       std::int64_t row, std::int64_t head, std::int64_t feature) {
  const Pool& p = pool(bf16);
  const std::int64_t kv_heads = s.heads / s.group, kv_head = head / s.group;
  const auto at = [&](std::int64_t key, std::int64_t d) { return (key * kv_heads + kv_head) * s.dim + d; };
  double sum = 0, value = 0;
  const std::int64_t first = s.window > 0 ? std::max<std::int64_t>(0, row + 1 - s.window) : 0;
  for (std::int64_t key = first; key <= (causal ? row : s.length - 1); ++key) {
    double score = 0;
    for (std::int64_t d = 0; d < s.dim; ++d)
      score += double{p.at(0, (row * s.heads + head) * s.dim + d)} * p.at(k_begin, at(key, d));
    const double weight = std::exp(score / std::sqrt(static_cast<double>(s.dim)));
    sum += weight, value += weight * p.at(v_begin, at(key, feature));
  }
  return value / sum;
}

double pairs(const AttentionShape& s, bool causal) {
  const auto n = static_cast<double>(s.length), w = static_cast<double>(s.window);
  if (s.decode) return n;
  if (s.window > 0) return w * (w + 1) / 2 + (n - w) * w;
  return n * n * (causal ? 0.5 : 1);
}

double attention_flops(const AttentionShape& s, bool causal) {
  return 4.0 * static_cast<double>(s.batch * s.heads * s.dim) * pairs(s, causal);
}

// The error of rows of `out`, whose first sequence is the shape's.
double worst_row(const AttentionShape& s, bool causal, const Tensor& out, std::int64_t k_begin,
                 std::int64_t v_begin) {
  double worst = 0;
  for (const std::int64_t row : {std::int64_t{0}, s.queries() / 3, s.queries() - 1}) {
    const std::int64_t head = row % s.heads, feature = (row * 31) % s.dim;
    const Tensor element = out.select(0, row).select(0, head).slice(0, feature, feature + 1);
    const double exact = exact_attention(s, causal, k_begin, v_begin, row, head, feature);
    worst = worse(worst, relative(element.values<double>()[0], exact, 1));
  }
  return worst;
}

Workload attention_workload(const AttentionShape& s, bool causal) {
  Workload workload;
  workload.name = fmt::format("{} bf16 {}x{}x{}x{} {}", s.decode ? "decode" : "attention", s.batch, s.length,
                              s.heads, s.dim, causal ? "causal" : "full");
  if (s.group > 1) workload.name += fmt::format(" group {}", s.group);
  if (s.window > 0) workload.name += fmt::format(" window {}", s.window);
  workload.flops = attention_flops(s, causal);
  workload.prepare = [=] {
    const Shape shape{s.batch, s.queries(), s.heads, s.dim}, kv{s.batch, s.length, s.heads / s.group, s.dim};
    const std::int64_t k_begin = behind(0, shape), v_begin = behind(k_begin, kv);
    const Tensor q = pool(bf16).take(shape, 0), k = pool(bf16).take(kv, k_begin),
                 v = pool(bf16).take(kv, v_begin);
    const Tensor out = unwritten(shape, bf16);
    const Tensor lse = unwritten({s.batch, s.heads, s.queries()}, f32);
    const ops::AttentionOptions options{
        .causal = causal, .left = s.window - 1, .out = out.ref(), .lse = lse.ref()};
    return Workload::Ready{[=] { ops::attention(q, k, v, options); },
                           [=] { return worst_row(s, causal, out.select(0, 0), k_begin, v_begin); }};
  };
  return workload;
}

// Sequences of uneven lengths, packed one after another.
Workload packed_workload(const std::vector<std::int64_t>& lengths, std::int64_t heads, std::int64_t dim,
                         bool causal) {
  Workload workload;
  std::vector<std::int32_t> begins{0};
  for (const std::int64_t length : lengths) {
    workload.flops += attention_flops({1, length, heads, dim}, causal);
    begins.push_back(begins.back() + static_cast<std::int32_t>(length));
  }
  workload.name = fmt::format("attention bf16 packed {}x{}x{}x{} {}", lengths.size(), begins.back(), heads,
                              dim, causal ? "causal" : "full");
  workload.prepare = [=] {
    const Shape shape{begins.back(), heads, dim};
    const std::int64_t k_begin = behind(0, shape), v_begin = behind(k_begin, shape);
    const Tensor q = pool(bf16).take(shape, 0), k = pool(bf16).take(shape, k_begin),
                 v = pool(bf16).take(shape, v_begin);
    const Tensor out = unwritten(shape, bf16);
    const Tensor lse = unwritten({heads, begins.back()}, f32);
    const Tensor where = Tensor::from(begins).to(Device::cuda());
    const ops::AttentionOptions options{.causal = causal,
                                        .cu_seqlens_q = where.ref(),
                                        .cu_seqlens_k = where.ref(),
                                        .out = out.ref(),
                                        .lse = lse.ref()};
    return Workload::Ready{[=, keep = where] { ops::attention(q, k, v, options); },
                           [=] {
                             return worst_row({1, lengths[0], heads, dim}, causal, out, k_begin, v_begin);
                           }};
  };
  return workload;
}

}  // namespace

std::vector<Workload> workloads() {
  std::vector<Workload> all;
  for (const std::int64_t n : {4096, 8192}) {
    for (const bool transposed : {false, true}) {
      for (const DType type : {bf16, f16}) all.push_back(gemm_workload(type, n, n, n, transposed));
    }
    all.push_back(gemm_workload(e4m3, n, n, n, true));
  }
  for (const bool causal : {false, true}) {
    for (const std::int64_t length : {2048, 4096, 8192, 16384})
      all.push_back(attention_workload({16384 / length, length, 16, 128}, causal));
    all.push_back(attention_workload({2, 8192, 32, 64}, causal));
    all.push_back(attention_workload({2, 8192, 8, 256}, causal));
    all.push_back(attention_workload({2, 8192, 16, 128, 8}, causal));
    all.push_back(packed_workload({2048, 512, 6144, 256, 1024, 4096, 1792, 512}, 16, 128, causal));
  }
  all.push_back(attention_workload({2, 8192, 16, 128, 1, 1024}, true));
  // One query of each sequence, as a model that writes text has it.
  for (auto [batch, length] :
       {std::pair(1, 8192), {1, 32768}, {1, 131072}, {8, 8192}, {16, 8192}, {64, 2048}})
    all.push_back(attention_workload({batch, length, 64, 128, 8, 0, true}, false));
  // What sparse attention is compared with.
  all.push_back(attention_workload({1, 16384, 64, 128, 8}, false));
  all.push_back(attention_workload({1, 8192, 64, 128, 16}, true));
  all.push_back(attention_workload({1, 8192, 16, 128, 4}, true));
  for (std::int64_t n = 4096; n <= 16384; n += 1000) all.push_back(gemm_workload(bf16, 4096, n, n, true));
  return all;
}

}  // namespace tegula::bench

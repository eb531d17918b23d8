// Attention over selected blocks at the sizes of practice.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "nsa_selection.hpp"
#include "pool.hpp"
#include "tegula/ops.hpp"
#include "workloads.hpp"

namespace tegula::bench {
namespace {

constexpr std::int64_t dim = 128;

struct NsaShape {
  std::int64_t tokens = 65536, group = 16, kv_heads = 4;
  Drift drift = Drift::independent;
  ops::AttentionTiles tiles = {};

  SelectionShape selection() const { return {tokens, kv_heads}; }
  Shape queries() const { return {1, tokens, kv_heads * group, dim}; }
  Shape keys() const { return {1, tokens, kv_heads, dim}; }
};

// Made once for all workloads that share it.
const NsaSelection& selection_of(const NsaShape& s) {
  static std::map<std::pair<std::int64_t, Drift>, NsaSelection> made;
  const auto key = std::make_pair(s.tokens, s.drift);
  if (!made.contains(key)) {
    NsaSelection own = make_selection(s.selection(), s.drift);
    own.indices = own.indices.to(Device::cuda());
    made.emplace(key, std::move(own));
  }
  return made.at(key);
}

// Inputs, and numbers of them as the host knows them.
class Problem {
 public:
  explicit Problem(const NsaShape& shape)
      : s(shape),
        k_begin(behind(0, s.queries())),
        v_begin(behind(k_begin, s.keys())),
        dout_begin(behind(v_begin, s.keys())),
        pool(bf16, behind(dout_begin, s.queries())),
        q(pool.take(s.queries(), 0)),
        k(pool.take(s.keys(), k_begin)),
        v(pool.take(s.keys(), v_begin)),
        dout(pool.take(s.queries(), dout_begin)),
        selection(selection_of(s)),
        out(Tensor::empty(s.queries(), bf16, Device::cuda())),
        lse(Tensor::empty({1, s.kv_heads * s.group, s.tokens}, f32, Device::cuda())) {}

  std::vector<float> row(std::int64_t begin, std::int64_t heads, std::int64_t token,
                         std::int64_t head) const {
    std::vector<float> result(dim);
    for (std::int64_t d = 0; d < dim; ++d)
      result[static_cast<std::size_t>(d)] = pool.at(begin, (token * heads + head) * dim + d);
    return result;
  }
  std::vector<float> query(std::int64_t begin, std::int64_t token, std::int64_t head) const {
    return row(begin, s.kv_heads * s.group, token, head);
  }
  std::vector<float> key(std::int64_t begin, std::int64_t token, std::int64_t head) const {
    return row(begin, s.kv_heads, token, head / s.group);
  }
  // Of one token, the keys that it sees.
  std::vector<std::int64_t> keys_of(std::int64_t token, std::int64_t head) const {
    const auto blocks =
        selection.indices.select(0, 0).select(0, token).select(0, head / s.group).values<std::int32_t>();
    std::vector<std::int64_t> keys;
    for (const std::int64_t block : blocks) {
      if (block < 0) continue;
      for (std::int64_t key = block * 64; key < block * 64 + 64 && key <= token; ++key) keys.push_back(key);
    }
    return keys;
  }
  void forward() const {
    ops::NsaSelectedOptions options;
    options.out = out.ref(), options.lse = lse.ref(), options.tiles = s.tiles;
    ops::nsa_selected_attention(q, k, v, selection.indices, options);
  }

  const NsaShape s;
  const std::int64_t k_begin, v_begin, dout_begin;
  const Pool pool;
  const Tensor q, k, v, dout;
  const NsaSelection& selection;
  const Tensor out, lse;
};

template <class T>
double dot(const std::vector<float>& a, const std::vector<T>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += double{a[i]} * b[i];
  return sum;
}

std::vector<double> device_row(const Tensor& t, std::int64_t token, std::int64_t head) {
  return t.select(0, 0).select(0, token).select(0, head).values<double>();
}

// The weights of one query's keys, which add up to 1.
std::vector<double> weights_of(const Problem& p, const std::vector<std::int64_t>& keys, std::int64_t token,
                               std::int64_t head) {
  const std::vector<float> query = p.query(0, token, head);
  std::vector<double> weights;
  double sum = 0;
  for (const std::int64_t key : keys) {
    weights.push_back(std::exp(dot(query, p.key(p.k_begin, key, head)) / std::sqrt(double{dim})));
    sum += weights.back();
  }
  for (double& weight : weights) weight /= sum;
  return weights;
}

struct Sample {
  std::int64_t token, head, feature;
};

std::vector<Sample> samples(const NsaShape& s) {
  std::vector<Sample> result;
  for (const std::int64_t token :
       {std::int64_t{0}, std::int64_t{70}, s.tokens / 3, s.tokens / 2 + 1, s.tokens - 2, s.tokens - 1})
    result.push_back({token, token % (s.group * s.kv_heads), token * 31 % dim});
  return result;
}

double error_of_out(const Problem& p) {
  double worst = 0;
  for (const auto& [token, head, feature] : samples(p.s)) {
    const std::vector<std::int64_t> keys = p.keys_of(token, head);
    const std::vector<double> weights = weights_of(p, keys, token, head);
    double exact = 0;
    for (std::size_t i = 0; i < keys.size(); ++i)
      exact += weights[i] * p.key(p.v_begin, keys[i], head)[static_cast<std::size_t>(feature)];
    worst =
        std::max(worst, std::abs(device_row(p.out, token, head)[static_cast<std::size_t>(feature)] - exact));
  }
  return worst;
}

std::string name_of(const char* what, const NsaShape& s) {
  std::string name = fmt::format("{} bf16 {}x{}x{}x{} {}", what, s.tokens, s.kv_heads * s.group, s.kv_heads,
                                 dim, s.drift == Drift::slow ? "drifting" : "independent");
  if (s.tiles.queries || s.tiles.keys) name += fmt::format(" q{} k{}", s.tiles.queries, s.tiles.keys);
  return name;
}

Workload::Ready ready(const std::shared_ptr<Problem>& p, double flops_of_pair) {
  Workload::Ready result;
  const double heads = static_cast<double>(p->s.group);
  result.flops = flops_of_pair * p->selection.pairs * heads * dim;
  result.nominal = flops_of_pair * p->selection.nominal * heads * dim;
  result.facts = {{"overlap", p->selection.overlap}, {"union of 4", p->selection.union_of}};
  return result;
}

Workload forward_workload(const NsaShape& s) {
  Workload workload;
  workload.name = name_of("nsa", s);
  workload.prepare = [=] {
    const auto p = std::make_shared<Problem>(s);
    Workload::Ready result = ready(p, 4);
    result.call = [=] { p->forward(); };
    result.error = [=] { return error_of_out(*p); };
    return result;
  };
  return workload;
}

// ---- gradients

struct Gradients {
  Tensor dq, dk, dv;
};

void add(std::vector<double>& sum, double factor, const std::vector<float>& row) {
  for (std::size_t i = 0; i < row.size(); ++i) sum[i] += factor * row[i];
}

double distance(const std::vector<double>& result, const std::vector<double>& exact) {
  double difference = 0, size = 0;
  for (std::size_t i = 0; i < exact.size(); ++i) {
    difference += (result[i] - exact[i]) * (result[i] - exact[i]);
    size += exact[i] * exact[i];
  }
  return std::sqrt(difference / std::max(size, 1e-30));
}

double error_of_dq(const Problem& p, const Tensor& dq) {
  double worst = 0;
  for (const auto& [token, head, feature] : samples(p.s)) {
    if (token == 0) continue;  // one key, whose weight does not change
    const std::vector<std::int64_t> keys = p.keys_of(token, head);
    const std::vector<double> weights = weights_of(p, keys, token, head);
    const std::vector<float> dout = p.query(p.dout_begin, token, head);
    std::vector<double> slopes, exact(dim);
    double delta = 0;
    for (std::size_t i = 0; i < keys.size(); ++i) {
      slopes.push_back(dot(dout, p.key(p.v_begin, keys[i], head)));
      delta += weights[i] * slopes.back();
    }
    for (std::size_t i = 0; i < keys.size(); ++i)
      add(exact, weights[i] * (slopes[i] - delta) / std::sqrt(double{dim}), p.key(p.k_begin, keys[i], head));
    worst = std::max(worst, distance(device_row(dq, token, head), exact));
  }
  return worst;
}

// Of a few keys, by all queries that see them; with the lse and outputs of the forward, which are checked by
// themselves.
double error_of_keys(const Problem& p, const Gradients& gradients) {
  const Tensor choice = p.selection.indices.to(Device::cpu()), lse = p.lse.to(Device::cpu());
  double worst = 0;
  for (const std::int64_t key : {p.s.tokens - 100, p.s.tokens - 4000}) {
    const std::int64_t kv_head = key % p.s.kv_heads, first_head = kv_head * p.s.group;
    std::vector<double> dk(dim), dv(dim);
    for (std::int64_t token = key; token < p.s.tokens; ++token) {
      const auto* row = &choice.at<std::int32_t>(std::int64_t{0}, token, kv_head, std::int64_t{0});
      if (std::find(row, row + choice.size(3), key / 64) == row + choice.size(3)) continue;
      for (std::int64_t head = first_head; head < first_head + p.s.group; ++head) {
        const std::vector<float> q = p.query(0, token, head), dout = p.query(p.dout_begin, token, head);
        const double score = dot(q, p.key(p.k_begin, key, head)) / std::sqrt(double{dim});
        const double weight = std::exp(score - lse.get({0, head, token}));
        const double slope =
            dot(dout, p.key(p.v_begin, key, head)) - dot(dout, device_row(p.out, token, head));
        add(dv, weight, dout);
        add(dk, weight * slope / std::sqrt(double{dim}), q);
      }
    }
    worst = std::max({worst, distance(device_row(gradients.dk, key, kv_head), dk),
                      distance(device_row(gradients.dv, key, kv_head), dv)});
  }
  return worst;
}

Workload backward_workload(const NsaShape& s) {
  Workload workload;
  workload.name = name_of("nsa backward", s);
  workload.prepare = [=] {
    const auto p = std::make_shared<Problem>(s);
    p->forward();
    const Gradients g{Tensor::empty(s.queries(), bf16, Device::cuda()),
                      Tensor::empty(s.keys(), bf16, Device::cuda()),
                      Tensor::empty(s.keys(), bf16, Device::cuda())};
    Workload::Ready result = ready(p, 10);
    result.call = [=] {
      ops::nsa_selected_attention_backward(p->dout, p->q, p->k, p->v, p->selection.indices, p->out, p->lse,
                                           {}, {.dq = g.dq.ref(), .dk = g.dk.ref(), .dv = g.dv.ref()});
    };
    result.error = [=] { return std::max(error_of_dq(*p, g.dq), error_of_keys(*p, g)); };
    return result;
  };
  return workload;
}

}  // namespace

std::vector<Workload> nsa_workloads() {
  std::vector<Workload> all;
  for (const std::int64_t group : {16, 4})
    for (const Drift drift : {Drift::independent, Drift::slow})
      for (const std::int64_t tokens : {8192, 16384, 32768, 65536, 131072})
        all.push_back(forward_workload({.tokens = tokens, .group = group, .drift = drift}));
  for (const std::int64_t group : {16, 4})
    for (const Drift drift : {Drift::independent, Drift::slow})
      for (const std::int64_t tokens : {8192, 32768, 65536})
        all.push_back(backward_workload({.tokens = tokens, .group = group, .drift = drift}));
  return all;
}

}  // namespace tegula::bench

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

struct NsaShape {
  std::int64_t tokens = 65536, group = 16, kv_heads = 4, dim = 128, dim_v = 128;
  int block = 64;
  Drift drift = Drift::independent;
  std::int64_t window = 0;
  bool every_head = false;  // selects for itself
  ops::AttentionTiles tiles = {};

  std::int64_t heads() const { return kv_heads * group; }
  double scale() const { return 1 / std::sqrt(static_cast<double>(dim)); }
  std::int64_t selectors() const { return every_head ? heads() : kv_heads; }
  // The head that selects for one of the queries'.
  std::int64_t selector(std::int64_t head) const { return every_head ? head : head / group; }
  SelectionShape selection() const { return {tokens, selectors(), block}; }
  Shape queries() const { return {1, tokens, heads(), dim}; }
  Shape results() const { return {1, tokens, heads(), dim_v}; }
  Shape keys() const { return {1, tokens, kv_heads, dim}; }
  Shape values() const { return {1, tokens, kv_heads, dim_v}; }
};

// Made once for all workloads that share it.
const NsaSelection& selection_of(const NsaShape& s) {
  static std::map<std::tuple<std::int64_t, std::int64_t, int, Drift>, NsaSelection> made;
  const auto key = std::make_tuple(s.tokens, s.selectors(), s.block, s.drift);
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
        dout_begin(behind(v_begin, s.values())),
        pool(bf16, behind(dout_begin, s.results())),
        q(pool.take(s.queries(), 0)),
        k(pool.take(s.keys(), k_begin)),
        v(pool.take(s.values(), v_begin)),
        dout(pool.take(s.results(), dout_begin)),
        selection(selection_of(s)),
        out(unwritten(s.results(), bf16)),
        lse(unwritten({1, s.heads(), s.tokens}, f32)),
        window_out(unwritten(s.window ? s.results() : Shape{0}, bf16)),
        window_lse(unwritten(s.window ? Shape{1, s.heads(), s.tokens} : Shape{0}, f32)) {}

  std::vector<float> row(std::int64_t begin, std::int64_t heads, std::int64_t features, std::int64_t token,
                         std::int64_t head) const {
    std::vector<float> result(static_cast<std::size_t>(features));
    for (std::int64_t d = 0; d < features; ++d)
      result[static_cast<std::size_t>(d)] = pool.at(begin, (token * heads + head) * features + d);
    return result;
  }
  std::vector<float> query(std::int64_t token, std::int64_t head) const {
    return row(0, s.heads(), s.dim, token, head);
  }
  std::vector<float> dout_row(std::int64_t token, std::int64_t head) const {
    return row(dout_begin, s.heads(), s.dim_v, token, head);
  }
  std::vector<float> key(std::int64_t token, std::int64_t head) const {
    return row(k_begin, s.kv_heads, s.dim, token, head / s.group);
  }
  std::vector<float> value(std::int64_t token, std::int64_t head) const {
    return row(v_begin, s.kv_heads, s.dim_v, token, head / s.group);
  }
  // The keys that one token sees.
  std::vector<std::int64_t> keys_of(std::int64_t token, std::int64_t head) const {
    const auto blocks =
        selection.indices.select(0, 0).select(0, token).select(0, s.selector(head)).values<std::int32_t>();
    std::vector<std::int64_t> keys;
    for (const std::int64_t block : blocks) {
      if (block < 0) continue;
      for (std::int64_t key = block * s.block; key < (block + 1) * s.block && key <= token; ++key)
        keys.push_back(key);
    }
    return keys;
  }
  std::vector<std::int64_t> keys_in_window(std::int64_t token) const {
    std::vector<std::int64_t> keys;
    for (std::int64_t key = std::max<std::int64_t>(0, token + 1 - s.window); key <= token; ++key)
      keys.push_back(key);
    return keys;
  }
  ops::NsaSelectedOptions options() const {
    ops::NsaSelectedOptions options;
    options.tiles = s.tiles, options.window = s.window, options.block_size = s.block;
    return options;
  }
  void forward() const {
    ops::NsaSelectedOptions own = options();
    own.out = out.ref(), own.lse = lse.ref();
    if (s.window > 0) own.window_out = window_out.ref(), own.window_lse = window_lse.ref();
    ops::nsa_selected_attention(q, k, v, selection.indices, own);
  }

  const NsaShape s;
  const std::int64_t k_begin, v_begin, dout_begin;
  const Pool pool;
  const Tensor q, k, v, dout;
  const NsaSelection& selection;
  const Tensor out, lse, window_out, window_lse;
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
  const std::vector<float> query = p.query(token, head);
  std::vector<double> weights;
  double sum = 0;
  for (const std::int64_t key : keys) {
    weights.push_back(std::exp(dot(query, p.key(key, head)) * p.s.scale()));
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
    result.push_back({token, token % s.heads(), token * 31 % s.dim_v});
  return result;
}

double error_of_output(const Problem& p, const Tensor& out, const std::vector<std::int64_t>& keys,
                       const Sample& at) {
  const std::vector<double> weights = weights_of(p, keys, at.token, at.head);
  const auto feature = static_cast<std::size_t>(at.feature);
  double exact = 0;
  for (std::size_t i = 0; i < keys.size(); ++i) exact += weights[i] * p.value(keys[i], at.head)[feature];
  return std::abs(device_row(out, at.token, at.head)[feature] - exact);
}

double error_of_out(const Problem& p) {
  double worst = 0;
  for (const Sample& at : samples(p.s)) {
    worst = worse(worst, error_of_output(p, p.out, p.keys_of(at.token, at.head), at));
    if (p.s.window > 0)
      worst = worse(worst, error_of_output(p, p.window_out, p.keys_in_window(at.token), at));
  }
  return worst;
}

std::string name_of(const char* what, const NsaShape& s) {
  const std::string features =
      s.dim_v == s.dim ? fmt::format("{}", s.dim) : fmt::format("{}/{}", s.dim, s.dim_v);
  std::string name = fmt::format("{} bf16 {}x{}x{}x{} {}", what, s.tokens, s.kv_heads * s.group, s.kv_heads,
                                 features, s.drift == Drift::slow ? "drifting" : "independent");
  if (s.block != 64) name += fmt::format(" blocks of {}", s.block);
  if (s.window > 0) name += fmt::format(" window {}", s.window);
  if (s.every_head) name += " every head";
  if (s.tiles.queries || s.tiles.keys) name += fmt::format(" q{} k{}", s.tiles.queries, s.tiles.keys);
  return name;
}

// `flops_of_pair`: of a query head.
Workload::Ready ready(const std::shared_ptr<Problem>& p, std::int64_t flops_of_pair) {
  Workload::Ready result;
  const auto heads = static_cast<double>(p->s.heads() / p->s.selectors());
  double of_window = 0;
  for (std::int64_t token = 0; token < p->s.tokens; ++token)
    of_window += static_cast<double>(std::min(p->s.window, token + 1) * p->s.selectors());
  const double flops = static_cast<double>(flops_of_pair) * heads;
  result.flops = flops * (p->selection.pairs + of_window);
  result.nominal = flops * (p->selection.nominal + of_window);
  result.facts = {{"overlap", p->selection.overlap}, {"union of 4", p->selection.union_of}};
  return result;
}

Workload forward_workload(const NsaShape& s) {
  Workload workload;
  workload.name = name_of("nsa", s);
  workload.prepare = [=] {
    const auto p = std::make_shared<Problem>(s);
    Workload::Ready result = ready(p, 2 * (s.dim + s.dim_v));
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

// What one branch's keys add to the gradient of a query.
void add_to_dq(const Problem& p, const std::vector<std::int64_t>& keys, const Sample& at,
               std::vector<double>& sum) {
  const std::vector<double> weights = weights_of(p, keys, at.token, at.head);
  const std::vector<float> dout = p.dout_row(at.token, at.head);
  std::vector<double> slopes;
  double delta = 0;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    slopes.push_back(dot(dout, p.value(keys[i], at.head)));
    delta += weights[i] * slopes.back();
  }
  for (std::size_t i = 0; i < keys.size(); ++i)
    add(sum, weights[i] * (slopes[i] - delta) * p.s.scale(), p.key(keys[i], at.head));
}

double error_of_dq(const Problem& p, const Tensor& dq) {
  double worst = 0;
  for (const Sample& at : samples(p.s)) {
    if (at.token == 0) continue;  // one key, whose weight does not change
    std::vector<double> exact(static_cast<std::size_t>(p.s.dim));
    add_to_dq(p, p.keys_of(at.token, at.head), at, exact);
    if (p.s.window > 0) add_to_dq(p, p.keys_in_window(at.token), at, exact);
    worst = worse(worst, distance(device_row(dq, at.token, at.head), exact));
  }
  return worst;
}

struct KeySums {
  std::vector<double> dk, dv;
};

// What a query that sees the key in one branch adds to its gradients; with the lse and outputs of the
// forward, which are checked by themselves.
void add_to_key(const Problem& p, const Tensor& out, double lse, std::int64_t key, std::int64_t token,
                std::int64_t head, KeySums& sums) {
  const std::vector<float> q = p.query(token, head), dout = p.dout_row(token, head);
  const double score = dot(q, p.key(key, head)) * p.s.scale();
  const double weight = std::exp(score - lse);
  const double slope = dot(dout, p.value(key, head)) - dot(dout, device_row(out, token, head));
  add(sums.dv, weight, dout);
  add(sums.dk, weight * slope * p.s.scale(), q);
}

double error_of_key(const Problem& p, const Gradients& gradients, const Tensor& choice, std::int64_t key) {
  const Tensor lse = p.lse.to(Device::cpu()), window_lse = p.window_lse.to(Device::cpu());
  const std::int64_t kv_head = key % p.s.kv_heads;
  KeySums sums{std::vector<double>(static_cast<std::size_t>(p.s.dim)),
               std::vector<double>(static_cast<std::size_t>(p.s.dim_v))};
  for (std::int64_t token = key; token < p.s.tokens; ++token)
    for (std::int64_t head = kv_head * p.s.group; head < (kv_head + 1) * p.s.group; ++head) {
      const auto* row = &choice.at<std::int32_t>(std::int64_t{0}, token, p.s.selector(head), std::int64_t{0});
      if (std::find(row, row + choice.size(3), key / p.s.block) != row + choice.size(3))
        add_to_key(p, p.out, lse.get({0, head, token}), key, token, head, sums);
      if (token < key + p.s.window)
        add_to_key(p, p.window_out, window_lse.get({0, head, token}), key, token, head, sums);
    }
  return worse(distance(device_row(gradients.dk, key, kv_head), sums.dk),
               distance(device_row(gradients.dv, key, kv_head), sums.dv));
}

// The error of a few keys, by all queries that see them.
double error_of_keys(const Problem& p, const Gradients& gradients) {
  const Tensor choice = p.selection.indices.to(Device::cpu());
  double worst = 0;
  for (const std::int64_t key : {p.s.tokens - 100, p.s.tokens - 4000})
    worst = worse(worst, error_of_key(p, gradients, choice, key));
  return worst;
}

Workload backward_workload(const NsaShape& s) {
  Workload workload;
  workload.name = name_of("nsa backward", s);
  workload.prepare = [=] {
    const auto p = std::make_shared<Problem>(s);
    p->forward();
    const Gradients g{unwritten(s.queries(), bf16), unwritten(s.keys(), bf16), unwritten(s.values(), bf16)};
    Workload::Ready result = ready(p, 2 * (3 * s.dim + 2 * s.dim_v));
    result.call = [=] {
      ops::NsaSelectedBackwardOptions given{.dq = g.dq.ref(), .dk = g.dk.ref(), .dv = g.dv.ref()};
      if (s.window > 0)
        given.dwindow_out = p->dout.ref(), given.window_out = p->window_out.ref(),
        given.window_lse = p->window_lse.ref();
      ops::nsa_selected_attention_backward(p->dout, p->q, p->k, p->v, p->selection.indices, p->out, p->lse,
                                           p->options(), given);
    };
    result.error = [=] { return worse(error_of_dq(*p, g.dq), error_of_keys(*p, g)); };
    return result;
  };
  return workload;
}

// Other features, blocks, groups and lengths than those of the rows above.
void add_beside(std::vector<Workload>& all) {
  for (const NsaShape& s :
       std::vector<NsaShape>{{.tokens = 16384, .group = 16, .kv_heads = 1},
                             {.tokens = 16383, .group = 16, .kv_heads = 1},
                             {.tokens = 16384, .dim = 192},
                             {.tokens = 16384, .group = 8, .block = 32},
                             {.tokens = 16384, .group = 4, .block = 16},
                             {.tokens = 16384, .group = 8, .kv_heads = 2, .dim = 256, .dim_v = 256},
                             {.tokens = 16384, .group = 1, .kv_heads = 16}}) {
    all.push_back(forward_workload(s));
    all.push_back(backward_workload(s));
  }
}

}  // namespace

std::vector<Workload> nsa_workloads() {
  std::vector<Workload> all;
  for (const std::int64_t group : {16, 4})
    for (const Drift drift : {Drift::independent, Drift::slow})
      for (const std::int64_t tokens : {8192, 16384, 32768, 65536, 131072})
        all.push_back(forward_workload({.tokens = tokens, .group = group, .drift = drift}));
  for (const std::int64_t tokens : {8192, 65536})
    all.push_back(forward_workload({.tokens = tokens, .group = 32}));
  for (const std::int64_t group : {16, 4})
    for (const Drift drift : {Drift::independent, Drift::slow})
      for (const std::int64_t tokens : {8192, 32768, 65536})
        all.push_back(backward_workload({.tokens = tokens, .group = group, .drift = drift}));
  for (const std::int64_t group : {16, 4}) {
    all.push_back(backward_workload({.tokens = 32768, .group = group, .window = 512}));
    all.push_back(backward_workload({.tokens = 8192, .group = group, .every_head = true}));
  }
  all.push_back(forward_workload({.tokens = 8192, .group = 4, .every_head = true}));
  add_beside(all);
  return all;
}

}  // namespace tegula::bench

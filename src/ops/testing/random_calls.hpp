// For tests: random calls of the attention operators by their registered names, of shapes (also empty ones
// and tensors that repeat themselves), sizes of scores, dtypes and options of every kind, and how their
// results are judged. Call n of an operator is the same on every machine.
#pragma once
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "ops/registry.hpp"

namespace tegula::ops {

struct RandomCall {
  const Operator* op = nullptr;
  Tensors inputs;
  OptionTexts options;
  double size = 1;  // of queries and keys

  // Shapes and options, as the command-line tool takes them.
  std::string text() const {
    std::string result = op->name;
    for (const auto& [name, tensor] : inputs) {
      result += " " + name + "=";
      for (int d = 0; d < tensor.rank(); ++d) result += (d > 0 ? "x" : "") + std::to_string(tensor.size(d));
      result += ":" + std::string(tensor.dtype().name());
      for (int d = 0; d < tensor.rank(); ++d)
        if (tensor.size(d) > 1 && tensor.strides()[static_cast<std::size_t>(d)] == 0)
          result += ", one of dimension " + std::to_string(d);
    }
    for (const auto& [name, value] : options) result += " " + name + "=" + value;
    if (size != 1) result += " of size " + std::to_string(size);
    return result;
  }
};

class RandomCalls {
 public:
  explicit RandomCalls(std::uint64_t seed) : random_(seed * 2 + 1) {}

  RandomCall of(const std::string& op) {
    constexpr std::string_view backward = "_backward";
    const bool of_gradients = op.ends_with(backward);
    const std::string forward = of_gradients ? op.substr(0, op.size() - backward.size()) : op;
    choose_sizes();
    // Gradients are those of the forward of one executor, whose scores have the same roundings.
    size_ = !of_gradients && chance(20) ? (chance(50) ? 100 : 10000) : 1;
    RandomCall call = forward == "attention"                ? attention()
                      : forward == "block_sparse_attention" ? block_sparse()
                                                            : selected();
    call.op = &find_operator(forward);
    return of_gradients ? gradients_of(std::move(call)) : call;
  }

 private:
  std::int64_t between(std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(high - low + 1));
  }
  bool chance(int percent) { return between(1, 100) <= percent; }
  std::int64_t any(const std::vector<std::int64_t>& of) {
    return of[static_cast<std::size_t>(between(0, static_cast<std::int64_t>(of.size()) - 1))];
  }

  void choose_sizes() {
    type_ = chance(25) ? f32 : chance(50) ? f16 : bf16;
    kv_heads_ = between(1, 2), group_ = any({1, 1, 2, 3, 4, 8, 16});
    dim_ = any({8, 16, 24, 64, 64, 80, 96, 128}), dim_v_ = chance(70) ? dim_ : any({8, 16, 40, 64, 128});
    packed_ = chance(30);
    bhsd_ = !packed_ && chance(30);
    batch_ = chance(70) ? 1 : 2;
    queries_ = between(1, 200), keys_ = chance(40) ? queries_ : between(1, 260);
    sequences_ = packed_ ? between(1, 4) : 0;
    if (!chance(12)) return;
    std::int64_t* extents[] = {&queries_, &keys_, packed_ ? &keys_ : &batch_};
    *extents[between(0, 2)] = 0;
  }

  // [batch, tokens, heads, …], packed without batch, in the order of the layout.
  Shape by_tokens(std::int64_t tokens, std::int64_t heads, std::int64_t last) const {
    if (packed_) return {tokens, heads, last};
    return bhsd_ ? Shape{batch_, heads, tokens, last} : Shape{batch_, tokens, heads, last};
  }
  Tensor normal(const Shape& shape, DType type) { return Tensor::random_normal(shape, type, random_()); }
  Tensor sized(const Shape& shape) {
    Tensor values = normal(shape, f32);
    float* data = values.data_as<float>();
    for (std::int64_t i = 0; i < values.nelements(); ++i) data[i] *= static_cast<float>(size_);
    return values.to(type_);
  }
  // As an expanded tensor is, with the stride 0 along a dimension that is not the last.
  Tensor sometimes_repeated(const Tensor& values) {
    if (!chance(10)) return values;
    const auto dim = static_cast<int>(between(0, values.rank() - 2));
    if (values.size(dim) == 0) return values;
    return values.slice(dim, 0, 1).expand(values.shape());
  }

  RandomCall begin() {
    RandomCall call;
    call.size = size_;
    call.inputs.emplace("q", sometimes_repeated(sized(by_tokens(queries_, kv_heads_ * group_, dim_))));
    call.inputs.emplace("k", sometimes_repeated(sized(by_tokens(keys_, kv_heads_, dim_))));
    call.inputs.emplace("v", sometimes_repeated(normal(by_tokens(keys_, kv_heads_, dim_v_), type_)));
    if (packed_) {
      call.inputs.emplace("cu_seqlens_q", fences(queries_));
      call.inputs.emplace("cu_seqlens_k", fences(keys_));
    }
    if (bhsd_) call.options["layout"] = "bhsd";
    if (chance(20)) call.options["scale"] = "0.3";
    return call;
  }

  Tensor fences(std::int64_t tokens) {
    std::vector<std::int32_t> result{0, static_cast<std::int32_t>(tokens)};
    for (std::int64_t i = 1; i < sequences_; ++i)
      result.push_back(static_cast<std::int32_t>(between(0, tokens)));
    std::sort(result.begin(), result.end());
    return Tensor::from(result);
  }

  RandomCall attention() {
    RandomCall call = begin();
    if (chance(50)) call.options["causal"] = "true";
    if (chance(30)) call.options["left"] = std::to_string(between(0, 90));
    if (chance(20) && !call.options.contains("causal"))
      call.options["right"] = std::to_string(between(0, 40));
    if (chance(20)) call.options["softcap"] = "5";
    if (chance(30)) call.inputs.emplace("sinks", normal({kv_heads_ * group_}, chance(50) ? f32 : type_));
    return call;
  }

  RandomCall block_sparse() {
    RandomCall call = begin();
    const std::int64_t q_block = any({1, 1, 7, 16, 64, 100, 128}),
                       k_block = any({1, 5, 16, 24, 64, 100, 128}),
                       q_blocks = (longest(call, "cu_seqlens_q", queries_) + q_block - 1) / q_block,
                       k_blocks = (longest(call, "cu_seqlens_k", keys_) + k_block - 1) / k_block,
                       heads = chance(25) ? kv_heads_ * group_ : kv_heads_, entries = any({0, 1, 3, 5, 40});
    const Shape rows{packed_ ? sequences_ : batch_, heads, q_blocks + (packed_ ? between(0, 1) : 0)};
    const auto of_rows = [&](std::int64_t last) { return Shape{rows[0], rows[1], rows[2], last}; };
    call.options["q_block_size"] = std::to_string(q_block),
    call.options["k_block_size"] = std::to_string(k_block);
    if (chance(50)) call.options["causal"] = "true";
    if (chance(15)) call.options["softcap"] = "5";
    if (chance(25)) {
      call.inputs.emplace("mask", integers(of_rows(k_blocks), 0, 2).to(boolean));
      return call;
    }
    const bool checked = !packed_ && chance(20);
    if (checked) call.options["check_indices"] = "true";
    call.inputs.emplace("indices",
                        integers(of_rows(entries), checked ? -1 : -3, k_blocks + (checked ? 0 : 3)));
    if (chance(30)) call.inputs.emplace("counts", integers(rows, 0, entries + 1));
    return call;
  }

  // Of packed sequences.
  static std::int64_t longest(const RandomCall& call, const std::string& fences, std::int64_t tokens) {
    const auto found = call.inputs.find(fences);
    if (found == call.inputs.end()) return tokens;
    std::int64_t most = 0;
    for (std::int64_t i = 1; i < found->second.size(0); ++i)
      most = std::max<std::int64_t>(
          most, found->second.at<std::int32_t>(i) - found->second.at<std::int32_t>(i - 1));
    return most;
  }

  RandomCall selected() {
    RandomCall call = begin();
    const std::int64_t block = any({1, 16, 20, 32, 64, 64, 128}), blocks = (keys_ + block - 1) / block,
                       heads = chance(25) ? kv_heads_ * group_ : kv_heads_, entries = any({0, 1, 3, 8, 17});
    call.options["block_size"] = std::to_string(block);
    call.options["causal"] = chance(70) ? "true" : "false";
    for (const char* option : {"diagonal", "repeats"})
      if (chance(25)) call.options[option] = "true";
    if (chance(35)) call.options["window"] = std::to_string(between(1, 80));
    // Few blocks are named several times.
    call.inputs.emplace("block_indices",
                        integers(by_tokens(queries_, heads, entries), -2, chance(30) ? 2 : blocks + 2));
    if (chance(30)) {
      Shape counts = by_tokens(queries_, heads, entries);
      counts.pop_back();
      call.inputs.emplace("block_counts", integers(counts, 0, entries + 1));
    }
    return call;
  }

  Tensor integers(const Shape& shape, std::int64_t low, std::int64_t end) {
    return Tensor::random_integers(shape, i32, random_(), low, end);
  }

  // Of the forward's results by the formula.
  RandomCall gradients_of(RandomCall call) {
    const Tensors results = call.op->reference(call.inputs, Options::parse(*call.op, call.options));
    const auto add = [&](const std::string& prefix) {
      const Tensor &out = results.at(prefix + "out"), &lse = results.at(prefix + "lse");
      call.inputs.emplace(prefix + "out", out.to(type_));
      call.inputs.emplace(prefix + "lse", lse.to(f32));
      call.inputs.emplace("d" + prefix + "out", sometimes_repeated(normal(out.shape(), type_)));
      if (chance(40)) call.inputs.emplace("d" + prefix + "lse", normal(lse.shape(), f32));
    };
    add("");
    call.options.erase("check_indices");
    if (call.options.contains("window") && chance(70)) add("window_");
    if (call.inputs.contains("block_indices")) {
      if (chance(30)) call.options["sel_scale_gradient"] = "true";
    } else if (chance(40)) {
      call.options["deterministic"] = "false";
    }
    call.op = &find_operator(call.op->name + "_backward");
    return call;
  }

  std::mt19937_64 random_;
  DType type_ = f32;
  std::int64_t batch_ = 1, queries_ = 1, keys_ = 1, kv_heads_ = 1, group_ = 1, dim_ = 16, dim_v_ = 16,
               sequences_ = 0;
  double size_ = 1;
  bool packed_ = false, bhsd_ = false;
};

inline const std::vector<std::string> randomly_called{"attention",
                                                      "attention_backward",
                                                      "block_sparse_attention",
                                                      "block_sparse_attention_backward",
                                                      "nsa_selected_attention",
                                                      "nsa_selected_attention_backward"};

// Of scores in f32, whose rounding grows with them, until one key has all the weight.
inline Operator::Tolerance tolerance_of(const RandomCall& call, const Options& options,
                                        const std::string& result) {
  Operator::Tolerance tolerance = call.op->tolerance(call.inputs, options);
  // A sum over keys and heads of gradients of scores, whose delta is that of the rounded output, times
  // scores.
  if (result == "dsel_scale") tolerance.absolute *= 8;
  if (call.size == 1) return tolerance;
  const double rounded = result.ends_with("lse") ? 0x1p-20 * call.size * call.size : 0x1p-6;
  return {std::max(tolerance.absolute, rounded), std::max(tolerance.relative, 0x1p-10)};
}

inline void expect_right(const RandomCall& call, const std::vector<Target>& targets) {
  SCOPED_TRACE(call.text());
  const Options options = Options::parse(*call.op, call.options);
  const Tensors expected = call.op->reference(call.inputs, options);
  for (const Target target : targets) {
    const Tensors results = run_from_host(*call.op, call.inputs, options, target);
    for (const auto& [name, exact] : expected) {
      ASSERT_EQ(results.count(name), 1u) << name;
      const auto tolerance = tolerance_of(call, options, name);
      const auto wrong = first_difference(results.at(name), exact, tolerance.absolute, tolerance.relative);
      EXPECT_FALSE(wrong) << target.name() << ": " << name << " " << *wrong;
    }
  }
}

}  // namespace tegula::ops

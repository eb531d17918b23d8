#include "tests/golden/shipped.hpp"

#include <map>

#include "ops/schema/example.hpp"
#include "ops/schema/tile_registers.hpp"
#include "show/cuda_texts.hpp"
#include "show/texts.hpp"

namespace golden {

namespace {

using namespace tegula;
using ops::OptionTexts;
using ops::Tensors;
using Size = std::int64_t;

class Table {
 public:
  std::vector<ShippedCall> calls;

  void add(const std::string& op, Tensors inputs, OptionTexts options = {}) {
    calls.push_back({op, [&own = ops::find_operator(op), inputs = std::move(inputs),
                          options = std::move(options)](Target target) {
                       return own.kernels(inputs, ops::Options::parse(own, options), target);
                     }});
  }
};

void add_gemms(Table& table) {
  const auto gemm = [&](DType type, Size m, Size n, Size k, bool along_k, OptionTexts options = {}) {
    if (along_k) options["transpose_b"] = "true";
    Tensors in{{"a", Tensor::empty({m, k}, type)},
               {"b", Tensor::empty(along_k ? Shape{n, k} : Shape{k, n}, type)}};
    if (options.contains("activation")) in.emplace("bias", Tensor::empty({n}, type));
    table.add("gemm", std::move(in), std::move(options));
  };
  for (DType type : {bf16, f16, e4m3, f32})
    for (bool along_k : {true, false}) gemm(type, 4096, 4096, 4096, along_k);
  gemm(bf16, 4096, 4096, 4096, true, {{"transpose_a", "true"}});
  gemm(bf16, 4096, 4096, 4096, true, {{"activation", "gelu"}});
  gemm(bf16, 4096, 4096, 4096, true, {{"out_dtype", "f32"}});
  gemm(e5m2, 4096, 4096, 4096, true);
  for (Size m : {1, 16, 64, 128, 256, 512, 1024}) gemm(bf16, m, 4096, 4096, true);
  gemm(bf16, 512, 512, 16384, true);
  gemm(bf16, 4095, 4097, 4099, true);
}

struct Heads {
  DType type = bf16;
  Size queries = 8192, keys = 8192, heads = 16, kv_heads = 16, dim = 128, dim_v = 128, batch = 1;
};

// Lengths of the packed sequences, which are on the device: none for a batch.
Tensors heads_inputs(const Heads& h, bool packed, bool backward) {
  const auto of = [&](Size tokens, Size heads, Size d) {
    return Tensor::empty(packed ? Shape{tokens, heads, d} : Shape{h.batch, tokens, heads, d}, h.type);
  };
  Tensors in{{"q", of(h.queries, h.heads, h.dim)},
             {"k", of(h.keys, h.kv_heads, h.dim)},
             {"v", of(h.keys, h.kv_heads, h.dim_v)}};
  if (packed) {
    const auto half = [](Size n) {
      return Tensor::from<std::int32_t>({0, static_cast<std::int32_t>(n / 2), static_cast<std::int32_t>(n)});
    };
    in.emplace("cu_seqlens_q", half(h.queries));
    in.emplace("cu_seqlens_k", half(h.keys));
  }
  if (!backward) return in;
  for (const char* name : {"out", "dout"}) in.emplace(name, of(h.queries, h.heads, h.dim_v));
  in.emplace("lse",
             Tensor::empty(packed ? Shape{h.heads, h.queries} : Shape{h.batch, h.heads, h.queries}, f32));
  return in;
}

// Both directions of attention.
void add_dense(Table& table, const Heads& h, const OptionTexts& options = {}, bool packed = false) {
  table.add("attention", heads_inputs(h, packed, false), options);
  if (h.queries > 1) table.add("attention_backward", heads_inputs(h, packed, true), options);
}

void add_attention(Table& table) {
  const OptionTexts causal{{"causal", "true"}};
  for (const OptionTexts& options : {OptionTexts{}, causal}) {
    for (Size length : {2048, 8192}) add_dense(table, {.queries = length, .keys = length}, options);
    for (Size d : {64, 96, 192, 256}) add_dense(table, {.dim = d, .dim_v = d}, options);
    add_dense(table, {.dim = 192, .dim_v = 128}, options);
    add_dense(table, {.heads = 64, .kv_heads = 8}, options);
    add_dense(table, {}, options, true);
    add_dense(table, {.type = f16}, options);
    add_dense(table, {.type = f32, .dim = 64, .dim_v = 64}, options);
  }
  add_dense(table, {}, {{"left", "1024"}, {"right", "0"}});
  add_dense(table, {}, {{"softcap", "30"}});
  table.add("attention_backward", heads_inputs({}, false, true), {{"deterministic", "false"}});
  Tensors sinks = heads_inputs({.dim = 64, .dim_v = 64}, false, false);
  sinks.emplace("sinks", Tensor::empty({16}, f32));
  table.add("attention", std::move(sinks), {{"left", "127"}, {"right", "0"}});
  for (Size d : {64, 128, 256})
    table.add("attention", heads_inputs({.type = e4m3, .dim = d, .dim_v = d}, false, false), {});
  table.add("attention", heads_inputs({.type = e4m3}, true, false), causal);
  for (Size d : {128, 256})
    for (Size batch : {1, 8})
      add_dense(table, {.queries = 1, .heads = 64, .kv_heads = 8, .dim = d, .dim_v = d, .batch = batch});
}

// Both directions of block-sparse attention; every 16th block of keys is listed.
void add_blocks(Table& table, Heads h, Size q_block, Size k_block, bool causal, bool packed = false) {
  OptionTexts options{{"q_block_size", std::to_string(q_block)}, {"k_block_size", std::to_string(k_block)}};
  if (causal) options["causal"] = "true";
  for (bool backward : {false, true}) {
    Tensors in = heads_inputs(h, packed, backward);
    const Size sequences = packed ? 2 : h.batch, rows = h.queries / sequences / q_block;
    in.emplace("indices",
               Tensor::empty({sequences, h.kv_heads, rows, h.keys / sequences / k_block / 16 + 1}, i32));
    table.add(backward ? "block_sparse_attention_backward" : "block_sparse_attention", std::move(in),
              options);
  }
}

void add_block_sparse(Table& table) {
  constexpr std::pair<Size, Size> blocks[] = {{384, 384}, {128, 128}, {64, 64}, {16, 64},
                                              {8, 64},    {128, 1},   {64, 1},  {1, 64}};
  for (bool causal : {false, true})
    for (const auto& [q_block, k_block] : blocks) {
      add_blocks(table, {.queries = 49152, .keys = 49152, .heads = 8, .kv_heads = 1}, q_block, k_block,
                 causal);
      add_blocks(table, {.queries = 12288, .keys = 12288, .heads = 8, .kv_heads = 8}, q_block, k_block,
                 causal);
    }
  for (Size d : {64, 192, 256})
    add_blocks(table, {.heads = 8, .kv_heads = 1, .dim = d, .dim_v = d == 192 ? 128 : d}, 64, 64, true);
  add_blocks(table, {.heads = 8, .kv_heads = 1}, 64, 64, true, true);
  add_blocks(table, {.heads = 8, .kv_heads = 1}, 1, 64, true, true);
}

struct Tokens {
  Size tokens = 8192, group = 16, block = 64, dim = 128, dim_v = 128, window = 0;
  bool every_head = false;  // one head of keys for each head of queries
  OptionTexts options = {};
};

void add_tokens(Table& table, const Tokens& t) {
  const Heads h{.queries = t.tokens,
                .keys = t.tokens,
                .heads = 64,
                .kv_heads = 64 / t.group,
                .dim = t.dim,
                .dim_v = t.dim_v};
  OptionTexts options = t.options;
  options["block_size"] = std::to_string(t.block);
  if (t.window > 0) options["window"] = std::to_string(t.window);
  for (bool backward : {false, true}) {
    Tensors in = heads_inputs(h, false, backward);
    in.emplace("block_indices",
               Tensor::empty({h.batch, h.queries, t.every_head ? h.heads : h.kv_heads, 16}, i32));
    if (backward && t.window > 0) {
      for (const char* name : {"window_out", "dwindow_out"}) in.emplace(name, in.at("out"));
      in.emplace("window_lse", in.at("lse"));
    }
    table.add(backward ? "nsa_selected_attention_backward" : "nsa_selected_attention", std::move(in),
              options);
  }
}

void add_selected(Table& table) {
  for (Size group : {1, 4, 16, 32})
    for (Size tokens : {8192, 65536}) add_tokens(table, {.tokens = tokens, .group = group});
  add_tokens(table, {.tokens = 32768, .window = 512});
  add_tokens(table, {.block = 32});
  add_tokens(table, {.dim = 192});
  add_tokens(table, {.group = 4, .every_head = true});
  add_tokens(table, {.options = {{"repeats", "true"}}});
  add_tokens(table, {.options = {{"diagonal", "true"}}});
}

void add_selection(Table& table) {
  for (const char* causal : {"false", "true"})
    for (Size block : {1, 16, 64, 128})
      table.add(
          "block_scores",
          {{"q", Tensor::empty({1, 8192, 8, 128}, bf16)}, {"k", Tensor::empty({1, 8192, 2, 128}, bf16)}},
          {{"causal", causal}, {"q_block_size", std::to_string(block)}, {"k_block_size", "64"}});
  for (const char* kept : {"false", "true"})
    table.add("topk_blocks", {{"scores", Tensor::empty({1, 8, 256, 256}, f32)}},
              {{"count", "16"}, {"keep_first", kept}, {"keep_diagonal", kept}});
}

void add_norms(Table& table) {
  for (DType type : {bf16, f32})
    for (Size d : {128, 4096}) {
      const Tensor rows = Tensor::empty({8192, d}, type), weight = Tensor::empty({d}, type);
      table.add("rms_norm", {{"x", rows}, {"weight", weight}});
      table.add("rms_norm", {{"x", rows}});
      table.add("rms_norm_backward", {{"dout", rows}, {"x", rows}, {"weight", weight}});
    }
}

}  // namespace

std::vector<ShippedCall> chosen_calls() {
  Table table;
  add_gemms(table);
  add_attention(table);
  add_block_sparse(table);
  add_selected(table);
  add_selection(table);
  add_norms(table);
  return std::move(table.calls);
}

std::vector<ShippedCall> shipped_calls(const ops::OperatorSchema& schema) {
  std::vector<ShippedCall> calls = chosen_calls();
  std::erase_if(calls, [&](const ShippedCall& call) { return call.op != schema.name; });
  if (!calls.empty()) return calls;
  constexpr std::size_t most = 2;
  for (const ops::Example& example : schema.measured)
    if (calls.size() < most)
      calls.push_back({schema.name, [&schema, text = example.text](Target target) {
                         const auto call = ops::ExampleCall::parse(schema, text);
                         return ops::kernels_by_name(schema, call.described(schema), call.options, target);
                       }});
  return calls;
}

std::vector<ShippedText> shipped_texts(const std::vector<ShippedCall>& calls) {
  std::map<std::string, std::string> texts;
  const auto each = [&](const ShippedCall& call, Target target, const auto& print) {
    for (const lang::Kernel& kernel : call.kernels(target)) print(kernel);
  };
  const auto name_of = [](const lang::Kernel& kernel, const char* form) { return kernel.name() + "." + form; };
  const auto add = [&](const lang::Kernel& kernel, const char* form, const std::string& text) {
    texts.emplace(name_of(kernel, form), shown::without_places(text));
  };
  for (const ShippedCall& call : calls) {
    each(call, Target::cuda(), [&](const lang::Kernel& kernel) {
      if (texts.contains(name_of(kernel, "cu"))) return;
      const shown::CudaTexts own = shown::cuda_texts(kernel, {90});
      add(kernel, "cu", own.cuda);
      add(kernel, "layout", own.layout);
      add(kernel, "schedule", own.schedule);
      add(kernel, "resources", own.sizes);
    });
    each(call, Target::cuda_sm80(), [&](const lang::Kernel& kernel) {
      if (!texts.contains(name_of(kernel, "sm_80.cu")))
        add(kernel, "sm_80.cu", shown::cuda_text(kernel, {80}));
    });
    for (const bool tile_registers : {false, true}) {
      const ops::SupposedTileRegisters supposed(tile_registers);
      each(call, Target::cpu(), [&](const lang::Kernel& kernel) {
        if (!texts.contains(name_of(kernel, "cpp"))) add(kernel, "cpp", shown::cpp_text(kernel));
      });
    }
  }
  std::vector<ShippedText> result;
  for (auto& [name, text] : texts) result.push_back({name, std::move(text)});
  return result;
}

}  // namespace golden

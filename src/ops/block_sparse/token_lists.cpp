#include "ops/block_sparse/token_lists.hpp"

#include "ops/block_sparse/sequences.hpp"

namespace tegula::ops {

namespace {

using namespace lang;
using lang::Tensor;

constexpr int tokens_of_block = 64;

struct TokenListProgram {
  Dim sequences{"sequences"}, heads{"kv_heads"}, members{"members"}, q_blocks{"q_blocks"}, entries{"entries"},
      tokens{"tokens"}, fences{"fences"};
  lang::Tensor choice = input("choice", {sequences, heads, members, q_blocks, entries}, i32);
  lang::Tensor lists = output("lists", {tokens, heads, members, entries}, i32);
  lang::Tensor q_begin = input("q_begin", {fences}, i32);
  Expr longest = scalar("longest", i32);
  std::optional<lang::Tensor> counts, lengths;

  explicit TokenListProgram(const TokenListsKernel& instance) {
    if (!instance.counts) return;
    counts.emplace(input("counts", {sequences, heads, members, q_blocks}, i32));
    lengths.emplace(output("lengths", {tokens, heads, members}, i32));
  }

  void run() const {
    grid(ceildiv(longest, tokens_of_block), heads * members, sequences, [&](Index x, Index h, Index b) {
      Expr begin = q_begin(b), count = q_begin(b + 1) - begin, first = x * tokens_of_block;
      assert_listed(count, longest);
      Expr own = clamp(min(count, longest) - first, 0, tokens_of_block);
      Expr head = h / members, member = h % members;
      parallel(own * entries, [&](Index i) {
        Expr row = first + i / entries, entry = i % entries;
        lists(begin + row, head, member, entry) = choice(b, head, member, row, entry);
      });
      if (counts)
        parallel(own, [&](Index i) {
          (*lengths)(begin + first + i, head, member) = (*counts)(b, head, member, first + i);
        });
    });
  }
};

}  // namespace

lang::Kernel token_lists_kernel(const TokenListsKernel& instance) {
  return kernel(instance_name("token_lists", instance), [&] { TokenListProgram(instance).run(); });
}

TokenLists lists_by_tokens(const BlockSparseCall& call, const TensorRef& choice, const TensorRef& counts,
                           Launch& launch) {
  const Shape rows{call.tensors.q.size(0), choice.size(1), choice.size(2)};
  TokenLists result{launch.scratch({rows[0], rows[1], rows[2], choice.size(4)}, i32), {}};
  if (call.kernel.counts) result.counts = launch.scratch(rows, i32);
  launch(TokenListsKernel{call.kernel.counts}, token_lists_kernel,
         {{"choice", choice},
          {"lists", result.choice},
          {"q_begin", call.q_begin},
          {"longest", call.longest},
          {"counts", counts},
          {"lengths", result.counts}});
  return result;
}

}  // namespace tegula::ops

#include "ops/nsa/backward_kernel.hpp"

#include "ops/nsa/backward_program.hpp"

namespace tegula::ops {

using namespace lang;
using lang::Tensor;

NsaBackwardProgram::NsaBackwardProgram(const NsaBackwardKernel& instance) : c(instance), f(c.forward) {
  if (f.pack == 1) group.emplace("group");
  if (!f.varlen) batch.emplace("batch");
  const Extents batches = f.varlen ? Extents{} : Extents{*batch};
  const Extents of_q = joined(batches, {queries, heads, members()}), of_k = joined(batches, {keys, heads}),
                vector = joined(batches, {heads, members(), queries}),
                rows = joined(batches, {queries, heads, selectors()});
  own.dout.emplace(input("dout", joined(of_q, {f.dim_v}), f.type));
  q.emplace(input("q", joined(of_q, {f.dim}), f.type));
  k.emplace(input("k", joined(of_k, {f.dim}), f.type));
  v.emplace(input("v", joined(of_k, {f.dim_v}), f.type));
  own.out.emplace(input("out", joined(of_q, {f.dim_v}), f.type));
  own.lse.emplace(input("lse", vector, f32));
  dq.emplace(output("dq", joined(of_q, {f.dim}), f.type));
  dk.emplace(output("dk", joined(of_k, {f.dim}), f.type));
  dv.emplace(output("dv", joined(of_k, {f.dim_v}), f.type));
  choice.emplace(input("choice", joined(rows, {entries}), i32));
  scale.emplace(scalar("scale", f32));
  require(entries <= f.entries, "a row has no more entries than the instance");
  if (f.counts) lengths.emplace(input("counts", rows, i32));
  if (c.dlse) own.dlse.emplace(input("dlse", vector, f32));
  own.delta.emplace(workspace("delta", vector, f32));
  own.base.emplace(workspace("base", vector, f32));
  large.emplace();
  if (c.window) declare_window(joined(of_q, {f.dim_v}), vector);
  if (c.dscale) dscale.emplace(output("dscale", joined(rows, {entries}), f32));
  if (!f.varlen) return;
  Dim fences("fences");
  q_begin.emplace(input("q_begin", {fences}, i32));
  k_begin.emplace(input("k_begin", {fences}, i32));
  longest_q.emplace(scalar("longest_q", i32));
  longest_k.emplace(scalar("longest_k", i32));
}

void NsaBackwardProgram::declare_window(const Extents& of_out, const Extents& vector) {
  beside.dout.emplace(input("window_dout", of_out, f.type));
  beside.out.emplace(input("window_out", of_out, f.type));
  beside.lse.emplace(input("window_lse", vector, f32));
  left.emplace(scalar("left", i32));
  if (c.window_dlse) beside.dlse.emplace(input("window_dlse", vector, f32));
  beside.delta.emplace(workspace("window_delta", vector, f32));
  beside.base.emplace(workspace("window_base", vector, f32));
}

void NsaBackwardProgram::run() {
  inverse.emplace(inverted_lists());
  inverse->record_count();
  inverse->record_begins();
  delta_grid();  // beside the one before
  inverse->record_rows();
  Expr most_queries = f.varlen ? *longest_q : Expr(queries), most_keys = f.varlen ? *longest_k : Expr(keys);
  grid(ceildiv(most_queries, f.queries), f.pack > 1 || c.heads_one_by_one() ? Expr(heads) : heads * *group,
       sequences(), [&](Index x, Index h, Index b) { query_block(x, h, b); });
  const int tiles = ceildiv(f.block, c.keys);
  grid(ceildiv(most_keys, f.block) * tiles, heads, sequences(),
       [&](Index x, Index h, Index b) { key_block(x, h, b); });
}

void NsaBackwardProgram::delta_grid() {
  Expr batches = f.varlen ? Expr(Operand(1)) : Expr(*batch);
  grid(ceildiv(queries, delta_rows), heads * members(), batches, [&](Index x, Index h, Index b) {
    Expr kv_head = h / members(), member = h % members();
    auto tokens = [&](const Tensor& t) {
      return f.varlen ? t.slice(all, kv_head, member) : t.slice(b, all, kv_head, member);
    };
    auto vector = [&](const Tensor& t) {
      return f.varlen ? t.slice(kv_head, member) : t.slice(b, kv_head, member);
    };
    auto write = [&](const NsaBranch& branch) {
      HeadRows rows{tokens(*branch.dout),
                    tokens(*branch.out),
                    vector(*branch.lse),
                    vector(*branch.delta),
                    vector(*branch.base),
                    {},
                    f.dim_v,
                    *large};
      if (branch.dlse) rows.dlse.emplace(vector(*branch.dlse));
      write_delta(rows, x * delta_rows);
    };
    write(own);
    if (c.window) write(beside);
  });
}

Kernel nsa_backward_kernel(const NsaBackwardKernel& instance) {
  return kernel(instance_name("nsa", instance), [&] { NsaBackwardProgram(instance).run(); });
}

}  // namespace tegula::ops

#include "ops/linear/sequences.hpp"

namespace tegula::ops {

TensorRef with_batch(const TensorRef& tensor, bool packed) {
  if (!packed || tensor.rank() == 0) return tensor;
  TensorRef result = tensor;
  result.shape.insert(result.shape.begin(), 1);
  result.strides.insert(result.strides.begin(), 0);
  return result;
}

TensorRef token_view(const BoundCall& call, const char* tensor) {
  return call.has(tensor) ? with_batch(call.formed(tensor), call.has("cu_seqlens")) : TensorRef();
}

std::int64_t sequences_of(const BoundCall& call) {
  return call.dim(call.has("cu_seqlens") ? "sequences" : "batch");
}

std::string work_of_scan(const char* heads, const char* d, const char* d_v) {
  return fmt::format("batch*tokens*{0}*min(4*{1}*{2}, (tokens+1)*({1}+{2}))", heads, d, d_v);
}
std::string gradient_work_of_scan(const char* heads, const char* d, const char* d_v) {
  return fmt::format("batch*tokens*{0}*min(10*{1}*{2}, (tokens+1)*(3*{1}+2*{2}))", heads, d, d_v);
}

Shape shape_of_heads(const BoundCall& call, const Shape& others) {
  Shape shape{call.has("cu_seqlens") ? 1 : call.dim("batch"), call.dim("tokens"), call.dim("heads")};
  shape.insert(shape.end(), others.begin(), others.end());
  return shape;
}

// Sequence n of packed ones has its chunks from begin / rows + n on: it begins there at the earliest.
Shape chunk_shape(const BoundCall& call, const Shape& others, int rows) {
  const std::int64_t tokens = call.dim("tokens");
  Shape shape{1, tokens / rows + sequences_of(call)};
  if (!call.has("cu_seqlens")) shape = {call.dim("batch"), (tokens + rows - 1) / rows};
  shape.insert(shape.end(), others.begin(), others.end());
  return shape;
}

Shape vector_shape(const BoundCall& call, std::optional<int> rows) {
  const int own = call.has("cu_seqlens") ? chunk_tokens_of_scan : rows.value_or(chunk_tokens_of_scan);
  return chunk_shape(call, {call.dim("heads"), own}, own);
}

std::vector<Span> spans_of(const BoundCall& call) {
  std::vector<Span> spans;
  if (!call.has("cu_seqlens")) {
    for (std::int64_t b = 0; b < call.dim("batch"); ++b)
      spans.push_back({b * call.dim("tokens"), call.dim("tokens")});
    return spans;
  }
  const TensorRef& fences = call["cu_seqlens"];
  const auto fence = [&](std::int64_t i) {
    return std::int64_t{fences.data_as<const std::int32_t>()[i * fences.strides[0]]};
  };
  for (std::int64_t i = 0; i + 1 < fences.shape[0]; ++i) spans.push_back({fence(i), fence(i + 1) - fence(i)});
  return spans;
}

using namespace lang;
using lang::Tensor;

void Sequences::declare() {
  if (!packed_) return;
  Dim fences("fences");
  fences_.emplace(input("cu_seqlens", {fences}, i32));
  longest_.emplace(scalar("longest", i32));
}

void Sequences::declare_chunks() {
  declare();
  if (!packed_) return;
  Dim all_chunks("all_chunks");
  owners_.emplace(input("chunk_owners", {all_chunks}, i32));
}

Extents Sequences::shape(const Extents& others) const {
  Extents all_extents{batch, tokens};
  for (const Operand& extent : others) all_extents.push_back(extent);
  return all_extents;
}

Extents Sequences::vectors(const Operand& chunks, const Operand& heads, int rows) const {
  return {batch, chunks, heads, packed_ ? chunk_tokens_of_scan : rows};
}

Expr Sequences::count() const { return packed_ ? fences_->extent(0) - 1 : Expr(batch); }

Expr Sequences::length(const Expr& n) const {
  return packed_ ? Expr((*fences_)(n + 1)) - Expr((*fences_)(n)) : Expr(tokens);
}

Expr first_chunk(const Tensor& fences, const Expr& n, int rows, int more) {
  Expr begin = fences(n);
  return (more == 0 ? begin : begin + n * more) / rows + n;
}

Expr Sequences::chunks(int rows, int more) const {
  return packed_ ? owners_->extent(0) : ceildiv(more == 0 ? Expr(tokens) : Expr(tokens) + more, rows);
}

Sequences::Place Sequences::place(const Expr& x, const Expr& y, int rows, int more) const {
  if (!packed_) return {y, x};
  Var n = (*owners_)(x);
  return {n, x - first_chunk(*fences_, n, rows, more)};
}

void Sequences::leave_unless(const Expr& n, const Expr& row) const {
  if (!packed_) return;
  hold_promise(n);
  exit_if(row >= length(n));
}

void Sequences::hold_promise(const Expr& n) const {
  if (packed_) assert_that(length(n) <= *longest_, "a sequence has more tokens than max_seqlen");
}

Range Sequences::span(const Expr& n) const { return range((*fences_)(n), (*fences_)(n + 1)); }

Expr Sequences::chunk_number(const Expr& n, const Expr& chunk, int rows) const {
  return packed_ ? first_chunk(*fences_, n, rows) + chunk : chunk;
}

Tensor Sequences::rows(const Tensor& t, const Expr& n) const {
  return packed_ ? t.slice(0, span(n)) : t.slice(n);
}

Tensor Sequences::head(const Tensor& t, const Expr& n, const Expr& h) const {
  return packed_ ? t.slice(0, span(n), h) : t.slice(n, all, h);
}

Tensor Sequences::heads_of_chunk(const Tensor& t, const Expr& n, const Expr& chunk, int rows) const {
  return packed_ ? t.slice(0, chunk_number(n, chunk, rows)) : t.slice(n, chunk);
}

Tensor Sequences::chunk(const Tensor& t, const Expr& n, const Expr& chunk, const Expr& h, int rows) const {
  return packed_ ? t.slice(0, chunk_number(n, chunk, rows), h) : t.slice(n, chunk, h);
}

}  // namespace tegula::ops

#include "ir/stmt.hpp"

namespace tegula::ir {

std::vector<const View*> operands(const Gemm& gemm) {
  std::vector<const View*> result{&gemm.a, &gemm.b};
  if (gemm.metadata) result.push_back(&*gemm.metadata);
  return result;
}

std::string_view name_of(AtomicOp op) {
  switch (op) {
    case AtomicOp::add:
      return "add";
    case AtomicOp::min:
      return "min";
    case AtomicOp::max:
      return "max";
    case AtomicOp::bit_or:
      return "bit_or";
    case AtomicOp::bit_and:
      return "bit_and";
  }
  throw InternalError("an atomic operation has no name");
}

std::string_view name_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::sum:
      return "sum";
    case ReduceOp::max:
      return "max";
    case ReduceOp::min:
      return "min";
    case ReduceOp::absmax:
      return "absmax";
    case ReduceOp::any:
      return "any";
    case ReduceOp::all:
      return "all";
  }
  throw InternalError("a reduction has no name");
}

std::string_view name_of(LoopKind kind) {
  switch (kind) {
    case LoopKind::serial:
      return "serial";
    case LoopKind::unrolled:
      return "unrolled";
    case LoopKind::pipelined:
      return "pipelined";
    case LoopKind::parallel:
      return "parallel";
    case LoopKind::warp_groups:
      return "warp_groups";
    case LoopKind::warps:
      return "warps";
  }
  throw InternalError("a loop has no name");
}

}  // namespace tegula::ir

#include "ops/pieces/heads.hpp"

#include "tegula/lang/value.hpp"

namespace tegula::ops {

TensorRef as_bshd(const TensorRef& tensor, Layout layout) {
  return layout == Layout::bshd ? tensor : tensor.transpose(1, 2);
}

TensorRef split_heads(const TensorRef& tensor, int dim, std::int64_t group) {
  TensorRef result = tensor;
  const auto at = static_cast<std::size_t>(dim);
  const std::int64_t stride = tensor.strides[at];
  result.shape[at] /= group;
  result.strides[at] = stride * group;
  result.shape.insert(result.shape.begin() + dim + 1, group);
  result.strides.insert(result.strides.begin() + dim + 1, stride);
  return result;
}

HeadTensors head_tensors(const BoundCall& call) {
  const auto layout = static_cast<Layout>(call.dim("layout"));
  const auto ordered = [&](const char* name) {
    const TensorRef& tensor = call[name];
    return tensor.rank() == 4 ? as_bshd(tensor, layout) : tensor;
  };
  HeadTensors t{ordered("q"), ordered("k"), ordered("v")};
  t.heads = t.q.size(-2), t.kv_heads = t.k.size(-2);
  return t;
}

float program_scale(float scale, float softcap) {
  return softcap > 0 ? scale / softcap : scale * lang::log2e;
}

}  // namespace tegula::ops

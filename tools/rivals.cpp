#include "rivals.hpp"

#include <dlfcn.h>

#include "names.hpp"

namespace tegula::tool {

namespace {

// oneDNN's row-major product. Loaded at run time: the tool needs it for nothing else.
using Sgemm = int (*)(char transpose_a, char transpose_b, std::int64_t m, std::int64_t n, std::int64_t k,
                      float alpha, const float* a, std::int64_t lda, const float* b, std::int64_t ldb,
                      float beta, float* c, std::int64_t ldc);

Sgemm onednn_sgemm() {
  for (const char* name : {"libdnnl.so.3", "libdnnl.so.2", "libdnnl.so"})
    if (void* library = dlopen(name, RTLD_NOW | RTLD_LOCAL))
      if (void* found = dlsym(library, "dnnl_sgemm")) return reinterpret_cast<Sgemm>(found);
  return nullptr;
}

std::optional<Rival> product_rival(const Call& call) {
  const Tensor a = call.inputs.at("a"), b = call.inputs.at("b");
  const bool plain = a.dtype() == f32 && b.dtype() == f32 && a.rank() == 2 && b.rank() == 2 &&
                     !call.inputs.count("bias") && call.options.text("activation") == "none" &&
                     !(call.options.has("out_dtype") && call.options.text("out_dtype") != "f32");
  static const Sgemm sgemm = onednn_sgemm();
  if (!plain || !sgemm) return std::nullopt;
  const bool ta = call.options.boolean("transpose_a"), tb = call.options.boolean("transpose_b");
  const std::int64_t m = a.size(ta ? 1 : 0), n = b.size(tb ? 0 : 1), k = a.size(ta ? 0 : 1);
  const Tensor c = Tensor::empty({m, n}, f32);
  return Rival{"oneDNN", [=] {
                 const int failed = sgemm(ta ? 'T' : 'N', tb ? 'T' : 'N', m, n, k, 1, a.data_as<float>(),
                                          a.size(1), b.data_as<float>(), b.size(1), 0, c.data_as<float>(), n);
                 if (failed) throw DeviceError("dnnl_sgemm failed");
               }};
}

// The same queries, keys and values without a choice of blocks.
std::optional<Rival> dense_rival(const Call& call) {
  ops::Tensors inputs;
  for (auto* name : {"q", "k", "v"}) inputs.emplace(name, call.inputs.at(name));
  ops::OptionTexts texts;
  for (auto* name : {"layout", "causal", "scale", "softcap"})
    if (call.options.has(name)) texts[name] = call.options.text(name);
  const ops::Operator& dense = operator_named("attention");
  return Rival{"dense attention",
               [&dense, inputs, target = call.target, options = ops::Options::parse(dense, texts)] {
                 dense.run(inputs, options, target);
               }};
}

}  // namespace

std::optional<Rival> rival_of(const Call& call) {
  const bool on_host = call.target.device() == DeviceKind::cpu;
  if (call.op.name == "gemm") return on_host ? product_rival(call) : std::nullopt;
  if (call.op.name == "block_sparse_attention") return dense_rival(call);
  return std::nullopt;
}

}  // namespace tegula::tool

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

// Another operator with the inputs and options that it has of the call.
std::optional<Rival> operator_rival(const Call& call, const ops::Operator& other) {
  ops::Tensors inputs;
  for (auto& input : other.inputs)
    if (call.inputs.count(input.name)) inputs.emplace(input.name, call.inputs.at(input.name));
  ops::OptionTexts texts;
  for (auto& option : other.options)
    if (call.options.has(option.name)) texts[option.name] = call.options.text(option.name);
  return Rival{other.name,
               [&other, inputs, target = call.target, options = ops::Options::parse(other, texts)] {
                 other.run(inputs, options, target);
               }};
}

}  // namespace

std::optional<Rival> rival_of(const Call& call) {
  const std::string& rival = ops::find_schema(call.op.name).rival;
  if (rival.empty()) return std::nullopt;
  if (rival != "sgemm") return operator_rival(call, operator_named(rival));
  return call.target.device() == DeviceKind::cpu ? product_rival(call) : std::nullopt;
}

}  // namespace tegula::tool

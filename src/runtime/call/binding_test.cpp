// Every way in which a call can be wrong is refused with the argument, what it must be and what it is.
#include "runtime/call/binding.hpp"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "runtime/data/overlap.hpp"
#include "runtime/testing/expect_error.hpp"
#include "tegula/lang.hpp"

namespace {

namespace lang = tegula::lang;
using tegula::Argument, tegula::ArgumentError, tegula::Binding, tegula::NamedArgument, tegula::ProgramError;
using tegula::f16, tegula::f32, tegula::f64, tegula::i32, tegula::boolean;
using tegula::Signature, tegula::Tensor, tegula::TensorRef;

// A [M, K], B [K, N], begin [M + 1], flag, scale, C [M, N] written.
lang::Kernel sample() {
  return lang::kernel("sample", [] {
    lang::Dim M("M"), N("N"), K("K");
    K.multiple_of(4);
    lang::Tensor A = lang::input("A", {M, K}, f32), B = lang::input("B", {K, N}, f16);
    lang::Tensor begin = lang::input("begin", {M + 1}, i32);
    lang::Expr flag = lang::scalar("flag", boolean), scale = lang::scalar("scale", f32);
    lang::Expr count = lang::scalar("count", i32);
    lang::Tensor C = lang::output("C", {M, N}, f32);
    lang::Tensor W = lang::workspace("W", {M, count}, f64);
    lang::require(count > 0, "count must be positive");
    lang::grid(1, [&](lang::Index i) { C(i, i) = lang::select(flag, A(i, i) * scale, B(i, i)); });
  });
}

struct Call {
  Tensor a = Tensor::zeros({3, 8}, f32), b = Tensor::zeros({8, 5}, f16), begin = Tensor::zeros({4}, i32),
         c = Tensor::zeros({3, 5}, f32);
  std::vector<Argument> args() const { return {a, b, begin, true, 0.5, 7, c}; }
};

class BindingTest : public testing::Test {
 protected:
  Binding bind(const std::vector<Argument>& args) const { return signature_.bind(std::span(args)); }
  // The call with one argument replaced.
  Binding with(std::size_t i, Argument value) const {
    std::vector<Argument> args = call_.args();
    args[i] = std::move(value);
    return bind(args);
  }
  lang::Kernel kernel_ = sample();
  Signature signature_{kernel_.ir()};
  Call call_;
};

TEST_F(BindingTest, SolvesDimsAndKeepsScalars) {
  const Binding binding = bind(call_.args());
  std::map<std::string, double> values;
  for (std::size_t i = 0; i < binding.values.size(); ++i) {
    const tegula::ir::Value& value = binding.values[i];
    values[signature_.variables()[i]->name] =
        value.type.is_floating() ? value.real : static_cast<double>(value.integer);
  }
  EXPECT_EQ(values, (std::map<std::string, double>{
                        {"M", 3}, {"N", 5}, {"K", 8}, {"flag", 1}, {"scale", 0.5}, {"count", 7}}));
  ASSERT_EQ(binding.tensors.size(), 5u);
  EXPECT_EQ(binding.tensors[3].data, call_.c.data());
  EXPECT_EQ(binding.tensors[4].shape, (tegula::Shape{3, 7}));
  EXPECT_EQ(binding.workspace_bytes, 192u);
}

TEST_F(BindingTest, ByName) {
  const std::vector<NamedArgument> args{{"C", call_.c},        {"count", 2},   {"scale", 1},
                                        {"flag", false},       {"B", call_.b}, {"A", call_.a},
                                        {"begin", call_.begin}};
  EXPECT_EQ(signature_.bind(std::span(args)).tensors[0].data, call_.a.data());
  std::vector<NamedArgument> wrong = args;
  wrong[0].name = "D";
  for (const auto& [name, message] : std::map<std::string, std::string>{
           {"D", "has no argument 'D'. It takes: A, B, begin, flag, scale, count, C"},
           {"c", "has no argument 'c'; did you mean C? It takes: A, B"},
           {"sclae", "has no argument 'sclae'; did you mean scale? It takes: A, B"}}) {
    wrong[0].name = name;
    EXPECT_ERROR(ArgumentError, message, signature_.bind(std::span(std::as_const(wrong))));
  }
  wrong[0].name = "A";
  EXPECT_ERROR(ArgumentError, "argument 'A' is given twice",
               signature_.bind(std::span(std::as_const(wrong))));
  wrong.erase(wrong.begin());
  EXPECT_ERROR(ArgumentError, "argument 'C' is missing", signature_.bind(std::span(std::as_const(wrong))));
}

TEST_F(BindingTest, RefusesWrongArguments) {
  std::vector<Argument> fewer = call_.args();
  fewer.pop_back();
  EXPECT_ERROR(
      ArgumentError,
      "takes 7 arguments, but 6 are given; pass all tensors and scalars in the order of declaration, "
      "without workspaces: A, B, begin, flag, scale, count, C",
      bind(fewer));
  EXPECT_ERROR(ArgumentError, "argument 'A' is a f32 tensor of rank 2, but a number", with(0, 1));
  EXPECT_ERROR(ArgumentError, "argument 'scale' is a f32 number, but the tensor", with(4, call_.a));
  EXPECT_ERROR(ArgumentError, "argument 'B' must have dtype f16, but f32 [8, 5]",
               with(1, Tensor::zeros({8, 5}, f32)));
  EXPECT_ERROR(ArgumentError, "argument 'A' must have rank 2", with(0, Tensor::zeros({3, 8, 1}, f32)));
  EXPECT_ERROR(ArgumentError, "'B': dimension 0 must be K = 8, given by dimension 1 of argument 'A'",
               with(1, Tensor::zeros({4, 5}, f16)));
  EXPECT_ERROR(ArgumentError, "'begin': dimension 0 must have extent 4 (with M = 3",
               with(2, Tensor::zeros({3}, i32)));
  EXPECT_ERROR(ArgumentError, "has no memory", with(0, TensorRef(nullptr, f32, {3, 8})));
  EXPECT_ERROR(ArgumentError, "outside 0", with(0, TensorRef(call_.a.data(), f32, {1ll << 31, 8}, {0, 1})));
  EXPECT_ERROR(ArgumentError, "is on cuda:1",
               with(0, TensorRef(call_.a.data(), f32, {3, 8}, {tegula::DeviceKind::cuda, 1})));
  EXPECT_ERROR(ArgumentError, "count must be positive; this call has M = 3", with(5, 0));
}

TEST_F(BindingTest, ChecksScalars) {
  EXPECT_ERROR(ArgumentError, "argument 'flag' is a bool", with(3, 1));
  EXPECT_ERROR(ArgumentError, "argument 'count' is an integer of type i32, but 1.5", with(5, 1.5));
  EXPECT_ERROR(ArgumentError, "argument 'count'", with(5, true));
  EXPECT_ERROR(ArgumentError, "argument 'count'", with(5, 1ll << 31));
  EXPECT_ERROR(ArgumentError, "argument 'scale' is a number of type f32, but 1e+300", with(4, 1e300));
  EXPECT_ERROR(ArgumentError, "argument 'scale'", with(4, true));
  EXPECT_EQ(with(4, 3).values[4].real, 3.0);
  EXPECT_EQ(with(4, 0.1).values[4].real, static_cast<double>(0.1f));
}

TEST_F(BindingTest, ChecksMultiples) {
  std::vector<Argument> args = call_.args();
  args[0] = Tensor::zeros({3, 6}, f32);
  args[1] = Tensor::zeros({6, 5}, f16);
  EXPECT_ERROR(ArgumentError, "'A': dimension 1 is K = 6, which must be a multiple of 4", bind(args));
}

TEST_F(BindingTest, RefusesSharedMemory) {
  const Tensor big = Tensor::zeros({3, 16}, f32);
  std::vector<Argument> args = call_.args();
  args[0] = big.slice(1, 0, 8);
  args[6] = big.slice(1, 8, 13);  // interleaved, but apart
  EXPECT_NO_THROW(bind(args));
  args[6] = big.slice(1, 7, 12);
  EXPECT_ERROR(ArgumentError, "'A' and argument 'C' share memory, and 'C' is written", bind(args));
  EXPECT_ERROR(ArgumentError, "several of its elements share memory",
               with(6, Tensor::zeros({3, 1}, f32).ref().expand({3, 5})));
}

TEST_F(BindingTest, TakesTensorsWithoutElements) {
  std::vector<Argument> args{TensorRef(nullptr, f32, {0, 8}), call_.b, Tensor::zeros({1}, i32), true, 1, 1,
                             TensorRef(nullptr, f32, {0, 5})};
  EXPECT_EQ(bind(args).workspace_bytes, 0u);
}

TEST(Signature, ADimNeedsATensor) {
  auto lost = std::make_shared<tegula::ir::Kernel>();
  lost->name = "lost";
  lost->dims.push_back({std::make_shared<const tegula::ir::Variable>(
      tegula::ir::Variable{"B", i32, tegula::ir::VariableKind::dim, {}})});
  EXPECT_ERROR(ProgramError, "no argument determines the dim 'B'", Signature(lost));
}

TEST(Signature, ReshapedTensorsAreContiguous) {
  const lang::Kernel kernel = lang::kernel("reshaped", [] {
    lang::Dim N("N");
    lang::Tensor X = lang::inout("X", {N, 4}, f32);
    lang::Tensor flat = X.reshape({N / 2, 8});
    lang::grid(N / 2, [&](lang::Index i) { flat(i, 0) = 1; });
  });
  const Signature signature(kernel.ir());
  const auto bind = [&](const Tensor& x) {
    const std::array<Argument, 1> args{x};
    return signature.bind(std::span(std::as_const(args)));
  };
  EXPECT_NO_THROW(bind(Tensor::zeros({6, 4}, f32)));
  EXPECT_ERROR(ArgumentError, "must therefore be contiguous",
               bind(Tensor::zeros({6, 8}, f32).slice(1, 0, 4)));
  EXPECT_ERROR(ArgumentError, "keeps the number of elements", bind(Tensor::zeros({5, 4}, f32)));
}

TEST(Signature, WorkspacesAreReshapedLikeArguments) {
  const lang::Kernel kernel = lang::kernel("reshaped", [] {
    lang::Dim N("N");
    lang::Tensor X = lang::inout("X", {N, 4}, f32), W = lang::workspace("W", {N, 4}, f32);
    lang::Tensor flat = W.reshape({N / 2, 8});
    lang::grid(N / 2, [&](lang::Index i) { flat(i, 0) = X(i, 0); });
  });
  const Signature signature(kernel.ir());
  const auto bind = [&](const Tensor& x) {
    const std::array<Argument, 1> args{x};
    return signature.bind(std::span(std::as_const(args)));
  };
  EXPECT_NO_THROW(bind(Tensor::zeros({6, 4}, f32)));
  EXPECT_ERROR(ArgumentError, "reshape of `W` keeps the number of elements",
               bind(Tensor::zeros({5, 4}, f32)));
}

// Against listing all bytes.
TEST(SharedMemory, AgreesWithListingBytes) {
  std::vector<float> memory(400);
  const auto addresses = [](const TensorRef& t) {
    std::multiset<const float*> result;
    for (std::int64_t i = 0; i < t.shape[0]; ++i) {
      for (std::int64_t j = 0; j < t.shape[1]; ++j) {
        result.insert(static_cast<float*>(t.data) + i * t.strides[0] + j * t.strides[1]);
      }
    }
    return result;
  };
  std::uint32_t random = 1;
  const auto next = [&](int n) {
    return static_cast<std::int64_t>((random = random * 1664525 + 1013904223) >> 16) % n;
  };
  for (int round = 0; round < 5000; ++round) {
    const tegula::Shape strides{next(15) - 7, next(15) - 7};
    const TensorRef a(memory.data() + 200 + next(30), f32, {1 + next(4), 1 + next(4)}, strides);
    const TensorRef b(memory.data() + 200 + next(30), f32, {1 + next(4), 1 + next(4)}, strides);
    const auto in_a = addresses(a), in_b = addresses(b);
    bool shared = false, repeated = false;
    for (const float* x : in_a) shared |= in_b.contains(x), repeated |= in_a.count(x) > 1;
    ASSERT_EQ(tegula::share_bytes(a, b), shared) << describe(a) << describe(b);
    ASSERT_EQ(tegula::overlaps_itself(a), repeated) << describe(a);
  }
}

}  // namespace

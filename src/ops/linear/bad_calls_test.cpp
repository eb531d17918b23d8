// Calls of recurrent operators that are refused, and the shortest ones that are not: gates that would grow,
// states of other types, lengths that disagree, sequences of no tokens and of one.
#include "ops/testing/operators.hpp"
#include "tegula/ops.hpp"

namespace tegula::ops {
namespace bad_calls_test {

constexpr std::int64_t heads = 2, d = 16;

// Tensors of a batch of one sequence, and the states of its heads.
struct Inputs {
  std::int64_t tokens;
  Target target;
  Tensor q = noise({1, tokens, heads, d}, 1), k = noise({1, tokens, heads, d}, 2),
         v = noise({1, tokens, heads, d}, 3), dout = noise({1, tokens, heads, d}, 4),
         beta = Tensor::random_uniform({1, tokens, heads}, f32, 5, 0, 1),
         g = Tensor::full({1, tokens, heads}, f32, -0.1),
         all_g = Tensor::full({1, tokens, heads, d}, f32, -0.1), rates = Tensor::full({heads}, f32, -0.5),
         state = noise({1, heads, d, d}, 6);

  static Tensor noise(const Shape& shape, std::uint64_t seed) {
    return Tensor::random_normal(shape, f32, seed, 0, 0.3);
  }
};

// What a call that runs is stopped with.
std::string stopped(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) { return error.what(); }
  return "not stopped";
}

struct Operator {
  const char* name;
  bool has_beta;
  // The last state of a call, and the gradient of the first one.
  Tensor (*forward)(const Inputs&, const std::optional<TensorRef>& state);
  Tensor (*backward)(const Inputs&, const std::optional<TensorRef>& state);
};
const Operator operators[] = {
    {"linear_attention", false,
     [](const Inputs& x, const std::optional<TensorRef>& state) {
       return linear_attention(
                  x.q, x.k, x.v,
                  {.g = x.g, .initial_state = state, .output_final_state = true, .target = x.target})
           .final_state;
     },
     [](const Inputs& x, const std::optional<TensorRef>& state) {
       return linear_attention_backward(x.dout, x.q, x.k, x.v,
                                        {.g = x.g, .initial_state = state, .target = x.target})
           .dinitial_state;
     }},
    {"retention", false,
     [](const Inputs& x, const std::optional<TensorRef>& state) {
       return linear_attention(x.q, x.k, x.v,
                               {.g_gamma = x.rates,
                                .initial_state = state,
                                .output_final_state = true,
                                .target = x.target})
           .final_state;
     },
     [](const Inputs& x, const std::optional<TensorRef>& state) {
       return linear_attention_backward(x.dout, x.q, x.k, x.v,
                                        {.g_gamma = x.rates, .initial_state = state, .target = x.target})
           .dinitial_state;
     }},
    {"gated_delta_rule", true,
     [](const Inputs& x, const std::optional<TensorRef>& state) {
       return gated_delta_rule(
                  x.q, x.k, x.v, x.beta,
                  {.g = x.g, .initial_state = state, .output_final_state = true, .target = x.target})
           .final_state;
     },
     [](const Inputs& x, const std::optional<TensorRef>& state) {
       return gated_delta_rule_backward(x.dout, x.q, x.k, x.v, x.beta,
                                        {.g = x.g, .initial_state = state, .target = x.target})
           .dinitial_state;
     }},
    {"kda", true,
     [](const Inputs& x, const std::optional<TensorRef>& state) {
       return kda(x.q, x.k, x.v, x.all_g, x.beta,
                  {.initial_state = state, .output_final_state = true, .target = x.target})
           .final_state;
     },
     [](const Inputs& x, const std::optional<TensorRef>& state) {
       return kda_backward(x.dout, x.q, x.k, x.v, x.all_g, x.beta,
                           {.initial_state = state, .target = x.target})
           .dinitial_state;
     }},
    {"ssd", true,
     [](const Inputs& x, const std::optional<TensorRef>& state) {
       return ssd(x.v, x.beta, x.rates, x.k, x.q,
                  {.initial_state = state, .output_final_state = true, .target = x.target})
           .final_state;
     },
     [](const Inputs& x, const std::optional<TensorRef>& state) {
       return ssd_backward(x.dout, x.v, x.beta, x.rates, x.k, x.q,
                           {.initial_state = state, .target = x.target})
           .dinitial_state;
     }},
};

class BadCalls : public ::testing::TestWithParam<Operator> {};

// Token by token, and by chunks.
TEST_P(BadCalls, RefuseGatesThatGrow) {
  for (const std::int64_t tokens : {1, 70})
    for (const Target target : {Target::interpreter(), Target::cpu()}) {
      Inputs x{tokens, target};
      // The step of ssd that is multiplied by its rate is positive.
      x.g = Tensor::full(x.g.shape(), f32, 0.5), x.all_g = Tensor::full(x.all_g.shape(), f32, 0.5);
      x.rates = Tensor::full(x.rates.shape(), f32, 0.5);
      const std::string forward = stopped([&] { GetParam().forward(x, {}); });
      EXPECT_NE(forward.find("logarithms of decays"), std::string::npos)
          << tokens << target.name() << forward;
      const std::string backward = stopped([&] { GetParam().backward(x, x.state); });
      EXPECT_NE(backward.find("logarithms of decays"), std::string::npos)
          << tokens << target.name() << backward;
    }
}

TEST_P(BadCalls, RefuseStatesOfOtherTypesAndShapes) {
  const Inputs x{20, Target::interpreter()};
  const Tensor rounded = Tensor::zeros(x.state.shape(), bf16),
               of_fewer_heads = Tensor::zeros({1, 1, d, d}, f32),
               of_two = Tensor::zeros({2, heads, d, d}, f32);
  for (const auto& call : {GetParam().forward, GetParam().backward}) {
    const std::string type = refusal([&] { call(x, rounded); });
    EXPECT_NE(type.find("argument 'initial_state': expected dtype f32, given bf16"), std::string::npos)
        << type;
    for (const Tensor& state : {of_fewer_heads, of_two}) {
      const std::string shape = refusal([&] { call(x, state); });
      EXPECT_NE(shape.find("argument 'initial_state': expected"), std::string::npos) << shape;
    }
  }
}

TEST_P(BadCalls, RefuseLengthsThatDisagree) {
  for (Tensor Inputs::*tensor : {&Inputs::q, &Inputs::k, &Inputs::v, &Inputs::beta}) {
    if (tensor == &Inputs::beta && !GetParam().has_beta) continue;
    Inputs x{20, Target::interpreter()};
    x.*tensor = (x.*tensor).slice(1, 0, 19);
    for (const auto& call : {GetParam().forward, GetParam().backward}) {
      const std::string message = refusal([&] { call(x, {}); });
      EXPECT_NE(message.find("expected [batch, tokens"), std::string::npos) << message;
    }
  }
}

// Without tokens a state stays what it is, and so does its gradient, which is zero.
TEST_P(BadCalls, TakeNoTokensAndOne) {
  for (const Target target : {Target::interpreter(), Target::cpu()}) {
    const Inputs none{0, target}, one{1, target};
    EXPECT_TRUE(equal(GetParam().forward(none, none.state), none.state)) << target.name();
    EXPECT_TRUE(equal(GetParam().backward(none, none.state), Tensor::zeros(none.state.shape(), f32)));
    EXPECT_FALSE(equal(GetParam().forward(one, one.state), one.state)) << target.name();
    EXPECT_EQ(GetParam().backward(one, one.state).shape(), one.state.shape());
  }
}

INSTANTIATE_TEST_SUITE_P(All, BadCalls, ::testing::ValuesIn(operators),
                         [](const auto& info) { return std::string(info.param.name); });

// Gates of kda have a lower bound as well.
TEST(BadCallsOfKda, RefuseGatesThatFallTooFast) {
  for (const std::int64_t tokens : {1, 70}) {
    Inputs x{tokens, Target::cpu()};
    x.all_g = Tensor::full(x.all_g.shape(), f32, -5.5);
    const std::string message = stopped([&] { kda(x.q, x.k, x.v, x.all_g, x.beta, {.target = x.target}); });
    EXPECT_NE(message.find("-5 to 0"), std::string::npos) << tokens << message;
  }
}

// Chunks are those of 64 tokens, of which the steps of ssd know the number.
TEST(BadCallsOfSteps, RefuseOtherNumbersOfChunks) {
  const Inputs x{130, Target::interpreter()};
  const auto starts = [&](std::int64_t chunks) { return Tensor::zeros({1, chunks, heads, d, d}, f32); };
  const auto scan = [&](std::int64_t chunks) {
    return ssd_chunk_scan(x.v, x.beta, x.rates, x.k, x.q, starts(chunks), {.target = x.target});
  };
  EXPECT_EQ(scan(3).shape(), x.v.shape());
  for (const std::int64_t chunks : {2, 4}) {
    const std::string message = refusal([&] { scan(chunks); });
    EXPECT_NE(message.find("argument 'starts': expected"), std::string::npos) << message;
  }
}

}  // namespace bad_calls_test
}  // namespace tegula::ops

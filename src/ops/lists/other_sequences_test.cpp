// What a packed sequence, or a group of rows, has that is not finite reaches the results of no other one:
// where tiles end with a sequence, products along its tokens have zeros in place of the next one's.
#include "ops/decode/testing/call.hpp"

namespace tegula::ops {
namespace other_sequences_test {

using decode_test::Call;

constexpr std::int32_t tokens = 134, begin = 43, end = 90;
const std::vector<std::int32_t> fences{0, begin, end, tokens};

struct Row {
  std::string op, text;
};

void PrintTo(const Row& row, std::ostream* out) { *out << row.op << " " << row.text; }

// Of dims of all tokens the sequence in the middle, of the first dim of all sequences the second one.
Tensor middle(Tensor tensor, bool& has_one) {
  for (int d = 0; d < tensor.rank(); ++d)
    if (tensor.size(d) == tokens) return has_one = true, tensor.slice(d, begin, end);
  has_one = tensor.rank() > 1 && tensor.size(0) == 3;
  return has_one ? tensor.slice(0, 1, 2) : tensor;
}

void fill_middle(Tensor& tensor, double value) {
  bool has_one = false;
  const Tensor part = middle(tensor, has_one);
  if (has_one) copy_elements(Tensor::full(part.shape(), tensor.dtype(), value), part.ref());
}

bool is_in_the_middle(const Tensor& tensor) {
  bool has_one = false;
  const std::vector<double> values = middle(tensor, has_one).values<double>();
  return has_one && std::ranges::any_of(values, [](double x) { return !std::isfinite(x); });
}

// Scans refuse those that are not at most 0.
bool is_decay(const std::string& name) { return name == "g" || name == "dt"; }

class OtherSequences : public testing::TestWithParam<Row> {};

TEST_P(OtherSequences, DoNotSeeNumbersThatAreNotFinite) {
  const Row& row = GetParam();
  Call call(row.op, row.text);
  for (const char* name : {"cu_seqlens", "cu_seqlens_q", "cu_seqlens_k", "offsets"})
    if (call.inputs.contains(name)) call.inputs.at(name) = Tensor::from<std::int32_t>(fences);
  const Target target = decode_test::all_targets().back();
  Tensors expected = call.on(target);
  for (const double value : {double(NAN), double(INFINITY)}) {
    for (auto& [name, tensor] : call.inputs)
      if (tensor.dtype().is_floating() && !is_decay(name)) fill_middle(tensor, value);
    Tensors results = call.on(target);
    bool is_seen = false;
    for (auto& [name, tensor] : results) {
      is_seen = is_seen || is_in_the_middle(tensor);
      fill_middle(tensor, 0), fill_middle(expected.at(name), 0);
      EXPECT_TRUE(equal(tensor, expected.at(name))) << name << " beside " << value;
    }
    EXPECT_TRUE(is_seen) << value << " of the sequence itself";
  }
}

std::vector<Row> table() {
  const std::string attention =
      "sequences=3 queries=134 keys=134 kv_heads=1 group=2 d=64 d_v=64 bf16 cu_seqlens_q cu_seqlens_k ";
  const std::string blocks = "choosers=1 q_blocks=2 entries=8 q_block_size=64 k_block_size=64 indices ";
  const std::string scan = "tokens=134 sequences=3 cu_seqlens bf16 ";
  const std::string heads = scan + "key_heads=1 group=2 d=64 d_v=64 initial_state output_final_state ";
  const std::string short_scan = scan + "key_heads=1 group=2 d=64 d_v=64 max_seqlen=47 ";
  std::vector<Row> rows{{"attention", attention + "causal"},
                        {"attention_backward", attention},
                        {"block_sparse_attention", attention + blocks + "causal"},
                        {"block_sparse_attention_backward", attention + blocks},
                        {"linear_attention", heads + "g"},
                        {"linear_attention_backward", heads + "g"},
                        {"linear_attention", short_scan + "g"},
                        {"linear_attention_backward", short_scan + "g"},
                        {"gated_delta_rule", heads + "g"},
                        {"kda", heads},
                        {"ssd", scan + "groups=1 group=2 p=64 n=64 dt:f32 initial_state output_final_state"},
                        {"causal_conv1d", scan + "d=72 width=4 initial_state output_final_state"},
                        {"grouped_gemm", "groups=3 m=134 k=72 n=40 offsets bf16 transpose_b"},
                        {"grouped_gemm", "groups=3 m=134 k=73 n=41 offsets bf16"},
                        {"grouped_gemm_weights", "groups=3 m=134 k=72 n=40 bf16"},
                        {"grouped_gemm_weights", "groups=3 m=134 k=45 n=137 bf16"},
                        {"quantised_grouped_gemm", "groups=3 m=134 k=128 n=72 blocks=1 offsets"}};
  return rows;
}

INSTANTIATE_TEST_SUITE_P(Table, OtherSequences, testing::ValuesIn(table()));

}  // namespace other_sequences_test
}  // namespace tegula::ops

// Contributions to a tensor whose orders are promised to be consecutive: on the CPU and on a GPU the same as
// the interpreter's.
#include "codegen/cuda/testing/texts.hpp"
#include "codegen/testing/compare.hpp"

namespace tegula::codegen {
namespace turns_test {

using namespace lang;
using lang::Tensor;

const Case turn_cases[] = {
    {"tiles one behind the other",
     [](Program& p) {
       Tensor X = p.in(Data::random_normal({6, 5, 9}, f32, 1)), O = p.zeroed({10, 9}, f32);
       grid(6, [&](Index b) {
         Fragment x = load(X.slice(b), {5, 9});
         accumulate(O.at(b % 2 * 5, 0), x, {.order = b / 2, .consecutive = true});
       });
     }},
    {"parts of tensors of a small type, cut off at the end",
     [](Program& p) {
       Tensor X = p.in(Data::random_normal({6, 5, 9}, f32, 2)), O = p.zeroed({2, 4, 9}, bf16);
       grid(6, [&](Index b) {
         Fragment x = load(X.slice(b), {5, 9});
         accumulate(O.slice(b % 2).at(0, 0), x, {.order = b / 2, .consecutive = true});
       });
     }},
    {"windows that lie outside",
     [](Program& p) {
       Tensor X = p.in(Data::random_normal({4, 5, 9}, f32, 4)), O = p.zeroed({10, 9}, f32);
       grid(4, [&](Index b) {
         Fragment x = load(X.slice(b), {5, 9});
         accumulate(O.at(b * 5 - 5, 0), x, {.order = 0, .consecutive = true});
       });
     }},
    {"the first overwrites",
     [](Program& p) {
       Tensor X = p.in(Data::random_normal({6, 5, 9}, f32, 5)), O = p.out({10, 9}, f32);
       grid(6, [&](Index b) {
         Fragment x = load(X.slice(b), {5, 9});
         accumulate(O.at(b % 2 * 5, 0), x, {.order = b / 2, .consecutive = true, .overwrite = true});
       });
     }},
    {"several turns of a block",
     [](Program& p) {
       Tensor X = p.in(Data::random_normal({4, 3, 8}, f32, 3)), O = p.zeroed({12, 8}, f32);
       grid(4, [&](Index b) {
         serial(4, [&](Index j) {
           Fragment x = load(X.slice(j), {3, 8});
           accumulate(O.at(j * 3, 0), x, {.order = b, .consecutive = true});
         });
       });
     }},
};

TEST(Turns, AreKeptOnTheCpu) { expect_agreement(turn_cases, tegula::Target::cpu()); }
TEST(Turns, AreKeptInCudaText) { expect_agreement_on_cuda(turn_cases); }

}  // namespace turns_test
}  // namespace tegula::codegen

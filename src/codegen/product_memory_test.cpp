// Products whose operands and results are parts of tiles, and whose sources are parts of tensors: the same as
// the interpreter's.
#include "codegen/cuda/testing/texts.hpp"
#include "codegen/testing/data.hpp"

namespace tegula::codegen {
namespace product_memory_test {

using namespace lang;
using lang::Tensor;

const Case product_cases[] = {
    {"products of parts, transposes and reshaped tiles",
     [](Program& p) {
       Tensor A = p.in(floats({40, 34})), B = p.in(floats({34, 40}, 2)), Y = p.out({6, 20, 24}, f32);
       grid(1, [&](Index) {
         Shared a({20, 17}, f32), at({17, 20}, f32), b({17, 24}, f32), bt({24, 17}, f32), flat({340}, f32);
         copy(A, a), copy(B, at), copy(A.at(1, 3), b), copy(B.at(5, 7), bt), copy(a.reshape({340}), flat);
         Fragment c({20, 24}, f32, 0), d({20, 24}, f32);
         gemm(a, b, c);
         copy(c, Y.slice(0));
         gemm(at.T(), b, c);
         gemm(a, bt.T(), c);
         gemm(at.T(), bt.T(), c);
         copy(c, Y.slice(1));
         clear(d);
         gemm(flat.reshape({20, 17}), b, d);
         copy(d, Y.slice(2));
         Fragment part = d.slice(range(3, 8), range(5, 16));
         gemm(a.slice(range(1, 6), range(2, 6)), b.slice(range(3, 7), range(0, 11)), part);
         copy(d, Y.slice(3));
         Fragment transposed({24, 20}, f32, 1), view = transposed.T();
         gemm(a, b, view);
         copy(transposed.T(), Y.slice(4));
         // An operand that is used both ways is no panel.
         Shared q({17, 17}, f32);
         copy(A.at(2, 2), q);
         Fragment r({17, 17}, f32, 0), s({17, 17}, f32, 0);
         gemm(q, q, r), gemm(q, q.T(), r), gemm(q.T(), q, s);
         parallel(17, 17, [&](Index i, Index j) { r(i, j) += s(i, j); });
         copy(r, Y.slice(5));
       });
     }},
    {"operands with clipped and strided sources",
     [](Program& p) {
       Tensor A = p.in(inner(floats({30, 40}))), B = p.in(every_other(floats({40, 50}, 2), 1)),
              T = p.in(transposed(floats({30, 44}, 3))), Y = p.out({3, 16, 35}, f32);
       Tensor at = p.in(list({-2, 5, 20}));
       grid(3, [&](Index i) {
         Fragment c({16, 35}, f32, 0);
         pipelined(2, [&](Index k) {
           Shared a({16, 18}, f32), b({18, 35}, f32), bt({35, 18}, f32), t({18, 35}, f32), tt({35, 18}, f32);
           copy(A.at(at(i), k * 18), a);
           copy(B.at(at(i), k * 18), b, {.fill = 2});
           copy(B.at(k * 9, at(i)), bt);
           copy(T.at(at(i), k * 18), t);
           copy(T.at(k * 9, at(i)), tt, {.fill = 1});
           gemm(a, b, c);
           gemm(a, bt.T(), c);
           gemm(a, t, c);
           gemm(a, tt.T(), c);
         });
         copy(c, Y.slice(i));
       });
     }},
};

class CpuProducts : public OnEverySet {};
TEGULA_ON_EVERY_SET(CpuProducts);
TEST_P(CpuProducts, AgreeWithTheInterpreter) { expect_agreement(product_cases); }

TEST(CudaProducts, AgreeWithTheInterpreter) { expect_agreement_on_cuda(product_cases); }

}  // namespace product_memory_test
}  // namespace tegula::codegen

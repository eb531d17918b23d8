#include "ops/nsa_decode/decode_kernel.hpp"

#include <functional>
#include <optional>

#include "ops/nsa/gates.hpp"
#include "ops/nsa_compressed/block_choice.hpp"
#include "ops/nsa_compressed/windows.hpp"
#include "ops/pieces/scores.hpp"
#include "ops/pieces/softmax.hpp"

namespace tegula::ops {

namespace {

using namespace lang;
using lang::Tensor;

constexpr int stages = 4;  // of loops over keys and values

// What steps leave of each head: weights of blocks or entries, the maxima that these are relative to, and
// weights of a step's last entries, which reach into the next block; and the weights of blocks, of all heads.
// In tiles where these have room, else in workspaces.
template <class Tile>
struct Left {
  Tile weights, tops, tails, blocks;
};

// A block has a token and the heads of a group. It attends to the compressed entries and leaves, of each head
// and step, weights relative to the maximum so far, and that maximum; once the sums are known, these are what
// the choice of blocks needs. The keys of the window are on their way while the block chooses, and those of
// the chosen blocks while it attends to the window.
class NsaDecodeProgram {
 public:
  explicit NsaDecodeProgram(const NsaDecodeKernel& instance);

  void run() const {
    grid(queries, kv_heads, batch, {.blocks_per_processor = 1}, [&](Index i, Index h, Index b) {
      decode({i, h, b, position(i)});
    });
  }

 private:
  struct Token {
    Expr i, head, batch, position;

    Tensor of(const Tensor& t) const { return t.slice(batch, i, head); }
    Tensor keys_of(const Tensor& t) const { return t.slice(batch, all, head); }
  };

  Expr position(const Expr& i) const { return keys - queries + i; }
  Expr entries_seen(const Token& token) const { return min(windows.among(token.position + 1), entries); }
  Expr blocks_seen(const Token& token) const { return max(floordiv(token.position, block_size) + 1, 0); }

  void decode(const Token& token) const;
  // What queries attend to: keys and values by steps, of which those before `end` are seen.
  struct Step {
    Expr first, end;
  };
  struct Seen {
    Tensor k, v;
    Expr steps;
    int of_step;  // keys
    std::function<Step(const Expr&)> step;
  };
  // Called with the weights of a step, and what these are relative to.
  using Leave = std::function<void(const Fragment& weights, const Fragment& shift, const Expr& step)>;
  void attend(const Shared& q_tile, const Seen& seen, OnlineSoftmax& softmax, Fragment& sum,
              const Leave& leave = {}) const;
  void add(const Shared& q_tile, const Seen& seen, int branch, const Token& token, Fragment& total) const;

  void see_entries(const Token& token, const Shared& q_tile, Fragment& total, Shared& chosen) const;
  template <class Tile>
  void see_entries(const Token& token, const Shared& q_tile, Fragment& total, Left<Tile> left,
                   Shared& chosen) const;
  template <class Tile>
  void leave(const Fragment& weights, const Fragment& shift, Left<Tile>& left, const Expr& step) const;
  template <class Tile>
  void leave_blocks(const Fragment& weights, Left<Tile>& left, const Expr& step) const;
  template <class Tile>
  void relate(const Fragment& lse, Left<Tile>& left, const Expr& steps) const;
  template <class Tile>
  void weigh_blocks(const Token& token, Left<Tile>& left, const Expr& steps) const;
  template <class Tile>
  Expr weight_of_block(const Token& token, const Left<Tile>& left, const Expr& block,
                       const Expr& steps) const;
  template <class Tile>
  Expr sum_of_heads(const Tile& left, const Tile& tops, const Expr& at, const Expr& step, int begin,
                    int end) const;
  template <class Tile>
  void choose(const Token& token, const Tile& weights, Shared& chosen) const;
  Seen window_of(const Token& token) const;
  Seen blocks_of(const Token& token, const Shared& chosen) const;
  Fragment weights_of(int branch, const Token& token) const;

  const NsaDecodeKernel& c;
  Dim batch{"batch"}, queries{"queries"}, keys{"keys"}, entries{"entries"}, kv_heads{"kv_heads"};
  Tensor q = input("q", {batch, queries, kv_heads, c.group, c.dim}, c.type),
         k = input("k", {batch, keys, kv_heads, c.dim}, c.type),
         v = input("v", {batch, keys, kv_heads, c.dim_v}, c.type),
         coarse_k = input("compressed_k", {batch, entries, kv_heads, c.dim}, c.type),
         coarse_v = input("compressed_v", {batch, entries, kv_heads, c.dim_v}, c.type),
         gates = input("gates", {batch, queries, kv_heads, c.group, c.branches}, c.gates),
         out = output("out", {batch, queries, kv_heads, c.group, c.dim_v}, c.type);
  Expr scale = scalar("scale", f32), length = scalar("length", i32), stride = scalar("stride", i32),
       block_size = scalar("block_size", i32), count = scalar("count", i32),
       first_blocks = scalar("first_blocks", i32), local_blocks = scalar("local_blocks", i32),
       window = scalar("window", i32);
  Windows windows{length, stride};
  Expr most_steps = ceildiv(entries, c.keys);
  std::optional<Left<Tensor>> workspaces;
};

NsaDecodeProgram::NsaDecodeProgram(const NsaDecodeKernel& instance) : c(instance) {
  if (c.left_in_tiles()) return;
  const auto of_heads = [&](const char* name, const Expr& extent) {
    return workspace(name, {batch, queries, kv_heads, c.group, extent}, f32);
  };
  workspaces.emplace(
      Left<Tensor>{of_heads("left", most_steps * c.left_of_step()), of_heads("tops", most_steps),
                   of_heads("tails", most_steps),
                   workspace("block_weights", {batch, queries, kv_heads, ceildiv(keys, block_size)}, f32)});
}

void NsaDecodeProgram::decode(const Token& token) const {
  Shared q_tile({c.rows, c.features()}, c.compute), chosen({c.listed}, i32);
  copy(token.of(q).at(0), q_tile);
  Fragment total({c.rows, c.features_v()}, f32, 0);
  see_entries(token, q_tile, total, chosen);
  if (c.branches > 2) add(q_tile, window_of(token), 2, token, total);
  add(q_tile, blocks_of(token, chosen), 1, token, total);
  copy(total, token.of(out).at(0));
}

void NsaDecodeProgram::attend(const Shared& q_tile, const Seen& seen, OnlineSoftmax& softmax, Fragment& sum,
                              const Leave& leave) const {
  pipelined(seen.steps, {.stages = stages}, [&](Index n) {
    const Step step = seen.step(n);
    Shared k_tile({seen.of_step, c.features()}, c.compute), v_tile({seen.of_step, c.features_v()}, c.compute);
    copy(seen.k.at(step.first), k_tile);
    Fragment scores({c.rows, seen.of_step}, f32, 0);
    gemm(q_tile, k_tile.T(), scores);
    when(step.first + seen.of_step > step.end, [&] {
      parallel(scores, [&](Index r, Index j) {
        scores(r, j) = select(step.first + j < step.end, scores(r, j), -inf);
      });
    });
    const Fragment factor = softmax.update(scores);
    if (leave) leave(scores, softmax.shift(), n);
    scale_rows(sum, factor);
    copy(seen.v.at(step.first), v_tile);
    add_product(scores, v_tile, sum, c.compute);
  });
  softmax.normalize(sum);
}

void NsaDecodeProgram::add(const Shared& q_tile, const Seen& seen, int branch, const Token& token,
                           Fragment& total) const {
  const Fragment gate = weights_of(branch, token);
  Fragment sum({c.rows, c.features_v()}, f32, 0);
  OnlineSoftmax softmax(c.rows, scale);
  attend(q_tile, seen, softmax, sum);
  parallel(total, [&](Index r, Index j) { total(r, j) += sum(r, j) * gate(r); });
}

void NsaDecodeProgram::see_entries(const Token& token, const Shared& q_tile, Fragment& total,
                                   Shared& chosen) const {
  if (workspaces)
    return see_entries(token, q_tile, total,
                       Left<Tensor>{token.of(workspaces->weights), token.of(workspaces->tops),
                                    token.of(workspaces->tails), token.of(workspaces->blocks)},
                       chosen);
  const int steps = c.columns / c.blocks_of_step();
  see_entries(token, q_tile, total,
              Left<Shared>{Shared({c.group, c.columns}, f32), Shared({c.group, steps}, f32),
                           Shared({c.group, steps}, f32), Shared({c.columns}, f32)},
              chosen);
}

template <class Tile>
void NsaDecodeProgram::see_entries(const Token& token, const Shared& q_tile, Fragment& total, Left<Tile> left,
                                   Shared& chosen) const {
  const Fragment gate = weights_of(0, token);
  Expr seen = entries_seen(token), steps = ceildiv(seen, c.keys);
  const Seen entries_of{token.keys_of(coarse_k), token.keys_of(coarse_v), steps, c.keys, [&](const Expr& n) {
                          return Step{n * c.keys, seen};
                        }};
  OnlineSoftmax softmax(c.rows, scale);
  attend(q_tile, entries_of, softmax, total,
         [&](const Fragment& weights, const Fragment& shift, const Expr& step) {
           leave(weights, shift, left, step);
         });
  scale_rows(total, gate);
  relate(softmax.lse(), left, steps);
  weigh_blocks(token, left, steps);
  choose(token, left.blocks, chosen);
}

// Rows of a tile beyond the heads leave nothing.
template <class Tile>
void NsaDecodeProgram::leave(const Fragment& weights, const Fragment& shift, Left<Tile>& left,
                             const Expr& step) const {
  parallel(shift, [&](Index r) { when(r < c.group, [&] { left.tops(r, step) = shift(r); }); });
  if (c.begun > 0) return leave_blocks(weights, left, step);
  parallel(weights, [&](Index r, Index n) {
    when(r < c.group, [&] { left.weights(r, step * c.keys + n) = weights(r, n); });
  });
}

// The weights of whole blocks, each with those that reach into it from the same step, by way of a tile whose
// rows are apart by no multiple of all banks.
template <class Tile>
void NsaDecodeProgram::leave_blocks(const Fragment& weights, Left<Tile>& left, const Expr& step) const {
  Shared of_step({c.group, c.keys + 4}, f32);
  parallel(weights, [&](Index r, Index n) { when(r < c.group, [&] { of_step(r, n) = weights(r, n); }); });
  parallel(c.group, c.blocks_of_step(), [&](Index r, Index block) {
    Var sum = 0.0f;
    for (int n = -c.reaching; n < c.begun; ++n) {
      Expr entry = block * c.begun + n;
      sum += n < 0 ? select(entry >= 0, of_step(r, max(entry, 0)), 0) : Expr(of_step(r, entry));
    }
    left.weights(r, step * c.blocks_of_step() + block) = sum;
  });
  if (c.reaching == 0) return;
  parallel(c.group, [&](Index r) {
    Var sum = 0.0f;
    for (int n = c.keys - c.reaching; n < c.keys; ++n) sum += of_step(r, n);
    left.tails(r, step) = sum;
  });
}

// The maximum of a step becomes what its weights are multiplied by, relative to whole sums.
template <class Tile>
void NsaDecodeProgram::relate(const Fragment& lse, Left<Tile>& left, const Expr& steps) const {
  Shared whole({c.rows}, f32);
  // Times log2(e). A head that sees nothing gives no weight.
  parallel(lse, [&](Index r) { whole(r) = select(lse(r) == -inf, inf, lse(r) * log2e); });
  constexpr int together = 32;
  serial(ceildiv(steps, together), [&](Index part) {
    parallel(c.group, together, [&](Index r, Index n) {
      Expr step = part * together + n;
      when(step < steps, [&] { left.tops(r, step) = exp2(left.tops(r, step) - whole(r)); });
    });
  });
}

// What the heads from `begin` on left at a place, which a step is for. Written out: no load waits for
// another.
template <class Tile>
Expr NsaDecodeProgram::sum_of_heads(const Tile& left, const Tile& tops, const Expr& at, const Expr& step,
                                    int begin, int end) const {
  if (end - begin == 1) return left(begin, at) * tops(begin, step);
  const int middle = (begin + end) / 2;
  return sum_of_heads(left, tops, at, step, begin, middle) + sum_of_heads(left, tops, at, step, middle, end);
}

// Blocks after the steps have none.
template <class Tile>
Expr NsaDecodeProgram::weight_of_block(const Token& token, const Left<Tile>& left, const Expr& block,
                                       const Expr& steps) const {
  Var sum = 0.0f;
  const auto add = [&](const Tile& from, const Expr& at, const Expr& step) {
    sum += sum_of_heads(from, left.tops, at, step, 0, c.group);
  };
  if (c.begun == 0) {
    serial(range(windows.ending_behind(block * block_size),
                 min(windows.beginning_before((block + 1) * block_size), entries_seen(token))),
           [&](Index n) { add(left.weights, n, n / c.keys); });
    return sum;
  }
  Expr step = block / c.blocks_of_step();
  when(step < steps, [&] { add(left.weights, block, step); });
  if (c.reaching > 0)
    when(block % c.blocks_of_step() == 0 && block > 0 && step <= steps,
         [&] { add(left.tails, step - 1, step - 1); });
  return sum;
}

template <class Tile>
void NsaDecodeProgram::weigh_blocks(const Token& token, Left<Tile>& left, const Expr& steps) const {
  Expr seen = blocks_seen(token);
  constexpr int together = 128;
  serial(ceildiv(seen, together), [&](Index part) {
    parallel(together, [&](Index n) {
      Expr block = part * together + n;
      when(block < seen, [&] { left.blocks(block) = weight_of_block(token, left, block, steps); });
    });
  });
}

template <class Tile>
void NsaDecodeProgram::choose(const Token& token, const Tile& weights, Shared& chosen) const {
  const Var seen = blocks_seen(token);
  const BlockChoice choice{c.columns, c.held, count, first_blocks, local_blocks};
  choice.choose(
      [&](const Expr& begin, const Fragment& keys_of) {
        return map(keys_of, [&](Index j) -> Expr {
          Expr here = begin + j, weight = weights(clamp(here, 0, max(seen - 1, 0)));
          return select(here < seen, weight, 0);
        });
      },
      seen, [&](const Expr& place, const Expr& number) { chosen(place) = number; });
}

NsaDecodeProgram::Seen NsaDecodeProgram::window_of(const Token& token) const {
  Expr end = max(token.position + 1, 0), begin = max(end - window, 0);
  return {token.keys_of(k), token.keys_of(v), ceildiv(end - begin, c.keys), c.keys,
          [this, begin, end](const Expr& n) {
            return Step{begin + n * c.keys, end};
          }};
}

NsaDecodeProgram::Seen NsaDecodeProgram::blocks_of(const Token& token, const Shared& chosen) const {
  Expr parts = ceildiv(block_size, c.keys_of_block), blocks = min(count, blocks_seen(token));
  return {token.keys_of(k), token.keys_of(v), blocks * parts, c.keys_of_block,
          [this, &token, &chosen, parts](const Expr& n) {
            Expr begin = chosen(n / parts) * block_size;
            return Step{begin + n % parts * c.keys_of_block, min(begin + block_size, token.position + 1)};
          }};
}

Fragment NsaDecodeProgram::weights_of(int branch, const Token& token) const {
  Fragment result({c.rows}, f32);
  copy(token.of(gates).slice(all, branch).at(0), result);
  weigh_gates(result);
  return result;
}

}  // namespace

Kernel nsa_decode_program(const NsaDecodeKernel& c) {
  return kernel(instance_name("nsa_decode", c), [&] { NsaDecodeProgram(c).run(); });
}

}  // namespace tegula::ops

// Decode with one latent head of requests of very different lengths: the blocks of keys of all requests stand
// in a row, which is cut into so many equal shares; a block of the grid works through its share, request
// after request. Share p and request b meet at most once, and their result is slot p + b. A last grid merges.
#include "tests/programs/decode/mla.hpp"
#include "tests/programs/list.hpp"

namespace programs {
namespace {

class Scheduled {
 public:
  explicit Scheduled(const MlaTile& t)
      : t_(t),
        Q_(input("Q", {B_, t.heads, t.latent + t.rope}, bf16)),
        cache_(input("cache", {P_, t.page, t.latent + t.rope}, bf16)),
        table_(input("table", {B_, W_}, i32)),
        lengths_(input("lengths", {B_}, i32)),
        O_(output("O", {B_, t.heads, t.latent}, bf16)),
        LSE_(output("LSE", {B_, t.heads}, f32)),
        scale_(scalar("scale", f32)),
        shares_(scalar("parts", i32)),
        begins_(workspace("begins", {B_ + 1}, i32)),
        first_(workspace("first", {shares_ + 1}, i32)),
        share_(workspace("share", {1}, i32)),
        split_out_(workspace("part", {shares_ + B_, t.heads, t.latent}, f32)),
        split_lse_(workspace("part_lse", {shares_ + B_, t.heads}, f32)) {}

  void record() const {
    cut_row();
    grid(t_.heads / t_.block_h, shares_, {.threads = t_.threads}, [&](Index x, Index p) {
      serial(range(first_(p), min(B_, first_(p + 1) + 1)),
             [&](Index b) { attend_request(x * t_.block_h, p, b); });
    });
    grid(t_.heads, B_, [&](Index h, Index b) {
      Expr own = begins_(b), from = own / share_(0);
      Expr count = select(begins_(b + 1) > own, (begins_(b + 1) - 1) / share_(0) + 1 - from, 0);
      const Range slots = range(from + b, from + b + count);
      LSE_(b, h) = merge_splits(split_out_.slice(slots, h), split_lse_.slice(slots, h), count, t_.latent,
                                O_.slice(b, h));
    });
  }

 private:
  // begins(b): the blocks of requests before b; first(p): the request in which share p begins.
  void cut_row() const {
    grid(1, {.threads = 32}, [&](Index) {
      Var next = 0;
      serial(B_, [&](Index b) {
        begins_(b) = next;
        next += ceildiv(lengths_(b), t_.block_k);
      });
      begins_(B_) = next;
      share_(0) = max(ceildiv(next, shares_), 1);
    });
    grid(ceildiv(shares_ + 1, 32), {.threads = 32}, [&](Index x) {
      parallel(32, [&](Index i) {
        Expr p = x * 32 + i;
        Var b = 0;
        loop_while([&] { return b < B_ && begins_(b + 1) <= p * share_(0); }, [&] { b += 1; });
        when(p <= shares_, [&] { first_(p) = b; });
      });
    });
  }
  void attend_request(const Expr& h0, const Expr& p, const Index& b) const {
    Expr begin = p * share_(0), end = begin + share_(0), length = lengths_(b), own = begins_(b);
    Expr from = max(begin, own) - own, to = min(end, begins_(b + 1)) - own;
    Latents queries(t_, Q_.slice(b), h0, scale_);
    pipelined(range(from, to), {.stages = t_.stages}, [&](Index j) {
      Expr key = j * t_.block_k, row = key % t_.page;
      Tensor rows = cache_.slice(table_(b, key / t_.page));
      Shared latent({t_.block_k, t_.latent}, bf16), rope({t_.block_k, t_.rope}, bf16);
      copy(rows.at(row, 0), latent);
      copy(rows.at(row, t_.latent), rope);
      queries.attend(latent, rope, [&](Fragment& s) {
        when(key + t_.block_k > length, [&] { mask_columns(s, length - key); });
      });
    });
    when(from < to, [&] {
      queries.store(split_out_.slice(p + b, range(h0, h0 + t_.block_h)));
      copy(queries.softmax.lse(), split_lse_.slice(p + b).at(h0));
    });
  }

  MlaTile t_;
  Dim B_{"B"}, P_{"pages"}, W_{"table_width"};
  Tensor Q_, cache_, table_, lengths_, O_, LSE_;
  Expr scale_, shares_;  // the scale times log2(e)
  Tensor begins_, first_, share_, split_out_, split_lse_;
};

Kernel scheduled(const MlaTile& t) {
  return kernel("mla_decode_scheduled", [&] { Scheduled(t).record(); });
}

Prepared scheduled_call(int shares) {
  const MlaTile t{.heads = 64, .latent = 128, .block_k = 32, .threads = 256};
  const std::vector<int> lengths{150, 0, 40}, table{3, 0, 5, -1, -1, -1, 6, -1, -1};
  const int B = 3, pages = 7, width = t.latent + t.rope;
  const Data q = normal({B, t.heads, width}, bf16, 1), cache = normal({pages * t.page, width}, bf16, 2);
  const double scale = 1 / std::sqrt(width);
  const Numbers Q(q), K(cache);
  Numbers O({B, t.heads, t.latent}), LSE({B, t.heads});
  each(B, [&](int b) {
    const auto key = [&](int i) { return table[b * 3 + i / t.page] * t.page + i % t.page; };
    attend_token(Q, b, K, lengths[b], key, scale, O, LSE);
  });
  return {scheduled(t),
          {q, cache.reshape({pages, t.page, width}), Data::from(table, {B, 3}), Data::from(lengths),
           Wanted{O, bf16}, Wanted{LSE, f32, 1e-3}, scale * log2_of_e, shares}};
}

}  // namespace

Program mla_decode_scheduled() {
  return {"decode",
          "mla_decode_scheduled",
          "the same for requests of very different lengths, in equal shares of work",
          {{"three_shares", [] { return scheduled_call(3); }}},
          {{"the compiler's threads", [] { return scheduled({}); }},
           {"256 threads", [] { return scheduled({.threads = 256}); }}}};
}

}  // namespace programs

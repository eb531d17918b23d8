// The consumers that dense and block-sparse attention share: P V one step behind Q K, softmax under P V.
#pragma once
#include "schedule/examples/examples.hpp"

namespace tegula::schedule::examples {

struct AttentionConsumer {
  AttentionShape shape;
  Builder b;
  int q = 0, k = 0, v = 0, o_staging = 0, tile = 0;
  int s = 0, p = 0, o = 0, rows = 0;
  int q_ring = 0, k_ring = 0, v_ring = 0;
  Count masked = {}, unmasked = {};

  AttentionConsumer(const char* name, const AttentionShape& shape) : shape(shape), b(name) {}

  void declare() {
    const int g = shape.groups;
    q = b.buffer({"Q", Space::shared, 1, g, shape.q_bytes()});
    k = b.buffer({"K", Space::shared, 2, 1, shape.kv_bytes(), shape.boxes()});
    v = b.buffer({"V", Space::shared, 2, 1, shape.kv_bytes(), shape.boxes()});
    o_staging = b.buffer({"O staging", Space::shared, 1, g, shape.q_bytes(), 4});
    tile = b.buffer({"tile", Space::shared, 1, g, 4});
    s = b.buffer({"S", Space::registers});
    p = b.buffer({"P", Space::registers});
    o = b.buffer({"O", Space::registers});
    rows = b.buffer({"row statistics", Space::registers});
    q_ring = b.ring({"Q", {q, tile}, 1, g, 1, 4});
    k_ring = b.ring({"K", {k}, 2, 1, 1, 4 * g});
    v_ring = b.ring({"V", {v}, 2, 1, 1, 4 * g});
    if (shape.causal) masked = b.variable({"masked"});
    unmasked = b.variable({shape.causal ? "unmasked" : "steps"});
  }
  Count steps() const { return masked + unmasked; }

  void release(int ring, Instance instance = {}) {
    b.emit(Arrive{Side::empty, {ring, 0, instance}}, Who::each_warp);
  }
  void turn(int rotate, bool wait) {
    if (shape.ping_pong) b.emit(Barrier{1, true, rotate, 256, wait});
  }
  void gemm_qk() { b.gemm("Q K", {read(q, {}, own()), read(k, at_cursor(k_ring)), write(s)}); }
  void gemm_pv() { b.gemm("P V", {read(p), read(v, at_cursor(v_ring)), update(o)}); }

  void first_step() {
    b.emit(WaitFull{{k_ring}});
    gemm_qk();
    b.emit(GemmWait{0});
    release(k_ring);
    b.emit(Advance{k_ring});
    b.operation("mask, first maxima, exponentials", {update(s), write(rows)});
    b.operation("to operand", {read(s), write(p)});
    b.operation("clear O", {write(o)});
  }

  void steady_step(bool mask) {
    b.emit(WaitFull{{k_ring}});
    turn(0, true);
    gemm_qk();
    b.emit(WaitFull{{v_ring}});
    gemm_pv();
    turn(1, false);
    b.emit(GemmWait{1});
    release(k_ring);
    b.emit(Advance{k_ring});
    if (mask) b.operation("mask", {update(s)});
    b.operation("maxima, first exponentials", {update(s), update(rows)});
    b.emit(GemmWait{0});
    release(v_ring);
    b.emit(Advance{v_ring});
    b.operation("other exponentials", {update(s), update(rows)});
    b.operation("to operand", {read(s), write(p)});
    b.operation("scale O", {update(o), read(rows)});
  }

  void last_step() {
    b.emit(WaitFull{{v_ring}});
    gemm_pv();
    b.operation("sums", {update(rows)});
    b.emit(GemmWait{0});
    release(v_ring);
    b.emit(Advance{v_ring});
    b.operation("O / sum", {update(o), read(rows)});
  }

  void store_output() {
    b.emit(StoreWait{0}, Who::leader);
    b.emit(Barrier{8, true, 0, 128, true});
    b.operation("stage O", {read(o), write(o_staging, {}, own(), {1, 0, 1})});
    b.emit(ProxyFence{});
    b.emit(Barrier{8, true, 0, 128, true});
    b.emit(Store{read(o_staging, {}, own())}, Who::leader);
    b.emit(StoreCommit{}, Who::leader);
  }

  void consumer() {
    b.emit(SetRegisters{shape.consumer_registers});
    if (shape.ping_pong) b.guard(Guard::Kind::last_group, "", [&] { turn(1, false); });
    b.forever([&] {
      b.emit(WaitFull{{q_ring, 0, own()}});
      b.emit(ReceiveTile{read(tile, {}, own())});
      b.emit(Leave{});
      first_step();
      if (shape.causal) b.loop("masked keys", masked, [&] { steady_step(true); });
      b.loop("keys", unmasked, [&] { steady_step(false); });
      release(q_ring, own());
      b.emit(Advance{q_ring});
      last_step();
      store_output();
    });
    b.emit(StoreWait{0}, Who::leader);
  }
};

}  // namespace tegula::schedule::examples

#include <gtest/gtest.h>

#include "schedule/examples/examples.hpp"
#include "schedule/verify.hpp"

namespace tegula::schedule::examples {
namespace {

struct Backward {
  BackwardShape shape;
  Builder b{"attention backward"};
  int k = 0, v = 0, q = 0, d_o = 0, ds = 0, dq_staging = 0, rows = 0, tile = 0;
  int s = 0, dp = 0, dq = 0, p = 0, ds_operand = 0, dk = 0, dv = 0;
  int dq_sum = 0, turn = 0;
  int kv_ring = 0, q_ring = 0, do_ring = 0, dq_ring = 0, ds_cursor = 0;
  Count heads = {}, blocks = {};

  // Parts of K and V: 16 rows of 64 columns; of a group's rows, a warp's rows, a group's columns.
  int columns() const { return shape.d / 64; }
  Parts rows_of_group() const { return {columns() == 2 ? 0x0f0full : 0x0full, 4}; }
  Parts rows_of_warp() const { return {columns() == 2 ? 0x0101ull : 0x01ull, 4, 1}; }
  Parts columns_of_group() const { return columns() == 2 ? Parts{0xff, 8} : Parts{}; }

  void declare() {
    const int kv_bytes = 128 * shape.d * 2, q_bytes = shape.queries * shape.d * 2;
    k = b.buffer({"K", Space::shared, 1, 1, kv_bytes, 8 * columns()});
    v = b.buffer({"V", Space::shared, 1, 1, kv_bytes, 8 * columns()});
    q = b.buffer({"Q", Space::shared, 2, 1, q_bytes});
    d_o = b.buffer({"dO", Space::shared, 2, 1, q_bytes});
    ds = b.buffer({"dS", Space::shared, 2, 1, shape.queries * 128 * 2, 8});
    dq_staging = b.buffer({"dQ staging", Space::shared, 1, 2, dq_bytes(), 4});
    rows = b.buffer({"rows", Space::shared, 2, 1, 8 * shape.queries});
    tile = b.buffer({"tile", Space::shared, 1, 1, 16});
    int* const registers[] = {&s, &dp, &dq, &p, &ds_operand, &dk, &dv};
    const char* const names[] = {"S", "dP", "dQ", "P", "dS operand", "dK", "dV"};
    for (int i = 0; i < 7; ++i) *registers[i] = b.buffer({names[i], Space::registers});
    dq_sum = b.buffer({"dQ sum", Space::global, 1, 2});
    turn = b.buffer({"turn", Space::global, 1, 2});
    kv_ring = b.ring({"KV", {k, v, tile}, 1, 1, 1, 4});
    q_ring = b.ring({"Q", {q, rows}, 2, 1, 1, 8});
    do_ring = b.ring({"dO", {d_o}, 2, 1, 1, 8});
    dq_ring = b.ring({"dQ", {dq_staging}, 1, 2, 4, 1});
    ds_cursor = b.ring({"dS", {ds}, 2, 1, 1, 1, false});
    heads = b.variable({.name = "heads", .minimum = 1, .maximum = 2, .per_tile = false});
    blocks = b.variable({.name = "blocks", .minimum = 1, .descending = true});
  }
  int dq_bytes() const { return (shape.d == 128 ? shape.queries : shape.queries / 2) * 64 * 4; }

  // ------------------------------------------------------------------------------------------- loader
  void load_block() {
    const int q_bytes = shape.queries * shape.d * 2, row_bytes = 8 * shape.queries;
    b.emit(Acquire{{q_ring}}, Who::one);
    b.emit(Expect{{q_ring}, q_bytes + row_bytes}, Who::one);
    b.emit(Load{{q_ring}, write(q, at_cursor(q_ring)), q_bytes}, Who::one);
    b.emit(Load{{q_ring}, write(rows, at_cursor(q_ring)), row_bytes}, Who::one);
    b.emit(Acquire{{do_ring}}, Who::one);
    b.emit(Expect{{do_ring}, q_bytes}, Who::one);
    b.emit(Load{{do_ring}, write(d_o, at_cursor(do_ring)), q_bytes}, Who::one);
    b.emit(Advance{q_ring});
    b.emit(Advance{do_ring});
  }

  void load_tiles() {
    const int kv_bytes = 128 * shape.d * 2;
    b.forever([&] {
      b.emit(NextTile{}, Who::one);
      b.emit(Acquire{{kv_ring}}, Who::one);
      b.emit(Leave{});
      b.emit(SendTile{write(tile)}, Who::one);
      b.emit(Expect{{kv_ring}, 2 * kv_bytes}, Who::one);
      b.emit(Load{{kv_ring}, write(k), kv_bytes}, Who::one);
      b.emit(Load{{kv_ring}, write(v), kv_bytes}, Who::one);
      b.emit(Advance{kv_ring});
      b.loop("heads", heads, [&] { b.loop("blocks", blocks, [&] { load_block(); }); });
    });
    b.emit(SendTile{write(tile)}, Who::one);
    b.emit(Arrive{Side::full, {kv_ring}}, Who::one);
  }

  // ------------------------------------------------------------------------------------------- adders
  void add_in_turn() {
    const auto sum = [&](Touch touch) { return Access{dq_sum, touch, at_index(), own()}; };
    b.guard(Guard::Kind::first_tile, "", [&] {
      b.emit(Store{read(dq_staging, {}, own()), sum(Touch::write)}, Who::leader);
    });
    b.guard(Guard::Kind::later_tile, "", [&] {
      b.emit(WaitTurn{read(turn, at_index(), own())}, Who::leader);
      b.emit(ProxyFence{true}, Who::leader);
      b.emit(Store{read(dq_staging, {}, own()), sum(Touch::update)}, Who::leader);
    });
  }

  void add_block() {
    b.emit(WaitFull{{dq_ring, 0, own()}}, Who::leader);
    if (shape.ordered)
      add_in_turn();
    else
      b.emit(Store{read(dq_staging, {}, own()), add(dq_sum, at_index(), own())}, Who::leader);
    b.emit(StoreCommit{}, Who::leader);
    b.emit(StoreWait{0}, Who::leader);
    b.emit(Arrive{Side::empty, {dq_ring, 0, own()}}, Who::leader);
    b.emit(Advance{dq_ring});
    if (!shape.ordered) return;
    b.emit(StoreWait{0, false}, Who::leader);
    b.emit(ProxyFence{true}, Who::leader);
    b.emit(PassTurn{write(turn, at_index(), own())}, Who::leader);
  }

  void add_dq() {
    b.forever([&] {
      b.emit(WaitFull{{kv_ring}}, Who::leader);
      b.emit(ReceiveTile{read(tile)}, Who::leader);
      b.emit(Arrive{Side::empty, {kv_ring}}, Who::leader);
      b.emit(Advance{kv_ring});
      b.emit(Leave{});
      b.loop("heads", heads, [&] { b.loop("blocks", blocks, [&] { add_block(); }); });
    });
    b.emit(StoreWait{0, false}, Who::leader);
  }

  // ------------------------------------------------------------------------------------------- consumers
  void step() {
    const Slot q_slot = at_cursor(q_ring), do_slot = at_cursor(do_ring), ds_slot = at_cursor(ds_cursor);
    b.emit(WaitFull{{q_ring}});
    b.gemm("S", {read(k, {}, {}, rows_of_group()), read(q, q_slot), write(s)});
    b.emit(WaitFull{{do_ring}});
    b.gemm("dP", {read(v, {}, {}, rows_of_group()), read(d_o, do_slot), write(dp)});
    b.emit(GemmWait{1});
    b.operation("mask", {update(s)});
    b.operation("probabilities", {read(s), read(rows, q_slot), write(p)});
    b.gemm("dV", {read(p), read(d_o, do_slot), update(dv)});
    b.emit(GemmWait{1});
    b.operation("score gradients", {read(dp), read(p), read(rows, q_slot), write(ds_operand)});
    b.gemm("dK", {read(ds_operand), read(q, q_slot), update(dk)});
    b.operation("dS to shared", {read(ds_operand), write(ds, ds_slot, {}, {1, 4, 1})});
    b.emit(ProxyFence{});
    b.emit(Barrier{1, false, 0, 256, true});
    b.gemm("dQ", {read(k, {}, {}, columns_of_group()), read(ds, ds_slot), write(dq)});
    b.emit(GemmWait{0});
    b.emit(Advance{ds_cursor});
    b.emit(Arrive{Side::empty, {do_ring}}, Who::each_warp);
    b.emit(Arrive{Side::empty, {q_ring}}, Who::each_warp);
    hand_over();
    b.emit(Advance{q_ring});
    b.emit(Advance{do_ring});
  }

  void hand_over() {
    b.emit(Acquire{{dq_ring, 0, own()}});
    b.operation("dQ to its adder", {read(dq), write(dq_staging, {}, own(), {1, 0, 1})});
    b.emit(ProxyFence{});
    b.emit(WarpSync{});
    b.emit(Arrive{Side::full, {dq_ring, 0, own()}}, Who::each_warp);
    b.emit(Advance{dq_ring});
  }

  void store_results() {
    b.emit(Barrier{1, false, 0, 256, true});
    b.operation("stage dV", {read(dv), write(v, {}, {}, rows_of_warp())});
    b.operation("stage dK", {read(dk), write(k, {}, {}, rows_of_warp())});
    b.emit(ProxyFence{});
    b.emit(Barrier{2, true, 0, 128, true});
    b.emit(Store{read(v, {}, {}, rows_of_group())}, Who::leader);
    b.emit(Store{read(k, {}, {}, rows_of_group())}, Who::leader);
    b.emit(StoreCommit{}, Who::leader);
    b.emit(StoreWait{0}, Who::leader);
    b.emit(Arrive{Side::empty, {kv_ring}}, Who::leader);
  }

  void consumer() {
    b.emit(SetRegisters{240});
    b.forever([&] {
      b.emit(WaitFull{{kv_ring}});
      b.emit(ReceiveTile{read(tile)});
      b.emit(Leave{});
      b.operation("clear dK, dV", {write(dk), write(dv)});
      b.loop("steps", heads * blocks, [&] { step(); });
      store_results();
      b.emit(Advance{kv_ring});
    });
  }

  Schedule make() {
    b.schedule().launch_registers = 168;
    declare();
    b.prologue([&] {
      b.emit(InitBarriers{}, Who::one);
      b.emit(InitFence{}, Who::one);
      b.emit(Barrier{0, false, 0, 384, true});
    });
    b.role({"consumer", 2, 4, 240}, [&] { consumer(); });
    b.role({"loader", 1, 1, 24}, [&] {
      b.emit(SetRegisters{24});
      b.only(Who::one, [&] { load_tiles(); });
    });
    b.role({"adder", 2, 1, 24}, [&] {
      b.emit(SetRegisters{24});
      b.only(Who::leader, [&] { add_dq(); });
    });
    b.role({"idle", 1, 1, 24}, [&] { b.emit(SetRegisters{24}); });
    return b.take();
  }
};

}  // namespace

Schedule attention_backward(const BackwardShape& shape) { return Backward{shape}.make(); }

TEST(BackwardSchedule, IsClean) {
  for (const int d : {64, 128})
    for (const bool ordered : {false, true}) {
      const BackwardShape shape{d, d == 128 ? 80 : 128, ordered};
      const auto found = verify(attention_backward(shape), thorough);
      EXPECT_FALSE(found) << found->message << "\n" << print(attention_backward(shape));
    }
}

}  // namespace tegula::schedule::examples

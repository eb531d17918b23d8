#include <gtest/gtest.h>

#include "schedule/examples/attention_consumer.hpp"
#include "schedule/verify.hpp"

namespace tegula::schedule::examples {
namespace {

struct Forward : AttentionConsumer {
  using AttentionConsumer::AttentionConsumer;

  void load(int ring, int buffer) {
    b.emit(Acquire{{ring}}, Who::one);
    b.emit(Expect{{ring}, shape.kv_bytes()}, Who::one);
    // Sparse: two blocks of keys a stage, in two halves of the head dimension each; one barrier for all.
    const int boxes = shape.boxes();
    for (int i = 0; i < boxes; ++i)
      b.emit(
          Load{{ring}, write(buffer, at_cursor(ring), {}, {std::uint64_t{1} << i}), shape.kv_bytes() / boxes},
          Who::one);
    b.emit(Advance{ring});
  }

  void hand_out(bool last) {
    for (int group = 0; group < shape.groups; ++group) {
      const Place place{q_ring, 0, of_group(group)};
      b.emit(Acquire{place}, Who::one);
      b.emit(SendTile{write(tile, {}, of_group(group))}, Who::one);
      if (last) {
        b.emit(Arrive{Side::full, place}, Who::one);
      } else {
        b.emit(Expect{place, shape.q_bytes()}, Who::one);
        b.emit(Load{place, write(q, {}, of_group(group)), shape.q_bytes()}, Who::one);
      }
    }
  }

  void producer() {
    b.emit(SetRegisters{shape.producer_registers});
    b.only(Who::one, [&] { load_all(); });
  }

  void load_all() {
    b.forever([&] {
      b.emit(NextTile{}, Who::one);
      b.emit(Leave{});
      load(k_ring, k);
      hand_out(false);
      b.emit(Advance{q_ring});
      b.loop("keys", steps(), [&] {
        load(k_ring, k);
        load(v_ring, v);
      });
      load(v_ring, v);
    });
    hand_out(true);
  }

  Schedule make() {
    const int threads = 128 * shape.groups + 128;
    b.schedule().launch_registers = shape.launch_registers();
    b.schedule().ctas_per_sm = shape.ctas_per_sm;
    declare();
    b.prologue([&] {
      b.emit(InitBarriers{}, Who::one);
      b.emit(InitFence{}, Who::one);
      b.emit(Barrier{0, false, 0, threads, true});
    });
    b.role({"consumer", shape.groups, 4, shape.consumer_registers}, [&] { consumer(); });
    b.role({"producer", 1, 4, shape.producer_registers}, [&] { producer(); });
    return b.take();
  }
};

}  // namespace

Schedule attention_forward(const AttentionShape& shape) { return Forward("attention forward", shape).make(); }
Schedule block_sparse_forward(const AttentionShape& shape) {
  return Forward("block sparse forward", shape).make();
}

TEST(AttentionSchedules, AreClean) {
  for (const AttentionShape& shape : {full_128(), causal_128(), full_64(), causal_64()}) {
    const auto found = verify(attention_forward(shape), thorough);
    EXPECT_FALSE(found) << found->message << "\n" << print(attention_forward(shape));
  }
  for (const AttentionShape& shape : {sparse_128_rows(), sparse_64_rows()}) {
    const auto found = verify(block_sparse_forward(shape), thorough);
    EXPECT_FALSE(found) << found->message << "\n" << print(block_sparse_forward(shape));
  }
}

}  // namespace tegula::schedule::examples

#include <gtest/gtest.h>

#include "schedule/examples/examples.hpp"
#include "schedule/verify.hpp"

namespace tegula::schedule::examples {
namespace {

constexpr int number_bytes = 64 * 4, row_bytes = 64 * 64 * 2, of_producer = 15;

struct LookedUp {
  Numbers by;
  Builder b{"looked up"};
  int numbers = 0, rows = 0, acc = 0, number_ring = 0, row_ring = 0;
  Count steps = {};

  void declare() {
    // With more slots every thread has met the others at the full barrier of another one.
    const int depth = by == Numbers::by_rows ? 1 : 2;
    const int arrivals = by == Numbers::by_rows ? 128 : by == Numbers::by_engine ? 1 : 2;
    numbers = b.buffer({"numbers", Space::shared, depth, 1, number_bytes, by == Numbers::by_rows ? 4 : 1});
    rows = b.buffer({"rows", Space::shared, depth, 1, row_bytes, 4});
    acc = b.buffer({"acc", Space::registers});
    number_ring = b.ring({"numbers", {numbers}, depth, 1, arrivals, 4});
    row_ring = b.ring({"rows", {rows}, depth, 1, 128, 4});
    steps = b.variable({"steps"});
  }

  void meet() { b.emit(Barrier{of_producer, false, 0, 128, true}); }

  void copy_async(int ring, int buffer, std::vector<Access> reads) {
    b.emit(CopyAsync{write(buffer, at_cursor(ring), {}, {1, 0, 1}), std::move(reads)});
    b.emit(CopyArrive{{ring}});
  }

  void write_numbers() {
    Access to = write(numbers, at_cursor(number_ring));
    to.mapping = 1;
    b.operation("elements", {to});
    b.emit(ProxyFence{});
    meet();
    b.emit(Complete{{number_ring}, number_bytes}, Who::one);
  }

  void load_numbers() {
    b.emit(Expect{{number_ring}, number_bytes}, Who::one);
    const auto load = [&] {
      b.emit(Load{{number_ring}, write(numbers, at_cursor(number_ring)), number_bytes}, Who::one);
    };
    if (by == Numbers::by_engine) return load();
    b.guard(Guard::Kind::engine, "", load);
    b.guard(Guard::Kind::threads, "", [&] { write_numbers(); });
    b.emit(Arrive{Side::full, {number_ring}}, Who::one);
  }

  void producer() {
    b.tiles([&] {
      b.loop("k", steps, [&] {
        b.emit(Acquire{{number_ring}});
        meet();
        if (by == Numbers::by_rows)
          copy_async(number_ring, numbers, {});
        else
          load_numbers();
        b.emit(WaitFull{{number_ring}});
        b.emit(Acquire{{row_ring}});
        copy_async(row_ring, rows, {read(numbers, at_cursor(number_ring))});
        b.emit(Advance{number_ring});
        b.emit(Advance{row_ring});
      });
    });
  }

  void release(int ring) {
    b.emit(Arrive{Side::empty, {ring}}, Who::each_warp);
    b.emit(Advance{ring});
  }

  void consumer() {
    b.tiles([&] {
      b.loop("k", steps, [&] {
        b.emit(WaitFull{{number_ring}});
        b.operation("numbers", {read(numbers, at_cursor(number_ring)), update(acc)});
        if (by != Numbers::by_rows) b.emit(ProxyFence{});
        b.emit(WarpSync{});
        release(number_ring);
        b.emit(WaitFull{{row_ring}});
        b.emit(ProxyFence{});
        b.gemm("rows", {read(rows, at_cursor(row_ring)), update(acc)});
        b.emit(GemmWait{0});
        release(row_ring);
      });
    });
  }

  Schedule make() {
    b.schedule().launch_registers = 168;
    declare();
    b.prologue([&] {
      b.emit(InitBarriers{}, Who::one);
      b.emit(InitFence{}, Who::one);
      b.emit(Barrier{0, false, 0, 256, true});
    });
    b.role({"consumer", 1, 4}, [&] { consumer(); });
    b.role({"producer", 1, 4}, [&] { producer(); });
    return b.take();
  }
};

}  // namespace

Schedule looked_up(Numbers numbers) { return LookedUp{numbers}.make(); }

TEST(LookedUpSchedules, AreClean) {
  for (const Numbers numbers : {Numbers::by_engine, Numbers::by_engine_or_threads, Numbers::by_rows}) {
    const auto found = verify(looked_up(numbers), thorough);
    EXPECT_FALSE(found) << found->message << print(looked_up(numbers));
  }
}

}  // namespace tegula::schedule::examples

#include <gtest/gtest.h>

#include "core/stage/clocks.hpp"

namespace pyecho {
namespace {

using std::chrono::milliseconds;

// A reader whose clock is set by hand.
class Reader {
 public:
  void begin() { clock.begin(); }
  void read(int inside_ms) {
    clock.read(now_, now_ + milliseconds(inside_ms), true);
    now_ += milliseconds(inside_ms);
  }
  void wait_for_room(int waited_ms) {
    clock.blocked();
    now_ += milliseconds(waited_ms);
  }
  [[nodiscard]] double upstream_ms() const { return static_cast<double>(clock.upstream_ns()) * 1e-6; }

  SourceClock clock;

 private:
  Clock::time_point now_{Clock::duration{1}};
};

TEST(SourceClock, a_source_that_is_never_held_up_takes_the_time_inside_it) {
  Reader reader;
  reader.begin();
  reader.read(500);  // its start
  EXPECT_EQ(reader.clock.upstream_ns(), 0U);
  for (int i = 0; i < 9; ++i) {
    reader.read(4);
  }
  EXPECT_EQ(reader.clock.inside_ns(), 536'000'000U);
  EXPECT_DOUBLE_EQ(reader.upstream_ms(), 40);
}

TEST(SourceClock, what_a_source_makes_ahead_during_waits_is_not_free) {
  Reader reader;
  reader.begin();
  for (int i = 0; i < 11; ++i) {
    reader.read(4);  // the pool fills
  }
  for (int i = 0; i < 1000; ++i) {
    reader.wait_for_room(10);
    reader.read(0);  // made meanwhile
  }
  EXPECT_NEAR(reader.upstream_ms() / 1011, 4, 1e-9);
}

TEST(SourceClock, the_time_from_item_to_item_bounds_it) {
  Reader reader;
  reader.begin();
  reader.read(0);
  reader.read(50);  // slow at first
  for (int i = 0; i < 99; ++i) {
    reader.wait_for_room(1);
    reader.read(0);
  }
  EXPECT_NEAR(reader.upstream_ms() / 101, 149.0 / 100, 1e-9);
}

TEST(SourceClock, the_time_inside_it_bounds_it_from_below) {
  Reader reader;
  reader.begin();
  reader.read(0);
  reader.read(0);  // made before the loader came
  for (int i = 0; i < 99; ++i) {
    reader.wait_for_room(1);
    reader.read(4);
  }
  EXPECT_NEAR(reader.upstream_ms() / 101, 99 * 4.0 / 100, 1e-9);
}

}  // namespace
}  // namespace pyecho

#include "core/trace/recorder.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <map>
#include <thread>
#include <vector>

namespace pyecho::trace {
namespace {

TEST(Recorder, counts_what_no_longer_fits) {
  ASSERT_TRUE(start(3));
  for (int i = 0; i < 10; ++i) {
    const Span span(Kind::kPut);
  }
  const Recording recording = stop();
  EXPECT_EQ(recording.count, 3U);
  EXPECT_EQ(recording.dropped, 7U);
}

TEST(Recorder, a_forked_child_can_record_again) {
  ASSERT_TRUE(start());
  const pid_t child = fork();
  if (child == 0) {
    {
      const Span span(Kind::kPut);
    }  // of the parent's recording: dropped
    const bool is_empty = stop().count == 0 && start() && stop().count == 0;
    const bool began = start();
    {
      const Span span(Kind::kPut);
    }
    _exit(is_empty && began && stop().count == 1 ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(stop().count, 0U);
}

// Recordings begin and end while threads record. What an event says must be whole, and each belong to its recording.
TEST(Recorder, recordings_may_begin_and_end_while_threads_record) {
  Atomic<bool> done;
  std::vector<std::thread> writers;
  for (std::uint64_t writer = 1; writer <= 3; ++writer) {
    writers.emplace_back([&done, writer] {
      for (std::uint64_t i = 1; !done.load_relaxed(); ++i) {
        Span span(Kind::kPut);
        span.set_value((writer << 32) + i);
      }
    });
  }
  for (int round = 0; round < 30; ++round) {
    ASSERT_TRUE(start(1 << 12));
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    const Recording recording = stop();
    ASSERT_LE(recording.threads.size(), 3U);
    std::map<std::uint32_t, std::uint64_t> last;  // by thread
    for (std::size_t i = 0; i < recording.count; ++i) {
      const Event& event = recording.events[i];
      ASSERT_LE(recording.begin_ns, event.begin_ns);
      ASSERT_LE(event.begin_ns, event.end_ns);
      const auto [found, is_new] = last.try_emplace(event.thread, event.value - 1);
      ASSERT_EQ(event.value, found->second + 1) << "an event is lost, torn or of another thread";
      found->second = event.value;
    }
  }
  done.store_relaxed(true);
  for (std::thread& writer : writers) {
    writer.join();
  }
}

}  // namespace
}  // namespace pyecho::trace

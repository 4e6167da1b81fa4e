// Work on memory in several threads.
#pragma once

#include <cstddef>
#include <exception>
#include <thread>
#include <vector>

namespace pyecho {

// Calls work(part) for each part below `parts`, in a thread each, of which this one is the first. If no more threads can
// be started, this one does the rest. `work` must not throw.
template <class Work>
void in_parallel(std::size_t parts, const Work& work) {
  std::vector<std::thread> helpers;
  std::size_t started = 1;
  try {
    helpers.reserve(parts);
    for (; started < parts; ++started) {
      helpers.emplace_back([&work, started] { work(started); });
    }
  } catch (const std::exception&) {  // no thread, or no memory for one
  }
  work(0);
  for (; started < parts; ++started) {
    work(started);
  }
  for (std::thread& helper : helpers) {
    helper.join();
  }
}

}  // namespace pyecho

#include "cuda/pinning.hpp"

#include <chrono>
#include <thread>

#include "core/sync/outcome.hpp"
#include "cuda/pinned_pages.hpp"

namespace pyecho::cuda {

PagePolicy Pinning::policy() {
  return {.threads = std::thread::hardware_concurrency(),
          .numa_node = device_.numa_node(),
          .prepare = [self = shared_from_this()](std::byte* data, std::size_t size_bytes) {
            return self->pin(data, size_bytes);
          }};
}

std::shared_ptr<void> Pinning::pin(std::byte* data, std::size_t size_bytes) {
  const Clock::time_point before = Clock::now();
  try {
    auto pages = std::make_shared<PinnedPages>(device_, data, size_bytes);
    const auto took = std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - before);
    pinned_bytes_.fetch_add_relaxed(size_bytes);
    pinning_ns_.fetch_add_relaxed(static_cast<std::uint64_t>(took.count()));
    return pages;
  } catch (const CudaError& error) {
    if (required_) {
      throw;
    }
    const std::scoped_lock lock(mutex_);
    if (failure_.empty()) {
      failure_ = error.what();
    }
    return nullptr;
  }
}

std::string Pinning::failure() const {
  const std::scoped_lock lock(mutex_);
  return failure_;
}

}  // namespace pyecho::cuda

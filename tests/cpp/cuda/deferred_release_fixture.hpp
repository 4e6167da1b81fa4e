// Pinned batches that the consumer copies to a device by itself and drops.
#pragma once

#include <array>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "core/memory/batch_pool.hpp"
#include "cuda/deferred_release.hpp"
#include "cuda/pinning.hpp"
#include "transfer_fixture.hpp"

namespace pyecho::cuda {

inline void retire(DeferredRelease& retirement, Lease lease, const Device& device, StreamHandle stream) {
  retirement.retire(std::move(lease), std::array{ConsumerStream{.device = &device, .handle = stream}});
}

// A batch that is leased repeatedly, and the destination of the consumer's copies of it. It is alone in its pool, so the
// pool tells whether the lease has ended.
class OwnBatch {
 public:
  static constexpr std::size_t kBytes = 1000;

  explicit OwnBatch(const Device& device)
      : device_(device),
        pool_(std::make_shared<BatchPool>(SlotLayout({kBytes}, 1, false), 1, kBytes,
                                          std::make_shared<Pinning>(device, true)->policy())) {}

  // Requires that the previous lease has ended.
  void take(std::uint64_t key) {
    ASSERT_TRUE(ended());
    lease_ = Lease(pool_, pool_->obtain());
    data_ = lease_.data();
    key_ = key;
    copies_ = 0;
    fill({data_, kBytes}, key);
    std::fill(target_.begin(), target_.end(), std::byte{0});
  }
  // Throws CudaError, and then makes no copy.
  void copy(StreamHandle stream) {
    const CurrentContext current(device_);
    device_.driver().call(&DriverApi::memory_copy_to_device_async, device_pointer(target_.data()),
                          static_cast<const void*>(data_), kBytes, stream);
    ++copies_;
  }
  void drop(DeferredRelease& retirement, StreamHandle stream) {
    retire(retirement, std::move(lease_), device_, stream);
  }
  Lease give_away() { return std::move(lease_); }
  void take_copy_and_drop(std::uint64_t key, DeferredRelease& retirement, StreamHandle stream) {
    take(key);
    copy(stream);
    drop(retirement, stream);
  }

  [[nodiscard]] bool ended() const { return pool_->outstanding() == 0; }
  // True if there is a copy with the contents of the batch.
  [[nodiscard]] bool arrived() const {
    static_cast<void>(standin_pending());  // another thread may have seen the copy's end; its mutex orders us after it
    return copies_ > 0 && is_filled(target_, key_);
  }
  [[nodiscard]] int copies() const noexcept { return copies_; }
  // Refills the batch, so that a copy that is not done yet gets wrong data.
  void overwrite() { std::fill(data_, data_ + kBytes, std::byte{0xEE}); }
  [[nodiscard]] const std::shared_ptr<BatchPool>& pool() const noexcept { return pool_; }

 private:
  const Device& device_;
  std::shared_ptr<BatchPool> pool_;
  Lease lease_;
  std::byte* data_ = nullptr;
  std::uint64_t key_ = 0;
  int copies_ = 0;
  std::vector<std::byte> target_ = std::vector<std::byte>(kBytes);
};

class DeferredReleaseTest : public CudaTest {
 protected:
  std::vector<std::unique_ptr<OwnBatch>> batches(std::size_t count) const {
    std::vector<std::unique_ptr<OwnBatch>> made;
    while (made.size() < count) {
      made.push_back(std::make_unique<OwnBatch>(device));
    }
    return made;
  }
  // Releases the streams after a while. Returns true if the batch was still leased then.
  static std::jthread let_go_soon(const OwnBatch& batch, bool& kept_until_then) {
    return std::jthread([&batch, &kept_until_then] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      kept_until_then = !batch.ended();
      standin_hold(STANDIN_RUN);
    });
  }

  const StreamHandle stream = new_stream(device);
  OwnBatch batch{device};
};

}  // namespace pyecho::cuda

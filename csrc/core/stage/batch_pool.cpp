#include "core/stage/batch_pool.hpp"

#include <algorithm>
#include <exception>
#include <new>

namespace pyecho {

BatchPool::BatchPool(SlotLayout layout, std::uint32_t blocks, std::size_t max_bytes, const NewMemory& new_memory,
                     std::shared_ptr<Uploads> uploads)
    : layout_(std::move(layout)), max_bytes_(new_memory ? 0 : max_bytes), uploads_(std::move(uploads)), least_(blocks) {
  owned_.reserve(blocks);
  for (std::uint32_t block = 0; block < blocks; ++block) {
    Batch* const batch = add_block(new_memory);
    batch->next = free_;
    free_ = batch;
  }
}

Batch* BatchPool::add_block(const NewMemory& new_memory) {
  auto batch = std::make_unique<Batch>();
  batch->memory =
      new_memory ? new_memory(layout_.batch_bytes(), batch->upload) : HostMemory(layout_.batch_bytes(), placement_);
  batch->uses.resize(layout_.rows());
  batch->values.resize(layout_.has_ragged() ? layout_.leaves().size() : 0);
  batch->padded.resize(batch->values.size());
  batch->spent.reserve(layout_.rows());
  batch->place = owned_.size();
  owned_.push_back(std::move(batch));
  block_count_.store_release(owned_.size());
  return owned_.back().get();
}

Batch* BatchPool::refuse(const char* reason) {
  {
    const std::scoped_lock lock(refusal_mutex_);
    try {
      refusal_ = reason;
    } catch (const std::bad_alloc&) {
      refusal_ = "no memory";  // short enough to need none
    }
  }
  refused_.store_release(1);
  return nullptr;
}

Batch* BatchPool::obtain() {
  forget_refusal();
  most_leased_ = std::max(most_leased_, outstanding());
  if (Batch** const link = find_free(); link != nullptr) {
    Batch* const batch = *link;
    *link = batch->next;
    batch->rows = batch->copied = batch->fresh = 0;
    batch->whole = false;
    batch->spent.clear();
    for (std::size_t i = 0; i < batch->values.size(); ++i) {
      const SlotLayout::Leaf& leaf = layout_.leaves()[i];
      batch->values[i].clear();
      // With several free axes the rows of two items may be padded to much more than max_bytes counts.
      const std::size_t elements = leaf.pad.empty() ? 0 : leaf.variable.max_bytes / leaf.variable.element_bytes;
      batch->padded[i].rows.clear(times(times(elements, leaf.pad.size()), layout_.rows()));
    }
    return batch;
  }
  if ((owned_.size() + 1) * block_bytes(layout_, max_bytes_ != kUnlimited) <= max_bytes_) {
    try {
      return add_block({});
    } catch (const std::bad_alloc&) {
      return refuse("the system has no memory for another one");
    } catch (const std::exception& error) {
      return refuse(error.what());  // a limit of the system counts like max_bytes
    }
  }
  return refuse("");
}

// Returns the link to a block that may be filled, or null: to the one that came back last, which is the likeliest to be
// in the caches; with uploads to the first one whose copy is over.
Batch** BatchPool::find_free() noexcept {
  take_returned();
  Batch** link = &free_;
  while (*link != nullptr && uploads_ != nullptr && !uploads_->passed((*link)->upload)) {
    link = &(*link)->next;
  }
  return *link == nullptr ? nullptr : link;
}

// Taking the whole stack at once avoids the ABA problem.
void BatchPool::take_returned() noexcept {
  if (returned_.load_relaxed() == nullptr) {
    return;
  }
  Batch* returned = returned_.exchange_acq_rel(nullptr);  // [B2] pairs with [B1]
  Batch** end = uploads_ == nullptr ? &returned : &free_;
  while (*end != nullptr) {
    end = &(*end)->next;
  }
  *end = uploads_ == nullptr ? std::exchange(free_, returned) : returned;
}

void BatchPool::end_epoch() {
  const std::size_t keep = least_ + most_leased_;  // batches made ahead, and the leases
  if (owned_.size() > keep) {
    take_returned();
  }
  while (owned_.size() > keep && free_ != nullptr) {
    const std::size_t place = std::exchange(free_, free_->next)->place;
    owned_[place].swap(owned_.back());
    owned_[place]->place = place;
    owned_.pop_back();
    block_count_.store_release(owned_.size());
  }
  most_leased_ = outstanding();
}

std::string BatchPool::refusal() const {
  const std::scoped_lock lock(refusal_mutex_);
  return refusal_;
}

void BatchPool::give_back(Batch* batch, bool was_leased) {
  if (fork_guard_.forked()) {
    return;  // no thread fills batches here, and a thread that stayed in the parent may hold a lock
  }
  if (was_leased) {
    outstanding_.fetch_add_relaxed(static_cast<std::uint64_t>(-1));
  }
  Batch* top = returned_.load_relaxed();
  do {
    batch->next = top;
  } while (!returned_.try_replace_release(top, batch));  // [B1] pairs with [B2]
  returns_.advance();
}

}  // namespace pyecho

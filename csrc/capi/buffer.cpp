#include "capi/buffer.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <new>
#include <stdexcept>
#include <utility>

#include "capi/status.hpp"

namespace pyecho::capi {
namespace {

Deadline deadline_after(std::int64_t timeout_ns) {
  constexpr std::int64_t kForeverNs = std::int64_t{1} << 60;  // 36 years
  return timeout_ns < 0 || timeout_ns > kForeverNs ? kNever : Clock::now() + std::chrono::nanoseconds(timeout_ns);
}

}  // namespace

Leaf::Leaf(const char* leaf_name, const char* leaf_dtype, std::span<const std::int64_t> leaf_shape,
           std::size_t size_bytes, const VariableLeaf& varies)
    : name(leaf_name), dtype(leaf_dtype), shape(leaf_shape.begin(), leaf_shape.end()), variable(varies), view{} {
  view.struct_bytes = sizeof(pyecho_leaf);
  view.name = name.c_str();
  view.dtype = dtype.c_str();
  view.shape = shape.data();
  view.ndim = static_cast<std::uint32_t>(shape.size());
  view.size_bytes = size_bytes;
  view.max_bytes = variable.max_bytes;
}

Buffer::Buffer(Leaves leaves, EchoConfig config)
    : pyecho_buffer{&kApi},
      role_(Role::kWhole),
      leaves_(std::move(leaves)),
      config_(std::move(config)),
      core_(std::make_shared<EchoBuffer>(config_)) {
  settle();
}

Buffer::Buffer(Role role, Leaves leaves, std::shared_ptr<EchoBuffer> core, Waiter waiter)
    : pyecho_buffer{&kApi}, role_(role), leaves_(std::move(leaves)), core_(std::move(core)), waiter_(waiter) {
  settle();
}

Buffer::~Buffer() { magic_ = 0; }

// Takes over what depends on the core, which may be a new one.
void Buffer::settle() {
  for (std::size_t i = 0; i < leaves_.size(); ++i) {
    leaves_[i]->view.slot_offset = core_->layout().leaves()[i].slot_offset;
    leaves_[i]->view.batch_offset = core_->layout().leaves()[i].batch_offset;
    leaves_[i]->view.row_bytes = core_->layout().leaves()[i].row_bytes;
  }
  open_ = std::vector<Atomic<std::uint64_t>>(core_->input().slots());
}

// ---------------------------------------------------------------- producers

// Calls `attempt(deadline)` until it succeeds. A halted core ends attempts early, and is waited for.
template <class Attempt>
Outcome Buffer::wait(std::int64_t timeout_ns, bool& interrupted, const Attempt& attempt) {
  const WaitClock::Span waiting(waits_);
  const Deadline deadline = deadline_after(timeout_ns);
  const auto patient = [&](Deadline until) {
    Outcome outcome = attempt(until);
    while (outcome == Outcome::kHalted && Clock::now() < until) {
      core_->input().await_resumed(until);
      outcome = attempt(until);
    }
    return outcome == Outcome::kHalted ? Outcome::kTimeout : outcome;
  };
  if (waiter_ == nullptr) {
    return patient(deadline);
  }
  Outcome outcome = Outcome::kTimeout;
  interrupted = !waiter_(patient, deadline, outcome);
  return outcome;
}

Outcome Buffer::reserve(std::span<pyecho_slot> slots, std::int64_t timeout_ns, std::size_t& count, bool& interrupted) {
  std::array<Reservation, PYECHO_MAX_GROUP> found;  // NOLINT(cppcoreguidelines-pro-type-member-init): set below
  const auto wanted = std::span(found).first(std::min(slots.size(), found.size()));
  std::uint32_t reserved = 0;
  count = 0;
  if (closed_.load_acquire() != 0) {
    return Outcome::kClosed;
  }
  Outcome outcome = core_->input().try_reserve(wanted, reserved);
  if (outcome == Outcome::kFull) {
    if (timeout_ns == 0) {
      return Outcome::kTimeout;
    }
    outcome =
        wait(timeout_ns, interrupted, [&](Deadline until) { return core_->input().reserve(wanted, reserved, until); });
  }
  if (outcome != Outcome::kOk || interrupted) {
    return outcome;
  }
  for (; count < reserved; ++count) {
    const Reservation& each = found[count];
    open_[each.slot].store_relaxed(each.ticket + 1);
    slots[count] = {.data = data_of(each.slot), .ticket = each.ticket, .index = each.slot, .reserved = 0};
  }
  if (role_ == Role::kPass && closed_.fetch_add_acq_rel(0) != 0) {  // [P1] pairs with [P2]: slots of the next pass
    abort_open();
    count = 0;
    return Outcome::kClosed;
  }
  return Outcome::kOk;
}

// Ends what open_ says of a slot. Returns false if it says something else, or another thread is first.
bool Buffer::end_reservation(std::uint32_t slot, std::uint64_t expected) noexcept {
  std::uint64_t found = expected;
  while (expected != 0 && found == expected) {
    if (open_[slot].try_claim_relaxed(found, 0)) {
      return true;
    }
  }
  return false;
}

std::byte* Buffer::set_shape(const pyecho_slot& slot, std::size_t leaf, const std::int64_t* shape) {
  check_call(is_reserved(slot), "the slot is not reserved: it was committed or aborted before, or is another one's");
  check_argument(leaf < leaves_.size() && leaves_[leaf]->variable.axes > 0 && shape != nullptr,
                 "pyecho_set_shape() needs the index of a leaf that has -1 in its shape, and a shape");
  const Leaf& of_leaf = *leaves_[leaf];
  std::vector<std::uint64_t> extents;
  std::string shown;
  for (std::size_t axis = 0; axis < of_leaf.shape.size(); ++axis) {
    const std::int64_t extent = shape[axis];
    shown += (axis == 0 ? "" : ", ") + std::to_string(extent);
    if (extent < 0 || (of_leaf.shape[axis] != -1 && extent != of_leaf.shape[axis])) {
      throw std::invalid_argument("leaf " + std::to_string(leaf) + ": axis " + std::to_string(axis) + " is " +
                                  std::to_string(extent) + ", and the leaf has " + std::to_string(of_leaf.shape[axis]));
    }
    extents.push_back(static_cast<std::uint64_t>(extent));
  }
  const std::size_t size_bytes = bytes_of_array(of_leaf.variable.element_bytes, extents);
  if (size_bytes > of_leaf.variable.max_bytes) {
    throw std::invalid_argument("leaf " + std::to_string(leaf) + ": an example of shape (" + shown + ") has " +
                                std::to_string(size_bytes) + " bytes, and max_bytes is " +
                                std::to_string(of_leaf.variable.max_bytes));
  }
  if (const std::string refusal = refusal_of(of_leaf.variable, of_leaf.program.get(), extents); !refusal.empty()) {
    throw std::invalid_argument("leaf " + std::to_string(leaf) + ": " + refusal);
  }
  std::byte* const data = core_->allocate(slot.index, core_->layout().leaves()[leaf], extents);
  if (data == nullptr) {
    throw std::bad_alloc();
  }
  std::memset(data, 0, size_bytes);  // what a producer leaves out must not be what others have freed
  return data;
}

bool Buffer::is_shaped(std::uint32_t slot) const noexcept {
  const auto& leaves = core_->layout().leaves();
  return !core_->layout().has_variable() || std::ranges::none_of(leaves, [&](const SlotLayout::Leaf& leaf) {
    return leaf.variable.axes > 0 && core_->variable_item(slot, leaf).present == 0;
  });
}

std::size_t Buffer::take_back(std::span<const pyecho_slot> slots, std::span<Reservation> reservations) noexcept {
  std::size_t count = 0;
  for (const pyecho_slot& slot : slots) {
    if (slot.index >= open_.size() || slot.data != data_of(slot.index) ||
        !end_reservation(slot.index, slot.ticket + 1)) {
      break;
    }
    reservations[count++] = {.slot = slot.index, .ticket = slot.ticket};
  }
  return count;
}

Outcome Buffer::end_pass(std::int64_t timeout_ns, bool& interrupted) {
  Reservation place{};
  Outcome outcome = core_->input().reserve(place, Deadline::min());
  if (outcome == Outcome::kTimeout || outcome == Outcome::kHalted) {
    outcome = wait(timeout_ns, interrupted, [&](Deadline until) { return core_->input().reserve(place, until); });
  }
  if (outcome == Outcome::kOk && !interrupted) {
    core_->input().end_pass(place);
  }
  return outcome;
}

void Buffer::close() {
  if (role_ == Role::kPass) {
    closed_.fetch_or_acq_rel(1);  // [P2] pairs with [P1]
  } else {
    core_->input().close();
  }
}

std::size_t Buffer::open_slots() const noexcept {
  return static_cast<std::size_t>(
      std::ranges::count_if(open_, [](const auto& ticket) { return ticket.load_relaxed() != 0; }));
}

std::size_t Buffer::abort_open() noexcept {
  std::size_t aborted = 0;
  for (std::uint32_t slot = 0; slot < open_.size(); ++slot) {
    if (const std::uint64_t ticket = open_[slot].load_relaxed(); end_reservation(slot, ticket)) {
      core_->abort({.slot = slot, .ticket = ticket - 1});
      ++aborted;
    }
  }
  return aborted;
}

// ---------------------------------------------------------------- the consumer

Outcome Buffer::acquire(pyecho_batch& batch, std::int64_t timeout_ns) {
  {
    // First, since a batch that is taken needs a place.
    const std::scoped_lock lock(lease_mutex_);
    if (free_lease_ == 0) {
      leases_.emplace_back();
      free_lease_ = static_cast<std::uint32_t>(leases_.size());
    }
  }
  Lease lease;
  Outcome outcome = Outcome::kEmpty;
  const Deadline deadline = timeout_ns == 0 ? Deadline::min() : deadline_after(timeout_ns);
  do {
    lease.reset();
    outcome = core_->try_acquire(lease);
    if (outcome == Outcome::kEmpty) {
      outcome = timeout_ns == 0 ? Outcome::kTimeout : core_->acquire(lease, deadline);
    }
    if (outcome == Outcome::kOk) {
      ++batches_;
    }
  } while (outcome == Outcome::kOk && config_.drop_last && lease.rows() < config_.plan.batch_size);
  if (outcome == Outcome::kEnd) {
    batch.end = (batches_ == 0 ? PYECHO_END_EMPTY : 0) | (core_->at_end() ? PYECHO_END_LAST : 0);
    if (!core_->at_end()) {
      ++iterations_;
      batches_ = 0;
    }
  }
  if (outcome != Outcome::kOk) {
    return outcome;
  }
  batch.data = reinterpret_cast<unsigned char*>(lease.data());
  batch.rows = lease.rows();
  batch.source_index = nullptr;
  batch.use = nullptr;
  if (const SlotLayout& layout = lease.layout(); layout.with_info()) {
    batch.source_index = reinterpret_cast<const std::int64_t*>(lease.data() + layout.source_index_offset());
    batch.use = reinterpret_cast<const std::int32_t*>(lease.data() + layout.use_offset());
  }
  const std::scoped_lock lock(lease_mutex_);
  HeldLease& held = leases_[free_lease_ - 1];
  batch.id = (std::uint64_t{held.generation} << 32U) | free_lease_;
  held.lease = std::move(lease);
  free_lease_ = held.next_free;
  retain();
  return Outcome::kOk;
}

// Needs lease_mutex_. Null if there is no such lease.
Buffer::HeldLease* Buffer::lease_of(std::uint64_t id) noexcept {
  const std::uint64_t place = (id & 0xFFFFFFFFU) - 1;
  const bool found = place < leases_.size() && leases_[place].generation == id >> 32U && leases_[place].lease;
  return found ? &leases_[place] : nullptr;
}

bool Buffer::get_rows(std::uint64_t id, std::size_t leaf, const unsigned char*& data, const std::int64_t*& shapes) {
  const std::scoped_lock lock(lease_mutex_);
  HeldLease* const held = lease_of(id);
  if (held == nullptr) {
    return false;
  }
  data = reinterpret_cast<const unsigned char*>(held->lease.values(leaf).data());
  shapes = reinterpret_cast<const std::int64_t*>(held->lease.data() + core_->layout().leaves()[leaf].batch_offset);
  return true;
}

bool Buffer::release_lease(std::uint64_t id) {
  Lease ended;
  {
    const std::scoped_lock lock(lease_mutex_);
    HeldLease* const held = lease_of(id);
    if (held == nullptr) {
      return false;
    }
    ended = std::move(held->lease);
    ++held->generation;
    held->next_free = std::exchange(free_lease_, static_cast<std::uint32_t>(id & 0xFFFFFFFFU));
  }
  ended.reset();
  release();
  return true;
}

Outcome Buffer::begin(std::uint64_t epoch, std::uint64_t items) {
  const Outcome outcome = begin_epoch(*core_, epoch, {.items = items});
  if (outcome == Outcome::kOk) {
    iterations_ = batches_ = 0;
  }
  return outcome;
}

}  // namespace pyecho::capi

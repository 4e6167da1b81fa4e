// The functions of the C interface: they check their arguments and call the buffer. pyecho.h is their contract.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <utility>

#include "capi/buffer.hpp"
#include "capi/status.hpp"

namespace pyecho::capi {
namespace {

// Calls `body(buffer)` if that is a buffer.
template <class Body>
pyecho_status with_buffer(pyecho_buffer* handle, const Body& body) noexcept {
  return guarded([&] {
    Buffer* const buffer = Buffer::of(handle);
    check_argument(buffer != nullptr, "a buffer of pyecho_create() is needed, got NULL, or one that was freed");
    return body(*buffer);
  });
}

// Same, for a function of the consumer.
template <class Body>
pyecho_status as_consumer(pyecho_buffer* handle, const Body& body) noexcept {
  return with_buffer(handle, [&](Buffer& buffer) {
    check_call(!buffer.foreign(),
               "the buffer is one of Python's, which consumes it; only producers' functions may be called");
    if (buffer.core().input().forked()) {  // a thread that stayed in the parent may hold the lock
      return PYECHO_FORKED;
    }
    const std::unique_lock consumer(buffer.consumer(), std::try_to_lock);
    check_call(consumer.owns_lock(),
               "another thread is inside a function of the consumer; one thread at a time may consume");
    return status_of(body(buffer));
  });
}

void check_batch(const pyecho_batch* batch) {
  // Programs of the first version have batches of this size.
  constexpr std::size_t kLeastBytes = offsetof(pyecho_batch, id) + sizeof(pyecho_batch::id);
  check_argument(batch != nullptr, "a batch is needed, got NULL");
  check_size(batch->struct_bytes, kLeastBytes);
}

void check_settled(const Buffer& buffer) {
  check_call(buffer.open_slots() == 0, "slots are reserved; commit or abort them first");
  check_call(buffer.waiting() == 0,
             "a producer waits for a slot, and its examples would come into the run that begins; call pyecho_stop(), "
             "which ends its wait, and join it first");
}

// ---------------------------------------------------------------- any thread

pyecho_status create(const pyecho_config* config, pyecho_buffer** buffer) {
  if (buffer != nullptr) {
    *buffer = nullptr;
  }
  return guarded([&] {
    check_argument(config != nullptr && buffer != nullptr,
                   "pyecho_create() needs a config and the address of a handle, got NULL");
    const pyecho_config known = taken(config, offsetof(pyecho_config, factor));
    Leaves leaves = checked_leaves(known);
    EchoConfig core = core_config(known, leaves);
    *buffer = new Buffer(std::move(leaves), std::move(core));
  });
}

pyecho_status retain(pyecho_buffer* handle) {
  return with_buffer(handle, [](Buffer& buffer) { buffer.retain(); });
}

void release(pyecho_buffer* handle) {
  if (handle != nullptr) {
    static_cast<void>(with_buffer(handle, [](Buffer& buffer) { buffer.release(); }));
  }
}

pyecho_status get_layout(pyecho_buffer* handle, pyecho_layout* layout) {
  return with_buffer(handle, [&](Buffer& buffer) {
    const SlotLayout& core = buffer.core().layout();
    give(layout, {.struct_bytes = 0,
                  .leaf_count = buffer.leaves().size(),
                  .slot_bytes = core.slot_bytes(),
                  .batch_bytes = core.batch_bytes(),
                  .batch_size = core.rows(),
                  .slots = buffer.core().input().slots()});
  });
}

pyecho_status get_leaf(pyecho_buffer* handle, std::size_t index, pyecho_leaf* leaf) {
  return with_buffer(handle, [&](Buffer& buffer) {
    check_argument(index < buffer.leaves().size(),
                   "there is no leaf of this index; pyecho_get_layout() sets their number");
    give(leaf, buffer.leaves()[index]->view);
  });
}

pyecho_status get_stats(pyecho_buffer* handle, pyecho_stats* stats) {
  return with_buffer(handle, [&](Buffer& buffer) {
    const EchoStats core = buffer.core().stats();
    give(stats, {.struct_bytes = 0,
                 .fresh = core.read,
                 .emitted = core.emitted,
                 .batches = core.batches,
                 .bytes_gathered = core.bytes_gathered,
                 .consumer_wait_ns = core.consumer_wait_ns,
                 .downstream_ns = core.downstream_ns,
                 .producer_wait_ns = buffer.producer_wait_ns(),
                 .resident = core.resident,
                 .outstanding_batches = static_cast<std::uint32_t>(core.outstanding_leases)});
  });
}

// ---------------------------------------------------------------- producers

pyecho_status reserve(pyecho_buffer* handle, pyecho_slot* slots, std::size_t wanted, std::int64_t timeout_ns,
                      std::size_t* count) {
  return with_buffer(handle, [&](Buffer& buffer) {
    check_argument(slots != nullptr && wanted > 0 && wanted <= PYECHO_MAX_GROUP && (count != nullptr || wanted == 1),
                   "pyecho_reserve() needs an array of 1 to PYECHO_MAX_GROUP slots, and `count` for more than one");
    std::size_t reserved = 0;
    bool interrupted = false;
    const Outcome outcome = buffer.reserve(std::span(slots, wanted), timeout_ns, reserved, interrupted);
    if (count != nullptr) {
      *count = reserved;
    }
    return interrupted ? PYECHO_INTERRUPTED : status_of(outcome);
  });
}

pyecho_status set_shape(pyecho_buffer* handle, const pyecho_slot* slot, std::size_t leaf, const std::int64_t* shape,
                        unsigned char** data) {
  return with_buffer(handle, [&](Buffer& buffer) {
    check_argument(slot != nullptr && data != nullptr, "pyecho_set_shape() needs a slot and an address, got NULL");
    *data = reinterpret_cast<unsigned char*>(buffer.set_shape(*slot, leaf, shape));
  });
}

// Takes reservations back in groups, and does `act` with each group.
template <bool kCommit, class Act>
pyecho_status settle(pyecho_buffer* handle, const pyecho_slot* slots, std::size_t count, const Act& act) {
  return with_buffer(handle, [&](Buffer& buffer) {
    check_argument(slots != nullptr || count == 0, "the array of slots is NULL");
    for (const pyecho_slot& slot : std::span(slots, kCommit ? count : 0)) {
      check_call(!buffer.is_reserved(slot) || buffer.is_shaped(slot.index),
                 "a leaf of variable size of a slot has no shape; call pyecho_set_shape() before pyecho_commit()");
    }
    std::array<Reservation, PYECHO_MAX_GROUP> group;  // NOLINT(cppcoreguidelines-pro-type-member-init): set below
    for (std::size_t done = 0; done < count;) {
      const std::span<const pyecho_slot> next(slots + done, std::min(count - done, group.size()));
      const std::size_t found = buffer.take_back(next, group);
      if (found > 0) {
        act(buffer.core(), std::span<const Reservation>(group).first(found));
      }
      check_call(
          found == next.size(),
          "a slot is not reserved: it was committed or aborted before, was changed, or is one of another buffer; "
          "pass each slot of pyecho_reserve() back once, as it is");
      done += found;
    }
  });
}

pyecho_status commit(pyecho_buffer* handle, const pyecho_slot* slots, std::size_t count) {
  return settle<true>(handle, slots, count,
                      [](EchoBuffer& core, std::span<const Reservation> group) { core.input().commit(group); });
}

pyecho_status abort(pyecho_buffer* handle, const pyecho_slot* slots, std::size_t count) {
  return settle<false>(handle, slots, count, [](EchoBuffer& core, std::span<const Reservation> group) {
    for (const Reservation& each : group) {
      core.abort(each);
    }
  });
}

pyecho_status end_pass(pyecho_buffer* handle, std::int64_t timeout_ns) {
  return with_buffer(handle, [&](Buffer& buffer) {
    check_call(!buffer.foreign(), "the buffer is one of Python's, where pyecho marks the end of a pass");
    bool interrupted = false;
    const Outcome outcome = buffer.end_pass(timeout_ns, interrupted);
    return interrupted ? PYECHO_INTERRUPTED : status_of(outcome);
  });
}

pyecho_status close(pyecho_buffer* handle) {
  return with_buffer(handle, [](Buffer& buffer) { buffer.close(); });
}

pyecho_status fail(pyecho_buffer* handle, const char* message) {
  return with_buffer(handle, [&](Buffer& buffer) {
    check_argument(message != nullptr, "pyecho_fail() needs a message, got NULL");
    buffer.core().fail(message);
  });
}

pyecho_status stop(pyecho_buffer* handle) {
  return with_buffer(handle, [](Buffer& buffer) { buffer.core().stop(); });
}

// ---------------------------------------------------------------- the consumer

pyecho_status acquire(pyecho_buffer* handle, pyecho_batch* batch, std::int64_t timeout_ns) {
  return as_consumer(handle, [&](Buffer& buffer) {
    check_batch(batch);
    check_call(batch->id == 0, "`batch` holds a batch; release it first, or pass another one");
    pyecho_batch acquired{};
    const Outcome outcome = buffer.acquire(acquired, timeout_ns);
    if (outcome == Outcome::kOk || outcome == Outcome::kEnd) {
      give(batch, acquired);
    }
    if (outcome == Outcome::kEnd && buffer.core().at_end()) {
      if (const auto failure = buffer.core().take_failure()) {
        return set_error(PYECHO_FAILED, failure->c_str());
      }
    }
    return status_of(outcome);
  });
}

pyecho_status get_rows(pyecho_buffer* handle, const pyecho_batch* batch, std::size_t leaf, const unsigned char** data,
                       const std::int64_t** shapes) {
  return with_buffer(handle, [&](Buffer& buffer) {
    check_batch(batch);
    check_argument(data != nullptr && shapes != nullptr && leaf < buffer.leaves().size() &&
                       buffer.core().layout().leaves()[leaf].ragged,
                   "pyecho_get_rows() needs the index of a leaf whose rows differ in size, and two addresses");
    if (buffer.core().input().forked()) {
      return Outcome::kForked;
    }
    check_call(buffer.get_rows(batch->id, leaf, *data, *shapes),
               "no such batch: it was released, or none was acquired");
    return Outcome::kOk;
  });
}

pyecho_status release_batch(pyecho_buffer* handle, pyecho_batch* batch) {
  return with_buffer(handle, [&](Buffer& buffer) {
    check_batch(batch);
    if (buffer.core().input().forked()) {
      return Outcome::kForked;
    }
    check_call(buffer.release_lease(batch->id), "no such batch: it was released before, or none was acquired");
    give(batch, {});
    return Outcome::kOk;
  });
}

pyecho_status begin(pyecho_buffer* handle, std::uint64_t epoch, std::uint64_t items) {
  return as_consumer(handle, [&](Buffer& buffer) {
    check_settled(buffer);
    return buffer.begin(epoch, items == PYECHO_UNKNOWN ? kUnknown : items);
  });
}

pyecho_status save(pyecho_buffer* handle, unsigned char** state, std::size_t* size_bytes, std::uint64_t* taken_items) {
  if (state != nullptr) {
    *state = nullptr;
  }
  return as_consumer(handle, [&](Buffer& buffer) {
    check_argument(state != nullptr && size_bytes != nullptr,
                   "pyecho_save() needs addresses for the state and its size, got NULL");
    if (buffer.core().input().stopped()) {
      return PYECHO_CLOSED;
    }
    if (buffer.core().failed()) {
      return set_error(PYECHO_FAILED, "the producer has failed, which no state can repeat; go on from an earlier one");
    }
    std::uint64_t items = 0;
    *state = buffer.save(*size_bytes, items);
    if (taken_items != nullptr) {
      *taken_items = items;
    }
    return PYECHO_OK;
  });
}

pyecho_status load(pyecho_buffer* handle, const unsigned char* state, std::size_t size_bytes,
                   std::uint64_t* taken_items) {
  return as_consumer(handle, [&](Buffer& buffer) {
    check_argument(state != nullptr, "pyecho_load() needs a state, got NULL");
    check_settled(buffer);
    std::uint64_t items = 0;
    buffer.load(std::span(reinterpret_cast<const std::byte*>(state), size_bytes), items);
    if (taken_items != nullptr) {
      *taken_items = items;
    }
    return Outcome::kOk;
  });
}

// ---------------------------------------------------------------- without a buffer

void free(unsigned char* state) { std::free(state); }

const char* library_version() { return PYECHO_VERSION; }

}  // namespace

const pyecho_api kApi = {.struct_bytes = sizeof(pyecho_api),
                         .version = PYECHO_ABI_VERSION,
                         .reserved = 0,
// NOLINTBEGIN(bugprone-macro-parentheses): names
#define PYECHO_CALL(name, parameters, arguments) .name = name,
#define PYECHO_OTHER(result, name, parameters) .name = name,
                         PYECHO_FUNCTIONS(PYECHO_CALL, PYECHO_OTHER)};
// NOLINTEND(bugprone-macro-parentheses)

}  // namespace pyecho::capi

// The functions of the C interface: checks of arguments, and exceptions turned into codes. pyecho.h is their contract.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <limits>
#include <new>
#include <string>
#include <system_error>
#include <utility>

#include "capi/buffer.hpp"

namespace pyecho::capi {
namespace {

thread_local std::string last_error;

// ---------------------------------------------------------------- results

pyecho_status invalid(const char* message) noexcept { return set_error(PYECHO_INVALID, message); }
pyecho_status misuse(const char* message) noexcept { return set_error(PYECHO_MISUSE, message); }

// Calls `body`, which returns a status, and turns what it throws into one.
template <class Body>
pyecho_status guarded(const Body& body) noexcept {
  try {
    return body();
  } catch (const BadState& error) {
    return set_error(PYECHO_BAD_STATE, error.what());
  } catch (const std::bad_alloc&) {
    return set_error(PYECHO_NO_MEMORY, "the system has no more memory; lower capacity, batch_rows or prefetch");
  } catch (const std::invalid_argument& error) {
    return set_error(PYECHO_INVALID, error.what());
  } catch (const std::length_error& error) {
    return set_error(PYECHO_INVALID, error.what());
  } catch (const std::logic_error& error) {
    return set_error(PYECHO_MISUSE, error.what());
  } catch (const std::system_error& error) {
    return set_error(PYECHO_SYSTEM, error.what());
  } catch (const std::exception& error) {
    return set_error(PYECHO_SYSTEM, error.what());
  } catch (...) {
    return set_error(PYECHO_SYSTEM, "an exception of an unknown type was thrown");
  }
}

// Calls `body(buffer)` if that is a buffer.
template <class Body>
pyecho_status with_buffer(pyecho_buffer* handle, const Body& body) noexcept {
  Buffer* const buffer = Buffer::of(handle);
  if (buffer == nullptr) {
    return invalid("no buffer: the handle is NULL, or that of a buffer that was freed");
  }
  return guarded([&] { return body(*buffer); });
}

// Same, for a function of the consumer.
template <class Body>
pyecho_status as_consumer(pyecho_buffer* handle, const Body& body) noexcept {
  return with_buffer(handle, [&](Buffer& buffer) {
    if (buffer.foreign()) {
      return misuse("the buffer is one of Python's, which consumes it; only producers' functions may be called");
    }
    const Buffer::Consuming consuming(buffer);
    if (!consuming) {
      return misuse("another thread is inside a function of the consumer; one thread at a time may consume");
    }
    return body(buffer);
  });
}

pyecho_status status_of(Outcome outcome) noexcept {
  switch (outcome) {
    case Outcome::kOk:
      return PYECHO_OK;
    case Outcome::kEnd:
      return PYECHO_END;
    case Outcome::kFull:
    case Outcome::kEmpty:
    case Outcome::kTimeout:
      return PYECHO_TIMEOUT;
    case Outcome::kClosed:
      return PYECHO_CLOSED;
    case Outcome::kExhausted:
      return set_error(PYECHO_EXHAUSTED,
                       "the consumer holds every batch that max_bytes, or the system, allows; release some");
    case Outcome::kForked:
      return set_error(PYECHO_FORKED,
                       "the buffer was made before fork() and its threads stayed in the parent process; make a new one "
                       "in the child");
  }
  return PYECHO_SYSTEM;
}

// Copies a struct that begins with its size as far as the caller knows it. False if the size cannot be one.
template <class Struct>
bool give(Struct* to, Struct from) noexcept {
  const std::size_t known = to->struct_bytes;
  if (known < sizeof(std::size_t)) {
    return false;
  }
  from.struct_bytes = known;
  std::memcpy(to, &from, std::min(known, sizeof(Struct)));
  return true;
}

// Returns such a struct of the caller's; members that it does not know are 0.
template <class Struct>
Struct taken(const Struct* from) noexcept {
  Struct copy{};
  std::memcpy(&copy, from, std::min(from->struct_bytes, sizeof(Struct)));
  return copy;
}

// Programs of the first version have batches of this size.
constexpr std::size_t kLeastBatchBytes = offsetof(pyecho_batch, id) + sizeof(pyecho_batch::id);

constexpr const char* kNoSize = "struct_bytes is not the size of the struct; begin with its macro ..._INIT";

// ---------------------------------------------------------------- configuration

// Returns the bytes of an element of such a dtype, 0 if it is none: the byte order, a letter for the kind, the size.
std::size_t element_bytes(const char* dtype) noexcept {
  const char* const kind = std::strchr("<>|=", *dtype) == nullptr ? dtype : dtype + 1;  // the order may be left out
  if (*dtype == '\0' || *kind == '\0' || std::strchr("tbiufcmMSUV", *kind) == nullptr || std::strlen(dtype) > 32) {
    return 0;
  }
  const char* const digits = kind + 1;
  if (*digits < '0' || *digits > '9') {  // "float32" would else have 32 bytes
    return 0;
  }
  char* end = nullptr;
  const std::uint64_t count = std::strtoull(digits, &end, 10);
  if ((*end != '\0' && *end != '[') || count > std::numeric_limits<std::uint32_t>::max()) {
    return 0;
  }
  return *kind == 'U' ? count * 4 : count;  // NumPy counts characters of unicode
}

std::unique_ptr<Leaf> checked_leaf(const pyecho_leaf& leaf, std::size_t index) {
  const std::string where = "leaf " + std::to_string(index);
  if (leaf.dtype == nullptr || element_bytes(leaf.dtype) == 0) {
    throw std::invalid_argument(where + " needs a dtype as in NumPy's array interface, such as \"<f4\", got " +
                                (leaf.dtype == nullptr ? "NULL" : std::string("\"").append(leaf.dtype) + "\""));
  }
  if (leaf.ndim > 64 || (leaf.ndim > 0 && leaf.shape == nullptr)) {
    throw std::invalid_argument(where + " needs a shape of at most 64 axes");
  }
  const std::span<const std::int64_t> shape(leaf.shape, leaf.ndim);
  std::size_t size_bytes = element_bytes(leaf.dtype);
  for (const std::int64_t axis : shape) {
    if (axis < 0 ||
        (axis > 0 && size_bytes > std::numeric_limits<std::size_t>::max() / static_cast<std::size_t>(axis))) {
      throw std::invalid_argument(where + " has a shape that cannot be");
    }
    size_bytes *= static_cast<std::size_t>(axis);
  }
  return std::make_unique<Leaf>(leaf.name == nullptr ? "" : leaf.name, leaf.dtype, shape, size_bytes);
}

Leaves leaves_of(const pyecho_config& config) {
  if (config.leaf_count == 0 || config.leaves == nullptr) {
    throw std::invalid_argument("an example needs at least one leaf, got none");
  }
  const std::size_t stride = config.leaves[0].struct_bytes;
  if (stride < offsetof(pyecho_leaf, size_bytes)) {
    throw std::invalid_argument(std::string("leaf 0: ") + kNoSize);
  }
  Leaves leaves;
  for (std::size_t i = 0; i < config.leaf_count; ++i) {
    const auto* const address = reinterpret_cast<const unsigned char*>(config.leaves) + i * stride;
    const auto* const leaf = reinterpret_cast<const pyecho_leaf*>(address);
    if (leaf->struct_bytes != stride) {
      throw std::invalid_argument("leaf " + std::to_string(i) + ": " + kNoSize);
    }
    leaves.push_back(checked_leaf(taken(leaf), i));
  }
  return leaves;
}

EchoBufferConfig core_config(const pyecho_config& config, const Leaves& leaves) {
  const auto or_default = [](auto value, auto otherwise) { return value == 0 ? otherwise : value; };
  EchoBufferConfig core;
  for (const auto& leaf : leaves) {
    core.leaf_bytes.push_back(leaf->view.size_bytes);
  }
  core.batch_rows = config.batch_rows;
  core.capacity = or_default(config.capacity, 1U);
  core.factor = config.factor == 0.0 ? 2.0 : config.factor;
  core.seed = config.seed;
  core.epoch = config.epoch;
  core.items = config.items == PYECHO_UNKNOWN ? kUnknown : config.items;
  core.steps = config.steps;
  core.unique_in_batch = config.unique_in_batch != 0;
  core.drop_last = config.drop_last != 0;
  core.with_info = config.with_info != 0;
  core.prefetch = or_default(config.prefetch, 2U);
  core.threads = config.threads;
  core.burst = or_default(config.burst, 1U);
  core.held = or_default(config.held, 2U);
  core.max_bytes = config.max_bytes == 0 ? kUnlimited : config.max_bytes;
  core.min_uses = config.min_uses;
  core.max_age = config.max_age;
  if (!(core.factor >= 1.0) || static_cast<double>(core.capacity) * std::ceil(core.factor) >= 0x1.0p32 - 1) {
    throw std::invalid_argument("factor is at least 1, and capacity times factor stays below 2^32 - 1");
  }
  if (core.min_uses > 0 &&
      (core.factor != std::floor(core.factor) || core.min_uses > core.factor || core.capacity < core.batch_rows)) {
    throw std::invalid_argument(
        "an adaptive factor needs a whole `factor` of at least min_uses, and a capacity of at least batch_rows");
  }
  if (core.threads > 256) {
    throw std::invalid_argument("threads is at most 256");
  }
  return core;
}

// ---------------------------------------------------------------- the functions

pyecho_status create(const pyecho_config* config, pyecho_buffer** buffer) {
  if (buffer != nullptr) {
    *buffer = nullptr;
  }
  if (config == nullptr || buffer == nullptr) {
    return invalid("pyecho_create() needs a config and the address of a handle, got NULL");
  }
  if (config->struct_bytes < offsetof(pyecho_config, factor)) {
    return invalid(kNoSize);
  }
  return guarded([&] {
    const pyecho_config known = taken(config);
    Leaves leaves = leaves_of(known);
    EchoBufferConfig core = core_config(known, leaves);
    *buffer = new Buffer(std::move(leaves), std::move(core));
    return PYECHO_OK;
  });
}

pyecho_status retain(pyecho_buffer* handle) {
  return with_buffer(handle, [](Buffer& buffer) {
    buffer.retain();
    return PYECHO_OK;
  });
}

void release(pyecho_buffer* handle) {
  if (handle != nullptr) {
    static_cast<void>(with_buffer(handle, [](Buffer& buffer) {
      buffer.release();
      return PYECHO_OK;
    }));
  }
}

pyecho_status get_layout(pyecho_buffer* handle, pyecho_layout* layout) {
  return with_buffer(handle, [&](Buffer& buffer) {
    const SlotLayout& core = buffer.core().layout();
    if (layout == nullptr || !give(layout, {.struct_bytes = 0,
                                            .leaf_count = buffer.leaves().size(),
                                            .slot_bytes = core.slot_bytes(),
                                            .batch_bytes = core.batch_bytes(),
                                            .batch_rows = core.rows(),
                                            .slots = buffer.core().slots()})) {
      return invalid(kNoSize);
    }
    return PYECHO_OK;
  });
}

pyecho_status get_leaf(pyecho_buffer* handle, std::size_t index, pyecho_leaf* leaf) {
  return with_buffer(handle, [&](Buffer& buffer) {
    if (index >= buffer.leaves().size()) {
      return invalid("there is no leaf of this index; pyecho_get_layout() sets their number");
    }
    return leaf != nullptr && give(leaf, buffer.leaves()[index]->view) ? PYECHO_OK : invalid(kNoSize);
  });
}

pyecho_status get_stats(pyecho_buffer* handle, pyecho_stats* stats) {
  return with_buffer(handle, [&](Buffer& buffer) {
    const EchoBufferStats core = buffer.core().stats();
    if (stats == nullptr ||
        !give(stats, {.struct_bytes = 0,
                      .fresh = core.fresh,
                      .emitted = core.emitted,
                      .batches = core.batches,
                      .bytes_gathered = core.bytes_gathered,
                      .consumer_wait_ns = core.consumer_wait_ns,
                      .downstream_ns = core.downstream_ns,
                      .producer_wait_ns = buffer.producer_wait_ns(),
                      .resident = core.resident,
                      .outstanding_batches = static_cast<std::uint32_t>(core.outstanding_leases)})) {
      return invalid(kNoSize);
    }
    return PYECHO_OK;
  });
}

pyecho_status reserve(pyecho_buffer* handle, pyecho_slot* slots, std::size_t wanted, std::int64_t timeout_ns,
                      std::size_t* count) {
  return with_buffer(handle, [&](Buffer& buffer) {
    if (slots == nullptr || wanted == 0 || wanted > PYECHO_MAX_GROUP || (count == nullptr && wanted > 1)) {
      return invalid("pyecho_reserve() needs an array of 1 to PYECHO_MAX_GROUP slots, and `count` for more than one");
    }
    std::size_t reserved = 0;
    bool interrupted = false;
    const Outcome outcome = buffer.reserve(std::span(slots, wanted), timeout_ns, reserved, interrupted);
    if (count != nullptr) {
      *count = reserved;
    }
    return interrupted ? PYECHO_INTERRUPTED : status_of(outcome);
  });
}

// Takes reservations back in groups, and does `act` with each group.
template <class Act>
pyecho_status settle(pyecho_buffer* handle, const pyecho_slot* slots, std::size_t count, const Act& act) {
  return with_buffer(handle, [&](Buffer& buffer) {
    if (slots == nullptr && count > 0) {
      return invalid("the array of slots is NULL");
    }
    std::array<Reservation, PYECHO_MAX_GROUP> group;  // NOLINT(cppcoreguidelines-pro-type-member-init): set below
    for (std::size_t done = 0; done < count;) {
      const std::span<const pyecho_slot> next(slots + done, std::min(count - done, group.size()));
      const std::size_t found = buffer.take_back(next, group);
      if (found > 0) {
        act(buffer.core(), std::span<const Reservation>(group).first(found));
      }
      if (found < next.size()) {
        return misuse("a slot is not reserved: it was committed or aborted before, or comes from elsewhere");
      }
      done += found;
    }
    return PYECHO_OK;
  });
}

pyecho_status commit(pyecho_buffer* handle, const pyecho_slot* slots, std::size_t count) {
  return settle(handle, slots, count, [](EchoBuffer& core, std::span<const Reservation> group) { core.commit(group); });
}

pyecho_status abort(pyecho_buffer* handle, const pyecho_slot* slots, std::size_t count) {
  return settle(handle, slots, count, [](EchoBuffer& core, std::span<const Reservation> group) {
    for (const Reservation& each : group) {
      core.abort(each);
    }
  });
}

pyecho_status end_pass(pyecho_buffer* handle, std::int64_t timeout_ns) {
  return with_buffer(handle, [&](Buffer& buffer) {
    if (buffer.foreign()) {
      return misuse("the buffer is one of Python's, where pyecho marks the end of a pass");
    }
    bool interrupted = false;
    const Outcome outcome = buffer.end_pass(timeout_ns, interrupted);
    return interrupted ? PYECHO_INTERRUPTED : status_of(outcome);
  });
}

pyecho_status close(pyecho_buffer* handle) {
  return with_buffer(handle, [](Buffer& buffer) {
    buffer.close();
    return PYECHO_OK;
  });
}

pyecho_status fail(pyecho_buffer* handle, const char* message) {
  return with_buffer(handle, [&](Buffer& buffer) {
    if (message == nullptr) {
      return invalid("pyecho_fail() needs a message, got NULL");
    }
    buffer.core().fail(message);
    return PYECHO_OK;
  });
}

pyecho_status stop(pyecho_buffer* handle) {
  return with_buffer(handle, [](Buffer& buffer) {
    buffer.core().stop();
    return PYECHO_OK;
  });
}

pyecho_status acquire(pyecho_buffer* handle, pyecho_batch* batch, std::int64_t timeout_ns) {
  return as_consumer(handle, [&](Buffer& buffer) {
    if (batch == nullptr || batch->struct_bytes < kLeastBatchBytes) {
      return invalid(kNoSize);
    }
    if (batch->id != 0) {
      return misuse("`batch` holds a batch; release it first, or pass another one");
    }
    pyecho_batch acquired{};
    const Outcome outcome = buffer.acquire(acquired, timeout_ns);
    if (outcome == Outcome::kOk) {
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

pyecho_status release_batch(pyecho_buffer* handle, pyecho_batch* batch) {
  return with_buffer(handle, [&](Buffer& buffer) {
    if (batch == nullptr || batch->struct_bytes < kLeastBatchBytes) {
      return invalid(kNoSize);
    }
    if (buffer.core().forked()) {
      return status_of(Outcome::kForked);
    }
    if (!buffer.release_lease(batch->id)) {
      return misuse("no such batch: it was released before, or none was acquired");
    }
    give(batch, pyecho_batch{});
    return PYECHO_OK;
  });
}

pyecho_status begin(pyecho_buffer* handle, std::uint64_t epoch, std::uint64_t items) {
  return as_consumer(handle, [&](Buffer& buffer) {
    if (buffer.open_slots() > 0) {
      return misuse("slots are reserved; commit or abort them before the next epoch begins");
    }
    return status_of(buffer.begin(epoch, items == PYECHO_UNKNOWN ? kUnknown : items));
  });
}

pyecho_status save(pyecho_buffer* handle, unsigned char** state, std::size_t* size_bytes, std::uint64_t* taken_items) {
  if (state != nullptr) {
    *state = nullptr;
  }
  if (state == nullptr || size_bytes == nullptr) {
    return invalid("pyecho_save() needs addresses for the state and its size, got NULL");
  }
  return as_consumer(handle, [&](Buffer& buffer) {
    if (buffer.core().forked()) {
      return status_of(Outcome::kForked);
    }
    if (buffer.core().stopped()) {
      return status_of(Outcome::kClosed);
    }
    if (buffer.core().failed()) {
      return set_error(PYECHO_FAILED, "the producer has failed, which no state can repeat; go on from an earlier one");
    }
    if (buffer.open_slots() > 0) {
      return misuse("slots are reserved; commit or abort them before a state is taken");
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
    if (state == nullptr) {
      return invalid("pyecho_load() needs a state, got NULL");
    }
    if (buffer.core().forked()) {
      return status_of(Outcome::kForked);
    }
    if (buffer.open_slots() > 0) {
      return misuse("slots are reserved; commit or abort them before a state is loaded");
    }
    std::uint64_t items = 0;
    try {
      buffer.load(std::span(reinterpret_cast<const std::byte*>(state), size_bytes), items);
    } catch (const BadState&) {
      buffer.core().stop();
      throw;
    }
    if (taken_items != nullptr) {
      *taken_items = items;
    }
    return PYECHO_OK;
  });
}

void free_state(unsigned char* state) { std::free(state); }

const char* status_string(pyecho_status status) {
  switch (status) {
    case PYECHO_OK:
      return "PYECHO_OK: done";
    case PYECHO_END:
      return "PYECHO_END: the end of an iteration";
    case PYECHO_TIMEOUT:
      return "PYECHO_TIMEOUT: the time was up first";
    case PYECHO_CLOSED:
      return "PYECHO_CLOSED: no more input is accepted, or the buffer was stopped";
    case PYECHO_EXHAUSTED:
      return "PYECHO_EXHAUSTED: the consumer holds every batch that max_bytes allows";
    case PYECHO_FORKED:
      return "PYECHO_FORKED: the buffer belongs to the process that this one was forked from";
    case PYECHO_FAILED:
      return "PYECHO_FAILED: the producer has failed";
    case PYECHO_INVALID:
      return "PYECHO_INVALID: an argument is wrong";
    case PYECHO_MISUSE:
      return "PYECHO_MISUSE: a call out of place";
    case PYECHO_NO_MEMORY:
      return "PYECHO_NO_MEMORY: the system has no more memory";
    case PYECHO_BAD_STATE:
      return "PYECHO_BAD_STATE: the saved state is damaged, or belongs to another configuration";
    case PYECHO_INTERRUPTED:
      return "PYECHO_INTERRUPTED: a signal handler of Python's has raised";
    case PYECHO_SYSTEM:
      return "PYECHO_SYSTEM: the system refused something";
    case PYECHO_STATUS_BITS:
      break;
  }
  return "a status of another version of pyecho";
}

const char* get_last_error() { return last_error.c_str(); }

const char* library_version() { return PYECHO_VERSION; }

}  // namespace

pyecho_status set_error(pyecho_status status, const char* message) noexcept {
  try {
    last_error = message;
  } catch (...) {  // no memory for the message
    last_error.clear();
  }
  return status;
}

const pyecho_api kApi = {.struct_bytes = sizeof(pyecho_api),
                         .version = PYECHO_ABI_VERSION,
                         .reserved = 0,
                         .create = create,
                         .retain = retain,
                         .release = release,
                         .get_layout = get_layout,
                         .get_leaf = get_leaf,
                         .get_stats = get_stats,
                         .reserve = reserve,
                         .commit = commit,
                         .abort = abort,
                         .end_pass = end_pass,
                         .close = close,
                         .fail = fail,
                         .stop = stop,
                         .acquire = acquire,
                         .release_batch = release_batch,
                         .begin = begin,
                         .save = save,
                         .load = load,
                         .free = free_state,
                         .status_string = status_string,
                         .last_error = get_last_error,
                         .library_version = library_version};

}  // namespace pyecho::capi

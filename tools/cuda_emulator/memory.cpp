// Device memory, pinned memory, and copies between them.
#include <cstdlib>
#include <cstring>
#include <list>

#include "emulator.hpp"

namespace emulator {

namespace {

constexpr size_t kPage = 4096;
constexpr size_t kDeviceAlignment = 512;
constexpr int kFresh = 0xA5, kFreed = 0xDD;

// Host memory that a copy still reads or writes.
struct Range {
  uintptr_t begin, end;
};
auto& in_use = *new std::list<Range>;  // never destroyed

uintptr_t address(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer); }
size_t rounded(size_t size, size_t unit) { return (size + unit - 1) / unit * unit; }

uint64_t hash(const void* data, size_t size) {
  const auto* bytes = static_cast<const unsigned char*>(data);
  uint64_t state = size;
  for (; size > 0; bytes += 8, size -= std::min<size_t>(size, 8)) {
    uint64_t word = 0;
    std::memcpy(&word, bytes, std::min<size_t>(size, 8));
    state = (state ^ word) * 0x9E3779B97F4A7C15;
    state ^= state >> 32;
  }
  return state;
}

void insert(uintptr_t begin, Block block) {
  static uint64_t last_id = 0;
  block.id = ++last_id;
  machine().blocks[begin] = block;
}

std::map<uintptr_t, Block>::iterator find(uintptr_t begin, Place place, bool registered, int code) {
  auto found = machine().blocks.find(begin);
  if (found == machine().blocks.end() || found->second.place != place || found->second.registered != registered)
    throw Failure{code};
  return found;
}

bool is_in_use(uintptr_t begin, uintptr_t end) {
  for (const Range& range : in_use) {
    if (range.begin < end && begin < range.end) return true;
  }
  return false;
}

// Takes pinned memory away, after the copies that use it: their program should have waited.
void remove_pinned(Lock& lock, std::map<uintptr_t, Block>::iterator found, const char* how) {
  Machine& m = machine();
  const uintptr_t begin = found->first, end = begin + found->second.size;
  if (is_in_use(begin, end)) {
    violation(std::string("pinned memory was ") + how + " before a copy that uses it had run");
    m.changed.wait(lock, [&] { return !is_in_use(begin, end); });
  }
  m.counts.pinned_bytes -= static_cast<int64_t>(end - begin);
  m.blocks.erase(begin);
}

void count_pinned(size_t size) {
  Machine& m = machine();
  if (m.counts.pinned_bytes + static_cast<int64_t>(size) > m.settings.pinned_limit) throw Failure{kOutOfMemory};
  m.counts.pinned_bytes += static_cast<int64_t>(size);
}

// Where a range lies; all of it must. Registrations that follow each other are one range.
Place place_of(const void* pointer, size_t size) {
  const Block* block = block_of(pointer);
  if (!block) return Place::kPageable;
  const Place place = block->place;
  uintptr_t at = address(pointer);
  const uintptr_t end = at + size;
  while (at < end) {
    auto next = machine().blocks.upper_bound(at);
    const auto& [begin, part] = *std::prev(next);
    if (begin + part.size >= end) return place;
    at = begin + part.size;
    const bool goes_on = next != machine().blocks.end() && next->first == at && next->second.place == place;
    if (place == Place::kDevice || !goes_on) {
      violation("a copy goes past the end of its allocation");
      throw Failure{kInvalidValue};
    }
  }
  return place;
}

void check_direction(Place to, Place from, Direction direction) {
  const bool to_device = to == Place::kDevice, from_device = from == Place::kDevice;
  const int actual = (from_device ? 2 : 0) + (to_device ? 1 : 0);
  if (direction != Direction::kAny && static_cast<int>(direction) != actual) throw Failure{kInvalidValue};
}

// A step of a graph, which may be launched after its memory has gone.
std::function<void()> captured_copy(void* to, const void* from, size_t size) {
  auto id_of = [](const void* pointer) {
    const Block* block = block_of(pointer);
    return block ? block->id : 0;
  };
  return [=, to_id = id_of(to), from_id = id_of(from)] {
    {
      Lock lock(machine().mutex);
      if (id_of(to) != to_id || id_of(from) != from_id) return violation("a graph copies memory that has been freed");
    }
    std::memcpy(to, from, size);
  };
}

}  // namespace

const Block* block_of(const void* pointer) {
  const auto& blocks = machine().blocks;
  auto next = blocks.upper_bound(address(pointer));
  if (next == blocks.begin()) return nullptr;
  const auto& [begin, block] = *std::prev(next);
  return address(pointer) < begin + block.size ? &block : nullptr;
}

void* allocate_device(size_t size, int device) {
  check_unsafe();
  Machine& m = machine();
  size = rounded(std::max<size_t>(size, 1), kDeviceAlignment);
  int64_t& used = m.devices[device].used_bytes;
  void* memory = nullptr;
  if (used + static_cast<int64_t>(size) <= m.settings.device_limit) memory = std::aligned_alloc(kDeviceAlignment, size);
  if (!memory) throw Failure{kOutOfMemory};
  std::memset(memory, kFresh, size);
  used += static_cast<int64_t>(size);
  insert(address(memory), {size, Place::kDevice, device});
  return memory;
}

// CUDA waits for the device. Here the memory waits: a caller may hold Python's lock, which kernels need.
void free_device(void* pointer, Stream* stream) {
  check_unsafe();
  Machine& m = machine();
  const Block block = find(address(pointer), Place::kDevice, false, kInvalidValue)->second;
  show_running_failure();
  m.blocks.erase(address(pointer));
  Device& device = m.devices[block.device];
  device.used_bytes -= static_cast<int64_t>(block.size);
  auto release = [pointer, size = block.size] {
    std::memset(pointer, kFreed, size);
    std::free(pointer);
  };
  if (stream) return issue(*stream, Kind::kMark, release);
  issue(*device.freeing, Kind::kMark, release,
        points([&](const Stream& other) { return other.device == block.device; }));
}

void* allocate_pinned(size_t size) {
  check_unsafe();
  size = rounded(std::max<size_t>(size, 1), kPage);
  count_pinned(size);
  void* memory = std::aligned_alloc(kPage, size);
  std::memset(memory, kFresh, size);
  insert(address(memory), {size, Place::kPinned});
  return memory;
}

void free_pinned(Lock& lock, void* pointer) {
  check_unsafe();
  remove_pinned(lock, find(address(pointer), Place::kPinned, false, kInvalidValue), "freed");
  std::free(pointer);
}

void register_host(void* pointer, size_t size) {
  check_unsafe();
  if (!pointer || size == 0) throw Failure{kInvalidValue};
  const uintptr_t begin = address(pointer) / kPage * kPage;
  const uintptr_t end = rounded(address(pointer) + size, kPage);
  auto next = machine().blocks.lower_bound(end);
  if (next != machine().blocks.begin()) {
    const auto& [other, block] = *std::prev(next);
    if (other + block.size > begin) throw Failure{kAlreadyRegistered};
  }
  count_pinned(end - begin);
  insert(begin, {end - begin, Place::kPinned, 0, true});
}

void unregister_host(Lock& lock, void* pointer) {
  check_unsafe();
  remove_pinned(lock, find(address(pointer) / kPage * kPage, Place::kPinned, true, kNotRegistered), "unregistered");
}

void copy(Lock& lock, Stream& stream, void* to, const void* from, size_t size, Direction direction) {
  if (size == 0) return;
  const Place target = place_of(to, size), source = place_of(from, size);
  check_direction(target, source, direction);
  Counts& counts = machine().counts;
  (source == Place::kDevice ? counts.device_copies
                            : (source == Place::kPinned ? counts.pinned_copies : counts.pageable_copies))++;
  if (stream.capture) return append(stream, captured_copy(to, from, size));
  if (source == Place::kPageable) {  // CUDA stages it before it returns
    auto begin = static_cast<const char*>(from);
    auto staged = std::make_shared<std::vector<char>>(begin, begin + size);
    issue(stream, Kind::kCopy, [=] { std::memcpy(to, staged->data(), size); });
  } else {
    const bool pinned = source == Place::kPinned;
    const uint64_t expected = pinned ? hash(from, size) : 0;
    const void* host = pinned ? from : to;
    auto range = in_use.insert(in_use.end(), {address(host), address(host) + size});
    // The range is given back with the last copy of this function, even if it never runs.
    std::shared_ptr<void> release(nullptr, [range](void*) {
      Lock again(machine().mutex);
      in_use.erase(range);
      machine().changed.notify_all();
    });
    issue(stream, Kind::kCopy, [=, release = std::move(release)] {
      if (pinned && hash(from, size) != expected)
        violation("the source of an asynchronous copy has changed before it ran: " + std::to_string(size) + " bytes");
      std::memcpy(to, from, size);
    });
  }
  if (target == Place::kPageable) {
    wait_for(lock, [&](const Stream& other) { return &other == &stream; });
    show_running_failure();
  }
}

void fill(Stream& stream, void* to, int value, size_t size) {
  if (size == 0) return;
  if (place_of(to, size) == Place::kPageable) throw Failure{kInvalidValue};
  issue(stream, Kind::kKernel, [=] { std::memset(to, value, size); });
}

}  // namespace emulator

#include "core/memory/host_memory.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <new>
#include <string>
#include <system_error>

#include "core/memory/machine.hpp"
#include "core/memory/parallel.hpp"

namespace pyecho {
namespace {

constexpr std::size_t kHugePageBytes = std::size_t{2} << 20;
// For fewer bytes, starting a thread costs more than it saves.
constexpr std::size_t kTouchBytesPerThread = std::size_t{32} << 20;

std::size_t page_bytes() noexcept {
  static const auto bytes = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

std::byte* map_pages(std::size_t size_bytes) {
  void* pages = mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED) {
    throw std::bad_alloc();
  }
  return static_cast<std::byte*>(pages);
}

// Maps more than needed and unmaps the parts before and after the aligned range.
std::byte* map_aligned(std::size_t size_bytes, std::size_t alignment) {
  std::byte* const base = map_pages(size_bytes + alignment);
  const std::size_t before = (alignment - reinterpret_cast<std::uintptr_t>(base) % alignment) % alignment;
  if (before > 0) {
    munmap(base, before);
  }
  if (const std::size_t after = alignment - before; after > 0) {
    munmap(base + before + size_bytes, after);
  }
  return base + before;
}

// Returns the descriptor of a new anonymous file.
int open_anonymous() noexcept {
#ifdef __linux__
  constexpr unsigned kNoExecSeal = 8;  // MFD_NOEXEC_SEAL, which Linux has since 6.3
  constexpr unsigned kFlags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
  int descriptor = memfd_create("pyecho-slots", kFlags | kNoExecSeal);
  if (descriptor < 0) {
    descriptor = memfd_create("pyecho-slots", kFlags);
  }
  static_cast<void>(fchmod(descriptor, S_IRUSR | S_IWUSR));
#else  // its name is gone at once
  const std::string name = "/pyecho-" + std::to_string(getpid());
  const int descriptor = shm_open(name.c_str(), O_RDWR | O_CREAT | O_EXCL, S_IRUSR | S_IWUSR);
  shm_unlink(name.c_str());
#endif
  return descriptor;
}

void touch_in_parallel(std::byte* data, std::size_t size_bytes) {
  const std::size_t useful = size_bytes / kTouchBytesPerThread + 1;
  const std::size_t parts = std::min(useful, machine_cores());
  // Whole huge pages per part, so that no two threads fault on the same one.
  const std::size_t part_bytes = (size_bytes / parts / kHugePageBytes + 1) * kHugePageBytes;
  in_parallel((size_bytes + part_bytes - 1) / part_bytes, [=](std::size_t part) {
    const std::size_t end = std::min((part + 1) * part_bytes, size_bytes);
    for (std::size_t page = part * part_bytes; page < end; page += page_bytes()) {
      *static_cast<volatile std::byte*>(data + page) = std::byte{0};
    }
  });
}

}  // namespace

std::size_t HostMemory::rounded_bytes(std::size_t size_bytes) noexcept {
  return (size_bytes + page_bytes() - 1) / page_bytes() * page_bytes();
}

void ReleasePages::operator()(std::byte* data) noexcept {
  if (owner == nullptr) {
    munmap(data, size_bytes);
  }
  if (descriptor >= 0) {
    close(descriptor);
  }
}

HostMemory::HostMemory(std::size_t size_bytes, const Placement& placement) {
  const std::size_t rounded = rounded_bytes(size_bytes);
  const bool huge = rounded >= kHugePageBytes;
  data_ = {huge ? map_aligned(rounded, kHugePageBytes) : map_pages(rounded), ReleasePages{.size_bytes = rounded}};
#ifdef MADV_HUGEPAGE
  if (huge) {
    madvise(data(), rounded, MADV_HUGEPAGE);  // on failure the pages are small
  }
#endif
  placement.apply(data(), rounded);
  touch_in_parallel(data(), rounded);
}

HostMemory HostMemory::shared(std::size_t size_bytes, bool sparse, const Placement& placement) {
  const int descriptor = open_anonymous();
  HostMemory memory = on_file(descriptor, size_bytes);
  if (ftruncate(descriptor, static_cast<off_t>(memory.size_bytes())) != 0) {
    if (errno == EFBIG) {
      throw std::system_error(errno, std::generic_category(),
                              "the limit of the size of files (ulimit -f) is below the " + std::to_string(size_bytes) +
                                  " bytes of slots that workers share; raise it, or do without workers");
    }
    throw std::bad_alloc();
  }
#ifdef __linux__
  // Else another process of this user could cut it short, and every later access would be a bus error.
  static_cast<void>(fcntl(descriptor, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL));
#endif
  placement.apply(memory.data(), memory.size_bytes());
  if (!sparse) {
    memory.map_pages_now(true);
  }
  return memory;
}

HostMemory HostMemory::mapped(int descriptor, std::size_t size_bytes, bool sparse) {
  HostMemory memory = on_file(dup(descriptor), size_bytes);
  if (!sparse) {
    memory.map_pages_now(false);
  }
  return memory;
}

// Maps a file, and owns its descriptor.
HostMemory HostMemory::on_file(int descriptor, std::size_t size_bytes) {
  const std::size_t rounded = rounded_bytes(size_bytes);
  void* const pages = mmap(nullptr, rounded, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  if (pages == MAP_FAILED) {
    close(descriptor);
    throw std::bad_alloc();
  }
  HostMemory memory;
  memory.data_ = {static_cast<std::byte*>(pages), {.size_bytes = rounded, .descriptor = descriptor}};
  return memory;
}

// Pages that another process has made are mapped several at a time if they are only read.
void HostMemory::map_pages_now([[maybe_unused]] bool are_new) const noexcept {
#ifdef MADV_HUGEPAGE
  madvise(data(), size_bytes(), MADV_HUGEPAGE);  // on failure the pages are small
#endif
#ifdef MADV_POPULATE_WRITE
  if (madvise(data(), size_bytes(), are_new ? MADV_POPULATE_WRITE : MADV_POPULATE_READ) == 0) {
    return;
  }
#endif
  for (std::size_t page = 0; page < size_bytes(); page += page_bytes()) {  // an older kernel; another process may write
    static_cast<void>(*static_cast<const volatile std::byte*>(data() + page));
  }
}

bool HostMemory::copy_in(std::byte* to, const std::byte* from, std::size_t size_bytes,
                         [[maybe_unused]] bool is_new) const noexcept {
#ifdef __linux__
  while (is_new && size_bytes > 0) {
    const ssize_t count = pwrite(descriptor(), from, size_bytes, to - data());
    if (count <= 0 && errno != EINTR) {
      return false;
    }
    const auto written = static_cast<std::size_t>(std::max<ssize_t>(count, 0));
    to += written;
    from += written;
    size_bytes -= written;
  }
#endif
#ifdef MADV_POPULATE_READ
  const std::size_t before = reinterpret_cast<std::uintptr_t>(to) % page_bytes();
  if (size_bytes > 0) {
    madvise(to - before, size_bytes + before, MADV_POPULATE_READ);  // on failure they come one by one
  }
#endif
  std::memcpy(to, from, size_bytes);
  return true;
}

void HostMemory::drop_pages([[maybe_unused]] std::byte* data, [[maybe_unused]] std::size_t size_bytes) noexcept {
#ifdef MADV_REMOVE
  const auto address = reinterpret_cast<std::uintptr_t>(data);
  const std::size_t before = std::min(size_bytes, (page_bytes() - address % page_bytes()) % page_bytes());
  if (const std::size_t whole = (size_bytes - before) / page_bytes() * page_bytes(); whole > 0) {
    madvise(data + before, whole, MADV_REMOVE);  // on failure they stay
  }
#endif
}

}  // namespace pyecho

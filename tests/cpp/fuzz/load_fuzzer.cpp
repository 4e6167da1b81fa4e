// pyecho_load() of any bytes: what it refuses leaves the buffer as it was, what it accepts is a position of a run. It
// takes at most a second, and memory of ten times the bytes beside the buffer's own.
//
// The first byte of an input selects a buffer, the rest are a state without its head, which is added: magic, checksum,
// length and fingerprint. The lengths of its lists are made to fit, and so are its columns and their checksum.
#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <memory>
#include <string>

#include "../capi/random_config.hpp"
#include "capi/buffer.hpp"
#include "core/memory/checksum.hpp"
#include "fuzz.hpp"

#ifdef __SANITIZE_ADDRESS__
extern "C" {
int __sanitizer_install_malloc_and_free_hooks(void (*allocated)(const volatile void*, std::size_t),
                                              void (*freed)(const volatile void*));
std::size_t __sanitizer_get_allocated_size(const volatile void* memory);
}
#endif

namespace {

using pyecho::capi_tests::below;
using pyecho::capi_tests::Random;
using Words = std::vector<std::uint64_t>;

constexpr std::size_t kBuffers = 24;
constexpr std::size_t kHeadWords = 3;       // magic, checksum, length, before the fingerprint
constexpr std::size_t kPositionWords = 11;  // before the lists
constexpr std::size_t kLists = 4;
constexpr std::size_t kOwnBytes = std::size_t{1} << 16U;  // of a plan, whatever is loaded, and
constexpr std::size_t kOwnBytesOfSlot = 64;               // for each slot of it
constexpr double kMostSeconds = 1;
constexpr std::uint64_t kLongRuns = 256;      // of which one is tried
constexpr double kMostSecondsOfLongRun = 60;  // under sanitizers; else about 25 ns for each use of its segment
constexpr double kMostBytesOfLongRun = 0x1p26;

std::atomic<std::size_t> heap_bytes = 0;
std::atomic<std::size_t> most_heap_bytes = 0;

struct Totals {
  std::uint64_t refused = 0;
  std::uint64_t accepted = 0;
  std::uint64_t long_runs = 0;
  double slowest = 0;
  double slowest_long = 0;
  double most_memory = 0;  // of the bytes
} totals;

void require(bool holds, const std::string& what) {
  if (!holds) {
    std::fprintf(stderr, "%s\n", what.c_str());
    std::abort();
  }
}

const std::array<std::int64_t, 2> kTokens = {-1, 3};
const std::array<std::int64_t, 1> kImage = {20};
const std::uint32_t kAxis = 0;
const std::uint64_t kSize = 6;

// A number, a leaf that differs from item to item, and one with operations.
std::array<pyecho_leaf, 3> leaves_of(const pyecho_op& crop) {
  std::array<pyecho_leaf, 3> leaves{};
  leaves.fill(pyecho::capi_tests::row_leaf(0));
  leaves[1].dtype = "<i2";
  leaves[1].shape = kTokens.data();
  leaves[1].ndim = kTokens.size();
  leaves[1].max_bytes = 60;
  leaves[2].dtype = "|u1";
  leaves[2].shape = kImage.data();
  leaves[2].ndim = 1;
  leaves[2].ops = &crop;
  leaves[2].op_count = 1;
  return leaves;
}

class Target {
 public:
  explicit Target(std::uint64_t number) : random_(number) {
    pyecho_config config = pyecho::capi_tests::random_config(random_);
    config.max_bytes = std::size_t{64} << 20U;
    config.threads = number % 4 == 0 ? 1 : 0;
    config.shuffle_buffer = number % 8 == 7 ? 2000 : config.shuffle_buffer;
    most_puts_ = 2 * config.shuffle_buffer;
    adaptive_ = config.min_uses > 0;
    pyecho_op crop{};
    crop.kind = PYECHO_OP_RANDOM_CROP;
    crop.axes = &kAxis;
    crop.axis_count = 1;
    crop.sizes = &kSize;
    crop.size_count = 1;
    const auto leaves = leaves_of(crop);
    config.leaves = leaves.data();
    config.leaf_count = 1 + number % leaves.size();
    varies_ = config.leaf_count > 1;
    pyecho_buffer* made = nullptr;
    require(pyecho_create(&config, &made) == PYECHO_OK, pyecho_last_error());
    buffer_.reset(made);
    const Input first = save();
    const std::size_t head_words = kHeadWords + 1 + words_of(first)[kHeadWords];
    head_.assign(first.begin(), first.begin() + static_cast<std::ptrdiff_t>(head_words * sizeof(std::uint64_t)));
    for (int state = 0; state < 5; ++state) {
      Input saved = save();
      saved.erase(saved.begin(), saved.begin() + static_cast<std::ptrdiff_t>(head_.size()));
      states_.push_back(std::move(saved));
      run(below(random_, 8));
    }
  }

  // States without their head.
  [[nodiscard]] const std::vector<Input>& states() const { return states_; }

  int try_load(Input state) {
    repair(state);
    const bool is_long = tells_of_long_run(words_of(state));
    if (is_long && totals.long_runs++ % kLongRuns != 0) {
      return -1;
    }
    const Input before = save();
    const std::size_t heap = most_heap_bytes = heap_bytes.load();
    const std::clock_t start = std::clock();
    const pyecho_status status = pyecho_load(buffer_.get(), state.data(), state.size(), nullptr);
    const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
    const std::size_t own_bytes =
        kOwnBytes + kOwnBytesOfSlot * pyecho::capi::Buffer::of(buffer_.get())->core().input().slots();
    const auto memory = static_cast<double>(most_heap_bytes - heap) - static_cast<double>(own_bytes);
    totals.most_memory = std::max(totals.most_memory, is_long ? 0 : memory / static_cast<double>(state.size()));
    (is_long ? totals.slowest_long : totals.slowest) =
        std::max(is_long ? totals.slowest_long : totals.slowest, seconds);
    require(seconds < (is_long ? kMostSecondsOfLongRun : kMostSeconds), std::to_string(seconds) + " seconds");
    require(memory < (is_long ? kMostBytesOfLongRun : 10 * static_cast<double>(state.size())),
            std::to_string(memory) + " bytes too many");
    ++(status == PYECHO_OK ? totals.accepted : totals.refused);
    if (status == PYECHO_OK) {
      run(2);
      require(pyecho_load(buffer_.get(), before.data(), before.size(), nullptr) == PYECHO_OK, pyecho_last_error());
    } else {
      require(status == PYECHO_BAD_STATE || status == PYECHO_INVALID, pyecho_last_error());
      // Of an adaptive factor, workers may have taken decisions further ahead.
      require(adaptive_ || save() == before, "the buffer has not gone on as before");
    }
    return status == PYECHO_OK ? 0 : -1;
  }

 private:
  static Words words_of(const Input& bytes) {
    Words words(bytes.size() / sizeof(std::uint64_t));
    std::copy_n(bytes.begin(), words.size() * sizeof(std::uint64_t), reinterpret_cast<std::uint8_t*>(words.data()));
    return words;
  }

  // True if a number may be one of many uses or passes, which a state may have, and which take time to plan again.
  [[nodiscard]] bool tells_of_long_run(const Words& words) const {
    return std::any_of(words.begin() + static_cast<std::ptrdiff_t>(head_.size() / sizeof(words[0])), words.end(),
                       [](std::uint64_t word) { return word > 1000 && word < std::uint64_t{1} << 33U; });
  }

  Input save() {
    unsigned char* bytes = nullptr;
    std::size_t size = 0;
    require(pyecho_save(buffer_.get(), &bytes, &size, nullptr) == PYECHO_OK, pyecho_last_error());
    Input state(bytes, bytes + size);
    pyecho_free(bytes);
    return state;
  }

  void run(std::uint64_t turns) {
    require(pyecho::capi_tests::run(buffer_.get(), random_, turns, most_puts_, varies_ ? kTokens[1] : 0),
            pyecho_last_error());
  }

  // Makes a state whole as far as its lists and shapes go.
  void repair(Input& state) const {
    state.insert(state.begin(), head_.begin(), head_.end());
    state.resize(std::max(state.size(), head_.size() + (kPositionWords + kLists + 1) * sizeof(std::uint64_t)));
    Words words = words_of(state);
    std::size_t at = head_.size() / sizeof(std::uint64_t) + kPositionWords;
    std::span<const std::uint64_t> numbers;
    for (std::size_t list = 0; list < kLists; ++list) {
      words[at] = std::min(words[at], words.size() - at - (kLists - list) - 1);
      numbers = std::span(words).subspan(at + 1, words[at]);
      at += 1 + words[at];
    }
    Input columns(state.begin() + static_cast<std::ptrdiff_t>((at + 1) * sizeof(std::uint64_t)), state.end());
    words[at] = sum_of(columns, numbers);
    words.resize(at + 1);
    words[2] = words.size();
    words[1] = pyecho::checksum(std::as_bytes(std::span(words).subspan(2)), 0);
    state.resize(words.size() * sizeof(std::uint64_t));
    std::memcpy(state.data(), words.data(), state.size());
    state.insert(state.end(), columns.begin(), columns.end());
  }

  // Returns the checksum of the columns, which it cuts off or fills up to the sizes of these items.
  std::uint64_t sum_of(Input& columns, std::span<const std::uint64_t> numbers) const {
    std::uint64_t sum = 0;
    std::size_t begin = 0;
    for (std::size_t index = 0; const auto& leaf : pyecho::capi::Buffer::of(buffer_.get())->core().layout().leaves()) {
      const bool varies = leaf.variable.axes > 0;
      std::size_t size = numbers.size() * (varies ? leaf.variable.axes * sizeof(std::uint64_t) : leaf.size_bytes);
      columns.resize(std::max(columns.size(), begin + size));
      for (std::size_t item = 0; varies && item < numbers.size(); ++item) {
        std::array<std::uint64_t, kTokens.size()> shape{};
        std::memcpy(shape.data(), columns.data() + begin + item * sizeof(shape), sizeof(shape));
        size += shape[0] < 30 && shape[1] < 30 ? leaf.variable.element_bytes * shape[0] * shape[1] : 0;
      }
      columns.resize(std::max(columns.size(), begin + size));
      const std::span column = std::as_bytes(std::span(columns)).subspan(begin, size);
      sum += varies ? pyecho::checksum(column, pyecho::row_seed(numbers.size(), index + 1))
                    : pyecho::checksum_of_column(column, numbers, index);
      begin += size;
      ++index;
    }
    columns.resize(begin);
    return sum;
  }

  Random random_;
  std::unique_ptr<pyecho_buffer, decltype(&pyecho_release)> buffer_{nullptr, pyecho_release};
  std::uint64_t most_puts_ = 0;
  bool adaptive_ = false;
  bool varies_ = false;
  std::vector<Input> states_;
  Input head_;
};

std::vector<Target>& targets() {
  static std::vector<Target> made = [] {
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_install_malloc_and_free_hooks(
        [](const volatile void*, std::size_t size) {
          const std::size_t now = heap_bytes += size;
          most_heap_bytes = std::max(most_heap_bytes.load(), now);
        },
        [](const volatile void* memory) { heap_bytes -= __sanitizer_get_allocated_size(memory); });
#endif
    std::vector<Target> all;
    for (std::uint64_t number = 0; number < kBuffers; ++number) {
      all.emplace_back(number);
    }
    return all;
  }();
  return made;
}

}  // namespace

std::vector<Input> seeds() {
  std::vector<Input> inputs;
  for (std::size_t number = 0; number < kBuffers; ++number) {
    for (const Input& state : targets()[number].states()) {
      inputs.push_back({static_cast<std::uint8_t>(number)});
      inputs.back().insert(inputs.back().end(), state.begin(), state.end());
    }
  }
  return inputs;
}

void report() {
  const auto number = [](std::uint64_t count) { return static_cast<unsigned long long>(count); };
  std::printf("%llu refused, %llu accepted, in at most %.3f s and %.1f times their bytes\n", number(totals.refused),
              number(totals.accepted), totals.slowest, totals.most_memory);
  std::printf("%llu of long runs, of which one in %llu was tried, in at most %.1f s\n", number(totals.long_runs),
              number(kLongRuns), totals.slowest_long);
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return size == 0 ? -1 : targets()[data[0] % kBuffers].try_load(Input(data + 1, data + size));
}

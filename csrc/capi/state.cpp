// Saving and loading a Buffer: where the consumer is, as plain numbers, and the items that it has not had to their last use.
// Meaning of the numbers: core/plan/replay.hpp.
//
// A state is words of 64 bits, little-endian, then a column of bytes for each leaf:
//
//     kMagic, checksum of all following words, size of the state in bytes
//     list: fingerprint of the configuration
//     epoch, items, open_items, ended, iterations, batches
//     list: passes and items, in pairs      list: decisions      list: numbers of the items      checksum of the columns
//
// A list is its length and its words.
#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <new>
#include <numeric>
#include <string>
#include <utility>

#include "capi/buffer.hpp"
#include "core/memory/checksum.hpp"

namespace pyecho::capi {
namespace {

static_assert(std::endian::native == std::endian::little);

using Words = std::vector<std::uint64_t>;

constexpr std::uint64_t kStateMagic = 0x3130'7473'6f68'6365;  // "echost01"
constexpr std::size_t kSumIndex = 1;
constexpr std::size_t kSizeIndex = 2;
constexpr std::size_t kChecked = 2;                      // words before those that the checksum covers
constexpr std::uint64_t kMost = std::uint64_t{1} << 62;  // of anything that is counted
constexpr std::uint64_t kUsesAtOnce = 1U << 20;

void add_list(Words& words, const Words& list) {
  words.push_back(list.size());
  words.insert(words.end(), list.begin(), list.end());
}

void require(bool holds, const char* what) {
  if (!holds) {
    throw BadState(std::string("the state is damaged, or none of this version of pyecho: ") + what);
  }
}

// Reads words, and trusts none.
class Reader {
 public:
  explicit Reader(std::span<const std::byte> state) : state_(state) {
    require(next() == kStateMagic, "it does not begin as one");
    const std::uint64_t sum = next();
    require(next() == state.size(), "its size is another");
    sum_ = sum;
  }
  std::uint64_t next() {
    require(state_.size() - at_ >= sizeof(std::uint64_t), "it is too short");
    std::uint64_t word = 0;
    std::memcpy(&word, state_.data() + at_, sizeof(word));
    at_ += sizeof(word);
    return word;
  }
  std::uint64_t next_count() {
    const std::uint64_t count = next();
    require(count <= kMost, "a number cannot be");
    return count;
  }
  Words next_list() {
    const std::uint64_t length = next();
    require(length <= (state_.size() - at_) / sizeof(std::uint64_t), "a list is too long");
    Words words;
    while (words.size() < length) {
      words.push_back(next());
    }
    return words;
  }
  // Checks the words so far. Returns the bytes that follow.
  std::span<const std::byte> rest() {
    const std::span<const std::byte> checked = state_.first(at_).subspan(kChecked * sizeof(std::uint64_t));
    require(checksum(checked, 0) == sum_, "its checksum is another");
    return state_.subspan(at_);
  }

 private:
  std::span<const std::byte> state_;
  std::size_t at_ = 0;
  std::uint64_t sum_ = 0;
};

PlanPosition read_position(Reader& reader) {
  PlanPosition position{.epoch = reader.next(), .extent = {.items = reader.next()}, .open_items = reader.next_count()};
  const std::uint64_t ended = reader.next();
  require(ended <= 1 && !(ended == 1 && position.open_items > 0), "its passes cannot be");
  position.ended = ended == 1;
  position.iterations = reader.next_count();
  position.batches = reader.next_count();
  position.feed_all = true;
  const Words passes = reader.next_list();
  require(passes.size() % 2 == 0, "its passes cannot be");
  std::uint64_t items = position.open_items;
  for (std::size_t i = 0; i < passes.size(); i += 2) {
    const PassRun run{.passes = passes[i], .items = passes[i + 1]};
    require(run.passes >= 1 && run.passes <= kMost, "its passes cannot be");
    require(run.items == 0 || run.passes <= (kMost - items) / run.items, "its passes cannot be");
    items += run.passes * run.items;
    position.passes.push_back(run);
  }
  for (const std::uint64_t decision : reader.next_list()) {
    require(decision <= std::numeric_limits<std::int32_t>::max(), "its decisions cannot be");
    position.decisions.push_back(static_cast<std::uint32_t>(decision));
  }
  return position;
}

std::uint64_t items_of(const PlanPosition& position) {
  return std::accumulate(position.passes.begin(), position.passes.end(), position.open_items,
                         [](std::uint64_t sum, const PassRun& run) { return sum + run.passes * run.items; });
}

// Returns a column of the state for each leaf. Checks the size of all.
std::vector<std::span<const std::byte>> columns_of(std::span<const std::byte> bytes, const SlotLayout& layout,
                                                   std::size_t count) {
  require(count == 0 ? bytes.empty() : bytes.size() / count == layout.example_bytes() && bytes.size() % count == 0,
          "the items have another size");
  std::vector<std::span<const std::byte>> columns;
  for (const SlotLayout::Leaf& leaf : layout.leaves()) {
    columns.push_back(bytes.first(count * leaf.size_bytes));
    bytes = bytes.subspan(count * leaf.size_bytes);
  }
  return columns;
}

}  // namespace

// ---------------------------------------------------------------- saving

// Returns the options that the output depends on.
Words Buffer::fingerprint() const {
  Words words{config_.plan.batch_rows,
              config_.plan.capacity,
              std::bit_cast<std::uint64_t>(config_.plan.factor),
              config_.plan.seed,
              config_.steps,
              config_.plan.min_uses,
              config_.plan.max_age,
              config_.plan.unique_in_batch ? 1U : 0U};
  words.insert(words.end(), config_.leaf_bytes.begin(), config_.leaf_bytes.end());
  return words;
}

unsigned char* Buffer::save(std::size_t& size_bytes, std::uint64_t& taken) {
  struct Halted {  // until the end of the scope, also after an exception
    EchoBuffer& core;
    explicit Halted(EchoBuffer& halted) : core(halted) { core.set_halted(true); }
    ~Halted() { core.set_halted(false); }
    Halted(const Halted&) = delete;
    Halted& operator=(const Halted&) = delete;
  };
  const Halted halted(*core_);
  std::vector<Unspent> items;
  const Plan& plan = core_->inspect(items, {});

  Words words{kStateMagic, 0, 0};
  add_list(words, fingerprint());
  for (const std::uint64_t word :
       {first_epoch_, items_, plan.open_items(), std::uint64_t{plan.ended() ? 1U : 0U}, iterations_, batches_}) {
    words.push_back(word);
  }
  Words passes;
  taken = plan.open_items();
  for (const PassRun& run : plan.passes()) {
    passes.insert(passes.end(), {run.passes, run.items});
    taken += run.passes * run.items;
  }
  add_list(words, passes);
  const Decisions decisions = plan.decisions();
  add_list(words, Words(decisions.values().begin(), decisions.values().end()));
  Words numbers;
  for (const Unspent& item : items) {
    numbers.push_back(item.number);
  }
  add_list(words, numbers);

  const std::size_t head_bytes = (words.size() + 1) * sizeof(std::uint64_t);
  size_bytes = head_bytes + items.size() * core_->layout().example_bytes();
  auto* const state = static_cast<unsigned char*>(std::malloc(size_bytes));
  if (state == nullptr) {
    throw std::bad_alloc();
  }
  std::vector<std::byte*> columns;
  auto* column = reinterpret_cast<std::byte*>(state + head_bytes);
  for (const auto& leaf : leaves_) {
    columns.push_back(column);
    column += items.size() * leaf->view.size_bytes;
  }
  words.push_back(core_->copy_items(items, columns));
  words[kSizeIndex] = size_bytes;
  words[kSumIndex] = checksum(std::as_bytes(std::span(words).subspan(kChecked)), 0);
  std::memcpy(state, words.data(), head_bytes);
  return state;
}

// ---------------------------------------------------------------- loading

void Buffer::load(std::span<const std::byte> state, std::uint64_t& taken) {
  Reader reader(state);
  if (reader.next_list() != fingerprint()) {
    throw BadState(
        "the state belongs to another configuration (leaves, batch_rows, capacity, factor, seed, steps, min_uses, "
        "max_age, unique_in_batch); load it into a buffer of the same one");
  }
  const PlanPosition position = read_position(reader);
  const Words numbers = reader.next_list();
  const std::uint64_t sum = reader.next();
  const std::vector<std::span<const std::byte>> columns = columns_of(reader.rest(), core_->layout(), numbers.size());
  require(std::ranges::adjacent_find(numbers, std::greater_equal()) == numbers.end() &&
              (numbers.empty() || numbers.back() < items_of(position)),
          "its items cannot be");
  std::uint64_t found_sum = 0;
  for (std::size_t leaf = 0; leaf < columns.size(); ++leaf) {
    found_sum += checksum_of_column(columns[leaf], std::span<const std::uint64_t>(numbers), leaf);
  }
  require(found_sum == sum, "its items are damaged");

  if (const auto larger = core_->with_room_for(numbers.size())) {
    follow(std::make_shared<EchoBuffer>(*larger));
  }
  Replay replay = core_->begin_at(position);
  if (!replay.bounded()) {
    throw BadState(
        "the state is damaged, or was taken after more than 2^36 uses, which would take hours to plan again; start a "
        "new epoch with pyecho_begin() before that");
  }
  Outcome outcome = Outcome::kEmpty;
  while (outcome == Outcome::kEmpty) {
    outcome = replay.advance(kUsesAtOnce);
  }
  std::vector<std::pair<std::uint64_t, std::uint32_t>> places;  // of the items of the plan: number, slot
  replay.plan().each_item([&](std::uint32_t slot, std::uint64_t number) { places.emplace_back(number, slot); });
  std::ranges::sort(places);
  // An adaptive factor may have dropped some ahead of the consumer, which are not used again.
  const bool adaptive = config_.plan.min_uses > 0;
  std::size_t found = 0;
  for (const auto& [number, slot] : places) {
    const bool there = found < numbers.size() && numbers[found] == number;
    require(outcome == Outcome::kOk && (there || adaptive), "its items are not those of its place");
    if (there) {
      for (std::size_t leaf = 0; leaf < columns.size(); ++leaf) {
        const SlotLayout::Leaf& at = core_->layout().leaves()[leaf];
        if (at.size_bytes > 0) {
          std::memcpy(core_->slot_data(slot) + at.slot_offset, columns[leaf].data() + found * at.size_bytes,
                      at.size_bytes);
        }
      }
      ++found;
    }
  }
  require(outcome == Outcome::kOk && !replay.plan().diverged() && found == numbers.size(),
          "its items are not those of its place");
  core_->resume(replay);
  first_epoch_ = position.epoch;
  items_ = position.extent.items;
  iterations_ = position.iterations;
  batches_ = position.batches;
  taken = items_of(position);
  if (position.ended) {
    core_->close();
  }
  core_->set_halted(false);
}

}  // namespace pyecho::capi

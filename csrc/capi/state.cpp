// Saving and loading a Buffer: where the consumer is, as plain numbers, and the items that it has not had to their last
// use. Meaning of the numbers: core/plan/replay.hpp.
//
// A state is words of 64 bits, little-endian, then a column of bytes for each leaf:
//
//     kMagic, checksum of all words after it, number of words
//     list: fingerprint of the configuration
//     epoch, items, open_items, ended, iterations, batches
//     passes, items, parts, taken, alike of the segment that is planned first
//     list: iterations, uses, more of its streams, none for the beginning of the run
//     list: passes and items, in pairs
//     list: decisions
//     list: numbers of the items
//     checksum of the columns
//
// A column of a leaf whose items differ in size is the shape of each item, and then all their bytes. A list is its
// length and its words.
#include <algorithm>
#include <array>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <new>
#include <optional>
#include <utility>

#include "capi/buffer.hpp"
#include "core/memory/checksum.hpp"

namespace pyecho::capi {
namespace {

static_assert(std::endian::native == std::endian::little);

using Words = std::vector<std::uint64_t>;
using WordSpan = std::span<const std::uint64_t>;
using Columns = std::vector<std::span<const std::byte>>;

constexpr std::uint64_t kStateMagic = 0x3230'7473'6f68'6365;  // "echost02"
constexpr std::size_t kSumIndex = 1;
constexpr std::size_t kCountIndex = 2;

constexpr std::array kOptions = {"batch_size",      "shuffle_buffer", "factor",  "seed",
                                 "steps_per_epoch", "min_uses",       "max_age", "unique_in_batch"};
constexpr std::size_t kFactorIndex = 2;

constexpr const char* kForged =
    "the state contradicts itself though its checksum is right, so pyecho_save() has not made it; load one that it has";

void require(bool holds, const std::string& message) {
  if (!holds) {
    throw BadState(message);
  }
}

std::uint64_t checksum_of(WordSpan words) { return checksum(std::as_bytes(words.subspan(kCountIndex)), 0); }

template <class List>
void add_list(Words& words, const List& list) {
  words.push_back(list.size());
  words.insert(words.end(), list.begin(), list.end());
}

// The words of a state. They are not damaged, but may be forged, so none is trusted.
class Reader {
 public:
  explicit Reader(std::span<const std::byte> state) {
    std::array<std::uint64_t, kCountIndex + 1> first{};
    std::memcpy(first.data(), state.data(), std::min(state.size(), sizeof(first)));
    require(first[0] == kStateMagic,
            "these bytes do not begin as a state of this version of pyecho; load all that its pyecho_save() returned");
    const std::uint64_t count = first[kCountIndex];
    require(count >= first.size() && count <= state.size() / sizeof(std::uint64_t),
            "the state is damaged or cut off: it begins with " + std::to_string(count) + " words, and " +
                std::to_string(state.size()) + " bytes came; load another copy, or an earlier state");
    words_.resize(count);
    std::memcpy(words_.data(), state.data(), count * sizeof(std::uint64_t));
    require(checksum_of(words_) == words_[kSumIndex],
            "the state is damaged: the checksum of its words is wrong; load another copy, or an earlier state");
    at_ = first.size();
  }
  std::uint64_t next() {
    require(at_ < words_.size(), kForged);
    return words_[at_++];
  }
  WordSpan next_list() {
    const std::uint64_t length = next();
    require(length <= words_.size() - at_, kForged);
    at_ += length;
    return WordSpan(words_).subspan(at_ - length, length);
  }
  [[nodiscard]] std::size_t size_bytes() const noexcept { return words_.size() * sizeof(std::uint64_t); }

 private:
  Words words_;
  std::size_t at_ = 0;
};

void check_configuration(WordSpan saved, WordSpan own) {
  const auto text = [](WordSpan options, std::size_t at) {
    return at == kFactorIndex ? std::to_string(std::bit_cast<double>(options[at])) : std::to_string(options[at]);
  };
  for (std::size_t at = 0; at < std::min(kOptions.size(), saved.size()); ++at) {
    require(saved[at] == own[at], "the state was saved with " + std::string(kOptions.at(at)) + " " + text(saved, at) +
                                      ", and this buffer has " + text(own, at) +
                                      "; load it into a buffer of the same configuration");
  }
  require(std::ranges::equal(saved, own),
          "the state was saved with leaves of other sizes, or other operations; load it into a buffer with the same "
          "leaves");
}

PlanPosition read_position(Reader& reader) {
  PlanPosition position{.epoch = reader.next(), .extent = {.items = reader.next()}, .open_items = reader.next()};
  position.ended = reader.next() != 0;
  require(!position.ended || position.open_items == 0, kForged);
  position.iterations = reader.next();
  position.batches = reader.next();
  position.feed_all = true;
  position.segment = {.passes = reader.next(),
                      .items = reader.next(),
                      .parts = reader.next(),
                      .taken = reader.next(),
                      .alike = reader.next() != 0};
  const WordSpan streams = reader.next_list();
  require(streams.size() % 3 == 0, kForged);
  for (std::size_t i = 0; i < streams.size(); i += 3) {
    position.segment.streams.push_back({.iterations = streams[i], .uses = streams[i + 1], .more = streams[i + 2]});
  }
  const WordSpan passes = reader.next_list();
  require(passes.size() % 2 == 0, kForged);
  for (std::size_t i = 0; i < passes.size(); i += 2) {
    position.passes.push_back({.passes = passes[i], .items = passes[i + 1]});
  }
  for (const std::uint64_t decision : reader.next_list()) {
    position.decisions.push_back(static_cast<std::uint32_t>(decision));
  }
  return position;
}

std::vector<std::uint64_t> shape_at(std::span<const std::byte> column, std::size_t item, const SlotLayout::Leaf& leaf) {
  std::vector<std::uint64_t> shape(leaf.variable.axes);
  std::memcpy(shape.data(), column.data() + item * shape.size() * sizeof(shape[0]), shape.size() * sizeof(shape[0]));
  return shape;
}

// Returns the bytes of an item; nothing if there can be no such item.
std::optional<std::size_t> bytes_of(const std::vector<std::uint64_t>& shape, const SlotLayout::Leaf& leaf) {
  const std::size_t size_bytes = bytes_of_array(leaf.variable.element_bytes, shape);
  return size_bytes <= leaf.variable.max_bytes ? std::optional(size_bytes) : std::nullopt;
}

// Returns a column for each leaf. `sum`: the checksum of all.
Columns columns_of(std::span<const std::byte> bytes, const SlotLayout& layout, WordSpan numbers, std::uint64_t sum) {
  const std::size_t count = numbers.size();
  const auto damaged = [&](bool whole) {
    require(whole, "the state is damaged or cut off: " + std::to_string(count) + " examples need other than the " +
                       std::to_string(bytes.size()) + " bytes that came; load another copy, or an earlier state");
  };
  Columns columns;
  for (std::span<const std::byte> rest = bytes; const SlotLayout::Leaf& leaf : layout.leaves()) {
    const std::size_t row_bytes = leaf.variable.axes > 0 ? leaf.variable.axes * sizeof(std::uint64_t) : leaf.size_bytes;
    damaged(row_bytes == 0 || count <= rest.size() / row_bytes);
    std::size_t size_bytes = count * row_bytes;
    for (std::size_t item = 0; item < count && leaf.variable.axes > 0; ++item) {
      const std::size_t item_bytes = bytes_of(shape_at(rest, item, leaf), leaf).value_or(rest.size() + 1);
      damaged(item_bytes <= rest.size() - size_bytes);
      size_bytes += item_bytes;
    }
    columns.push_back(rest.first(size_bytes));
    sum -= leaf.variable.axes > 0 ? checksum(columns.back(), row_seed(count, columns.size()))
                                  : checksum_of_column(columns.back(), numbers, columns.size() - 1);
    rest = rest.subspan(size_bytes);
    damaged(columns.size() < layout.leaves().size() || rest.empty());
  }
  require(sum == 0,
          "the state is damaged: the checksum of its examples is wrong; load another copy, or an earlier state");
  return columns;
}

// Plans to the position. Returns the items of these numbers.
Places items_at(Replay& replay, WordSpan numbers) {
  while (!replay.advance()) {
  }
  return replay.items_of(numbers);
}

}  // namespace

// Returns the options that the output depends on, and the sizes of the leaves.
Words Buffer::fingerprint() const {
  Words words{config_.plan.batch_size,
              config_.plan.capacity,
              std::bit_cast<std::uint64_t>(config_.plan.factor),
              config_.plan.seed,
              config_.steps,
              config_.plan.min_uses,
              config_.plan.max_age,
              config_.plan.unique_in_batch ? 1U : 0U};
  for (const LeafFormat& leaf : config_.leaves) {
    words.insert(words.end(), {leaf.slot_bytes, leaf.row_bytes, leaf.variable.element_bytes});
  }
  for (const auto& leaf : leaves_) {
    words.push_back(leaf->program_sum);
  }
  return words;
}

unsigned char* Buffer::save(std::size_t& size_bytes, std::uint64_t& taken) {
  const auto resume = [](EchoBuffer* core) { core->set_halted(false); };
  core_->set_halted(true);
  const std::unique_ptr<EchoBuffer, decltype(resume)> halted(core_.get(), resume);  // also after an exception
  std::vector<Unspent> items;
  const PlanPosition at = core_->inspect(items, {}, iterations_, batches_);
  taken = at.taken();

  Words words{kStateMagic, 0, 0};
  add_list(words, fingerprint());
  words.insert(words.end(), {at.epoch, at.extent.items, at.open_items, at.ended ? 1U : 0U, iterations_, batches_});
  const auto& [ended, before, parts, taken_before, alike, streams] = at.segment;
  words.insert(words.end(), {ended, before, parts, taken_before, alike ? 1U : 0U, 3 * streams.size()});
  for (const Crossing& stream : streams) {
    words.insert(words.end(), {stream.iterations, stream.uses, stream.more});
  }
  words.push_back(2 * at.passes.size());
  for (const PassRun& run : at.passes) {
    words.insert(words.end(), {run.passes, run.items});
  }
  add_list(words, at.decisions);
  words.push_back(items.size());
  for (const Unspent& item : items) {
    words.push_back(item.number);
  }

  const std::size_t head_bytes = (words.size() + 1) * sizeof(std::uint64_t);
  const auto elements_of = [&](const SlotLayout::Leaf& leaf) {  // their bytes
    std::size_t elements = leaf.variable.axes > 0 ? 0 : items.size() * leaf.size_bytes;
    for (std::size_t item = 0; item < items.size() && leaf.variable.axes > 0; ++item) {
      elements += core_->variable_of(items[item], leaf).size_bytes;
    }
    return elements;
  };
  size_bytes = head_bytes;
  for (const SlotLayout::Leaf& leaf : core_->layout().leaves()) {
    size_bytes += items.size() * leaf.variable.axes * sizeof(std::uint64_t) + elements_of(leaf);
  }
  const auto free_state = [](unsigned char* memory) { std::free(memory); };
  std::unique_ptr<unsigned char, decltype(free_state)> state(static_cast<unsigned char*>(std::malloc(size_bytes)));
  if (state == nullptr) {
    throw std::bad_alloc();
  }
  std::vector<std::byte*> columns;
  auto* column = reinterpret_cast<std::byte*>(state.get() + head_bytes);
  std::vector<std::span<const std::byte>> varied(leaves_.size());
  for (std::size_t leaf = 0; leaf < leaves_.size(); ++leaf) {
    const SlotLayout::Leaf& of_leaf = core_->layout().leaves()[leaf];
    std::byte* const begin = column;
    for (std::size_t item = 0; item < items.size() && of_leaf.variable.axes > 0; ++item) {
      const auto shape = core_->variable_of(items[item], of_leaf).shape(of_leaf);
      std::memcpy(column, shape.data(), shape.size_bytes());
      column += shape.size_bytes();
    }
    columns.push_back(column);
    column += elements_of(of_leaf);
    varied[leaf] = std::span(begin, column);
  }
  std::uint64_t sum = core_->copy_items(items, columns);
  for (std::size_t leaf = 0; leaf < leaves_.size(); ++leaf) {
    sum += leaves_[leaf]->variable.axes > 0 ? checksum(varied[leaf], row_seed(items.size(), leaf + 1)) : 0;
  }
  words.push_back(sum);
  words[kCountIndex] = words.size();
  words[kSumIndex] = checksum_of(words);
  std::memcpy(state.get(), words.data(), head_bytes);
  return state.release();
}

void Buffer::load(std::span<const std::byte> state, std::uint64_t& taken) {
  Reader reader(state);
  check_configuration(reader.next_list(), fingerprint());
  const PlanPosition position = read_position(reader);
  const WordSpan numbers = reader.next_list();
  const std::uint64_t sum = reader.next();
  const Columns columns = columns_of(state.subspan(reader.size_bytes()), core_->layout(), numbers, sum);

  for (std::size_t leaf = 0; leaf < columns.size(); ++leaf) {
    const SlotLayout::Leaf& of_leaf = core_->layout().leaves()[leaf];
    for (std::size_t item = 0; item < numbers.size() && of_leaf.variable.axes > 0; ++item) {
      const std::vector<std::uint64_t> shape = shape_at(columns[leaf], item, of_leaf);
      const auto fits = [](std::int64_t wanted, std::uint64_t extent) {
        return wanted == -1 || std::cmp_equal(wanted, extent);
      };
      require(std::ranges::equal(leaves_[leaf]->shape, shape, fits) &&
                  refusal_of(of_leaf.variable, leaves_[leaf]->program.get(), shape).empty(),
              kForged);
    }
  }

  // The buffer stays as it is unless there is such a position: a core for more items has nothing to lose, and for its
  // own core a plan beside it finds out.
  std::shared_ptr<EchoBuffer> core = core_->with_room_for(numbers.size());
  if (core == nullptr) {
    core = core_;
    Plan plan(plan_of(config_, core->input().slots()));
    Replay trial(plan, config_.plan.batch_size, position);
    static_cast<void>(items_at(trial, numbers));
  }
  Replay replay = core->begin(position);
  const Places items = items_at(replay, numbers);
  for (std::size_t leaf = 0; leaf < columns.size(); ++leaf) {
    const SlotLayout::Leaf& of_leaf = core->layout().leaves()[leaf];
    const std::byte* from = columns[leaf].data() + items.size() * of_leaf.variable.axes * sizeof(std::uint64_t);
    for (std::size_t item = 0; item < items.size(); ++item) {
      std::byte* to = core->slot_data(items[item].second) + of_leaf.slot_offset;
      std::size_t size_bytes = of_leaf.size_bytes;
      if (of_leaf.variable.axes > 0) {
        const std::vector<std::uint64_t> shape = shape_at(columns[leaf], item, of_leaf);
        size_bytes = bytes_of(shape, of_leaf).value_or(0);  // columns_of() has found it
        to = core->allocate(items[item].second, of_leaf, shape);
      }
      if (to == nullptr) {
        throw std::bad_alloc();
      }
      std::memcpy(to, from, size_bytes);
      from += size_bytes;
    }
  }
  if (core != core_) {
    follow(core);
  }
  core->resume(replay);
  iterations_ = position.iterations;
  batches_ = position.batches;
  taken = replay.plan().taken();
  if (position.ended) {
    core->input().close();
  }
  core->set_halted(false);
}

}  // namespace pyecho::capi

// Saving and resuming an EchoBufferObject: the items of a state are rows of bytes, and lists of references.
#include <pybind11/numpy.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bindings/echo_buffer.hpp"
#include "bindings/errors.hpp"
#include "bindings/gil.hpp"
#include "core/memory/checksum.hpp"

namespace py = pybind11;
using namespace py::literals;

namespace pyecho::bindings {
namespace {

std::size_t reference_leaves(const Structure& structure) {
  return static_cast<std::size_t>(std::ranges::count_if(structure.leaves(), &LeafSpec::by_reference));
}

}  // namespace

std::pair<const BatchPlan*, std::uint64_t> EchoBufferObject::inspect(py::dict& state, bool payload, bool with_held) {
  std::vector<const Batch*> untaken;
  if (pending_) {
    untaken.push_back(&lease_of(pending_).batch());
  }
  if (acquired_) {
    untaken.push_back(&acquired_.batch());
  }
  std::vector<Unspent> items;
  const BatchPlan& plan = core_->inspect(items, untaken);
  const std::uint64_t held = with_held && held_.view != nullptr ? held_.view->rows() - held_.next : 0;
  if (payload) {
    for (std::uint64_t row = 0; row < held; ++row) {
      items.push_back({.number = plan.fed() + row, .batch = nullptr, .place = 0});
    }
    add_payload(state, items, items.size() - held);
  }
  return {&plan, held};
}

// Adds `numbers`, `rows`, `checksum` and `references` of the items. Those from `first_held` on are the rows held_.
void EchoBufferObject::add_payload(py::dict& state, const std::vector<Unspent>& items, std::uint64_t first_held) const {
  const auto count = static_cast<py::ssize_t>(items.size());
  py::array_t<std::int64_t> numbers(count);
  std::ranges::transform(items, numbers.mutable_data(),
                         [](const Unspent& item) { return static_cast<std::int64_t>(item.number); });
  py::array_t<std::uint8_t> rows({count, static_cast<py::ssize_t>(row_bytes())});
  auto* const data = reinterpret_cast<std::byte*>(rows.mutable_data());
  const std::span<const Unspent> in_buffer = std::span(items).first(first_held);
  std::uint64_t sum = without_gil(true, [&] { return core_->copy_items(in_buffer, data); });

  std::vector<py::list> references(reference_leaves(structure_));
  const auto add_references = [&](const py::tuple& leaves) {
    for (std::size_t leaf = 0; leaf < references.size(); ++leaf) {
      references[leaf].append(leaves[leaf]);
    }
  };
  if (has_references_) {
    for (std::size_t i = 0; i < in_buffer.size(); ++i) {
      ReferenceTable::Entry entry = 0;
      std::memcpy(&entry, data + (i + 1) * row_bytes() - sizeof(entry), sizeof(entry));
      if (!references_.contains(entry)) {
        raise_outcome(Outcome::kClosed, name());
      }
      add_references(py::reinterpret_borrow<py::tuple>(references_.at(entry)));
    }
  }
  std::vector<std::byte> slot(core_->layout().slot_bytes());
  for (std::size_t i = first_held; i < items.size(); ++i) {
    const std::size_t row = held_.next + (i - first_held);
    held_.view->copy_row(row, *core_, slot.data());
    std::byte* const begin = data + i * row_bytes();
    std::byte* to = begin;
    for (const SlotLayout::Leaf& leaf : core_->layout().leaves()) {
      std::memcpy(to, slot.data() + leaf.slot_offset, leaf.size_bytes);
      to += leaf.size_bytes;
    }
    sum += checksum(std::span(begin, row_bytes()), items[i].number);
    if (has_references_) {
      add_references(held_.view->references(row));
    }
  }
  state["numbers"] = std::move(numbers);
  state["rows"] = std::move(rows);
  state["checksum"] = sum;
  py::list lists;
  for (py::list& list : references) {
    lists.append(std::move(list));
  }
  state["references"] = std::move(lists);
}

void EchoBufferObject::begin_core_at(BatchPlan& replayed) {
  std::uint32_t items = 0;
  replayed.each_item([&](std::uint32_t /*slot*/, std::uint64_t /*number*/) { ++items; });
  if (items >= core_->slots()) {  // made ahead of the consumer, so that its items need slots again
    config_.burst += items;
    try {
      core_ = without_gil(true, [this] { return std::make_unique<EchoBuffer>(config_); });
    } catch (const std::length_error& error) {
      raise(errors().config_error, std::string("the items of the state need more memory: ") + error.what());
    }
  }
  acquired_.reset();
  StageOf::begin_core_at(replayed);
}

void EchoBufferObject::refill(const py::object& item, const std::vector<std::size_t>& rows,
                              const std::vector<std::uint32_t>& slots) {
  const ItemView view(structure_, item, batched_, to_array_);
  for (std::size_t i = 0; i < slots.size(); ++i) {
    if (rows.at(i) >= view.rows() || slots[i] >= core_->slots()) {
      raise(errors().checkpoint_error, "the source yields other batches than when the state was taken");
    }
    if (has_references_) {
      set_references(slots[i], view.references(rows[i]));
    }
    view.copy_row(rows[i], *core_, core_->slot_data(slots[i]));
  }
  stream_fence();
}

void EchoBufferObject::restore(const py::array_t<std::uint8_t>& rows, const std::vector<py::list>& references,
                               const std::vector<std::size_t>& order) {
  const auto count = static_cast<std::size_t>(rows.ndim() == 2 ? rows.shape(0) : 0);
  const std::size_t leaves = reference_leaves(structure_);
  if (rows.ndim() != 2 || order.size() != count || static_cast<std::size_t>(rows.shape(1)) != row_bytes() ||
      count > core_->slots() || references.size() != leaves ||
      std::ranges::any_of(references, [&](const py::list& list) { return list.size() != count; })) {
    raise(errors().checkpoint_error, "the items of the state do not fit those of this source");
  }
  const auto* const data = reinterpret_cast<const std::byte*>(rows.data());
  for (std::size_t i = 0; i < count; ++i) {
    const auto slot = static_cast<std::uint32_t>(i);
    const std::size_t row = order[i] < count ? order[i] : 0;
    const std::byte* from = data + row * row_bytes();
    for (const SlotLayout::Leaf& leaf : core_->layout().leaves()) {
      std::memcpy(core_->slot_data(slot) + leaf.slot_offset, from, leaf.size_bytes);
      from += leaf.size_bytes;
    }
    if (has_references_) {
      py::tuple kept(leaves);
      for (std::size_t leaf = 0; leaf < leaves; ++leaf) {
        kept[leaf] = references[leaf][row];
      }
      set_references(slot, std::move(kept));
    }
  }
}

}  // namespace pyecho::bindings

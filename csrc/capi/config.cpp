#include <algorithm>
#include <array>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <limits>
#include <new>
#include <string>
#include <utility>

#include "capi/buffer.hpp"
#include "capi/status.hpp"
#include "core/memory/checksum.hpp"

namespace pyecho::capi {
namespace {

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

// Returns what an element of such a dtype is, in the byte order of this machine.
ops::Element element_of(const char* dtype) noexcept {
  constexpr std::array<const char*, 12> kNames = {"u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f2", "", "f4", "f8"};
  const char* const name = std::strchr("<|=", *dtype) == nullptr ? dtype : dtype + 1;
  const auto* const found =
      std::ranges::find_if(kNames, [&](const char* each) { return std::strcmp(each, name) == 0; });
  return found == kNames.end() || *name == '\0' ? ops::Element::kOther
                                                : static_cast<ops::Element>(found - kNames.begin());
}

std::shared_ptr<const ops::Program> program_of(const pyecho_leaf& leaf, const std::string& where) {
  constexpr std::size_t kMost = 1024;  // of operations, and of numbers of each
  check_argument(leaf.ops != nullptr && leaf.op_count <= kMost, "ops is NULL, or has more than 1024");
  std::vector<ops::Operation> operations;
  for (const pyecho_op& op : std::span(leaf.ops, leaf.op_count)) {
    const auto known = [](auto value, auto most) {
      return static_cast<unsigned>(value) <= static_cast<unsigned>(most);
    };
    check_argument(known(op.kind, PYECHO_OP_TO_CHW) && known(op.element, PYECHO_FLOAT64) && op.axis_count <= kMost &&
                       op.size_count <= kMost && op.number_count <= kMost &&
                       (op.axes != nullptr || op.axis_count == 0) && (op.sizes != nullptr || op.size_count == 0) &&
                       (op.numbers != nullptr || op.number_count == 0),
                   "an operation needs a kind and an element of pyecho.h, and arrays of the lengths it names");
    operations.push_back({.kind = static_cast<ops::Kind>(op.kind),
                          .draws = op.draws,
                          .axes = {op.axes, op.axes + op.axis_count},
                          .sizes = {op.sizes, op.sizes + op.size_count},
                          .numbers = {op.numbers, op.numbers + op.number_count},
                          .nearest = op.nearest != 0,
                          .element = static_cast<ops::Element>(op.element)});
  }
  ops::ArrayType item{.element = element_of(leaf.dtype), .element_bytes = element_bytes(leaf.dtype)};
  for (const std::int64_t axis : std::span(leaf.shape, leaf.ndim)) {
    item.shape.push_back(axis == -1 ? ops::kVariable : static_cast<std::uint64_t>(axis));
  }
  try {
    return std::make_shared<const ops::Program>(std::move(item), std::move(operations));
  } catch (const std::invalid_argument& error) {
    throw std::invalid_argument(where + error.what());
  }
}

std::uint64_t sum_of(std::span<const pyecho_op> operations) {
  std::vector<std::uint64_t> words;
  for (const pyecho_op& op : operations) {
    words.insert(words.end(), {static_cast<std::uint64_t>(op.kind), op.draws, op.axis_count, op.size_count,
                               op.number_count, op.nearest, static_cast<std::uint64_t>(op.element)});
    words.insert(words.end(), op.axes, op.axes + op.axis_count);
    words.insert(words.end(), op.sizes, op.sizes + op.size_count);
    std::transform(op.numbers, op.numbers + op.number_count, std::back_inserter(words),
                   [](double number) { return std::bit_cast<std::uint64_t>(number); });
  }
  return checksum(std::as_bytes(std::span(words)), 0);
}

std::unique_ptr<Leaf> checked_leaf(const pyecho_leaf& leaf, const std::string& where) {
  std::size_t size_bytes = leaf.dtype == nullptr ? 0 : element_bytes(leaf.dtype);
  if (size_bytes == 0) {
    throw std::invalid_argument(where + "needs a dtype as in NumPy's array interface, such as \"<f4\", got " +
                                (leaf.dtype == nullptr ? "NULL" : std::string("\"").append(leaf.dtype) + "\""));
  }
  if (leaf.ndim > 64 || (leaf.ndim > 0 && leaf.shape == nullptr)) {
    throw std::invalid_argument(where + "needs a shape of at most 64 axes, got " +
                                (leaf.ndim > 64 ? std::to_string(leaf.ndim) : "NULL"));
  }
  const std::span<const std::int64_t> shape(leaf.shape, leaf.ndim);
  VariableLeaf variable;
  if (std::ranges::find(shape, -1) != shape.end()) {
    variable = {.axes = leaf.ndim, .element_bytes = size_bytes, .max_bytes = leaf.max_bytes};
  }
  check_argument((variable.axes > 0) == (leaf.max_bytes > 0) && leaf.max_bytes < std::size_t{1} << 56U,
                 "max_bytes, below 2^56, belongs to a leaf with -1 in its shape: set both, or neither");
  for (const std::int64_t axis : shape) {
    if (axis == -1) {
      continue;
    }
    size_bytes = axis < 0 ? kTooLarge : times(size_bytes, static_cast<std::size_t>(axis));
    if (size_bytes == kTooLarge) {
      throw std::invalid_argument(where + "has an axis of " + std::to_string(axis) +
                                  "; axes are at least 0, and all together fit the address space");
    }
  }
  auto made = std::make_unique<Leaf>(leaf.name == nullptr ? "" : leaf.name, leaf.dtype, shape,
                                     variable.axes > 0 ? 0 : size_bytes, variable);
  if (leaf.op_count > 0) {
    made->program = program_of(leaf, where);
    made->program_sum = sum_of(std::span(leaf.ops, leaf.op_count));
  }
  return made;
}

// Memory of the caller's for batches.
HostMemory allocated(const pyecho_config& config, std::size_t size_bytes) {
  void* const memory = config.allocate(size_bytes, config.context);
  if (memory == nullptr) {
    throw std::bad_alloc();
  }
  const auto deallocate = [free = config.deallocate, context = config.context, size_bytes](void* to_free) {
    free(to_free, size_bytes, context);
  };
  std::shared_ptr<void> owner(memory, deallocate);
  if (reinterpret_cast<std::uintptr_t>(memory) % SlotLayout::kRegionAlignment != 0) {
    throw std::invalid_argument(
        "allocate must return memory at a multiple of 64 bytes, such as that of aligned_alloc()");
  }
  return {static_cast<std::byte*>(memory), size_bytes, std::move(owner)};
}

}  // namespace

Leaves checked_leaves(const pyecho_config& config) {
  check_argument(config.leaf_count > 0 && config.leaves != nullptr, "an example needs at least one leaf, got none");
  const std::size_t stride = config.leaves[0].struct_bytes;
  Leaves leaves;
  for (std::size_t i = 0; i < config.leaf_count; ++i) {
    const auto* const address = reinterpret_cast<const unsigned char*>(config.leaves) + i * stride;
    const auto* const leaf = reinterpret_cast<const pyecho_leaf*>(address);
    const std::string where = "leaf " + std::to_string(i) + ": ";
    if (leaf->struct_bytes != stride) {
      throw std::invalid_argument(where + "its struct_bytes is " + std::to_string(leaf->struct_bytes) +
                                  ", and that of leaf 0 " + std::to_string(stride) +
                                  "; begin each with PYECHO_LEAF_INIT");
    }
    leaves.push_back(checked_leaf(taken(leaf, offsetof(pyecho_leaf, size_bytes)), where));
  }
  return leaves;
}

EchoConfig core_config(const pyecho_config& config, const Leaves& leaves) {
  EchoConfig core;
  const auto set = [](auto& option, auto value) { option = value == 0 ? option : value; };  // 0: the default
  set(core.plan.capacity, config.shuffle_buffer);
  set(core.plan.factor, config.factor);
  set(core.items, config.items);
  set(core.prefetch, config.prefetch);
  set(core.slots_ahead, config.slots_ahead);
  set(core.max_bytes, config.max_bytes);
  set(core.held, config.held);
  core.plan.seed = config.seed;
  core.plan.unique_in_batch = config.unique_in_batch != 0;
  core.plan.min_uses = config.min_uses;
  core.plan.max_age = config.max_age;
  core.plan.batch_size = config.batch_size;
  core.epoch = config.epoch;
  core.steps = config.steps_per_epoch;
  core.drop_last = config.drop_last != 0;
  core.with_info = config.with_info != 0;
  core.threads = config.threads;
  check_argument((config.allocate == nullptr) == (config.deallocate == nullptr),
                 "allocate and deallocate belong together: set both, or neither");
  if (config.allocate != nullptr) {
    core.batch_memory = [config](std::size_t size_bytes, Upload&) { return allocated(config, size_bytes); };
  }
  for (const auto& leaf : leaves) {
    core.leaves.push_back(leaf->variable.axes > 0 ? LeafFormat::of_variable(leaf->variable) : leaf->view.size_bytes);
  }
  for (std::size_t leaf = 0; leaf < leaves.size(); ++leaf) {
    if (leaves[leaf]->program != nullptr) {
      set_program(core, leaf, leaves[leaf]->program);
    }
  }
  return core;
}

}  // namespace pyecho::capi

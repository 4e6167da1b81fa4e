// The configuration of an echo stage, and of its plan.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/memory/slot_layout.hpp"
#include "core/ops/program.hpp"
#include "core/plan/plan_config.hpp"
#include "core/stage/batch_pool.hpp"
#include "core/stage/uploads.hpp"

namespace pyecho {

// Options of a stage. Those of batches and their memory do not concern an EchoQueue, whose batches are single uses.
struct EchoConfig {
  PlanConfig plan = {};                 // but for its slots and uses of an iteration, see plan_of()
  std::vector<LeafFormat> leaves = {};  // of one example; a number is the size of a leaf
  // Operations on each leaf, see set_program(); null copies the leaf, an empty vector all leaves.
  std::vector<std::shared_ptr<const ops::Program>> programs = {};
  std::uint64_t epoch = 0;             // the first epoch
  std::uint64_t items = kUnknown;      // of a pass, if known: see EchoFactor
  std::uint64_t steps = 0;             // batches of an iteration; 0: as many as the uses of a pass make
  bool drop_last = false;              // batches of fewer than batch_size rows are not counted; see acquire()
  bool with_info = false;              // batches carry source indices and uses
  std::uint32_t prefetch = 2;          // >= 1: batches made ahead of the consumer; raised for small batches to
                                       // as many as 4 MiB hold, at most most_ahead, within half of the memory
                                       // that max_bytes leaves over
  std::uint32_t threads = 1;           // native threads that make batches, at most 256; 0: the consumer makes them
  std::uint32_t slots_ahead = 1;       // >= 1: items that arrive together; each gets a slot ahead of the pool; raised
                                       // for small items to as many as 4 MiB hold, at most capacity, with
                                       // the same bound on memory
  std::size_t max_bytes = kUnlimited;  // of everything that grows with these numbers; at least min_bytes_of()
  std::uint32_t spare = 0;             // slots beyond all these, for the items of a state, see with_room_for()
  std::uint32_t held = 2;              // batches a consumer holds at a time; a loop holds one and requests the next
  // Makes the memory of a batch, for memory that the consumer takes away (see Lease::exchange()), or that is sent to a
  // device. Called in the constructor only, since no batch is added then. Null: pageable memory.
  BatchPool::NewMemory batch_memory = {};
  std::shared_ptr<Uploads> uploads = {};  // of every batch, by the workers; needs batch_memory and threads
  std::uint32_t most_ahead = 32;          // bound of what `prefetch` is raised to
  bool shared_slots = false;              // other processes fill the slots, see EchoBuffer::slot_memory()
};

// Has a program make the rows of a leaf. The leaves of the configuration are complete.
inline void set_program(EchoConfig& config, std::size_t leaf, std::shared_ptr<const ops::Program> program) {
  LeafFormat& format = config.leaves[leaf];
  format.ragged = program->output().is_variable();
  format.row_bytes =
      format.ragged ? program->output().shape.size() * LeafFormat::kExtentBytes : program->output().size_bytes();
  config.programs.resize(config.leaves.size());
  config.plan.tells_passes = config.plan.tells_passes || program->window() != nullptr;
  config.programs[leaf] = std::move(program);
}

// Returns why an item of this shape, of a leaf of variable size, cannot be taken; "" if it can. A row has at most as many
// elements as the largest item. `program`: null if rows are copies.
inline std::string refusal_of(const VariableLeaf& leaf, const ops::Program* program,
                              std::span<const std::uint64_t> shape) {
  std::string refusal = program == nullptr ? "" : program->refusal(shape);
  if (program == nullptr || !refusal.empty()) {
    return refusal;
  }
  const std::size_t elements = bytes_of_array(1, program->output_shape(shape));
  const std::size_t most = program->output().is_variable() ? leaf.max_bytes / leaf.element_bytes : kTooLarge - 1;
  return elements <= most
             ? ""
             : "operations make a row of more elements than an example may have (max_bytes); raise max_bytes, or leave "
               "out such examples in the source";
}

// Returns the configuration of a plan with so many slots.
inline PlanConfig plan_of(const EchoConfig& config, std::uint32_t slots) {
  PlanConfig plan = config.plan;
  plan.slots = slots;
  plan.iteration_uses = config.steps * plan.batch_size;
  return plan;
}

}  // namespace pyecho

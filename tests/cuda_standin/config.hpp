// How the stand-in behaves; see standin.h for what each value means.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <set>
#include <string>

#include "cuda/driver_api.hpp"

namespace pyecho::standin {

// The namespace whose implementation this is.
using namespace cuda;

struct Failure {
  std::string function;  // "" for any
  std::uint64_t calls_left;
  Result result;
  bool sticky;
};

struct Config {
  int version = 12080;
  int devices = 1;
  int numa_node = -1;
  Result init_result = kSuccess;
  std::uint64_t seed = 0;
  unsigned max_delay_us = 100;
  std::uint64_t register_limit = std::numeric_limits<std::uint64_t>::max();
  std::set<std::string> hidden;
  std::optional<Failure> failure;
};

// "a,b" -> {"a", "b"}
std::set<std::string> split_names(const char* names);

// The configuration of the PYECHO_STANDIN_* variables. Ends the program if one makes no sense: a test that believes it
// tests something else must not pass.
Config config_from_environment();

}  // namespace pyecho::standin

// A fuzzer: libFuzzer's entry, and what driver.cpp, which stands in for libFuzzer with compilers that lack it, needs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

using Input = std::vector<std::uint8_t>;

// Returns 0 if the input is worth changing further.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

// Returns the inputs to begin with.
std::vector<Input> seeds();

// Prints what the inputs so far have shown.
void report();

// Runs a fuzzer over the inputs of the files that it is given, or over changed seeds: PYECHO_FUZZ_RUNS of them, drawn
// with PYECHO_FUZZ_SEED. What fails is in the file failed-input, to be given to the same program.
#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <random>

#include "fuzz.hpp"

namespace {

using Random = std::mt19937_64;
using Word = std::uint64_t;

constexpr std::size_t kMostBytes = std::size_t{1} << 14;
constexpr std::size_t kMostKept = 512;
constexpr Word kValues[] = {0, 1, 2, 3, 7, 60, 1000, 1U << 20U, 1ULL << 31, 1ULL << 32U, 1ULL << 62U, ~0ULL};

const Input* running = nullptr;

void keep_failed() {
  std::ofstream file("failed-input", std::ios::binary);
  file.write(reinterpret_cast<const char*>(running->data()), static_cast<std::streamsize>(running->size()));
}

std::size_t below(Random& random, std::size_t bound) { return bound == 0 ? 0 : random() % bound; }

std::uint64_t number_from(const char* variable, std::uint64_t usual) {
  const char* const text = std::getenv(variable);
  return text == nullptr ? usual : std::strtoull(text, nullptr, 10);
}

// Changes one place: a word, a bit, or a range of words, which lie side by side from the second byte on. More often one
// of the first ones, which say what the others are.
void change(Input& input, const Input& other, Random& random) {
  const auto word_in = [&](const Input& from) {
    return 1 + below(random, below(random, from.size() / sizeof(Word)) + 1) * sizeof(Word);
  };
  const std::size_t at = word_in(input);
  const std::size_t end = std::min(input.size(), at + sizeof(Word) * (1 + below(random, 4)));
  const auto iterator = [&](std::size_t place) { return input.begin() + static_cast<std::ptrdiff_t>(place); };
  if (at + sizeof(Word) > input.size()) {
    input.resize(at + sizeof(Word));
    return;
  }
  Word word = 0;
  std::memcpy(&word, input.data() + at, sizeof(word));
  switch (below(random, 8)) {
    case 0:
      input.erase(iterator(at), iterator(end));
      return;
    case 1: {
      const Input copy(iterator(at), iterator(end));
      input.insert(iterator(at), copy.begin(), copy.end());
      return;
    }
    case 2:
      input[at + below(random, sizeof(Word))] ^= static_cast<std::uint8_t>(1U << below(random, 8));
      return;
    case 3:
      word += below(random, 2) == 0 ? 1 : ~Word{0};
      break;
    case 4:
      std::memcpy(&word, input.data() + std::min(word_in(input), input.size() - sizeof(word)), sizeof(word));
      break;
    case 5:
      if (const std::size_t from = word_in(other); from + sizeof(word) <= other.size()) {
        std::memcpy(&word, other.data() + from, sizeof(word));
      }
      break;
    default:
      word = kValues[below(random, std::size(kValues))];
  }
  std::memcpy(input.data() + at, &word, sizeof(word));
}

int run(const Input& input) {
  running = &input;
  return LLVMFuzzerTestOneInput(input.data(), input.size());
}

}  // namespace

#ifdef __SANITIZE_ADDRESS__
extern "C" void __sanitizer_set_death_callback(void (*callback)());  // NOLINT(bugprone-reserved-identifier)
#endif

int main(int count, char** arguments) {
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_set_death_callback(keep_failed);
#endif
  std::signal(SIGABRT, [](int) { keep_failed(); });
  for (int i = 1; i < count; ++i) {
    std::ifstream file(arguments[i], std::ios::binary);
    run(Input(std::istreambuf_iterator<char>(file), {}));
  }
  if (count == 1) {
    std::vector<Input> inputs = seeds();
    const std::size_t first = inputs.size();
    Random random(number_from("PYECHO_FUZZ_SEED", 0));
    for (std::uint64_t runs = number_from("PYECHO_FUZZ_RUNS", 20'000); runs > 0; --runs) {
      Input input = inputs[below(random, inputs.size())];
      for (std::size_t changes = 1 + below(random, 3); changes > 0; --changes) {
        change(input, inputs[below(random, inputs.size())], random);
      }
      if (run(input) == 0 && input.size() <= kMostBytes) {
        inputs.size() < kMostKept ? inputs.push_back(input)
                                  : void(inputs[first + below(random, kMostKept - first)] = input);
      }
    }
  }
  report();
}

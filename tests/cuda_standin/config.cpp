#include "config.hpp"

#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string_view>

namespace pyecho::standin {
namespace {

[[noreturn]] void refuse(const std::string& variable, std::string_view text) {
  std::fprintf(stderr, "stand-in for libcuda: %s=%.*s makes no sense\n", variable.c_str(),
               static_cast<int>(text.size()), text.data());
  std::abort();
}

template <class Number>
Number parse(const std::string& variable, std::string_view text) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size()) {
    refuse(variable, text);
  }
  return number;
}

const char* text_of(const std::string& variable) {
  const char* const text = std::getenv(variable.c_str());
  return text == nullptr || *text == '\0' ? nullptr : text;
}

template <class Number>
void read(const std::string& variable, Number& value) {
  if (const char* const text = text_of(variable)) {
    value = parse<Number>(variable, text);
  }
}

Failure parse_failure(const std::string& variable, const std::string& text) {
  std::istringstream parts(text);
  std::string nth;
  std::string result;
  if (!std::getline(parts, nth, ':') || !std::getline(parts, result, ':')) {
    refuse(variable, text);
  }
  Failure failure{.function = "",
                  .calls_left = parse<std::uint64_t>(variable, nth),
                  .result = parse<Result>(variable, result),
                  .sticky = false};
  for (std::string part; std::getline(parts, part, ':');) {
    if (part == "sticky") {
      failure.sticky = true;
    } else {
      failure.function = part;
    }
  }
  if (failure.calls_left == 0) {
    refuse(variable, text);
  }
  return failure;
}

}  // namespace

std::set<std::string> split_names(const char* names) {
  std::set<std::string> split;
  std::istringstream parts(names == nullptr ? "" : names);
  for (std::string name; std::getline(parts, name, ',');) {
    split.insert(name);
  }
  return split;
}

Config config_from_environment() {
  Config config;
  read("PYECHO_STANDIN_VERSION", config.version);
  read("PYECHO_STANDIN_DEVICES", config.devices);
  read("PYECHO_STANDIN_INIT_RESULT", config.init_result);
  read("PYECHO_STANDIN_NUMA_NODE", config.numa_node);
  read("PYECHO_STANDIN_REGISTER_LIMIT", config.register_limit);
  read("PYECHO_STANDIN_SEED", config.seed);
  read("PYECHO_STANDIN_MAX_DELAY_US", config.max_delay_us);
  config.hidden = split_names(text_of("PYECHO_STANDIN_HIDE"));
  if (const char* const text = text_of("PYECHO_STANDIN_FAIL_CALL")) {
    config.failure = parse_failure("PYECHO_STANDIN_FAIL_CALL", text);
  }
  return config;
}

}  // namespace pyecho::standin

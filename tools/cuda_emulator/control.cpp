// The controls of tests: settings, failures, questions. control.py is the other side.
#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <set>
#include <sstream>

#include "emulator.hpp"

namespace emulator {

thread_local std::vector<int> contexts;

namespace {

constexpr int kExitOfViolations = 70;

struct CallFault {
  std::string function;
  int64_t countdown;
  int code;
  bool sticky;
};

struct Calls {
  int64_t count = 0;
  bool passive = false;
};

struct RunningFault {
  Kind kind;
  int64_t countdown;
  int code;
};

// Never destroyed, because streams run until the process is gone.
auto& call_faults = *new std::vector<CallFault>;
auto& running_faults = *new std::vector<RunningFault>;
auto& calls = *new std::map<std::string, Calls>;
auto& spared = *new std::set<std::string>;
auto& last_violation = *new std::string;
thread_local bool is_spared;  // the function that runs
int broken = 0;               // every call answers this
int failed_running = 0;       // and this after the next synchronising call
std::mutex text_mutex;
std::atomic<int64_t> violations{0};
std::atomic<bool> is_forked{false};

// All that tests read and write by name.
std::map<std::string, int64_t*>& numbers() {
  Settings& s = machine().settings;
  Counts& c = machine().counts;
  static auto& all = *new std::map<std::string, int64_t*>{
      {"devices", &s.devices},
      {"delay_us", &s.delay_us},
      {"seed", &s.seed},
      {"device_limit", &s.device_limit},
      {"pinned_limit", &s.pinned_limit},
      {"version", &s.version},
      {"expecting", &s.expecting},
      {"expected", &c.expected},
      {"pinned_copies", &c.pinned_copies},
      {"pageable_copies", &c.pageable_copies},
      {"device_copies", &c.device_copies},
      {"kernels", &c.kernels},
      {"pinned_bytes", &c.pinned_bytes},
      {"streams", &c.streams},
      {"events", &c.events},
  };
  return all;
}

void write_all(int file, const std::string& text) {
  if (write(file, text.data(), text.size()) < 0) return;
}

// At exit, behind Python's own end: a process that passed fails if there was a violation.
void at_exit() {
  if (violations == 0) return;
  write_all(STDERR_FILENO, "[cuda emulator] " + std::to_string(violations) + " violations\n");
  std::fflush(nullptr);
  _exit(kExitOfViolations);
}

// CUDA_EMULATOR="devices=2 delay_us=1500".
void read_environment() {
  const char* text = std::getenv("CUDA_EMULATOR");
  std::istringstream words(text ? text : "");
  for (std::string word; words >> word;) {
    const size_t equals = word.find('=');
    const std::string name = word.substr(0, equals), value = word.substr(equals + 1);
    if (auto found = numbers().find(name); found != numbers().end()) {
      *found->second = std::strtoll(value.c_str(), nullptr, 10);
    } else {
      std::fprintf(stderr, "[cuda emulator] CUDA_EMULATOR: nothing is called %s\n", name.c_str());
      _exit(kExitOfViolations);
    }
  }
}

}  // namespace

Machine& machine() {
  static auto* const the_machine = new Machine;
  return *the_machine;
}

void initialize() {
  Machine& m = machine();
  if (m.initialized) return;
  m.initialized = true;
  read_environment();
  m.random.seed(static_cast<uint64_t>(m.settings.seed));
  m.devices.resize(static_cast<size_t>(m.settings.devices));
  for (size_t number = 0; number < m.devices.size(); ++number) {
    m.devices[number].legacy = create_stream(static_cast<int>(number), false, 0);
    m.devices[number].legacy->legacy = true;
    m.devices[number].freeing = create_stream(static_cast<int>(number), false, 0);
    destroy_stream(*m.devices[number].freeing);  // for everybody else
  }
  std::atexit(at_exit);
  pthread_atfork(nullptr, nullptr, [] { is_forked = machine().in_use; });
}

void use_context(int device) { machine().devices[device].has_context = true; }

void enter(const char* function, bool passive) {
  is_spared = spared.count(function) > 0;
  ++calls[function].count;
  calls[function].passive = passive;
  for (size_t i = 0; i < call_faults.size(); ++i) {
    CallFault& fault = call_faults[i];
    if (fault.function != function || --fault.countdown > 0) continue;
    const int code = fault.code;
    if (fault.sticky) broken = code;
    call_faults.erase(call_faults.begin() + static_cast<std::ptrdiff_t>(i));
    throw Failure{code};
  }
  if (broken && !passive && !is_spared) throw Failure{broken};
}

bool fails_now(Kind kind) {
  if (kind == Kind::kMark) return false;
  if (kind == Kind::kKernel) ++machine().counts.kernels;
  for (size_t i = 0; i < running_faults.size(); ++i) {
    if (running_faults[i].kind != kind || --running_faults[i].countdown > 0) continue;
    failed_running = running_faults[i].code;
    running_faults.erase(running_faults.begin() + static_cast<std::ptrdiff_t>(i));
    break;
  }
  return failed_running != 0 || broken != 0;  // nothing runs on a broken device
}

void show_running_failure() {
  if (failed_running) broken = failed_running;
  if (broken && !is_spared) throw Failure{broken};
}

bool forked() { return is_forked; }

void note_forked_call(const char* function) {
  violation(std::string(function) + " was called in a forked child of a process that uses CUDA");
}

void violation(const std::string& text) {
  if (!forked()) {
    const std::scoped_lock lock(text_mutex);
    last_violation = text;
  }
  if (machine().settings.expecting) {
    ++machine().counts.expected;
    return;
  }
  ++violations;
  const std::string line = "[cuda emulator] VIOLATION: " + text + "\n";
  write_all(STDERR_FILENO, line);
  if (const char* path = std::getenv("CUDA_EMULATOR_REPORT")) {
    const int file = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
    if (file >= 0) write_all(file, std::to_string(getpid()) + ": " + line), close(file);
  }
}

}  // namespace emulator

// ---- The interface of control.py and operators.py ----

using emulator::machine;

extern "C" {

// Starts afresh but for memory, streams and work: settings as in the environment, no faults.
void emulator_reset() {
  emulator::Lock lock(machine().mutex);
  emulator::initialize();
  const auto devices = machine().settings.devices;
  machine().settings = {};
  emulator::read_environment();
  machine().settings.devices = devices;
  emulator::call_faults.clear();
  emulator::running_faults.clear();
  emulator::spared.clear();
  emulator::broken = emulator::failed_running = 0;
  emulator::violations = 0;
  for (emulator::Stream* stream : machine().streams) stream->held = false;
  machine().random.seed(static_cast<uint64_t>(machine().settings.seed));
  machine().changed.notify_all();
}

int emulator_set(const char* name, int64_t value) {
  emulator::Lock lock(machine().mutex);
  auto found = emulator::numbers().find(name);
  if (found == emulator::numbers().end()) return -1;
  *found->second = value;
  if (std::string(name) == "seed") machine().random.seed(static_cast<uint64_t>(value));
  return 0;
}

int64_t emulator_get(const char* name) {
  if (std::string(name) == "violations") return emulator::violations;
  emulator::Lock lock(machine().mutex);
  auto found = emulator::numbers().find(name);
  return found == emulator::numbers().end() ? -1 : *found->second;
}

int64_t emulator_device_bytes(int device) {
  emulator::Lock lock(machine().mutex);
  return machine().devices.at(static_cast<size_t>(device)).used_bytes;
}

void emulator_hold(void* stream, int device, int held) {
  emulator::Lock lock(machine().mutex);
  emulator::stream_of(stream, device).held = held != 0;
  machine().changed.notify_all();
}

void emulator_fail(const char* function, int64_t nth, int code, int sticky) {
  emulator::Lock lock(machine().mutex);
  emulator::call_faults.push_back({function, nth, code, sticky != 0});
}

void emulator_spare(const char* function) {
  emulator::Lock lock(machine().mutex);
  emulator::spared.insert(function);
}

void emulator_fail_running(int kernels, int64_t nth, int code) {
  emulator::Lock lock(machine().mutex);
  emulator::running_faults.push_back({kernels ? emulator::Kind::kKernel : emulator::Kind::kCopy, nth, code});
}

// Writes "name count passive\n" for each function that was called; returns the size of that text.
size_t emulator_calls(char* text, size_t size) {
  emulator::Lock lock(machine().mutex);
  std::ostringstream list;
  for (const auto& [name, made] : emulator::calls) list << name << ' ' << made.count << ' ' << made.passive << '\n';
  const std::string all = list.str();
  if (all.size() < size) std::memcpy(text, all.c_str(), all.size() + 1);
  return all.size();
}

void emulator_violation(const char* text) { emulator::violation(text); }

void emulator_last_violation(char* text, size_t size) {
  const std::scoped_lock lock(emulator::text_mutex);
  std::snprintf(text, size, "%s", emulator::last_violation.c_str());
}

// Launches a function of the host as a kernel, counted and failed as cudaLaunchKernel(). One that
// is captured may run many times.
int emulator_launch(void* handle, int device, void (*function)(void*), void* argument, int* captured) {
  return emulator::call("cudaLaunchKernel", false, [&](emulator::Lock&) {
    emulator::Stream& stream = emulator::stream_of(handle, device);
    *captured = stream.capture != nullptr;
    emulator::issue(stream, emulator::Kind::kKernel, [=] { function(argument); });
  });
}

// Waits until all work has run that was issued so far, but on held streams.
void emulator_settle() {
  emulator::Lock lock(machine().mutex);
  emulator::wait_for(lock, [](const emulator::Stream& stream) { return !stream.held; });
}

// Lets all work run, and no kernel after that: Python, which runs them, is about to end.
void emulator_finish() {
  if (emulator::forked() || !machine().initialized) return;
  emulator::Lock lock(machine().mutex);
  machine().settings.delay_us = 0;
  for (emulator::Stream* stream : machine().streams) stream->held = false;
  machine().changed.notify_all();
  emulator::wait_for(lock, [](const emulator::Stream&) { return true; });
  machine().finished = true;
}
}

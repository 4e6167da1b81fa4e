// What happens to the stand-in when the process forks, exits, or unloads it.
#include <dlfcn.h>
#include <pthread.h>

#include <cstdlib>

#include "state.hpp"

namespace pyecho::standin {
namespace {

// The child gets the mutex in a state that it can use, and a driver that is dead if it had been alive.
void before_fork() { the_state().mutex.lock(); }
void in_parent() { the_state().mutex.unlock(); }
void in_child() {
  State& state = the_state();
  state.forked = state.forked || state.initialized;
  state.mutex.unlock();
}

void at_exit() {
  State& state = the_state();
  Lock lock(state.mutex);
  if (state.forked) {
    return;  // the threads stayed in the parent
  }
  state.exiting = true;
  deinitialize(state, lock);
}

// dlclose() must not pull the code from under the threads of the streams.
void stay_loaded() {
  Dl_info info;
  if (dladdr(reinterpret_cast<const void*>(&at_exit), &info) != 0) {
    static_cast<void>(dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE));
  }
}

[[gnu::constructor]] void when_loaded() {
  the_state();
  stay_loaded();
  std::atexit(&at_exit);
  pthread_atfork(&before_fork, &in_parent, &in_child);
}

}  // namespace
}  // namespace pyecho::standin

// Lets a wheel run on glibc 2.28 and libstdc++ of GCC 8 (manylinux_2_28), although it is compiled on a newer system.
//
// Symbols that the newer system's libraries have in a newer version only, or anew, are defined here instead, hidden.
// Most of them forward to the old version of the same symbol, which the libraries have kept. `auditwheel` (in
// `make wheels`) fails if the compiler refers to another new symbol.
#include <dlfcn.h>
#include <pthread.h>
#include <time.h>

#include <cstdint>
#include <new>

#define PYECHO_HIDDEN extern "C" __attribute__((visibility("hidden")))
// Declares `name` as the symbol `symbol` of the version `version`.
#define PYECHO_OLD(name, symbol, version) __asm__(".symver " #name ", " symbol "@" version)

extern "C" {
int pyecho_old_once(pthread_once_t* once, void (*routine)());
int pyecho_old_trylock(pthread_mutex_t* mutex);
void* pyecho_old_dlsym(void* handle, const char* name);
void pyecho_old_wait(void* condition, void* lock);
double pyecho_old_exp(double value);
double pyecho_old_log(double value);
// Exported by all versions, but inline in the headers since GCC 12, on top of two new functions.
void pyecho_copy(void* to, const void* from) __asm__("_ZNSt15__exception_ptr13exception_ptrC1ERKS0_");
void pyecho_destroy(void* exception) __asm__("_ZNSt15__exception_ptr13exception_ptrD1Ev");
}

PYECHO_OLD(pyecho_old_once, "pthread_once", "GLIBC_2.2.5");
PYECHO_OLD(pyecho_old_trylock, "pthread_mutex_trylock", "GLIBC_2.2.5");
PYECHO_OLD(pyecho_old_dlsym, "dlsym", "GLIBC_2.2.5");
PYECHO_OLD(pyecho_old_exp, "exp", "GLIBC_2.2.5");
PYECHO_OLD(pyecho_old_log, "log", "GLIBC_2.2.5");
PYECHO_OLD(pyecho_old_wait, "_ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE", "GLIBCXX_3.4.11");

namespace {

using ClockWait = int (*)(pthread_cond_t*, pthread_mutex_t*, clockid_t, const timespec*);

constexpr std::int64_t kSecondNs = 1'000'000'000;

// As libstdc++ does where there is no pthread_cond_clockwait(), glibc 2.30's: waits by the system's clock. If that is
// set back meanwhile, the wait takes longer.
int wait_by_system_clock(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock, const timespec* until) {
  timespec now{};
  timespec system{};
  clock_gettime(clock, &now);
  clock_gettime(CLOCK_REALTIME, &system);
  const std::int64_t at_ns =
      (system.tv_sec + until->tv_sec - now.tv_sec) * kSecondNs + system.tv_nsec + until->tv_nsec - now.tv_nsec;
  const timespec at{.tv_sec = at_ns / kSecondNs, .tv_nsec = at_ns % kSecondNs};
  return pthread_cond_timedwait(condition, mutex, &at);
}

}  // namespace

// "False" makes reference counts atomic at all times.
PYECHO_HIDDEN char pyecho_single_threaded __asm__("__libc_single_threaded");
char pyecho_single_threaded = 0;

// The newer ones compute the same, but do not set errno.
PYECHO_HIDDEN double pyecho_exp(double value) __asm__("exp");
double pyecho_exp(double value) { return pyecho_old_exp(value); }

PYECHO_HIDDEN double pyecho_log(double value) __asm__("log");
double pyecho_log(double value) { return pyecho_old_log(value); }

PYECHO_HIDDEN int pyecho_once(pthread_once_t* once, void (*routine)()) __asm__("pthread_once");
int pyecho_once(pthread_once_t* once, void (*routine)()) { return pyecho_old_once(once, routine); }

PYECHO_HIDDEN int pyecho_trylock(pthread_mutex_t* mutex) __asm__("pthread_mutex_trylock");
int pyecho_trylock(pthread_mutex_t* mutex) { return pyecho_old_trylock(mutex); }

PYECHO_HIDDEN int pyecho_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock,
                                   const timespec* until) __asm__("pthread_cond_clockwait");
int pyecho_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock, const timespec* until) {
  static const auto newer = reinterpret_cast<ClockWait>(pyecho_old_dlsym(RTLD_DEFAULT, "pthread_cond_clockwait"));
  return (newer != nullptr ? newer : wait_by_system_clock)(condition, mutex, clock, until);
}

PYECHO_HIDDEN void pyecho_wait(void* condition,
                               void* lock) __asm__("_ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE");
void pyecho_wait(void* condition, void* lock) { pyecho_old_wait(condition, lock); }

PYECHO_HIDDEN void pyecho_addref(void* exception) __asm__("_ZNSt15__exception_ptr13exception_ptr9_M_addrefEv");
void pyecho_addref(void* exception) {
  void* never_destroyed = nullptr;
  pyecho_copy(static_cast<void*>(&never_destroyed), exception);
}

PYECHO_HIDDEN void pyecho_release(void* exception) __asm__("_ZNSt15__exception_ptr13exception_ptr10_M_releaseEv");
void pyecho_release(void* exception) { pyecho_destroy(exception); }

PYECHO_HIDDEN [[noreturn]] void pyecho_throw_bad_length() __asm__("_ZSt28__throw_bad_array_new_lengthv");
void pyecho_throw_bad_length() { throw std::bad_array_new_length(); }

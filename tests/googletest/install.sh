# Installs GoogleTest where that needs no question: on Debian and its kin, as root or with a sudo that asks for
# nothing. Where this cannot be done, nothing happens, and CMake builds a release (CMakeLists.txt beside this file).
printf '#include <gtest/gtest.h>\n' | ${CXX:-c++} -x c++ -E - >/dev/null 2>&1 && exit 0
[ -z "$CMAKE_PREFIX_PATH$GTest_ROOT$GTest_DIR" ] || exit 0 # somebody has told CMake where it is
command -v apt-get >/dev/null || exit 0
if [ "$(id -u)" -eq 0 ]; then as_root=; else as_root="sudo -n"; fi
$as_root true 2>/dev/null || exit 0

echo "Installing GoogleTest (libgtest-dev)"
install() {
  $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -qq --yes --no-install-recommends libgtest-dev </dev/null
}
install 2>/dev/null || { $as_root apt-get update -qq && install; } || echo "apt-get failed: CMake will build GoogleTest"

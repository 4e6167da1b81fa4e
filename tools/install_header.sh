# install_header.sh HEADER PACKAGE...: with SYSTEM_PACKAGES=yes installs Debian packages that have a header, on Debian and its
# kin, as root or with a sudo that asks for nothing. Otherwise it says what is missing, and CMake decides.
header=$1
shift
printf '#include <stdio.h>\n#include <%s>\n' "$header" | ${CXX:-c++} -x c++ -E - >/dev/null 2>&1 && exit 0
[ -z "$CMAKE_PREFIX_PATH" ] || exit 0 # somebody has told CMake where things are
command -v apt-get >/dev/null || exit 0
if [ "$SYSTEM_PACKAGES" != yes ]; then
  echo "<$header> is missing: install $* for the whole system, or let make do it with SYSTEM_PACKAGES=yes"
  exit 0
fi
if [ "$(id -u)" -eq 0 ]; then as_root=; else as_root="sudo -n"; fi
$as_root true 2>/dev/null || exit 0

echo "<$header> is missing: installing for the whole system, by $as_root${as_root:+ }apt-get: $*"
install() {
  $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -qq --yes --no-install-recommends "$@" </dev/null
}
install "$@" 2>/dev/null || { $as_root apt-get update -qq && install "$@"; } || echo "apt-get failed: going on without $*"

#!/bin/sh
# Builds a free-threaded CPython from the distribution's source package, and runs pyecho's Python tests on it.
#
#     tools/free_threaded.sh [--tsan] [--prefix FOLDER] [TESTS...]
#
# --tsan    then also builds Python and pyecho with ThreadSanitizer, runs the tests of shared stages, and fails if a
#           report names code of pyecho's. Reports of races inside Python are only counted
# --prefix  where everything goes, and stays for the next run; default: build/free-threaded
# TESTS     what pytest gets; default: the tests of stages and loaders. Those that need PyTorch, too, if pip can install it,
#           which from PyPI takes gigabytes (see CONTRIBUTING.md); else the script says that they are left out
#
# Needs a Debian or a relative of it with apt-get, a C++20 compiler, make, and for Python's modules the headers of
# OpenSSL, libffi and zlib. Installs nothing outside of the folder. Takes about 10 minutes on two cores, or 25 with --tsan.
set -eu

root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
prefix=$root/build/free-threaded
tsan=
while [ $# -gt 0 ]; do
  case $1 in
    --tsan) tsan=yes ;;
    --prefix) prefix=$2 && shift ;;
    -h | --help) sed -n '2,/^set/{/^#/s/^# \{0,1\}//p;}' "$0" && exit ;;
    *) break ;;
  esac
  shift
done
mkdir -p "$prefix"
prefix=$(CDPATH='' cd -- "$prefix" && pwd)
jobs=$(nproc 2>/dev/null || echo 2)

say() { printf '\n== %s\n' "$*"; }

# ThreadSanitizer of older compilers cannot live with the address randomisation of newer kernels.
without_aslr() { if setarch "$(uname -m)" -R true 2>/dev/null; then setarch "$(uname -m)" -R "$@"; else "$@"; fi; }

# apt-get and apt-cache with lists of their own.
apt_private() {
  command=$1
  shift
  "$command" -qq -o Dir::Etc::SourceList="$prefix/apt/sources.list" -o Dir::Etc::SourceParts=- \
    -o Dir::State::Lists="$prefix/apt/lists" -o Dir::Cache="$prefix/apt" -o APT::Sandbox::User="$(id -un)" "$@"
}

# The machine's own sources as deb-src lines, for its release and newer ones. Those that do not exist are passed over.
write_sources() {
  apt-get indextargets --format "\$(REPO_URI) \$(RELEASE) \$(COMPONENT) \$(SIGNED_BY)" "Created-By: Packages" |
    while read -r uri release component key; do
      [ "$component" = main ] || continue
      case $key in /*) options="[signed-by=$key] " ;; *) options= ;; esac
      for suite in "$release" stable testing unstable; do
        echo "deb-src $options$uri $suite main"
      done
    done | sort -u >"$prefix/apt/sources.list"
}

# Fetches the newest source package of a Python with free threads that the mirror has.
fetch_source() {
  mkdir -p "$prefix/apt/lists/partial" "$prefix/apt/archives/partial" "$prefix/source"
  write_sources
  apt_private apt-get update || say "Some sources cannot be read; going on with the others"
  for package in python3.14 python3.13; do
    for version in $(apt_private apt-cache showsrc "$package" 2>/dev/null | sed -n 's/^Version: //p' | sort -Vru); do
      say "Fetching $package $version"
      if (cd "$prefix" && apt_private apt-get source --download-only --tar-only "$package=$version"); then
        tar -xf "$prefix/${package}_${version%-*}.orig.tar.xz" -C "$prefix/source" --strip-components=1
        return
      fi
    done
  done
  echo "no source package of Python 3.13 or newer can be had from the machine's apt sources" >&2
  exit 1
}

# build_python FOLDER OPTIONS...: builds and installs Python there.
build_python() {
  folder=$1
  shift
  [ ! -e "$folder/built" ] || return 0
  say "Building Python in $folder ($*)"
  mkdir -p "$folder/objects"
  (cd "$folder/objects" && "$prefix/source/configure" -q --disable-gil --without-ensurepip --disable-test-modules \
    --prefix="$folder" "$@" && without_aslr make -s -j"$jobs" && without_aslr make -s install) >"$folder.log" 2>&1 ||
    { tail -20 "$folder.log" && exit 1; }
  touch "$folder/built"
}

[ -e "$prefix/source/configure" ] || fetch_source
build_python "$prefix/python"

python=$prefix/venv/bin/python
if [ ! -x "$python" ]; then
  say "Making an environment"
  "$prefix/python/bin/python3" -m venv --without-pip "$prefix/venv"
  PYTHONPATH=$(echo "$prefix"/source/Lib/ensurepip/_bundled/pip-*.whl) "$python" -m pip --quiet install \
    --ignore-installed "$(echo "$prefix"/source/Lib/ensurepip/_bundled/pip-*.whl)"
fi
"$python" -m pip --quiet install --only-binary :all: "numpy>=2" "pytest>=8" hypothesis psutil tqdm
say "Installing pyecho"
# NumPy for the build, too, must be one that has a wheel: the newest may need a newer Python, and pip would compile it.
"$python" -m pip --quiet install --only-binary numpy "$root"

cd "$prefix"  # else ./pyecho would hide the installed package
if [ $# -eq 0 ]; then
  set -- "$root/tests/threads" "$root/tests/state" "$root/tests/adaptive"
  if "$python" -m pip --quiet install --only-binary :all: torch optree pyarrow; then
    set -- "$@" "$root/tests/core" "$root/tests/lifetimes" "$root/tests/loaders" "$root/tests/device"
  else
    say "PyTorch (or optree, pyarrow) has no wheel for this Python here: leaving out the tests that need it"
    # shellcheck disable=SC2046 # the names of tests have no spaces
    set -- "$@" $(grep -LE "import (torch|optree)|nest_kinds" \
      "$root"/tests/core/test_*.py "$root"/tests/lifetimes/test_*.py "$root"/tests/loaders/test_*.py)
  fi
fi
say "Running the tests with $("$python" -VV)"
PYTHON_GIL=0 "$python" -m pytest -c "$root/pyproject.toml" --rootdir "$root" -q -p no:cacheprovider "$@"
[ -n "$tsan" ] || exit 0

build_python "$prefix/python-tsan" --with-thread-sanitizer
say "Installing pyecho with ThreadSanitizer"
rm -rf "$prefix/site-tsan" "$prefix/reports"
mkdir "$prefix/reports"
"$python" -m pip --quiet install --only-binary numpy --no-deps --target "$prefix/site-tsan" \
  --config-settings=cmake.define.PYECHO_SANITIZE=thread --config-settings=install.strip=false "$root"
cat "$prefix"/source/Tools/tsan/supp*.txt >"$prefix/suppressions.txt"
site=$("$python" -c "import sysconfig; print(sysconfig.get_path('purelib'))")
say "Running the tests of shared stages under ThreadSanitizer"
TSAN_OPTIONS="suppressions=$prefix/suppressions.txt history_size=4 exitcode=0 log_path=$prefix/reports/report" \
  PYTHONPATH="$prefix/site-tsan:$site" without_aslr "$prefix/python-tsan/bin/python3" \
  -m pytest -c "$root/pyproject.toml" --rootdir "$root" -q -p no:cacheprovider "$root/tests/threads/test_shared_stages.py"
count=$(cat "$prefix"/reports/* 2>/dev/null | grep -c "^WARNING: ThreadSanitizer" || true)
ours=$(cat "$prefix"/reports/* 2>/dev/null | grep -cE "csrc/(core|bindings)|_core\.cpython" || true)
say "ThreadSanitizer: $count reports; lines that name pyecho: $ours (reports are in $prefix/reports)"
[ "$ours" -eq 0 ]

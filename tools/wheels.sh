#!/bin/sh
# wheels.sh: builds the sdist, and from it a wheel for the Python in PATH, into dist/. On Linux, auditwheel checks that the
# wheel runs on every system with glibc 2.28, and this script that nothing is exported but the C interface.
set -eu
built=build/wheels
rm -rf dist "$built"
python -m build --quiet --sdist --no-isolation --outdir dist .
case "$(uname -s)-$(uname -m)" in
  Linux-x86_64) old_glibc=ON platform=manylinux_2_28_x86_64 ;;
  Linux-*) old_glibc=OFF platform=auto ;;
  *) old_glibc=OFF platform= ;;
esac
python -m pip wheel --quiet --no-deps --no-build-isolation --config-settings=cmake.define.PYECHO_OLD_GLIBC=$old_glibc \
  --wheel-dir "$built" dist/*.tar.gz
if [ -z "$platform" ]; then
  cp "$built"/*.whl dist
  exit 0
fi
auditwheel repair --plat "$platform" --wheel-dir dist "$built"/*.whl

python -m zipfile --extract dist/*.whl "$built/files"
for library in "$built"/files/pyecho/_core*.so "$built"/files/pyecho/lib/libpyecho.so; do
  if nm --dynamic --defined-only --format=posix "$library" | grep -vE '^(PyInit__core|pyecho_[a-z_]+) T '; then
    echo "$library exports more than its interface" >&2
    exit 1
  fi
done
ls -l dist

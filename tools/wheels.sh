#!/bin/sh
# wheels.sh: builds the sdist, and from it a wheel for the Python in PATH, into dist/. On Linux auditwheel tags the wheel with
# the oldest glibc that has all its symbols, which is about as new as this system's. Wheels for older systems are built by
# cibuildwheel, in images with a toolchain of their own (.github/workflows/release.yml). This script checks that nothing is
# exported but the modules and the C interface.
set -eu
built=build/wheels
rm -rf dist "$built"
python -m build --quiet --sdist --no-isolation --outdir dist .
python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir "$built" dist/*.tar.gz
if [ "$(uname -s)" != Linux ]; then
  cp "$built"/*.whl dist
  exit 0
fi
auditwheel repair --wheel-dir dist "$built"/*.whl

python -m zipfile --extract dist/*.whl "$built/files"
for library in $(find "$built/files" -name "*.so"); do
  if nm --dynamic --defined-only --format=posix "$library" | grep -vE '^(PyInit__core|PyInit__races|pyecho_[a-z_]+) T '; then
    echo "$library exports more than its interface" >&2
    exit 1
  fi
done
ls -l dist

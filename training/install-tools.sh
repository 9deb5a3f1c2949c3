#!/usr/bin/env bash
# Installs what LightGBM's build needs and the machine lacks: a C++ compiler, libclang, and CMake 3.28 or newer
# (in a Python environment at the folder given, whose bin/ then goes first in PATH).
set -euo pipefail
tools="${1:?usage: install-tools.sh FOLDER}"

as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi; }

new_enough() { # a cmake command
  local version
  version="$("$1" --version 2>/dev/null | sed -n '1s/[^0-9]*\([0-9]*\)\.\([0-9]*\).*/\1 \2/p')"
  [ -n "$version" ] || return 1
  # shellcheck disable=SC2086
  set -- $version
  [ "$1" -gt 3 ] || { [ "$1" -eq 3 ] && [ "$2" -ge 28 ]; }
}

# bindgen loads libclang at build time. The C++ interface (libclang-cpp) is another library.
has_libclang() {
  local folder
  [ -n "${LIBCLANG_PATH:-}" ] || ldconfig -p 2>/dev/null | grep -Eq 'libclang(-[0-9.]+)?\.so' ||
    [ -e /Library/Developer/CommandLineTools/usr/lib/libclang.dylib ] && return
  for folder in /usr/lib/llvm-*/lib "$(llvm-config --libdir 2>/dev/null)"; do
    compgen -G "$folder/libclang.*" >/dev/null || compgen -G "$folder/libclang-[0-9]*" >/dev/null && return
  done
  return 1
}

missing=()
command -v c++ >/dev/null || missing+=(g++)
command -v make >/dev/null || missing+=(make)
has_libclang || missing+=(libclang-dev)
if ! new_enough cmake && ! new_enough "$tools/bin/cmake"; then
  python3 -c 'import ensurepip, venv' 2>/dev/null || missing+=(python3-venv)
fi
if [ ${#missing[@]} -gt 0 ]; then
  command -v apt-get >/dev/null || { echo "install these by hand: ${missing[*]}"; exit 1; }
  as_root apt-get update -q
  as_root apt-get install -y -q --no-install-recommends "${missing[@]}"
fi

if ! new_enough cmake && ! new_enough "$tools/bin/cmake"; then
  python3 -m venv "$tools"
  "$tools/bin/pip" install -q 'cmake>=3.28,<5'
fi

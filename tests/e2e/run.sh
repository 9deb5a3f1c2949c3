#!/usr/bin/env bash
# Sends real prompts through `bear serve` over three `bear engine` processes with OpenAI's Python client.
# Needs Python 3 with venv, the PyPI registry, and BEAR_DATA (a folder with prompts/*.jsonl.gz); skips without.
set -euo pipefail
cd "$(dirname "$0")/../.."

if [ ! -d "${BEAR_DATA:-../shared/data}/prompts" ]; then
  echo "SKIPPED: no prompts; set BEAR_DATA to a folder that holds prompts/*.jsonl.gz"
  exit 0
fi
export BEAR_DATA="${BEAR_DATA:-../shared/data}"

cargo build --release --locked --bin bear
bear="${CARGO_TARGET_DIR:-target}/release/bear"

venv="${BEAR_E2E_VENV:-target/e2e-venv}"
if [ ! -x "$venv/bin/python" ]; then
  python3 -m venv "$venv"
  "$venv/bin/pip" install -q 'openai>=2,<4' 'httpx>=0.27,<1' || { rm -rf "$venv"; exit 1; }
fi
exec "$venv/bin/python" tests/e2e/openai_client.py "$bear" "$@"

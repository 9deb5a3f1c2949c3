# The commands a person types. Everything else is cargo.

CARGO ?= cargo
# cargo-nextest runs the tests where it is installed; plain cargo does otherwise.
NEXTEST := $(shell $(CARGO) nextest --version >/dev/null 2>&1 && echo yes)
TRAINING_TOOLS := $(CURDIR)/target/training-tools

.PHONY: help demo test test-all test-training e2e lint figures bench bundle training-tools tools

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

tools:
	@command -v $(CARGO) >/dev/null || { echo "cargo is missing: install Rust 1.94 or newer from https://rustup.rs"; exit 1; }
	@command -v cc >/dev/null || { echo "a C compiler is missing: apt-get install build-essential"; exit 1; }

demo: tools ## Build BEAR and run it over three simulated engines with sample traffic (Ctrl-C ends it)
	@echo "Building in release mode; the first time takes several minutes."
	$(CARGO) run --release --locked --bin bear -- demo $(ARGS)

test: tools ## Run the tests (Rust and a C compiler are enough)
ifndef BEAR_DATA
	@echo "BEAR_DATA is not set: tests that replay a real engine's recordings are skipped."
endif
ifeq ($(NEXTEST),yes)
	$(CARGO) nextest run --locked
	$(CARGO) test --locked --doc
else
	$(CARGO) test --locked
endif

test-all: test test-training ## Run every test, the training package included (installs its tools)

test-training: tools training-tools
	PATH="$(TRAINING_TOOLS)/bin:$$PATH" $(CARGO) test --locked --package bear-training
	PATH="$(TRAINING_TOOLS)/bin:$$PATH" $(CARGO) clippy --locked --package bear-training --all-targets -- -D warnings

e2e: tools ## Drive `bear serve` with OpenAI's Python client (needs Python and BEAR_DATA)
	tests/e2e/run.sh

training-tools: ## Install what LightGBM's build needs: libclang and CMake 3.28 or newer
	training/install-tools.sh "$(TRAINING_TOOLS)"

lint: tools ## Check format, lints, docs and licences
	$(CARGO) fmt --all --check
	$(CARGO) clippy --locked --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --locked --no-deps
	@if $(CARGO) deny --version >/dev/null 2>&1; then $(CARGO) deny --workspace check bans licenses sources; \
	else echo "cargo-deny is not installed: licences were not checked"; fi

figures: tools ## Play the lab's scenarios with 3 seeds and draw the paper's figures (target/figures/index.html)
	$(CARGO) run --release --locked --bin bear -- lab figures target/lab-results --out target/figures --play --seeds 3 $(ARGS)

bench: tools ## Run the benches
	$(CARGO) bench --locked --benches

bundle: training-tools ## Train models/demo and models/lab again from their seeds
	PATH="$(TRAINING_TOOLS)/bin:$$PATH" $(CARGO) run --release --locked --package bear-training -- demo --out models/demo
	PATH="$(TRAINING_TOOLS)/bin:$$PATH" $(CARGO) run --release --locked --package bear-training -- lab --out models/lab

SIMULATE := cargo run --release -p towline-simulation --
# The schema of deny.toml follows cargo-deny's minor version.
CARGO_DENY_VERSION := ^0.20
.NOTPARALLEL:
.PHONY: test tools imports fmt fmt-check lint unit doc simulate soak bare bench deny deny-if-present advisories

# Cheapest first: a wrong import is told before anything is compiled.
test: tools imports fmt-check lint unit doc simulate deny-if-present

tools:
	@scripts/install-test-tools

# The self-test comes first: a check that cannot fail proves nothing.
imports:
	scripts/check-imports --self-test
	scripts/check-imports

fmt:
	cargo fmt --all

fmt-check:
	cargo fmt --all --check

lint:
	cargo clippy --workspace --all-targets -- -D warnings

# nextest does not run doc tests, so `cargo test` leaves them to `doc` as well. With both, one failure hides no other.
unit:
	@if cargo nextest --version >/dev/null 2>&1; then \
		echo "cargo nextest run --workspace"; cargo nextest run --workspace; \
	else \
		echo "cargo test --workspace --tests --no-fail-fast"; cargo test --workspace --tests --no-fail-fast; \
	fi

doc:
	cargo test --workspace --doc --no-fail-fast
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps

# `--plant all` breaks the code on purpose, one invariant at a time: the checker must see each.
simulate:
	$(SIMULATE) --seeds 200 --steps 1000
	$(SIMULATE) --crash-everywhere --bit-flips 1000
	$(SIMULATE) --plant all

# TOWLINE_SOAK kills the real server a hundred times under 200,000 items, and sends it a million broken bodies.
# The check comes first, so that a missing right is not told after hours.
soak: tools
	scripts/bare-machine --check
	TOWLINE_SOAK=1 NEXTEST_PROFILE=soak $(MAKE) unit
	$(SIMULATE) --seeds 2000 --steps 2000
	$(SIMULATE) --crash-everywhere --bit-flips 1000
	$(SIMULATE) --plant all
	$(MAKE) bare

# The README's commands on a bare Debian 12, as root.
bare:
	scripts/bare-machine

bench:
	cargo run --release -p towline-embedded --example bench

deny:
	@cargo deny --version >/dev/null 2>&1 || cargo install --locked cargo-deny --version '$(CARGO_DENY_VERSION)'
	cargo deny check licenses bans sources

# cargo-deny takes minutes to build, so the tests use it but do not ask for it.
deny-if-present:
	@if cargo deny --version >/dev/null 2>&1; then $(MAKE) deny; fi

# Apart from `deny`: it fetches the advisory database.
advisories:
	@cargo deny --version >/dev/null 2>&1 || cargo install --locked cargo-deny --version '$(CARGO_DENY_VERSION)'
	cargo deny check advisories

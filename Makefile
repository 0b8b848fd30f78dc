SIMULATE := cargo run --release -p towline-simulation --

.NOTPARALLEL:
.PHONY: test tools imports fmt fmt-check lint unit doc simulate soak bare bench deny deny-or-say-so

# Cheapest first: a wrong import is reported before anything is compiled.
test: tools imports fmt-check lint unit doc simulate deny-or-say-so

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
# The check comes first, so that a missing right is reported at once, not after hours.
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

# Known vulnerabilities are checked if the database of them can be fetched.
deny: tools
	cargo deny check licenses bans sources
	@if cargo deny fetch db; then \
		echo "cargo deny check advisories"; cargo deny check advisories; \
	else \
		echo "make deny: SKIPPED known vulnerabilities: their database cannot be fetched"; \
	fi

# `tools` cannot install cargo-deny on a machine without a network. The other tests are worth running there.
deny-or-say-so:
	@if cargo deny --version >/dev/null 2>&1; then \
		$(MAKE) deny; \
	else \
		echo "make test: SKIPPED licences, bans, sources and vulnerabilities of dependencies: no cargo-deny here"; \
	fi

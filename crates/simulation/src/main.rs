//! `cargo run --release -p towline-simulation -- --seeds N --steps M [--base-seed S] [--plant NAME|all]`
//!
//! Exits with 0 only if no invariant was violated; with `--plant`, only if every planted bug was caught.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program that reports")]

use clap::Parser;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use towline_embedded::plant::Bug;
use towline_simulation::{bit_flips, crash_everywhere, trial};

/// Simulates the embedded store on a faulty disk.
#[derive(Parser)]
struct Arguments {
    /// Number of worlds to run, each from its own seed.
    #[arg(long, default_value_t = 200)]
    seeds: u64,
    /// Number of steps in each world.
    #[arg(long, default_value_t = 1000)]
    steps: u64,
    /// First seed.
    #[arg(long, default_value_t = 1)]
    base_seed: u64,
    /// Plant a bug and check that the simulation catches it: a name, or `all`.
    #[arg(long)]
    plant: Option<String>,
    /// Crash one workload at each of its disk operations, with every kind of power loss.
    #[arg(long)]
    crash_everywhere: bool,
    /// Number of disk operations of that workload.
    #[arg(long, default_value_t = 200)]
    operations: u64,
    /// Number of single bits to flip in closed stores.
    #[arg(long, default_value_t = 0)]
    bit_flips: u64,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let passed = match &arguments.plant {
        Some(name) => catch_planted_bugs(&arguments, name),
        None if arguments.crash_everywhere || arguments.bit_flips > 0 => {
            (!arguments.crash_everywhere || run_crash_everywhere(&arguments))
                && (arguments.bit_flips == 0 || run_bit_flips(&arguments))
        }
        None => run_worlds(&arguments),
    };
    if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn run_worlds(arguments: &Arguments) -> bool {
    let next = AtomicU64::new(0);
    let failures = AtomicU64::new(0);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let nth = next.fetch_add(1, Ordering::Relaxed);
                    if nth >= arguments.seeds {
                        break;
                    }
                    let seed = arguments.base_seed + nth;
                    if let Err(failure) = trial::run(seed, arguments.steps, None) {
                        failures.fetch_add(1, Ordering::Relaxed);
                        eprintln!("seed {seed}: {}", failure.0);
                        eprintln!(
                            "  replay: cargo run --release -p towline-simulation -- --seeds 1 --steps {} --base-seed {seed}",
                            arguments.steps
                        );
                    }
                }
            });
        }
    });
    let failed = failures.into_inner();
    println!("{} seeds x {} steps: {failed} violations", arguments.seeds, arguments.steps);
    failed == 0
}

fn catch_planted_bugs(arguments: &Arguments, name: &str) -> bool {
    let bugs: Vec<Bug> = Bug::ALL.iter().copied().filter(|bug| name == "all" || bug.name() == name).collect();
    if bugs.is_empty() {
        let names: Vec<&str> = Bug::ALL.iter().map(|bug| bug.name()).collect();
        eprintln!("no planted bug {name:?}; there are: all, {}", names.join(", "));
        return false;
    }
    // Planted bugs cause panics, whose traces would only clutter the output.
    std::panic::set_hook(Box::new(|_| {}));
    let mut caught = 0;
    for bug in &bugs {
        let seeds = arguments.base_seed..arguments.base_seed + arguments.seeds;
        match trial::catch(*bug, seeds, arguments.steps) {
            Some((seed, failure)) => {
                caught += 1;
                let message: String = failure.0.chars().take(150).collect();
                println!("caught {:<22} seed {seed:>4}: {message}", bug.name());
            }
            None => println!("MISSED {} in {} seeds", bug.name(), arguments.seeds),
        }
    }
    println!("{caught} of {} planted bugs caught", bugs.len());
    caught == bugs.len()
}

fn run_crash_everywhere(arguments: &Arguments) -> bool {
    match crash_everywhere::run(arguments.base_seed, arguments.operations) {
        Ok(runs) => {
            println!(
                "power off at each of {} disk operations, {runs} runs: 0 violations",
                arguments.operations
            );
            true
        }
        Err(failure) => {
            eprintln!("{}", failure.0);
            false
        }
    }
}

fn run_bit_flips(arguments: &Arguments) -> bool {
    let mut total = bit_flips::FlipCounts::default();
    let rounds = arguments.bit_flips.div_ceil(100);
    for round in 0..rounds {
        let seed = arguments.base_seed + round;
        match bit_flips::run(seed, 100.min(arguments.bit_flips - round * 100), None) {
            Ok(counts) => {
                total.refused += counts.refused;
                total.read_refused += counts.read_refused;
                total.harmless += counts.harmless;
            }
            Err(failure) => {
                eprintln!("seed {seed}: {}", failure.0);
                return false;
            }
        }
    }
    println!(
        "{} bit flips: {} refused at opening, {} refused at reading, {} harmless, 0 served",
        arguments.bit_flips, total.refused, total.read_refused, total.harmless
    );
    true
}

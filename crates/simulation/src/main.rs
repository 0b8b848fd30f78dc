//! `cargo run --release -p towline-simulation -- --seeds N --steps M [--base-seed S] [--plant NAME|all]`
//!
//! Exits 0 only if everything held; with `--plant`, only if each planted bug was caught.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program that reports")]

use clap::Parser;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use towline_embedded::plant::Bug;
use towline_simulation::{everywhere, flips, trial};

/// Simulates the embedded store on a faulty disk.
#[derive(Parser)]
struct Arguments {
    /// Worlds to run, each from its own seed.
    #[arg(long, default_value_t = 200)]
    seeds: u64,
    /// Steps in each world.
    #[arg(long, default_value_t = 1000)]
    steps: u64,
    #[arg(long, default_value_t = 1)]
    base_seed: u64,
    /// Put a bug in and see that it is caught: a name, or `all`.
    #[arg(long)]
    plant: Option<String>,
    /// Crash one workload at each of its disk operations, in every way.
    #[arg(long)]
    crash_everywhere: bool,
    /// Disk operations of that workload.
    #[arg(long, default_value_t = 200)]
    operations: u64,
    /// Flip so many single bits in closed stores.
    #[arg(long, default_value_t = 0)]
    bit_flips: u64,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let held = match &arguments.plant {
        Some(name) => plant(&arguments, name),
        None if arguments.crash_everywhere || arguments.bit_flips > 0 => {
            (!arguments.crash_everywhere || crash_everywhere(&arguments))
                && (arguments.bit_flips == 0 || bit_flips(&arguments))
        }
        None => worlds(&arguments),
    };
    if held { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn worlds(arguments: &Arguments) -> bool {
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
                    if let Err(broken) = trial::run(seed, arguments.steps, None) {
                        failures.fetch_add(1, Ordering::Relaxed);
                        eprintln!("seed {seed}: {}", broken.0);
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

fn plant(arguments: &Arguments, name: &str) -> bool {
    let bugs: Vec<Bug> = Bug::ALL.iter().copied().filter(|bug| name == "all" || bug.name() == name).collect();
    if bugs.is_empty() {
        let names: Vec<&str> = Bug::ALL.iter().map(|bug| bug.name()).collect();
        eprintln!("no planted bug {name:?}; there are: all, {}", names.join(", "));
        return false;
    }
    // Caught panics are part of it; their traces are not.
    std::panic::set_hook(Box::new(|_| {}));
    let mut caught = 0;
    for bug in &bugs {
        let seeds = arguments.base_seed..arguments.base_seed + arguments.seeds;
        match trial::catch(*bug, seeds, arguments.steps) {
            Some((seed, broken)) => {
                caught += 1;
                let told: String = broken.0.chars().take(150).collect();
                println!("caught {:<22} seed {seed:>4}: {told}", bug.name());
            }
            None => println!("MISSED {} in {} seeds", bug.name(), arguments.seeds),
        }
    }
    println!("{caught} of {} planted bugs caught", bugs.len());
    caught == bugs.len()
}

fn crash_everywhere(arguments: &Arguments) -> bool {
    match everywhere::run(arguments.base_seed, arguments.operations) {
        Ok(runs) => {
            println!(
                "power off at each of {} disk operations, {runs} runs: 0 violations",
                arguments.operations
            );
            true
        }
        Err(broken) => {
            eprintln!("{}", broken.0);
            false
        }
    }
}

fn bit_flips(arguments: &Arguments) -> bool {
    let mut total = flips::Tally::default();
    let rounds = arguments.bit_flips.div_ceil(100);
    for round in 0..rounds {
        let seed = arguments.base_seed + round;
        match flips::run(seed, 100.min(arguments.bit_flips - round * 100), None) {
            Ok(tally) => {
                total.refused += tally.refused;
                total.read_refused += tally.read_refused;
                total.harmless += tally.harmless;
            }
            Err(broken) => {
                eprintln!("seed {seed}: {}", broken.0);
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

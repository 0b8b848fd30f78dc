//! The size of a run: a short one for every test run, a long one for `make soak`.

#[derive(Debug, Clone, Copy)]
pub struct Plan {
    pub seed: u64,
    pub clients: u64,
    pub items: u64,
    pub kills: u64,
    /// After this many kills the clients pause and everything is compared.
    pub snapshot_every: u64,
}

impl Plan {
    /// The plan for several servers on one database.
    pub fn of_several() -> Plan {
        let short = Plan { items: 3000, kills: 8, ..Plan::new() };
        match std::env::var_os("TOWLINE_SOAK") {
            None => short,
            Some(_) => Plan { items: 100_000, kills: 60, ..short },
        }
    }

    /// `TOWLINE_SEED` repeats a run, as far as threads and kills allow.
    pub fn new() -> Plan {
        let seed = std::env::var("TOWLINE_SEED").map_or(1, |text| text.parse().expect("a number"));
        let short = Plan { seed, clients: 16, items: 5000, kills: 8, snapshot_every: 2 };
        match std::env::var_os("TOWLINE_SOAK") {
            None => short,
            Some(_) => Plan { items: 200_000, kills: 100, snapshot_every: 5, ..short },
        }
    }
}

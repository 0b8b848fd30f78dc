//! How many connections each client has, so that one client cannot take all of them.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

/// The connections of all clients, by network.
#[derive(Debug)]
pub(crate) struct Seats {
    /// Of one client. The rest is left for the other clients.
    max: usize,
    taken: Mutex<HashMap<u64, usize>>,
}

/// The place of one connection. Dropping it makes it free.
#[derive(Debug)]
pub(crate) struct Seat {
    seats: Arc<Seats>,
    network: u64,
}

/// What counts as one client: an IPv4 address, or an IPv6 /64 network, because a client with one address of such a network
/// usually has all of them.
pub(crate) fn network(address: IpAddr) -> u64 {
    match address.to_canonical() {
        IpAddr::V4(address) => u64::from(address.to_bits()),
        IpAddr::V6(address) => (address.to_bits() >> 64) as u64 | 1 << 63,
    }
}

/// One client may have three quarters of the connections, and one token as many requests in progress.
pub(crate) fn share_of_one_client(connections_max: usize) -> usize {
    connections_max - connections_max / 4
}

impl Seats {
    /// A proxy in front of the server is one client.
    pub(crate) fn new(connections_max: usize) -> Arc<Seats> {
        Arc::new(Seats { max: share_of_one_client(connections_max), taken: Mutex::default() })
    }

    /// `None` if the client has too many connections.
    pub(crate) fn take(self: &Arc<Seats>, address: IpAddr) -> Option<Seat> {
        let network = network(address);
        let mut taken = self.taken.lock();
        let count = taken.entry(network).or_default();
        if *count >= self.max {
            return None;
        }
        *count += 1;
        Some(Seat { seats: Arc::clone(self), network })
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut taken = self.seats.taken.lock();
        if let Some(count) = taken.get_mut(&self.network) {
            *count -= 1;
            if *count == 0 {
                taken.remove(&self.network);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_client_cannot_take_all_seats() {
        let seats = Seats::new(8);
        let take = |address: &str| seats.take(address.parse().unwrap());
        let mut held: Vec<Seat> = (0..6).map(|_| take("10.0.0.1").unwrap()).collect();
        assert!(take("10.0.0.1").is_none() && take("::ffff:10.0.0.1").is_none());
        held.extend([take("10.0.0.2").unwrap(), take("2001:db8::1").unwrap()]);
        held.remove(0);
        held.extend(take("10.0.0.1"));
        assert_eq!(held.len(), 8);
        drop(held);
        assert!(seats.taken.lock().is_empty());
        assert!(Seats::new(1).take("10.0.0.1".parse().unwrap()).is_some());
    }
}

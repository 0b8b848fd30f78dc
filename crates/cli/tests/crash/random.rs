//! Random choices from a seed.

#![allow(dead_code, reason = "each test binary uses what it needs")]

pub struct Random(u64);

impl Random {
    pub fn new(seed: u64, stream: u64) -> Random {
        Random(seed.wrapping_mul(0xd134_2543_de82_ef95) ^ stream.wrapping_mul(0xff51_afd7_ed55_8ccd))
    }

    pub fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.roll() % end.max(1)
    }

    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    pub fn pick<'a, T>(&mut self, list: &'a [T]) -> Option<&'a T> {
        let at = self.below(list.len() as u64);
        list.get(usize::try_from(at).unwrap())
    }

    /// Removes a random element.
    pub fn draw<T>(&mut self, list: &mut Vec<T>) -> Option<T> {
        let at = usize::try_from(self.below(list.len() as u64)).unwrap();
        (!list.is_empty()).then(|| list.swap_remove(at))
    }

    pub fn bytes(&mut self, length: u64) -> Vec<u8> {
        (0..length).map(|_| self.roll().to_le_bytes()[3]).collect()
    }
}

//! Which addresses pods have.

use std::net::Ipv4Addr;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::nodes;

#[derive(Debug, Default)]
pub struct Addresses {
    taken: FxHashSet<Ipv4Addr>,
    /// By node, the last one given out: one that was just given back is not given out again at once.
    last: FxHashMap<u32, u8>,
}

impl Addresses {
    /// One of the node's that nobody has, as long as there is one.
    pub fn give(&mut self, node: u32) -> Ipv4Addr {
        let network = nodes::pod_network(node).to_bits();
        let last = self.last.entry(node).or_insert(0);
        for _ in 0..254 {
            // The first and the last of a network are no hosts.
            *last = *last % 254 + 1;
            let address = Ipv4Addr::from_bits(network + u32::from(*last));
            if self.taken.insert(address) {
                return address;
            }
        }
        Ipv4Addr::from_bits(network + 255)
    }

    pub fn take(&mut self, address: Ipv4Addr) {
        self.taken.insert(address);
    }

    pub fn give_back(&mut self, address: Ipv4Addr) {
        self.taken.remove(&address);
    }

    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.taken.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_shares_while_there_are_enough() {
        let mut addresses = Addresses::default();
        addresses.take(Ipv4Addr::new(10, 64, 1, 2));
        let given: FxHashSet<Ipv4Addr> = (0..253).map(|_| addresses.give(1)).collect();
        assert_eq!(given.len(), 253);
        assert!(!given.contains(&Ipv4Addr::new(10, 64, 1, 2)));
        assert!(!given.contains(&Ipv4Addr::new(10, 64, 1, 0)));
        addresses.give_back(Ipv4Addr::new(10, 64, 1, 77));
        assert_eq!(addresses.give(1), Ipv4Addr::new(10, 64, 1, 77));
        assert_eq!(addresses.give(2), Ipv4Addr::new(10, 64, 2, 1));
    }
}

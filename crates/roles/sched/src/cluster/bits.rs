//! Sets of small numbers.

/// One bit a node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BitSet(Vec<u64>);

impl BitSet {
    pub fn contains(&self, index: usize) -> bool {
        self.0
            .get(index / 64)
            .is_some_and(|word| word >> (index % 64) & 1 == 1)
    }

    /// Whether that changed anything.
    pub fn set(&mut self, index: usize, present: bool) -> bool {
        let before = self.contains(index);
        if before == present {
            return false;
        }
        if index / 64 >= self.0.len() {
            self.0.resize(index / 64 + 1, 0);
        }
        self.0[index / 64] ^= 1 << (index % 64);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members() {
        let mut set = BitSet::default();
        assert!(set.set(70, true));
        assert!(!set.set(70, true));
        assert!(set.contains(70) && !set.contains(71) && !set.contains(700));
        assert!(!set.set(700, false));
        assert!(set.set(70, false));
        assert!(!set.contains(70));
    }
}

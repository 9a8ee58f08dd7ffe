//! What was met, to tell what comes again. Clients choose how much there is, so nothing is compared with all before it.

use std::collections::HashMap;
use std::hash::Hash;

/// So few are compared one by one, which is quicker than anything else.
const FEW: usize = 16;

/// How often each was met.
#[derive(Debug)]
pub struct Met<T> {
    few: Vec<(T, usize)>,
    /// Hashed with a secret, since clients choose what is in it.
    many: HashMap<T, usize>,
}

impl<T> Default for Met<T> {
    fn default() -> Self {
        Self {
            few: Vec::new(),
            many: HashMap::new(),
        }
    }
}

impl<T: Eq + Hash> Met<T> {
    /// Says how often it was met before.
    pub fn meet(&mut self, one: T) -> usize {
        if self.many.is_empty() {
            if let Some((_, times)) = self.few.iter_mut().find(|(known, _)| *known == one) {
                *times += 1;
                return *times - 1;
            }
            if self.few.len() < FEW {
                self.few.push((one, 1));
                return 0;
            }
            self.many.extend(self.few.drain(..));
        }
        let times = self.many.entry(one).or_default();
        *times += 1;
        *times - 1
    }

    pub fn times(&self, one: &T) -> usize {
        if self.many.is_empty() {
            let mut few = self.few.iter();
            return few
                .find(|(known, _)| known == one)
                .map_or(0, |(_, times)| *times);
        }
        self.many.get(one).copied().unwrap_or_default()
    }

    pub fn contains(&self, one: &T) -> bool {
        self.times(one) > 0
    }

    pub fn push(&mut self, one: T) {
        self.meet(one);
    }
}

impl<T: Eq + Hash> Extend<T> for Met<T> {
    fn extend<I: IntoIterator<Item = T>>(&mut self, all: I) {
        all.into_iter().for_each(|one| self.push(one));
    }
}

impl<T: Eq + Hash> FromIterator<T> for Met<T> {
    fn from_iter<I: IntoIterator<Item = T>>(all: I) -> Self {
        let mut met = Self::default();
        met.extend(all);
        met
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_met_is_counted() {
        for many in [1, FEW - 1, FEW, FEW + 1, 10 * FEW] {
            let mut met = Met::default();
            for round in 0..3 {
                for one in 0..many {
                    assert_eq!(met.times(&one), round, "{one} of {many}");
                    assert_eq!(met.meet(one), round, "{one} of {many}");
                }
            }
            assert!(!met.contains(&many));
        }
    }
}

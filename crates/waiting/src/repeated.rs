//! Lines that repeat, for those who have words of their own.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

use crate::episode::{Episode, Over, Times};

/// An [`Episode`] with a clock.
#[derive(Debug, Clone)]
pub struct Repeated {
    began: Instant,
    episode: Episode,
}

impl Default for Repeated {
    fn default() -> Self {
        Self {
            began: Instant::now(),
            episode: Episode::default(),
        }
    }
}

impl Repeated {
    /// It failed. `Some`: write the line, with the count.
    pub fn failed(&mut self) -> Option<Times> {
        self.episode.failed(self.began.elapsed())
    }

    /// It still fails. `Some`: write the line again.
    pub fn look(&mut self) -> Option<Times> {
        self.episode.look(self.began.elapsed())
    }

    /// It works. `Some`: say that it does again.
    pub fn well(&mut self) -> Option<Over> {
        self.episode.well(self.began.elapsed())
    }

    pub fn is_failing(&self) -> bool {
        self.episode.is_failing()
    }

    pub fn failing_for(&self) -> Option<Duration> {
        self.episode.failing_for(self.began.elapsed())
    }
}

/// The same line about different things.
#[derive(Debug)]
pub struct ByKey<K> {
    known: BTreeMap<K, Repeated>,
    most: usize,
}

impl<K: Ord + Clone> ByKey<K> {
    /// No more than so many things are remembered; the line about any other one is always written.
    pub fn new(most: usize) -> Self {
        Self {
            known: BTreeMap::new(),
            most,
        }
    }

    pub fn failed(&mut self, key: &K) -> Option<Times> {
        if let Some(one) = self.known.get_mut(key) {
            return one.failed();
        }
        let mut fresh = Repeated::default();
        let said = fresh.failed();
        if self.known.len() >= self.most {
            self.known.retain(|_, one| one.is_failing());
        }
        if self.known.len() < self.most {
            self.known.insert(key.clone(), fresh);
        }
        said
    }

    pub fn well(&mut self, key: &K) -> Option<Over> {
        self.known.get_mut(key)?.well()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_thing_has_its_own_count() {
        let mut lines = ByKey::new(2);
        assert!(lines.failed(&"a").is_some());
        assert!(lines.failed(&"a").is_none());
        assert!(lines.failed(&"b").is_some());
        assert!(lines.well(&"b").is_some() && lines.well(&"b").is_none());
        assert!(lines.well(&"c").is_none());
        // What is well makes room.
        assert!(lines.failed(&"c").is_some() && lines.failed(&"c").is_none());
        assert!(lines.failed(&"d").is_some() && lines.failed(&"d").is_some());
    }
}

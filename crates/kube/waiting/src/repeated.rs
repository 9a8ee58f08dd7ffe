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

    /// It has not failed for long.
    pub fn is_calm(&self) -> bool {
        self.episode.is_calm(self.began.elapsed())
    }

    pub fn failing_for(&self) -> Option<Duration> {
        self.episode.failing_for(self.began.elapsed())
    }
}

/// The same line about different things.
#[derive(Debug)]
pub struct ByKey<K> {
    known: BTreeMap<K, Repeated>,
    /// Of all things that there is no room for.
    others: Repeated,
    most: usize,
}

impl<K: Ord + Clone> ByKey<K> {
    /// No more than so many things are remembered; all others count as one.
    pub fn new(most: usize) -> Self {
        Self {
            known: BTreeMap::new(),
            others: Repeated::default(),
            most,
        }
    }

    pub fn failed(&mut self, key: &K) -> Option<Times> {
        if let Some(one) = self.known.get_mut(key) {
            return one.failed();
        }
        if self.known.len() >= self.most {
            self.known
                .retain(|_, one| one.is_failing() && !one.is_calm());
        }
        if self.known.len() >= self.most {
            return self.others.failed();
        }
        self.known.entry(key.clone()).or_default().failed()
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
        // The rest is one thing.
        assert!(lines.failed(&"d").is_some());
        assert!(lines.failed(&"d").is_none() && lines.failed(&"e").is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_not_heard_of_any_more_makes_room() {
        let mut lines = ByKey::new(2);
        for key in 0..1000 {
            assert!(lines.failed(&key).is_some(), "{key}");
            assert!(lines.failed(&key).is_none(), "{key}");
            tokio::time::advance(Duration::from_secs(200)).await;
        }
        assert!(lines.known.len() <= 2);
    }
}

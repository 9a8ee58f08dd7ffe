//! A cache whose entries expire and whose size is bounded.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

use tokio::time::Instant;

/// Forgets what has expired and, beyond its capacity, what was not used for longest.
#[derive(Debug)]
pub struct Expiring<K, V> {
    entries: HashMap<K, Entry<V>>,
    capacity: usize,
    /// Advances with every use; orders entries by when they were used.
    uses: u64,
}

#[derive(Debug)]
struct Entry<V> {
    value: V,
    expires: Instant,
    used: u64,
}

impl<K: Hash + Eq, V> Expiring<K, V> {
    pub fn new(capacity: usize) -> Self {
        Self {
            entries: HashMap::new(),
            capacity: capacity.max(1),
            uses: 0,
        }
    }

    pub fn get<Q>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let entry = self.entries.get_mut(key)?;
        if entry.expires <= Instant::now() {
            return None;
        }
        self.uses += 1;
        entry.used = self.uses;
        Some(&mut entry.value)
    }

    pub fn insert(&mut self, key: K, value: V, lasts: Duration) {
        if self.entries.len() >= self.capacity && !self.entries.contains_key(&key) {
            self.make_room();
        }
        self.uses += 1;
        let entry = Entry {
            value,
            expires: Instant::now() + lasts,
            used: self.uses,
        };
        self.entries.insert(key, entry);
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Frees an eighth at once: looking for the oldest one each time would cost a pass over all each time.
    fn make_room(&mut self) {
        let now = Instant::now();
        self.entries.retain(|_, entry| entry.expires > now);
        if self.entries.len() < self.capacity {
            return;
        }
        let mut used: Vec<u64> = self.entries.values().map(|entry| entry.used).collect();
        let leave = self.capacity / 8;
        let (_, &mut oldest_kept, _) = used.select_nth_unstable(leave);
        self.entries.retain(|_, entry| entry.used > oldest_kept);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    #[tokio::test(start_paused = true)]
    async fn entries_expire() {
        let mut cache = Expiring::new(10);
        cache.insert("a", 1, Duration::from_secs(10));
        tokio::time::advance(Duration::from_secs(9)).await;
        assert_eq!(cache.get("a"), Some(&mut 1));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(cache.get("a"), None);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_used_stays() {
        let mut cache = Expiring::new(16);
        for key in 0..1000 {
            cache.insert(key, key, LONG);
            assert_eq!(cache.get(&0), Some(&mut 0), "{key}");
            assert!(cache.len() <= 16);
        }
        assert_eq!(cache.get(&999), Some(&mut 999));
        assert_eq!(cache.get(&500), None);
        // What has expired goes first.
        tokio::time::advance(LONG).await;
        cache.insert(2000, 1, LONG);
        assert!(cache.len() <= 16);
        cache.insert(2001, 1, LONG);
        while cache.len() < 16 {
            cache.insert(3000 + cache.len() as i32, 1, LONG);
        }
        cache.insert(4000, 1, LONG);
        assert_eq!(cache.get(&4000), Some(&mut 1));
    }

    #[tokio::test]
    async fn one_place_is_enough() {
        let mut cache = Expiring::new(1);
        cache.insert(1, 1, LONG);
        cache.insert(2, 2, LONG);
        assert_eq!(cache.get(&1), None);
        assert_eq!(cache.get(&2), Some(&mut 2));
    }
}

//! Texts that occur again and again, kept once.

use std::collections::HashSet;
use std::sync::Arc;

use rustc_hash::FxBuildHasher;

#[derive(Debug, Default)]
pub(crate) struct Interner(HashSet<Arc<str>, FxBuildHasher>);

impl Interner {
    pub fn share(&mut self, text: &str) -> Arc<str> {
        if let Some(known) = self.0.get(text) {
            return Arc::clone(known);
        }
        let new: Arc<str> = text.into();
        self.0.insert(Arc::clone(&new));
        new
    }

    /// Forgets what nobody else has.
    pub fn tidy(&mut self) {
        self.0.retain(|text| Arc::strong_count(text) > 1);
        // Whoever sends ever new names must not leave their room behind.
        if self.0.capacity() > 64 && self.0.len() < self.0.capacity() / 4 {
            self.0.shrink_to_fit();
        }
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.0.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_kept_once_and_as_long_as_they_are_used() {
        let mut known = Interner::default();
        let one = known.share("main");
        let other = known.share("main");
        assert!(Arc::ptr_eq(&one, &other));
        known.share("gone");
        known.tidy();
        assert_eq!(known.len(), 1);
        drop((one, other));
        known.tidy();
        assert_eq!(known.len(), 0);
    }
}

//! Labels of many pods, kept in little room.

use std::fmt;
use std::sync::Arc;

use crate::intern::Interner;

/// The labels of one object, sorted by key, in one piece of memory. Clones are the same piece.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Labels(Arc<str>);

/// Occurs neither in keys nor in values.
const END: char = '\0';

impl Labels {
    pub fn get(&self, key: &str) -> Option<&str> {
        self.iter()
            .find_map(|(name, value)| (name == key).then_some(value))
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        let mut rest = &*self.0;
        let mut next = move || {
            let (text, after) = rest.split_at(memchr::memchr(END as u8, rest.as_bytes())?);
            rest = &after[1..];
            Some(text)
        };
        std::iter::from_fn(move || Some((next()?, next()?)))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The same labels, shared with whoever else has them: pods of one Deployment differ in nothing here.
    pub(crate) fn shared(self, known: &mut Interner) -> Self {
        Self(known.share(&self.0))
    }
}

impl<K: AsRef<str> + Ord, V: AsRef<str>> FromIterator<(K, V)> for Labels {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(labels: I) -> Self {
        let mut labels: Vec<(K, V)> = labels.into_iter().collect();
        labels.sort_by(|a, b| a.0.cmp(&b.0));
        let mut text = String::new();
        for (key, value) in &labels {
            for part in [key.as_ref(), value.as_ref()] {
                text.push_str(part);
                text.push(END);
            }
        }
        Self(text.into())
    }
}

impl fmt::Debug for Labels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_come_back_sorted() {
        let labels: Labels = [("b", "2"), ("a", ""), ("c/d", "x")].into_iter().collect();
        let back: Vec<_> = labels.iter().collect();
        assert_eq!(back, [("a", ""), ("b", "2"), ("c/d", "x")]);
        assert_eq!(labels.get("a"), Some(""));
        assert_eq!(labels.get("2"), None);
        assert!(Labels::default().iter().next().is_none());
    }
}

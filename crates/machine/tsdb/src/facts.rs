//! What is known about the machine right now, beside the series: one value a key, no history.

use std::any::Any;
use std::sync::Arc;

use parking_lot::RwLock;
use rustc_hash::FxHashMap;

type Fact = Arc<dyn Any + Send + Sync>;

/// A store of values of any type; clones share it.
#[derive(Debug, Clone, Default)]
pub struct Facts(Arc<RwLock<FxHashMap<&'static str, Fact>>>);

impl Facts {
    pub fn set<T: Send + Sync + 'static>(&self, key: &'static str, value: T) {
        self.0.write().insert(key, Arc::new(value));
    }

    /// `None`: nobody has said so yet, or it is of another type.
    pub fn get<T: Send + Sync + 'static>(&self, key: &'static str) -> Option<Arc<T>> {
        let fact = self.0.read().get(key)?.clone();
        fact.downcast().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_are_kept_by_key_and_type() {
        let facts = Facts::default();
        facts.set("cpus", 4usize);
        facts.clone().set("name", "n1".to_owned());
        assert_eq!(facts.get::<usize>("cpus").as_deref(), Some(&4));
        assert_eq!(facts.get::<u8>("cpus"), None);
        assert_eq!(
            facts.get::<String>("name").as_deref().map(String::as_str),
            Some("n1")
        );
        assert_eq!(facts.get::<String>("other"), None);
    }
}

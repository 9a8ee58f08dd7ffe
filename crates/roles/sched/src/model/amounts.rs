//! Amounts of resources.

use super::symbol::ResourceId;

/// What is asked for or there, by resource; sorted by id, so that equal lists are equal.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Amounts(Vec<(ResourceId, i64)>);

impl Amounts {
    pub fn get(&self, id: ResourceId) -> i64 {
        self.find(id).unwrap_or(0)
    }

    /// `None`: not even mentioned.
    pub fn find(&self, id: ResourceId) -> Option<i64> {
        let at = self.0.binary_search_by_key(&id, |(id, _)| *id).ok()?;
        self.0.get(at).map(|(_, amount)| *amount)
    }

    pub fn set(&mut self, id: ResourceId, amount: i64) {
        match self.0.binary_search_by_key(&id, |(id, _)| *id) {
            Ok(at) => self.0[at].1 = amount,
            Err(at) => self.0.insert(at, (id, amount)),
        }
    }

    pub fn add(&mut self, other: &Self) {
        for (id, amount) in other.iter() {
            self.set(id, self.get(id).saturating_add(amount));
        }
    }

    /// The greater of both, resource by resource.
    pub fn raise_to(&mut self, other: &Self) {
        for (id, amount) in other.iter() {
            if self.find(id).is_none_or(|own| own < amount) {
                self.set(id, amount);
            }
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = (ResourceId, i64)> + '_ {
        self.0.iter().copied()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl FromIterator<(ResourceId, i64)> for Amounts {
    fn from_iter<I: IntoIterator<Item = (ResourceId, i64)>>(list: I) -> Self {
        let mut amounts = Self::default();
        for (id, amount) in list {
            amounts.set(id, amount);
        }
        amounts
    }
}

/// What a container, or a pod as a whole, asks for.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Ask {
    pub requests: Amounts,
    pub limits: Amounts,
}

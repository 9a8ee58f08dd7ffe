//! What open types turn out to be: whether a value of one type can stand where another is wanted.

use std::collections::BTreeMap;

use crate::types::Type;

#[derive(Debug, Default, Clone)]
pub struct Found {
    types: BTreeMap<usize, Type>,
    next: usize,
}

impl Found {
    pub fn fresh(&mut self) -> Type {
        self.next += 1;
        Type::Open(self.next - 1)
    }

    /// With new numbers for its open types, the same ones throughout.
    pub fn instance(&mut self, types: &[Type], gives: &Type) -> (Vec<Type>, Type) {
        let mut numbers: BTreeMap<usize, Type> = BTreeMap::new();
        let mut replace = |number| {
            numbers
                .entry(number)
                .or_insert_with(|| self.fresh())
                .clone()
        };
        let takes = types.iter().map(|one| one.map_open(&mut replace)).collect();
        (takes, gives.map_open(&mut replace))
    }

    /// As far as it is known.
    pub fn known(&self, of: &Type) -> Type {
        of.map_open(&mut |number| match self.types.get(&number) {
            Some(found) => self.known(found),
            None => Type::Open(number),
        })
    }

    /// Whether all fit, in which case what that says about open types is kept.
    pub fn all_fit(&mut self, given: &[Type], wanted: &[Type]) -> bool {
        let mut attempt = self.clone();
        let fit = given.len() == wanted.len()
            && given
                .iter()
                .zip(wanted)
                .all(|(given, wanted)| attempt.fits_inner(given, wanted));
        if fit {
            *self = attempt;
        }
        fit
    }

    pub fn fits(&mut self, given: &Type, wanted: &Type) -> bool {
        self.all_fit(std::slice::from_ref(given), std::slice::from_ref(wanted))
    }

    fn fits_inner(&mut self, given: &Type, wanted: &Type) -> bool {
        if let Type::Open(number) = wanted {
            match self.stand_for(given, *number) {
                Some(fits) => return fits,
                // It says nothing of itself; perhaps the other one is open.
                None if !matches!(given, Type::Open(_)) => return false,
                None => {}
            }
        }
        if let Type::Open(number) = given {
            return self.stand_for(wanted, *number).unwrap_or(false);
        }
        if given.is_dyn() || wanted.is_dyn() {
            return true;
        }
        match (given, wanted) {
            (Type::Null, other) | (other, Type::Null) => matches!(
                other,
                Type::Null
                    | Type::Object(_)
                    | Type::Opaque(_)
                    | Type::Optional(_)
                    | Type::Duration
                    | Type::Timestamp
            ),
            (Type::Type(_), Type::Type(_)) => true,
            (Type::Object(one), Type::Object(other)) => one.name == other.name,
            (Type::List(_), Type::List(_))
            | (Type::Map(..), Type::Map(..))
            | (Type::Optional(_), Type::Optional(_)) => given
                .parts()
                .into_iter()
                .zip(wanted.parts())
                .all(|(one, other)| self.fits_inner(one, other)),
            (one, other) => one == other,
        }
    }

    /// Whether the open type can be this one; `None` when that would define it by itself.
    fn stand_for(&mut self, given: &Type, number: usize) -> Option<bool> {
        if *given == Type::Open(number) {
            return Some(true);
        }
        if let Some(found) = self.types.get(&number).cloned() {
            if found == *given {
                return Some(true);
            }
            if !self.fits_inner(given, &found) {
                return Some(false);
            }
            let general = self.more_general(given, &found);
            if !self.mentions(&general, number) {
                self.types.insert(number, general);
            }
            return Some(true);
        }
        if self.mentions(given, number) {
            return None;
        }
        self.types.insert(number, given.clone());
        Some(true)
    }

    fn mentions(&self, of: &Type, number: usize) -> bool {
        match of {
            Type::Open(other) if *other == number => true,
            Type::Open(other) => self
                .types
                .get(other)
                .is_some_and(|found| self.mentions(found, number)),
            other => other
                .parts()
                .into_iter()
                .any(|part| self.mentions(part, number)),
        }
    }

    fn more_general(&self, one: &Type, other: &Type) -> Type {
        if one.is_dyn() || matches!(one, Type::Open(_)) || *other == Type::Null {
            one.clone()
        } else {
            other.clone()
        }
    }

    /// One type for both, if there is one that is not anything at all.
    pub fn join(&mut self, one: &Type, other: &Type) -> Type {
        if self.fits(one, other) {
            return self.more_general(one, other);
        }
        Type::Dyn
    }
}

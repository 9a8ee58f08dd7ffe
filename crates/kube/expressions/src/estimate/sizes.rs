//! Ranges that sizes and costs are in.

/// From the least to the most there can be. Sums and products stay at the largest number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    pub least: u64,
    pub most: u64,
}

impl Range {
    pub const UNKNOWN: Self = Self::new(0, u64::MAX);
    pub const ZERO: Self = Self::exactly(0);
    pub const ONE: Self = Self::exactly(1);

    pub const fn new(least: u64, most: u64) -> Self {
        Self { least, most }
    }

    pub const fn exactly(number: u64) -> Self {
        Self::new(number, number)
    }

    pub fn plus(self, other: Self) -> Self {
        Self::new(
            self.least.saturating_add(other.least),
            self.most.saturating_add(other.most),
        )
    }

    pub fn times(self, other: Self) -> Self {
        Self::new(
            self.least.saturating_mul(other.least),
            self.most.saturating_mul(other.most),
        )
    }

    /// Rounded up.
    pub fn scaled(self, factor: f64) -> Self {
        // What does not fit becomes the largest number.
        let scale = |number: u64| (number as f64 * factor).ceil() as u64;
        Self::new(scale(self.least), scale(self.most))
    }

    /// One of the two.
    pub fn or(self, other: Self) -> Self {
        Self::new(self.least.min(other.least), self.most.max(other.most))
    }
}

/// What a schema says about how large values can be.
#[derive(Debug, Clone, Default)]
pub struct Bounds {
    /// Letters of a text, entries of a list or map.
    pub most: u64,
    /// Bytes that a value takes at least when it is written down.
    pub least_written: u64,
    pub inside: Inside,
}

#[derive(Debug, Clone, Default)]
pub enum Inside {
    #[default]
    Nothing,
    List(Box<Bounds>),
    Map {
        /// Letters of a key.
        key: u64,
        of: Box<Bounds>,
        /// What is selected by a name is one of the values.
        named: bool,
    },
    /// By the names that expressions know fields by.
    Object(std::collections::BTreeMap<String, Bounds>),
}

impl Bounds {
    /// Of what a path leads to, without the variable that it begins with.
    pub fn most_at(&self, path: &[Step]) -> Option<u64> {
        let mut found = self;
        for (index, step) in path.iter().enumerate() {
            found = match (step, &found.inside) {
                (Step::Items | Step::Values, Inside::List(of) | Inside::Map { of, .. }) => of,
                (Step::Field(_), Inside::Map { of, named, .. }) if *named => of,
                (Step::Field(name), Inside::Object(fields)) => fields.get(&**name)?,
                // There is nothing in a key.
                (Step::Keys, Inside::Map { key, .. }) => {
                    return (index + 1 == path.len()).then_some(*key);
                }
                _ => return None,
            };
        }
        Some(found.most)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// A variable, or a field.
    Field(std::rc::Rc<str>),
    Items,
    Values,
    Keys,
    Indices,
}

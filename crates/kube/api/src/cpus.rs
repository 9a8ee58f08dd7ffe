//! Sets of CPUs, `0-3,8`.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

/// A hostile range must not fill the memory.
const MOST: u32 = 1 << 16;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CpuSet(pub BTreeSet<u32>);

impl CpuSet {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    #[must_use]
    pub fn without(&self, other: &Self) -> Self {
        Self(self.0.difference(&other.0).copied().collect())
    }

    pub fn add(&mut self, other: &Self) {
        self.0.extend(&other.0);
    }
}

impl FromIterator<u32> for CpuSet {
    fn from_iter<I: IntoIterator<Item = u32>>(cpus: I) -> Self {
        Self(cpus.into_iter().collect())
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no list of CPUs like 0-3,8")]
pub struct BadCpuSet(String);

impl FromStr for CpuSet {
    type Err = BadCpuSet;

    fn from_str(text: &str) -> Result<Self, BadCpuSet> {
        let bad = || BadCpuSet(text.to_owned());
        let mut cpus = BTreeSet::new();
        for part in text.trim().split(',').filter(|part| !part.is_empty()) {
            let (from, to) = part.split_once('-').unwrap_or((part, part));
            let number = |text: &str| text.trim().parse::<u32>().ok().filter(|n| *n < MOST);
            let (Some(from), Some(to)) = (number(from), number(to)) else {
                return Err(bad());
            };
            if from > to {
                return Err(bad());
            }
            cpus.extend(from..=to);
        }
        Ok(Self(cpus))
    }
}

impl fmt::Display for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut cpus = self.0.iter().copied().peekable();
        let mut between = "";
        while let Some(first) = cpus.next() {
            let mut last = first;
            while let Some(next) = cpus.next_if_eq(&(last + 1)) {
                last = next;
            }
            match last == first {
                true => write!(f, "{between}{first}")?,
                false => write!(f, "{between}{first}-{last}")?,
            }
            between = ",";
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts() {
        for (given, shown) in [
            ("", ""),
            ("0", "0"),
            ("3,1,2", "1-3"),
            ("0-1,4-5,7\n", "0-1,4-5,7"),
            ("1,1,0", "0-1"),
        ] {
            assert_eq!(given.parse::<CpuSet>().unwrap().to_string(), shown);
        }
        for bad in ["a", "3-1", "-1", "1-", "0-4000000000"] {
            bad.parse::<CpuSet>().unwrap_err();
        }
    }
}

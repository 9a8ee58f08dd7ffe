//! CPU and memory, in the units that are lent: thousandths of a core and bytes.

use std::collections::BTreeMap;

use plimsoll_api::quantity::Quantity;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Amount {
    pub milli_cpu: i64,
    pub memory: i64,
}

impl Amount {
    /// Of a resource list; what is not there, or is no quantity, is 0.
    pub fn of(resources: &BTreeMap<String, String>) -> Self {
        let quantity = |name: &str| resources.get(name)?.parse::<Quantity>().ok();
        Self {
            milli_cpu: quantity("cpu").map_or(0, |cpu| cpu.milli()),
            memory: quantity("memory").map_or(0, |memory| memory.value()),
        }
    }

    #[must_use]
    pub fn map2(self, other: Self, f: impl Fn(i64, i64) -> i64) -> Self {
        Self {
            milli_cpu: f(self.milli_cpu, other.milli_cpu),
            memory: f(self.memory, other.memory),
        }
    }

    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        self.map2(other, i64::saturating_add)
    }

    /// May fall below nothing: floors are put in where a result is final.
    #[must_use]
    pub fn minus(self, other: Self) -> Self {
        self.map2(other, i64::saturating_sub)
    }

    #[must_use]
    pub fn max(self, other: Self) -> Self {
        self.map2(other, i64::max)
    }

    #[must_use]
    pub fn min(self, other: Self) -> Self {
        self.map2(other, i64::min)
    }

    #[must_use]
    pub fn or_nothing(self) -> Self {
        self.max(Self::default())
    }

    /// Shares of it, cut to whole units.
    #[must_use]
    pub fn percent(self, cpu: i64, memory: i64) -> Self {
        let share = |value: i64, percent: i64| (value as f64 * (percent as f64 / 100.0)) as i64;
        Self {
            milli_cpu: share(self.milli_cpu, cpu),
            memory: share(self.memory, memory),
        }
    }
}

//! Short names (network interfaces, devices) as numbers, so that a sample is made of numbers only.

use std::sync::{OnceLock, RwLock};

use rustc_hash::FxHashMap;

/// An interned name. Names are few (devices and interfaces of one machine) and live as long as the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, PartialOrd, Ord)]
pub struct Symbol(pub u32);

#[derive(Default)]
struct Table {
    by_name: FxHashMap<&'static str, Symbol>,
    names: Vec<&'static str>,
}

/// More distinct names than this come from something that invents them (interfaces made and removed for ever): they
/// share one symbol instead of growing the process.
const MOST_NAMES: usize = 1 << 16;

fn table() -> &'static RwLock<Table> {
    static TABLE: OnceLock<RwLock<Table>> = OnceLock::new();
    TABLE.get_or_init(|| {
        let mut table = Table::default();
        table.add("");
        RwLock::new(table)
    })
}

impl Table {
    fn add(&mut self, name: &str) -> Symbol {
        if let Some(symbol) = self.by_name.get(name) {
            return *symbol;
        }
        if self.names.len() >= MOST_NAMES {
            return Symbol::default();
        }
        let symbol = Symbol(self.names.len() as u32);
        let name: &'static str = Box::leak(name.into());
        self.names.push(name);
        self.by_name.insert(name, symbol);
        symbol
    }
}

impl Symbol {
    pub fn new(name: &str) -> Self {
        let lock = table();
        // A panic elsewhere cannot leave the table half-written, so a poisoned lock is still good.
        let known = match lock.read() {
            Ok(table) => table.by_name.get(name).copied(),
            Err(poisoned) => poisoned.into_inner().by_name.get(name).copied(),
        };
        known.unwrap_or_else(|| match lock.write() {
            Ok(mut table) => table.add(name),
            Err(poisoned) => poisoned.into_inner().add(name),
        })
    }

    pub fn as_str(self) -> &'static str {
        let names = |table: &Table| table.names.get(self.0 as usize).copied().unwrap_or("");
        match table().read() {
            Ok(table) => names(&table),
            Err(poisoned) => names(&poisoned.into_inner()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_names_are_equal_symbols() {
        let eth0 = Symbol::new("eth0");
        assert_eq!(eth0, Symbol::new("eth0"));
        assert_ne!(eth0, Symbol::new("eth1"));
        assert_eq!(eth0.as_str(), "eth0");
        assert_eq!(Symbol::default().as_str(), "");
    }
}

//! Device usage by owner of the processes.

use std::collections::BTreeMap;

/// Usage of one device, by one process or several.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DeviceUse {
    /// Percent of its cores' time.
    pub cores: u64,
    /// Bytes.
    pub memory: u64,
}

/// Sums up the usage of processes by owner and device. Processes without owner are left out.
pub fn by_owner<O: Ord, D: Ord + Copy>(
    processes: impl IntoIterator<Item = (u32, D, DeviceUse)>,
    owner_of: impl Fn(u32) -> Option<O>,
) -> BTreeMap<(O, D), DeviceUse> {
    let mut sums: BTreeMap<(O, D), DeviceUse> = BTreeMap::new();
    for (pid, device, used) in processes {
        let Some(owner) = owner_of(pid) else {
            continue;
        };
        let sum = sums.entry((owner, device)).or_default();
        sum.cores = sum.cores.saturating_add(used.cores);
        sum.memory = sum.memory.saturating_add(used.memory);
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_by_owner_and_device() {
        let used = |cores, memory| DeviceUse { cores, memory };
        let processes = [
            (10, 0, used(20, 100)),
            (11, 0, used(30, 50)),
            (11, 1, used(5, 7)),
            (12, 0, used(99, 99)),
        ];
        let owner = |pid: u32| (pid < 12).then_some("a");
        let sums = by_owner(processes, owner);
        let expected: BTreeMap<_, _> = [(("a", 0), used(50, 150)), (("a", 1), used(5, 7))].into();
        assert_eq!(sums, expected);
    }
}

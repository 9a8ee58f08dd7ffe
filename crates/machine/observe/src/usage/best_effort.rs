//! CPU limit of all best-effort pods together.

/// Thousandths of a core: as many CPUs as they may run on, or their quota where that is less.
///
/// `quota_us` of 0 is no quota.
pub fn real_limit(cpus: usize, quota_us: u64, period_us: u64) -> f64 {
    let by_cpus = cpus as f64 * 1000.0;
    if quota_us == 0 || period_us == 0 {
        return by_cpus;
    }
    let by_quota = (quota_us as f64 * 1000.0 / period_us as f64).floor();
    by_cpus.min(by_quota)
}

/// How many CPUs a list like `0-3,8` names; `None` where it is none.
pub fn cpus_in(list: &str) -> Option<usize> {
    let mut count = 0;
    for range in list.split(',').map(str::trim).filter(|r| !r.is_empty()) {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        count += last.checked_sub(first)? + 1;
    }
    Some(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smaller_of_cpus_and_quota() {
        for (cpus, quota, period, expected) in [
            (4, 0, 100_000, 4000.0),
            (4, 150_000, 100_000, 1500.0),
            (1, 150_000, 100_000, 1000.0),
            (4, 2_000, 100_000, 20.0),
            (4, 100_000, 0, 4000.0),
        ] {
            assert_eq!(real_limit(cpus, quota, period), expected);
        }
    }

    #[test]
    fn lists_of_cpus() {
        for (list, expected) in [
            ("0-3", Some(4)),
            ("0", Some(1)),
            ("0-1,4,6-7", Some(5)),
            ("", Some(0)),
            ("3-1", None),
            ("x", None),
        ] {
            assert_eq!(cpus_in(list), expected, "{list:?}");
        }
    }
}

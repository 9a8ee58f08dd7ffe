//! System usage: node usage minus pods and host applications.

use std::time::Duration;

use plimsoll_host::Timestamp;

/// A value and its time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TimedValue {
    pub at: Timestamp,
    pub value: f64,
}

/// `whole` minus `parts`, at least zero. `None` if a value is older than `outdated`: values of different times cannot be
/// subtracted.
pub fn system_usage(
    whole: TimedValue,
    parts: &[TimedValue],
    now: Timestamp,
    outdated: Duration,
) -> Option<f64> {
    let fresh = |figure: &TimedValue| now.since(figure.at) <= outdated;
    if !fresh(&whole) || !parts.iter().all(fresh) {
        return None;
    }
    let sum: f64 = parts.iter().map(|part| part.value).sum();
    Some((whole.value - sum).max(0.0))
}

/// System usage by NUMA node, in proportion to the CPU usage of the nodes.
pub fn system_usage_by_numa(rest: f64, nodes: &[(u32, f64)]) -> Vec<(u32, f64)> {
    let total: f64 = nodes.iter().map(|(_, value)| value).sum();
    nodes
        .iter()
        .map(|&(node, value)| match total > 0.0 {
            true => (node, rest * value / total),
            false => (node, 0.0),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dated(second: i64, value: f64) -> TimedValue {
        TimedValue {
            at: Timestamp::from_secs(second),
            value,
        }
    }

    #[track_caller]
    fn check(whole: TimedValue, parts: &[TimedValue], expected: Option<f64>) {
        let now = Timestamp::from_secs(100);
        let found = system_usage(whole, parts, now, Duration::from_secs(10));
        assert_eq!(found, expected);
    }

    #[test]
    fn the_whole_less_its_parts() {
        check(
            dated(100, 4.0),
            &[dated(99, 1.0), dated(100, 0.5)],
            Some(2.5),
        );
        check(dated(100, 1.0), &[dated(100, 3.0)], Some(0.0));
        check(dated(100, 1.0), &[], Some(1.0));
        check(dated(90, 4.0), &[dated(90, 1.0)], Some(3.0));
        check(dated(89, 4.0), &[dated(100, 1.0)], None);
        check(dated(100, 4.0), &[dated(89, 1.0)], None);
    }

    #[test]
    fn nodes_share_it_by_their_work() {
        assert_eq!(
            system_usage_by_numa(1.0, &[(0, 3.0), (1, 1.0)]),
            [(0, 0.75), (1, 0.25)]
        );
        assert_eq!(system_usage_by_numa(1.0, &[(0, 0.0)]), [(0, 0.0)]);
        assert_eq!(system_usage_by_numa(1.0, &[]), []);
    }
}

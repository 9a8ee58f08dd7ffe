//! What a window of samples amounts to.

/// How a window of values becomes one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Aggregation {
    Average,
    Last,
    Count,
    Min,
    Max,
    /// The value below or at which this share (0 to 1) of the values lies.
    Percentile(f32),
}

/// `None`: there is nothing to speak of, except for [`Aggregation::Count`], which is 0 then.
///
/// `values` are in the order of time, and in no order afterwards.
pub fn aggregate(values: &mut [f64], how: Aggregation) -> Option<f64> {
    match how {
        Aggregation::Count => Some(values.len() as f64),
        _ if values.is_empty() => None,
        Aggregation::Average => Some(values.iter().sum::<f64>() / values.len() as f64),
        Aggregation::Last => values.last().copied(),
        Aggregation::Min => values.iter().copied().min_by(f64::total_cmp),
        Aggregation::Max => values.iter().copied().max_by(f64::total_cmp),
        Aggregation::Percentile(share) => {
            let rank = rank(values.len(), share);
            let (_, value, _) = values.select_nth_unstable_by(rank, f64::total_cmp);
            Some(*value)
        }
    }
}

/// Several percentiles at once, for shares that ascend: each looks only at what the one before left above it.
/// `None`: there is nothing to speak of.
pub fn percentiles<const N: usize>(values: &mut [f64], shares: [f32; N]) -> Option<[f64; N]> {
    if values.is_empty() {
        return None;
    }
    let count = values.len();
    let mut found = [0.0; N];
    let mut below = 0;
    for (share, found) in shares.into_iter().zip(&mut found) {
        let rank = rank(count, share).max(below);
        let (_, value, _) = values[below..].select_nth_unstable_by(rank - below, f64::total_cmp);
        *found = *value;
        below = rank;
    }
    Some(found)
}

/// Which of `count` sorted values is the percentile: the rule, single precision included, that reports of other agents
/// follow, so that figures agree.
fn rank(count: usize, share: f32) -> usize {
    let rank = (count as f32 * share).floor() as usize;
    rank.saturating_sub(1).min(count - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(values: &[f64], how: Aggregation, expected: Option<f64>) {
        assert_eq!(aggregate(&mut values.to_vec(), how), expected);
    }

    #[test]
    fn every_way() {
        let values = [3.0, 1.0, 2.0, 5.0, 4.0];
        check(&values, Aggregation::Average, Some(3.0));
        check(&values, Aggregation::Last, Some(4.0));
        check(&values, Aggregation::Count, Some(5.0));
        check(&values, Aggregation::Min, Some(1.0));
        check(&values, Aggregation::Max, Some(5.0));
    }

    #[test]
    fn percentiles_count_from_below() {
        let hundred: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        for (share, expected) in [
            (0.5, 50.0),
            (0.9, 90.0),
            (0.95, 95.0),
            (0.99, 99.0),
            (1.0, 100.0),
            (0.0, 1.0),
        ] {
            check(&hundred, Aggregation::Percentile(share), Some(expected));
        }
        check(&[7.0], Aggregation::Percentile(0.95), Some(7.0));
        check(&[7.0, 8.0], Aggregation::Percentile(0.95), Some(7.0));
    }

    #[test]
    fn several_percentiles_are_what_each_is_alone() {
        for count in 0..120 {
            let values: Vec<f64> = (0..count).map(|n| f64::from(n * 37 % 101)).collect();
            let shares = [0.5, 0.9, 0.95, 0.99];
            let alone =
                shares.map(|share| aggregate(&mut values.clone(), Aggregation::Percentile(share)));
            let together = percentiles(&mut values.clone(), shares);
            assert_eq!(
                together.map(|all| all.map(Some)).unwrap_or([None; 4]),
                alone
            );
        }
    }

    #[test]
    fn of_nothing() {
        check(&[], Aggregation::Average, None);
        check(&[], Aggregation::Percentile(0.5), None);
        check(&[], Aggregation::Count, Some(0.0));
    }
}

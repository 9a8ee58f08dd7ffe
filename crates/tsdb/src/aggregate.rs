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
    fn of_nothing() {
        check(&[], Aggregation::Average, None);
        check(&[], Aggregation::Percentile(0.5), None);
        check(&[], Aggregation::Count, Some(0.0));
    }
}

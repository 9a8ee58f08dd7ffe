//! Which blocks have to go.

/// A block as retention sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Weighed {
    /// Of its newest sample.
    pub newest: i64,
    pub bytes: u64,
}

/// Positions of the blocks to remove: those too old, those of a future that is further away than anything is kept (a
/// clock was wrong), and the oldest ones while the rest is too much. `blocks` are sorted by age, oldest first.
pub fn to_remove(blocks: &[Weighed], now: i64, keep_for: i64, keep_bytes: u64) -> Vec<usize> {
    let expired = |block: &Weighed| {
        block.newest < now.saturating_sub(keep_for) || block.newest > now.saturating_add(keep_for)
    };
    let mut total: u64 = blocks
        .iter()
        .filter(|block| !expired(block))
        .map(|block| block.bytes)
        .sum();
    let mut removed = Vec::new();
    for (position, block) in blocks.iter().enumerate() {
        if expired(block) {
            removed.push(position);
        } else if total > keep_bytes {
            total -= block.bytes;
            removed.push(position);
        }
    }
    removed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(blocks: &[(i64, u64)], expected: &[usize]) {
        let blocks: Vec<Weighed> = blocks
            .iter()
            .map(|&(newest, bytes)| Weighed { newest, bytes })
            .collect();
        assert_eq!(to_remove(&blocks, 1000, 100, 50), expected);
    }

    #[test]
    fn the_old_the_many_and_the_impossible_go() {
        check(&[], &[]);
        check(&[(899, 1), (900, 1), (1000, 1)], &[0]);
        check(&[(950, 30), (960, 30), (970, 20)], &[0]);
        check(&[(950, 30), (960, 60)], &[0, 1]);
        check(&[(899, 60), (960, 40)], &[0]);
        check(&[(1000, 10), (1101, 10)], &[1]);
    }
}

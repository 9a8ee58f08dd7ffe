//! `PrioritySort`: who is scheduled first.

use std::cmp::Reverse;

use crate::time::Time;

/// Smaller goes first: by priority, then by how long it has been waiting.
pub type Rank = (Reverse<i32>, Time);

pub fn rank(priority: i32, queued: Time) -> Rank {
    (Reverse(priority), queued)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn priority_goes_before_age() {
        assert!(rank(10, Time(5)) < rank(1, Time(1)));
        assert!(rank(1, Time(1)) < rank(1, Time(2)));
        assert!(rank(-1, Time(1)) > rank(0, Time(2)));
    }
}

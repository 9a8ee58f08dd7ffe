//! Directory walks that take turns, so that a tree of millions of files does not delay the others.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use plimsoll_host::fs::{DirWalk, Walk, Walked};

/// Time slice of one walk.
const TURN: Duration = Duration::from_millis(200);
/// Walks under way: each holds a descriptor, and memory for hard links.
const MOST_BEGUN: usize = 64;

/// Several directories walked one after the other for one purpose.
#[derive(Debug)]
struct QueuedWalk<T> {
    purpose: T,
    /// The next one last.
    places: Vec<PathBuf>,
    walking: Option<DirWalk>,
    walked: Vec<Option<Walked>>,
    spent: Duration,
}

/// The result of a walk.
#[derive(Debug)]
pub struct Done<T> {
    pub purpose: T,
    /// One for each place; `None` where it could not be looked at.
    pub walked: Vec<Option<Walked>>,
    pub spent: Duration,
}

#[derive(Debug)]
pub struct WalkQueue<T> {
    turn: Duration,
    waiting: VecDeque<QueuedWalk<T>>,
    /// Walks that have had a time slice and need more.
    begun: VecDeque<QueuedWalk<T>>,
}

impl<T> Default for WalkQueue<T> {
    fn default() -> Self {
        Self {
            turn: TURN,
            waiting: VecDeque::new(),
            begun: VecDeque::new(),
        }
    }
}

impl<T> WalkQueue<T> {
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.begun.is_empty()
    }

    pub fn add(&mut self, purpose: T, mut places: Vec<PathBuf>) {
        places.reverse();
        self.waiting.push_back(QueuedWalk {
            purpose,
            places,
            walking: None,
            walked: Vec::new(),
            spent: Duration::ZERO,
        });
    }

    /// Runs one time slice. New walks come first: most end within one slice. `None`: the walk needs more time, or there
    /// is none.
    pub fn take_a_turn(&mut self, walk: Walk<'_>) -> Option<Done<T>> {
        let fresh = match self.begun.len() < MOST_BEGUN {
            true => self.waiting.pop_front(),
            false => None,
        };
        let mut tour = fresh.or_else(|| self.begun.pop_front())?;
        let began = Instant::now();
        let over = tour.go_on(walk, self.turn);
        tour.spent += began.elapsed();
        if !over {
            self.begun.push_back(tour);
            return None;
        }
        Some(Done {
            purpose: tour.purpose,
            walked: tour.walked,
            spent: tour.spent,
        })
    }
}

impl<T> QueuedWalk<T> {
    /// Whether all places have been walked.
    fn go_on(&mut self, walk: Walk<'_>, turn: Duration) -> bool {
        let began = Instant::now();
        loop {
            let mut walking = match self.walking.take() {
                Some(walking) => walking,
                None => match self.places.pop().map(|dir| DirWalk::begin(&dir)) {
                    Some(Ok(walking)) => walking,
                    Some(Err(_)) => {
                        self.walked.push(None);
                        continue;
                    }
                    None => return true,
                },
            };
            match walking.go_on(walk, turn.saturating_sub(began.elapsed())) {
                Some(walked) => self.walked.push(Some(walked)),
                None => {
                    self.walking = Some(walking);
                    return false;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::atomic::AtomicBool;

    use super::*;

    fn files(dir: &Path, count: usize) -> PathBuf {
        std::fs::create_dir_all(dir).unwrap();
        for i in 0..count {
            std::fs::write(dir.join(format!("f{i}")), "x").unwrap();
        }
        dir.to_owned()
    }

    #[test]
    fn a_long_walk_does_not_hold_up_short_ones() {
        let temp = tempfile::tempdir().unwrap();
        let big = files(&temp.path().join("big"), 2000);
        let small = |i: usize| files(&temp.path().join(format!("small{i}")), 3);
        // Every turn ends as soon as it may.
        let mut queue = WalkQueue {
            turn: Duration::ZERO,
            ..WalkQueue::default()
        };
        queue.add("big", vec![big]);
        for i in 0..5 {
            queue.add("small", vec![small(i), temp.path().join("none")]);
        }
        let cancel = AtomicBool::new(false);
        let walk = Walk {
            cancel: &cancel,
            most_entries: u64::MAX,
        };
        let mut order = Vec::new();
        while !queue.is_empty() {
            let Some(done) = queue.take_a_turn(walk) else {
                // One that comes while the long one is on its way.
                if order.len() == 5 {
                    queue.add("late", vec![small(9)]);
                }
                continue;
            };
            let inodes: Vec<_> = done.walked.iter().map(|w| w.map(|w| w.inodes)).collect();
            order.push(done.purpose);
            match done.purpose {
                "big" => assert_eq!(inodes, [Some(2001)]),
                "late" => assert_eq!(inodes, [Some(4)]),
                _ => assert_eq!(inodes, [Some(4), None]),
            }
        }
        assert_eq!(order[..5], ["small"; 5]);
        assert!(order[5..order.len() - 1].iter().all(|who| *who == "late"));
        assert!(order.len() > 6);
        assert_eq!(order.last(), Some(&"big"));
    }

    #[test]
    fn only_so_many_are_on_their_way() {
        let temp = tempfile::tempdir().unwrap();
        let big = files(&temp.path().join("big"), 200);
        let mut queue = WalkQueue {
            turn: Duration::ZERO,
            ..WalkQueue::default()
        };
        for i in 0..100 {
            queue.add(i, vec![big.clone()]);
        }
        let cancel = AtomicBool::new(false);
        let walk = Walk {
            cancel: &cancel,
            most_entries: u64::MAX,
        };
        let mut done = 0;
        while !queue.is_empty() {
            done += usize::from(queue.take_a_turn(walk).is_some());
            assert!(queue.begun.len() <= MOST_BEGUN);
        }
        assert_eq!(done, 100);
    }
}

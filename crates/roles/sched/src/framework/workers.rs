//! Threads for work on many nodes at once.
//!
//! What a worker finds depends on its piece alone, and findings are taken in the order of the pieces: how many threads
//! there are changes nothing but the time that it takes.

use std::sync::Mutex;

use rayon::{ThreadPool, ThreadPoolBuilder};

/// Pieces that a worker takes at a time: few enough that all stay busy to the end.
const CHUNK: usize = 32;

/// How many threads there are, and for what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parallelism {
    pub threads: usize,
    /// Even where it takes longer with them: so it can be seen that they change nothing.
    pub everywhere: bool,
}

impl From<usize> for Parallelism {
    fn from(threads: usize) -> Self {
        Self {
            threads,
            everywhere: false,
        }
    }
}

/// The caller, and threads that help it. They are started once, when there is something to do for them.
#[derive(Debug)]
pub struct Workers {
    parallelism: Parallelism,
    /// `None` within: they could not be started, and the caller does it alone.
    helpers: Option<Option<ThreadPool>>,
}

impl Default for Workers {
    fn default() -> Self {
        Self::new(Parallelism::from(1))
    }
}

impl Workers {
    pub fn new(parallelism: Parallelism) -> Self {
        Self {
            parallelism,
            helpers: None,
        }
    }

    /// There is somebody to help.
    pub fn are_several(&self) -> bool {
        self.helpers() > 0
    }

    /// They are to help, whether or not it is worth it.
    pub fn are_eager(&self) -> bool {
        self.parallelism.everywhere
    }

    fn helpers(&self) -> usize {
        self.parallelism.threads.saturating_sub(1)
    }

    /// What `work` makes of each of `0..pieces`, in that order.
    pub fn map<T: Send + Default>(
        &mut self,
        pieces: usize,
        work: impl Fn(usize) -> T + Sync,
    ) -> Vec<T> {
        let mut found: Vec<T> = Vec::new();
        found.resize_with(pieces, T::default);
        let fill = |first: usize, part: &mut [T]| {
            for (index, slot) in part.iter_mut().enumerate() {
                *slot = work(first + index);
            }
        };
        let chunk = if self.are_eager() { 1 } else { CHUNK };
        let threads = self.helpers();
        let helping = threads.min(pieces.div_ceil(chunk).saturating_sub(1));
        let helpers = match helping {
            0 => None,
            _ => self.helpers.get_or_insert_with(|| start(threads)).as_ref(),
        };
        let Some(helpers) = helpers else {
            fill(0, &mut found);
            return found;
        };
        let parts = Mutex::new(found.chunks_mut(chunk).enumerate());
        let walk = || {
            // Nobody panics while holding it.
            while let Some((index, part)) = parts.lock().ok().and_then(|mut parts| parts.next()) {
                fill(index * chunk, part);
            }
        };
        helpers.in_place_scope(|scope| {
            for _ in 0..helping {
                scope.spawn(|_| walk());
            }
            walk();
        });
        found
    }
}

fn start(threads: usize) -> Option<ThreadPool> {
    let names = |index| format!("schedule-{index}");
    ThreadPoolBuilder::new()
        .num_threads(threads)
        .thread_name(names)
        .build()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_come_in_the_order_of_the_pieces() {
        for threads in [0, 1, 2, 16] {
            for everywhere in [false, true] {
                let parallelism = Parallelism {
                    threads,
                    everywhere,
                };
                let mut workers = Workers::new(parallelism);
                for pieces in [0, 1, CHUNK, CHUNK + 1, 1000] {
                    let found = workers.map(pieces, |index| index * index);
                    let expected: Vec<usize> = (0..pieces).map(|index| index * index).collect();
                    assert_eq!(found, expected, "{parallelism:?} {pieces}");
                }
            }
        }
    }

    #[test]
    fn several_threads_work_at_the_same_time() {
        let meeting = std::sync::Barrier::new(2);
        let mut workers = Workers::new(Parallelism::from(2));
        // Each of the two pieces waits for the other.
        workers.map(2 * CHUNK, |index| {
            if index % CHUNK == 0 {
                meeting.wait();
            }
        });
    }
}

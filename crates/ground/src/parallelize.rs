//! Doing many small things on several threads.

use std::any::Any;
use std::collections::BTreeMap;
use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::Mutex;

/// Says that the rest need not be done.
#[derive(Debug, Default)]
pub struct Cancel(AtomicBool);

impl Cancel {
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Release);
    }

    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// Keeps the first of whatever is put in: the error that counts when several workers fail.
#[derive(Debug)]
pub struct First<T>(Mutex<Option<T>>);

impl<T> Default for First<T> {
    fn default() -> Self {
        Self(Mutex::new(None))
    }
}

impl<T> First<T> {
    /// True for the first.
    pub fn put(&self, value: T) -> bool {
        let mut slot = self.0.lock();
        let first = slot.is_none();
        slot.get_or_insert(value);
        first
    }

    pub fn take(&self) -> Option<T> {
        self.0.lock().take()
    }
}

/// Calls `work` once for each of `0..pieces`, on up to `workers` threads, of which the caller's is one.
///
/// Chunks are taken in ascending order and walked in ascending order. Cancelled, what has begun is finished, the rest is
/// dropped without a word. Returns when all workers have ended; a panic of one ends the others and goes on in the
/// caller.
pub fn parallelize_until(
    cancel: Option<&Cancel>,
    workers: usize,
    pieces: usize,
    chunk: usize,
    work: impl Fn(usize) + Sync,
) {
    let chunk = chunk.max(1);
    let chunks = pieces.div_ceil(chunk);
    let workers = workers.min(chunks);
    let next = AtomicUsize::new(0);
    let crash = First::default();
    let crashed = Cancel::default();
    let walk = || {
        while let Some(mine) = Some(next.fetch_add(1, Ordering::Relaxed)).filter(|&n| n < chunks) {
            for index in mine * chunk..pieces.min((mine + 1) * chunk) {
                if crashed.is_cancelled() || cancel.is_some_and(Cancel::is_cancelled) {
                    return;
                }
                work(index);
            }
        }
    };
    // What `work` may leave behind half done is the caller's to judge: the panic reaches it.
    let worker = || {
        if let Err(cause) = panic::catch_unwind(AssertUnwindSafe(walk)) {
            tracing::error!(cause = text(&*cause), "a parallel worker panicked");
            crash.put(cause);
            crashed.cancel();
        }
    };
    match workers {
        0 => return,
        1 => worker(),
        _ => std::thread::scope(|scope| {
            for _ in 1..workers {
                scope.spawn(worker);
            }
            worker();
        }),
    }
    if let Some(cause) = crash.take() {
        panic::resume_unwind(cause);
    }
}

fn text(cause: &(dyn Any + Send)) -> &str {
    let text = cause.downcast_ref::<&str>().copied();
    text.or_else(|| cause.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("unknown")
}

/// How much a worker takes at once when nodes are filtered and scored: large enough to seldom ask for more, small enough
/// that all stay busy to the end.
pub fn chunk_size(pieces: usize, parallelism: usize) -> usize {
    let share = pieces / parallelism.max(1) + 1;
    pieces.isqrt().min(share).max(1)
}

/// So many workers, and how many of them are doing what.
#[derive(Debug)]
pub struct Parallelizer {
    parallelism: usize,
    busy: Mutex<BTreeMap<&'static str, usize>>,
}

impl Parallelizer {
    pub fn new(parallelism: usize) -> Self {
        Self {
            parallelism: parallelism.max(1),
            busy: Mutex::default(),
        }
    }

    /// As [`parallelize_until`], in chunks of [`chunk_size`]; counted under `operation` meanwhile.
    pub fn until(
        &self,
        cancel: Option<&Cancel>,
        pieces: usize,
        operation: &'static str,
        work: impl Fn(usize) + Sync,
    ) {
        let chunk = chunk_size(pieces, self.parallelism);
        let workers = self.parallelism.min(pieces.div_ceil(chunk));
        *self.busy.lock().entry(operation).or_insert(0) += workers;
        let _busy = Busy {
            parallelizer: self,
            operation,
            workers,
        };
        parallelize_until(cancel, workers, pieces, chunk, work);
    }

    /// Workers by operation: the values of `scheduler_goroutines`.
    pub fn busy(&self) -> Vec<(&'static str, usize)> {
        let busy = self.busy.lock();
        busy.iter().map(|(name, count)| (*name, *count)).collect()
    }
}

struct Busy<'a> {
    parallelizer: &'a Parallelizer,
    operation: &'static str,
    workers: usize,
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        if let Some(count) = self.parallelizer.busy.lock().get_mut(self.operation) {
            *count -= self.workers;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::sync::Barrier;

    proptest! {
        #[test]
        fn each_once_whatever_the_numbers(workers in 0usize..20, pieces in 0usize..300, chunk in 0usize..40) {
            let done: Vec<AtomicUsize> = (0..pieces).map(|_| AtomicUsize::new(0)).collect();
            parallelize_until(None, workers, pieces, chunk, |index| {
                done[index].fetch_add(1, Ordering::Relaxed);
            });
            let expect = usize::from(workers > 0);
            prop_assert!(done.iter().all(|count| count.load(Ordering::Relaxed) == expect));
        }
    }

    #[test]
    fn one_worker_goes_in_order() {
        let order = Mutex::new(Vec::new());
        parallelize_until(None, 1, 10, 3, |index| order.lock().push(index));
        assert_eq!(order.into_inner(), (0..10).collect::<Vec<_>>());
    }

    #[test]
    fn workers_work_at_the_same_time() {
        // Would wait for ever if there were fewer than four.
        let together = Barrier::new(4);
        parallelize_until(None, 4, 4, 1, |_| {
            together.wait();
        });
    }

    #[test]
    fn cancelled_work_is_dropped() {
        let cancel = Cancel::default();
        let done = AtomicUsize::new(0);
        let errors = First::default();
        parallelize_until(Some(&cancel), 1, 100, 7, |index| {
            done.fetch_add(1, Ordering::Relaxed);
            if index >= 9 {
                errors.put(index);
                cancel.cancel();
            }
        });
        assert_eq!(done.into_inner(), 10);
        assert_eq!(errors.take(), Some(9));
        parallelize_until(Some(&cancel), 4, 100, 1, |_| {
            panic!("cancelled before it began")
        });
    }

    #[test]
    fn a_panic_reaches_the_caller() {
        for workers in [1, 4] {
            let outcome = panic::catch_unwind(|| {
                parallelize_until(None, workers, 1000, 1, |index| {
                    assert_ne!(index, 500, "five hundred");
                });
            });
            let cause = outcome.unwrap_err();
            assert!(text(&*cause).contains("five hundred"), "{}", text(&*cause));
        }
    }

    #[test]
    fn chunks() {
        for (pieces, parallelism, expect) in [
            (0, 16, 1),
            (1, 16, 1),
            (10, 16, 1),
            (100, 16, 7),
            (100, 1, 10),
            (1000, 16, 31),
            (5000, 16, 70),
            (5000, 100, 51),
            (5000, 0, 70),
        ] {
            assert_eq!(
                chunk_size(pieces, parallelism),
                expect,
                "{pieces}/{parallelism}"
            );
        }
    }

    #[test]
    fn workers_are_counted_while_they_work() {
        let parallelizer = Parallelizer::new(3);
        parallelizer.until(None, 100, "filter", |_| {
            assert_eq!(parallelizer.busy(), [("filter", 3)]);
        });
        parallelizer.until(None, 1, "score", |_| {
            assert_eq!(parallelizer.busy(), [("filter", 0), ("score", 1)]);
        });
        assert_eq!(parallelizer.busy(), [("filter", 0), ("score", 0)]);
    }
}

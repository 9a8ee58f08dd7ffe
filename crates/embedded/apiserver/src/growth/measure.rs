//! Work in processor time of this thread, which others on the machine do not use up.

use std::hint::black_box;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Of the work when the input is doubled. It is doubled twice, since where it no longer fits into a cache, the work
/// grows by more once.
const MOST: f64 = 2.5 * 2.5;
/// On four times the input, shorter work cannot be measured: it is mostly the memory's. What grows with the square takes
/// longer.
const LEAST: Duration = Duration::from_millis(40);
/// The machine disturbs all the same, because caches are shared. More attempts cost nothing where the first one is good.
const ATTEMPTS: usize = 40;

fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap();
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap())
}

fn taken(work: impl FnOnce()) -> Duration {
    let start = processor_time();
    work();
    processor_time().saturating_sub(start)
}

fn once<I, O>(input: &I, work: impl Fn(&I) -> O) -> Duration {
    taken(|| {
        black_box(work(black_box(input)));
    })
}

/// Fails if the work on twice as much grows by more than it may. Begins with `from` elements, and takes more where
/// that is too little to measure.
pub fn check<I, O>(name: &str, from: usize, make: impl Fn(usize) -> I, work: impl Fn(&I) -> O) {
    let mut count = from;
    let mut input = make(count);
    while 4 * once(&input, &work) < LEAST && count < 64 * from {
        count *= 2;
        input = make(count);
    }
    compare(name, &input, &make(4 * count), work);
}

/// The same of inputs that are at hand. Work that cannot be measured is little.
pub fn compare<I, O>(name: &str, input: &I, fourfold: &I, work: impl Fn(&I) -> O) {
    let mut best = [Duration::MAX; 2];
    for _ in 0..ATTEMPTS {
        best[1] = best[1].min(once(fourfold, &work));
        if best[1] < LEAST {
            return;
        }
        best[0] = best[0].min(once(input, &work));
        if best[1].as_secs_f64() <= MOST * best[0].as_secs_f64() {
            return;
        }
    }
    let [one, four] = best;
    panic!("{name}: four times the input takes {four:?} instead of {one:?}");
}

#[test]
fn what_grows_faster_is_noticed() {
    let pairs = |all: &Vec<usize>| {
        all.iter()
            .filter(|one| all.iter().all(|other| *other != **one + 1))
            .count()
    };
    let make = |count| vec![0; count];
    let noticed = std::panic::catch_unwind(|| check("pairs", 2000, make, pairs));
    assert!(noticed.is_err());
    check("sum", 2000, make, |all| all.iter().sum::<usize>());
}

//! Random documents and patches against every kind: deep, wide, long, extreme, repeated, of the wrong type. Whatever
//! comes, the server answers with a Status or an object, nothing panics, and what was acknowledged is there after a
//! restart.
//!
//! `PLIMSOLL_CLASS_SEED` repeats a run, `PLIMSOLL_CLASS_SECONDS` prolongs it, `PLIMSOLL_CLASS_TELL` tells each request.

#![allow(clippy::unwrap_used)] // a test that cannot go on says so by panicking

mod documents;
mod extremes;
mod requests;
mod world;

use std::panic;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use fastrand::Rng;
use world::World;

/// Requests in a run that is not prolonged.
const FEW: usize = 3000;
/// Requests between one restart and the next.
const BETWEEN_RESTARTS: usize = 500;

static PANICS: AtomicUsize = AtomicUsize::new(0);

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// On threads of the size that the server's have.
#[test]
fn whatever_comes_is_answered_and_what_is_kept_stays() {
    let told = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        PANICS.fetch_add(1, Ordering::SeqCst);
        told(info);
    }));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    // The thread of a test may have a larger stack than a worker's.
    let run = runtime.spawn(run());
    runtime.block_on(run).unwrap();
}

async fn run() {
    // The ladder sets the second: its runs must not fail by chance.
    let seed = number("PLIMSOLL_CLASS_SEED").or_else(|| number("PROPTEST_RNG_SEED"));
    let seed = seed.unwrap_or_else(|| fastrand::u64(..));
    println!("PLIMSOLL_CLASS_SEED={seed}");
    let end = number("PLIMSOLL_CLASS_SECONDS")
        .map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let tells = std::env::var_os("PLIMSOLL_CLASS_TELL").is_some();
    let mut rng = Rng::with_seed(seed);
    let mut world = World::start().await;
    let mut done = 0;
    while end.map_or(done < FEW, |end| Instant::now() < end) {
        let number = done;
        let request = requests::any(&mut rng, &world);
        // An overflow of the stack leaves no time to tell.
        if tells {
            eprintln!("request {number}: {request:?}");
        }
        let answer = world.ask(&request).await;
        let shown = || format!("request {number} of PLIMSOLL_CLASS_SEED={seed}: {request:?}");
        assert_eq!(PANICS.load(Ordering::SeqCst), 0, "{}", shown());
        world
            .check(&request, &answer)
            .unwrap_or_else(|why| panic!("{why}: {}", shown()));
        done += 1;
        if done % BETWEEN_RESTARTS == 0 {
            world = world
                .restart()
                .await
                .unwrap_or_else(|why| panic!("{why}: {}", shown()));
        }
    }
    println!("{done} requests, {}", world.summary());
    assert_eq!(PANICS.load(Ordering::SeqCst), 0);
}

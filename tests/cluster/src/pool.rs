//! Several cases at a time: most of a case is waiting.

use std::borrow::Borrow;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Result, anyhow};

use crate::case::{Case, Turn};

const THREADS: usize = 6;

/// Does something with each case and gives the results in the order of the cases. Those that need a server
/// that nobody has changed come first, and those that disturb others last, one by one.
pub fn each<C: Borrow<Case> + Sync, T: Send>(
    cases: &[C],
    work: impl Fn(&Case) -> Result<T> + Sync,
) -> Vec<Result<T>> {
    let results: Vec<Mutex<Option<Result<T>>>> = cases.iter().map(|_| Mutex::new(None)).collect();
    let finish = |index: usize| {
        let result = work(cases[index].borrow());
        if let Ok(mut slot) = results[index].lock() {
            *slot = Some(result);
        }
    };
    let of_turn = |turn| (0..cases.len()).filter(move |&index| cases[index].borrow().turn == turn);
    of_turn(Turn::First).for_each(finish);
    let together: Vec<usize> = of_turn(Turn::Together).collect();
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                while let Some(index) = together.get(next.fetch_add(1, Ordering::Relaxed)) {
                    finish(*index);
                }
            });
        }
    });
    of_turn(Turn::Last).for_each(finish);
    results
        .into_iter()
        .map(|slot| match slot.into_inner() {
            Ok(Some(result)) => result,
            _ => Err(anyhow!("the case did not finish")),
        })
        .collect()
}

//! Long work beside the tasks of the runtime: a large body takes a while to be read, compared and checked, and nobody
//! else's request is to wait for that.

use std::num::NonZero;

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::Semaphore;

/// A body, or an object that is to be changed, of more bytes is large.
pub const LARGE: usize = 64 << 10;

/// So many requests with large bodies are worked on at a time as there are processors; others wait for their turn.
#[derive(Debug)]
pub struct Aside {
    turns: Semaphore,
}

impl Default for Aside {
    fn default() -> Self {
        let processors = std::thread::available_parallelism();
        Self::with(processors.map_or(1, NonZero::get))
    }
}

impl Aside {
    fn with(turns: usize) -> Self {
        Self {
            turns: Semaphore::new(turns),
        }
    }

    /// Does the work; if it is `long`, so that other tasks of this thread go on elsewhere.
    pub async fn run<T>(&self, long: bool, work: impl Future<Output = T>) -> T {
        let runtime = Handle::current();
        // A runtime of one thread has no elsewhere.
        if !long || runtime.runtime_flavor() == RuntimeFlavor::CurrentThread {
            return work.await;
        }
        // Nobody closes it.
        let _turn = self.turns.acquire().await;
        tokio::task::block_in_place(|| runtime.block_on(work))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Arc, mpsc};

    use super::*;

    /// If the work kept its thread, which is the only one, nobody could ever end it.
    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn others_go_on_meanwhile() {
        let (sender, receiver) = mpsc::channel();
        let long = tokio::spawn(async move {
            let aside = Aside::with(1);
            aside.run(true, async move { receiver.recv() }).await
        });
        let other = tokio::spawn(async move { sender.send(7) });
        assert_eq!(long.await.unwrap(), Ok(7));
        other.await.unwrap().unwrap();
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn no_more_than_have_a_turn_at_a_time() {
        let aside = Arc::new(Aside::with(2));
        let counts = Arc::new((AtomicUsize::new(0), AtomicUsize::new(0)));
        let work = |_| {
            let (aside, counts) = (aside.clone(), counts.clone());
            tokio::spawn(async move {
                let at_once = async {
                    let now = counts.0.fetch_add(1, Ordering::SeqCst) + 1;
                    counts.1.fetch_max(now, Ordering::SeqCst);
                    tokio::task::yield_now().await;
                    counts.0.fetch_sub(1, Ordering::SeqCst);
                };
                aside.run(true, at_once).await;
            })
        };
        for one in (0..50).map(work).collect::<Vec<_>>() {
            one.await.unwrap();
        }
        assert!(counts.1.load(Ordering::SeqCst) <= 2);
    }

    #[tokio::test]
    async fn a_runtime_of_one_thread_does_it_itself() {
        assert_eq!(Aside::default().run(true, async { 7 }).await, 7);
    }
}

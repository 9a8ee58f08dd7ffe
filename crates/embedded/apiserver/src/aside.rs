//! Long work beside the tasks of the runtime: a large body takes a while to be read, compared and checked, and nobody
//! else's request is to wait for that.

use std::collections::HashMap;
use std::num::NonZero;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::Semaphore;

/// A body, or an object that is to be changed, of more bytes is large.
pub const LARGE: usize = 64 << 10;

/// So many long requests are worked on at a time as there are processors; others wait for their turn. One client waits for
/// a turn with one request at a time, so that a thousand of theirs do not come before the first of another client.
#[derive(Debug)]
pub struct Aside {
    turns: Semaphore,
    lines: Mutex<HashMap<Arc<str>, Weak<Semaphore>>>,
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
            lines: Mutex::default(),
        }
    }

    /// Does long work so that other tasks of this thread go on elsewhere. `line` says whose it is; `None`: somebody who
    /// does not wait for others.
    pub async fn run<T>(&self, line: Option<Arc<str>>, work: impl Future<Output = T>) -> T {
        let runtime = Handle::current();
        // A runtime of one thread has no elsewhere.
        if runtime.runtime_flavor() == RuntimeFlavor::CurrentThread {
            return work.await;
        }
        let line = line.map(|line| self.line(line));
        // Nobody closes them.
        let _turns = match &line {
            Some(line) => Some((line.acquire().await, self.turns.acquire().await)),
            None => None,
        };
        tokio::task::block_in_place(|| runtime.block_on(work))
    }

    fn line(&self, of: Arc<str>) -> Arc<Semaphore> {
        let mut lines = self.lines.lock();
        lines.retain(|_, line| line.strong_count() > 0);
        if let Some(line) = lines.get(&of).and_then(Weak::upgrade) {
            return line;
        }
        let line = Arc::new(Semaphore::new(1));
        lines.insert(of, Arc::downgrade(&line));
        line
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;

    use super::*;

    /// If the work kept its thread, which is the only one, nobody could ever end it.
    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn others_go_on_meanwhile() {
        let (sender, receiver) = mpsc::channel();
        let long = tokio::spawn(async move {
            let aside = Aside::with(1);
            aside.run(None, async move { receiver.recv() }).await
        });
        let other = tokio::spawn(async move { sender.send(7) });
        assert_eq!(long.await.unwrap(), Ok(7));
        other.await.unwrap().unwrap();
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn no_more_than_have_a_turn_at_a_time() {
        let aside = Arc::new(Aside::with(2));
        let counts = Arc::new((AtomicUsize::new(0), AtomicUsize::new(0)));
        let work = |number: usize| {
            let (aside, counts) = (aside.clone(), counts.clone());
            tokio::spawn(async move {
                let at_once = async {
                    let now = counts.0.fetch_add(1, Ordering::SeqCst) + 1;
                    counts.1.fetch_max(now, Ordering::SeqCst);
                    tokio::task::yield_now().await;
                    counts.0.fetch_sub(1, Ordering::SeqCst);
                };
                aside.run(Some(format!("{number}").into()), at_once).await;
            })
        };
        for one in (0..50).map(work).collect::<Vec<_>>() {
            one.await.unwrap();
        }
        assert!(counts.1.load(Ordering::SeqCst) <= 2);
    }

    #[tokio::test]
    async fn a_runtime_of_one_thread_does_it_itself() {
        assert_eq!(Aside::default().run(None, async { 7 }).await, 7);
    }

    /// A client with a hundred requests is in the way of nobody else for longer than one of them takes.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_line_of_one_client_is_not_a_line_for_all() {
        let aside = Arc::new(Aside::with(1));
        let done = Arc::new(AtomicUsize::new(0));
        let (begin, begun) = mpsc::channel();
        let (finish, finished) = mpsc::channel::<()>();
        let first = {
            let aside = aside.clone();
            tokio::spawn(async move {
                let work = async move {
                    begin.send(()).unwrap();
                    finished.recv()
                };
                aside.run(Some("many".into()), work).await
            })
        };
        begun.recv().unwrap();
        let others: Vec<_> = (0..100)
            .map(|_| {
                let (aside, done) = (aside.clone(), done.clone());
                tokio::spawn(async move {
                    let work = async { done.fetch_add(1, Ordering::SeqCst) };
                    aside.run(Some("many".into()), work).await
                })
            })
            .collect();
        let before = aside.run(None, async { done.load(Ordering::SeqCst) }).await;
        assert_eq!(before, 0, "the administrator waits for nobody");
        let one = aside.run(Some("one".into()), async { done.load(Ordering::SeqCst) });
        let mut one = std::pin::pin!(one);
        // Now it stands where the hundred will come to.
        assert!(futures::poll!(one.as_mut()).is_pending());
        finish.send(()).unwrap();
        assert_eq!(one.await, 0);
        first.await.unwrap().unwrap();
        for other in others {
            other.await.unwrap();
        }
        assert_eq!(done.load(Ordering::SeqCst), 100);
    }
}

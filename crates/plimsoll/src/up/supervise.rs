//! Keeps the roles of `up` at work: a role that fails is stopped and started again, later each time.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use parking_lot::Mutex;
use plimsoll_client::backoff::Backoff;
use plimsoll_client::shutdown;
use plimsoll_client::shutdown::{Shutdown, ShutdownTrigger};
use tokio::task::JoinHandle;

/// A part of `up` that can fail without the others.
pub trait Role: Send + Sized + 'static {
    /// Waits until the role cannot go on, and says why.
    fn failure(&mut self) -> impl Future<Output = String> + Send;
    /// Stops it, within this time.
    fn drain(self, within: Duration) -> impl Future<Output = ()> + Send;
}

/// Which roles are at work, and how often each was started again. Clones tell the same.
#[derive(Debug, Clone, Default)]
pub struct Roster(Arc<Mutex<BTreeMap<&'static str, State>>>);

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct State {
    is_up: bool,
    restarts: u64,
}

impl Roster {
    fn set(&self, name: &'static str, change: impl FnOnce(&mut State)) {
        change(self.0.lock().entry(name).or_default());
    }

    /// For a page of metrics.
    pub fn metrics(&self) -> String {
        let states = self.0.lock().clone();
        let mut page = String::from("# TYPE plimsoll_role_up gauge\n");
        for (name, state) in &states {
            let up = u8::from(state.is_up);
            let _ = writeln!(page, "plimsoll_role_up{{role=\"{name}\"}} {up}");
        }
        page.push_str("# TYPE plimsoll_role_restarts_total counter\n");
        for (name, state) in &states {
            let restarts = state.restarts;
            let _ = writeln!(
                page,
                "plimsoll_role_restarts_total{{role=\"{name}\"}} {restarts}"
            );
        }
        page
    }
}

/// A role that is looked after.
#[derive(Debug)]
pub struct Supervised {
    stopper: ShutdownTrigger,
    task: JoinHandle<()>,
}

/// Looks after a role that runs. `again` starts another one in its place.
pub fn supervise<R, S, F>(
    name: &'static str,
    role: R,
    again: S,
    roster: &Roster,
    drain: Duration,
) -> Supervised
where
    R: Role,
    S: Fn() -> F + Send + Sync + 'static,
    F: Future<Output = Result<R>> + Send + 'static,
{
    let (stopper, shutdown) = shutdown::channel();
    roster.set(name, |state| state.is_up = true);
    let keeper = Keeper {
        name,
        again,
        roster: roster.clone(),
        drain,
        shutdown,
    };
    Supervised {
        stopper,
        task: tokio::spawn(keeper.run(role)),
    }
}

impl Supervised {
    /// Stops the role, within the time that was given for it.
    pub async fn drain(self) {
        self.stopper.stop();
        if let Err(error) = self.task.await {
            tracing::error!(%error, "a role did not stop in order");
        }
    }
}

struct Keeper<S> {
    name: &'static str,
    again: S,
    roster: Roster,
    drain: Duration,
    shutdown: Shutdown,
}

impl<S> Keeper<S> {
    async fn run<R, F>(self, mut role: R)
    where
        R: Role,
        S: Fn() -> F + Send + Sync,
        F: Future<Output = Result<R>> + Send,
    {
        let mut backoff = Backoff::default();
        loop {
            let why = tokio::select! {
                () = self.shutdown.begins() => return role.drain(self.drain).await,
                why = role.failure() => why,
            };
            self.roster.set(self.name, |state| state.is_up = false);
            let wait = backoff.next_wait();
            tracing::error!(role = self.name, why, again_in = ?wait, "a role failed and will be started again");
            // Its ports and files must be free.
            role.drain(self.drain).await;
            role = match self.start(wait, &mut backoff).await {
                Some(role) => role,
                None => return,
            };
            self.roster.set(self.name, |state| {
                state.is_up = true;
                state.restarts = state.restarts.saturating_add(1);
            });
            tracing::warn!(role = self.name, "the role was started again");
        }
    }

    /// `None`: everything stops.
    async fn start<R, F>(&self, mut wait: Duration, backoff: &mut Backoff) -> Option<R>
    where
        S: Fn() -> F,
        F: Future<Output = Result<R>>,
    {
        loop {
            let started = async {
                tokio::time::sleep(wait).await;
                (self.again)().await
            };
            let error = tokio::select! {
                () = self.shutdown.begins() => return None,
                started = started => match started {
                    Ok(role) => return Some(role),
                    Err(error) => error,
                },
            };
            wait = backoff.next_wait();
            let error = format!("{error:#}");
            tracing::error!(role = self.name, error, again_in = ?wait, "the role cannot be started again");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use anyhow::bail;
    use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

    use super::*;

    /// What happened to the roles of a test, in order.
    #[derive(Debug, PartialEq, Eq)]
    enum Seen {
        Started(u32),
        Drained(u32),
    }

    /// Fails at once, if it is to fail.
    struct Fragile {
        number: u32,
        fails: bool,
        seen: UnboundedSender<Seen>,
    }

    impl Role for Fragile {
        async fn failure(&mut self) -> String {
            match self.fails {
                true => format!("number {} broke", self.number),
                false => std::future::pending().await,
            }
        }

        async fn drain(self, _: Duration) {
            let _ = self.seen.send(Seen::Drained(self.number));
        }
    }

    /// The first and the third fail, the second does not start.
    fn supervised(roster: &Roster) -> (Supervised, UnboundedReceiver<Seen>) {
        let (seen, told) = unbounded_channel();
        let first = Fragile {
            number: 1,
            fails: true,
            seen: seen.clone(),
        };
        let tries = Arc::new(AtomicU32::new(1));
        let again = move || {
            let number = tries.fetch_add(1, Ordering::Relaxed) + 1;
            let seen = seen.clone();
            async move {
                if number == 2 {
                    bail!("the port is taken");
                }
                let _ = seen.send(Seen::Started(number));
                let fails = number == 3;
                Ok(Fragile {
                    number,
                    fails,
                    seen,
                })
            }
        };
        let kept = supervise("fragile", first, again, roster, Duration::from_secs(1));
        (kept, told)
    }

    #[tokio::test(start_paused = true)]
    async fn a_role_that_fails_is_drained_and_started_again() {
        let roster = Roster::default();
        let (kept, mut told) = supervised(&roster);
        for expected in [
            Seen::Drained(1),
            Seen::Started(3),
            Seen::Drained(3),
            Seen::Started(4),
        ] {
            assert_eq!(told.recv().await.unwrap(), expected);
        }
        kept.drain().await;
        assert_eq!(told.recv().await.unwrap(), Seen::Drained(4));
        let expected = "# TYPE plimsoll_role_up gauge\nplimsoll_role_up{role=\"fragile\"} 1\n\
            # TYPE plimsoll_role_restarts_total counter\nplimsoll_role_restarts_total{role=\"fragile\"} 2\n";
        assert_eq!(roster.metrics(), expected);
    }

    #[tokio::test(start_paused = true)]
    async fn it_stops_while_a_role_is_down() {
        let roster = Roster::default();
        let (kept, mut told) = supervised(&roster);
        assert_eq!(told.recv().await.unwrap(), Seen::Drained(1));
        kept.drain().await;
        assert!(told.recv().await.is_none());
        assert!(
            roster
                .metrics()
                .contains("plimsoll_role_up{role=\"fragile\"} 0\n")
        );
    }
}

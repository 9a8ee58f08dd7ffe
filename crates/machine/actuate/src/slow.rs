//! Writes for which the kernel may take long: it reclaims memory or moves tasks within them. They run on a thread of
//! their own, in order, so that nothing else waits. A write that does not come back in time is left to its thread, which
//! ends when the kernel lets it; another thread goes on with the rest.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use plimsoll_plan::{Knob, Target};

use crate::files::Files;
use crate::write::{Failure, perform};
use crate::{Durations, Piece, Place};

/// Threads that may hang in the kernel at a time.
const MOST_ABANDONED: u64 = 8;

#[derive(Debug, Clone)]
pub(crate) struct Job {
    pub target: Target,
    pub place: Place,
    pub pieces: Vec<Piece>,
    /// The change's last step: what the kernel has is looked at after it.
    pub last: bool,
}

#[derive(Debug)]
pub(crate) struct Done {
    pub target: Target,
    pub last: bool,
    pub outcome: Result<(), Outcome>,
}

#[derive(Debug)]
pub(crate) enum Outcome {
    Failed(Failure),
    /// It did not come back in time.
    Blocked,
}

#[derive(Debug, Default)]
struct Shared {
    queue: VecDeque<Job>,
    /// What the thread is at, with a number.
    current: Option<(u64, Target, bool)>,
    done: Vec<Done>,
    /// Threads of another generation were given up.
    generation: u64,
    count: u64,
    ended: bool,
}

#[derive(Debug)]
pub(crate) struct SlowWriter {
    files: Arc<dyn Files>,
    durations: Durations,
    shared: Arc<(Mutex<Shared>, Condvar)>,
    running: bool,
    /// The job that was under way when it was last looked, and since when.
    seen: Option<(u64, Duration)>,
}

impl SlowWriter {
    pub fn new(files: Arc<dyn Files>, durations: Durations) -> Self {
        Self {
            files,
            durations,
            shared: Arc::default(),
            running: false,
            seen: None,
        }
    }

    pub fn push(&mut self, job: Job) {
        lock(&self.shared.0).queue.push_back(job);
        if !self.running {
            self.running = self.spawn();
        }
        self.shared.1.notify_all();
    }

    fn spawn(&self) -> bool {
        let (files, shared) = (self.files.clone(), self.shared.clone());
        let durations = self.durations.clone();
        let generation = lock(&shared.0).generation;
        std::thread::Builder::new()
            .name("slow-write".to_owned())
            .spawn(move || work(&*files, &durations, &shared, generation))
            .is_ok()
    }

    /// Whether a write of this kind is under way. Others of its kind wait, or they would overtake it.
    pub fn is_busy_with(&self, knob: Knob) -> bool {
        let shared = lock(&self.shared.0);
        let queued = shared.queue.iter().map(|job| &job.target);
        let current = shared.current.iter().map(|(_, target, _)| target);
        let same = |target: &Target| matches!(target, Target::Cgroup { knob: other, .. } if *other == knob);
        queued.chain(current).any(same)
    }

    pub fn under_way(&self) -> usize {
        let shared = lock(&self.shared.0);
        shared.queue.len() + usize::from(shared.current.is_some())
    }

    /// Waits until all is written, at most so long.
    pub fn wait(&self, at_most: Duration) {
        let idle = |shared: &mut Shared| !shared.queue.is_empty() || shared.current.is_some();
        let guard = lock(&self.shared.0);
        drop(self.shared.1.wait_timeout_while(guard, at_most, idle));
    }

    /// What has ended since the last call. Gives up what has been under way for longer than `deadline`.
    pub fn take(&mut self, now: Duration, deadline: Duration) -> Vec<Done> {
        let mut shared = lock(&self.shared.0);
        let mut done = std::mem::take(&mut shared.done);
        let Some((number, target, last)) = shared.current.clone() else {
            self.seen = None;
            return done;
        };
        let since = match self.seen {
            Some((seen, since)) if seen == number => since,
            _ => now,
        };
        self.seen = Some((number, since));
        if now.saturating_sub(since) < deadline {
            return done;
        }
        self.seen = None;
        shared.current = None;
        shared.generation += 1;
        let blocked = |target, last| Done {
            target,
            last,
            outcome: Err(Outcome::Blocked),
        };
        done.push(blocked(target, last));
        if shared.generation > MOST_ABANDONED {
            done.extend(
                shared
                    .queue
                    .drain(..)
                    .map(|job| blocked(job.target, job.last)),
            );
        }
        drop(shared);
        self.running = self.spawn();
        done
    }
}

impl Drop for SlowWriter {
    fn drop(&mut self) {
        lock(&self.shared.0).ended = true;
        self.shared.1.notify_all();
    }
}

fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

fn work(
    files: &dyn Files,
    durations: &Durations,
    shared: &(Mutex<Shared>, Condvar),
    generation: u64,
) {
    let (shared, changed) = shared;
    let mut guard = lock(shared);
    loop {
        if guard.ended || guard.generation != generation {
            return;
        }
        let Some(job) = guard.queue.pop_front() else {
            guard = changed.wait(guard).unwrap_or_else(PoisonError::into_inner);
            continue;
        };
        guard.count += 1;
        guard.current = Some((guard.count, job.target.clone(), job.last));
        drop(guard);
        let write = || perform(files, &job.place, &job.pieces);
        let outcome = durations.time(&job.target, write);
        let outcome = outcome.map_err(Outcome::Failed);
        guard = lock(shared);
        if guard.generation != generation {
            return;
        }
        guard.current = None;
        guard.done.push(Done {
            target: job.target,
            last: job.last,
            outcome,
        });
        changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::KernelFile;
    use crate::place::Owner;
    use std::io;

    /// Writes of "block" hang until the gate opens.
    #[derive(Debug, Default)]
    struct Gate(Mutex<bool>, Condvar);

    impl Files for Gate {
        fn read(&self, _: &KernelFile) -> io::Result<Option<Vec<u8>>> {
            Ok(None)
        }
        fn write(&self, _: &KernelFile, text: &str) -> io::Result<()> {
            let mut open = self.0.lock().unwrap();
            while text == "block" && !*open {
                open = self.1.wait(open).unwrap();
            }
            Ok(())
        }
        fn append(&self, _: &KernelFile, _: &str) -> io::Result<()> {
            Ok(())
        }
        fn inode(&self, _: &KernelFile) -> io::Result<Option<u64>> {
            Ok(None)
        }
        fn make_dir(&self, _: &KernelFile) -> io::Result<()> {
            Ok(())
        }
        fn remove_dir(&self, _: &KernelFile) -> io::Result<()> {
            Ok(())
        }
    }

    fn job(path: &str, text: &str) -> Job {
        let file = KernelFile::new("/".as_ref(), "x");
        Job {
            target: Target::cgroup(&path.into(), Knob::MemoryHigh),
            place: Place {
                form: crate::Form::V2,
                file,
                period: None,
                owner: Owner::Machine,
            },
            pieces: vec![Piece::Main(text.to_owned())],
            last: true,
        }
    }

    #[test]
    fn a_write_that_hangs_is_given_up_and_the_rest_goes_on() {
        let gate = Arc::new(Gate::default());
        let mut slow = SlowWriter::new(gate.clone(), Durations::default());
        slow.push(job("/a", "block"));
        slow.push(job("/b", "fine"));
        let second = Duration::from_secs(1);
        let until_current = || {
            while lock(&slow.shared.0).current.is_none() {
                std::thread::yield_now();
            }
        };
        until_current();
        assert!(slow.is_busy_with(Knob::MemoryHigh) && !slow.is_busy_with(Knob::MemoryMax));
        assert!(slow.take(second, 5 * second).is_empty());
        assert!(slow.take(5 * second, 5 * second).is_empty());
        let given_up = slow.take(6 * second, 5 * second);
        assert!(matches!(given_up[0].outcome, Err(Outcome::Blocked)));
        slow.wait(Duration::from_secs(60));
        let done = slow.take(7 * second, 5 * second);
        assert_eq!(done.len(), 1);
        assert!(done[0].outcome.is_ok());
        *gate.0.lock().unwrap() = true;
        gate.1.notify_all();
        // What comes back late is not told.
        slow.push(job("/c", "fine"));
        slow.wait(Duration::from_secs(60));
        let done = slow.take(8 * second, 5 * second);
        assert_eq!(
            done[0].target,
            Target::cgroup(&"/c".into(), Knob::MemoryHigh)
        );
    }
}

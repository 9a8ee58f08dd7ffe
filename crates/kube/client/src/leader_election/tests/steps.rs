//! One elector, answer by answer.

use super::*;
use jiff::Timestamp;

struct Rig {
    elector: Elector,
    server: Server,
    now: Duration,
}

impl Rig {
    fn new(config: Config) -> Self {
        Self {
            elector: Elector::new(config, 1).unwrap(),
            server: Server::default(),
            now: Duration::ZERO,
        }
    }

    fn now(&self) -> Now {
        Now {
            monotonic: self.now,
            wall: Timestamp::UNIX_EPOCH + self.now,
        }
    }

    /// Goes on with a server that answers at once, until there is a pause; tells until when.
    fn settle(&mut self) -> Option<Duration> {
        loop {
            match self.elector.next(self.now()) {
                Action::Sleep(until) => return Some(until),
                Action::End => return None,
                request => {
                    let answer = self.server.answer(&request);
                    self.elector.answer(self.now(), answer);
                }
            }
        }
    }

    fn advance(&mut self, until: Duration) -> Option<Duration> {
        self.now = until;
        self.settle()
    }

    fn lease(&self) -> &Lease {
        self.server.lease.as_ref().unwrap()
    }
}

fn secs(s: u64) -> Duration {
    Duration::from_secs(s)
}

#[test]
fn the_first_creates_it_and_keeps_it() {
    let mut rig = Rig::new(config("a"));
    // Won, and renewed for the first time at once.
    assert_eq!(rig.settle(), Some(secs(2)));
    assert_eq!(
        rig.elector.notices(),
        [
            Transition::StartedLeading,
            Transition::NewLeader("a".to_owned())
        ]
    );
    assert_eq!((rig.server.gets, rig.server.puts), (1, 1));
    let first = spec(rig.lease()).clone();
    assert_eq!(first.lease_duration_seconds, Some(15));
    assert_eq!(first.lease_transitions, Some(0));
    for round in 1..100 {
        assert_eq!(rig.advance(secs(2 * round)), Some(secs(2 * round + 2)));
    }
    // Nothing was read again, and only the time of renewal has changed.
    assert_eq!((rig.server.gets, rig.server.puts), (1, 100));
    let last = spec(rig.lease()).clone();
    assert_eq!(last.acquire_time, first.acquire_time);
    assert_eq!(
        last.renew_time.unwrap().0,
        Timestamp::UNIX_EPOCH + secs(198)
    );
    assert!(rig.elector.notices().is_empty());
    assert_eq!(rig.elector.safe_until(), Some(secs(198 + 12)));
}

#[test]
fn a_held_lease_is_left_alone_until_nothing_changes() {
    let mut other = Rig::new(config("b"));
    other.settle();
    let mut rig = Rig::new(config("a"));
    rig.server = other.server;
    rig.server.touch(|lease| {
        let spec = lease.spec.as_mut().unwrap();
        // A clock that is ten years ahead means nothing.
        let wrong = Timestamp::UNIX_EPOCH + secs(10 * 365 * 86400);
        spec.renew_time = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime(
            wrong,
        ));
    });
    rig.now = secs(100);
    let mut tries = 0;
    while !rig.elector.leads() {
        let next = rig.settle().unwrap();
        if rig.elector.leads() {
            break;
        }
        tries += 1;
        let pause = next - rig.now;
        assert!(
            pause >= secs(2) && pause <= Duration::from_millis(4400),
            "{pause:?}"
        );
        assert!(rig.now < secs(120));
        rig.now = next;
    }
    // Expired by our own clock, fifteen seconds after the first look.
    assert!(rig.now >= secs(115), "{:?}", rig.now);
    assert!(tries >= 4);
    assert_eq!(holder(rig.lease()), "a");
    assert_eq!(spec(rig.lease()).lease_transitions, Some(1));
    assert_eq!(
        rig.elector.notices(),
        [
            Transition::NewLeader("b".to_owned()),
            Transition::StartedLeading,
            Transition::NewLeader("a".to_owned())
        ]
    );
}

#[test]
fn a_released_lease_is_taken_at_the_next_try() {
    let mut rig = Rig::new(config("a"));
    rig.settle();
    rig.elector.stop();
    assert_eq!(rig.settle(), None);
    let released = spec(rig.lease()).clone();
    assert_eq!(released.holder_identity.as_deref(), Some(""));
    assert_eq!(released.lease_duration_seconds, Some(1));
    assert_eq!(released.renew_time, released.acquire_time);
    let mut next = Rig::new(config("b"));
    next.server = rig.server;
    next.settle();
    assert!(next.elector.leads());
    assert_eq!(spec(next.lease()).lease_transitions, Some(1));
}

#[test]
fn whoever_never_led_releases_nothing() {
    let mut other = Rig::new(config("b"));
    other.settle();
    let mut rig = Rig::new(config("a"));
    rig.server = other.server;
    rig.settle();
    rig.elector.stop();
    assert_eq!(rig.settle(), None);
    assert_eq!(holder(rig.lease()), "b");
}

#[test]
fn a_changed_lease_is_read_and_renewed_still() {
    let mut rig = Rig::new(config("a"));
    rig.settle();
    rig.elector.notices();
    rig.server.touch(|lease| {
        lease.metadata.labels = Some([("touched".to_owned(), "yes".to_owned())].into());
    });
    rig.advance(secs(2));
    assert_eq!(rig.elector.notices(), [Transition::SlowPath]);
    assert!(rig.elector.leads());
    assert!(
        rig.lease().metadata.labels.is_some(),
        "others' changes are kept"
    );
    assert_eq!(spec(rig.lease()).lease_transitions, Some(0));
}

#[test]
fn a_deleted_lease_is_created_again() {
    let mut rig = Rig::new(config("a"));
    rig.settle();
    rig.server.lease = None;
    rig.advance(secs(2));
    assert!(rig.elector.leads());
    assert_eq!(holder(rig.lease()), "a");
}

/// A process that was paused for long finds another leader: it stops at once.
#[test]
fn whoever_was_replaced_stops_at_once() {
    let mut rig = Rig::new(config("a"));
    rig.settle();
    rig.elector.notices();
    rig.server.touch(|lease| {
        lease.spec.as_mut().unwrap().holder_identity = Some("b".to_owned());
    });
    assert_eq!(rig.advance(secs(60)), None);
    assert_eq!(
        rig.elector.notices(),
        [
            Transition::NewLeader("b".to_owned()),
            Transition::StoppedLeading
        ]
    );
    assert_eq!(holder(rig.lease()), "b");
}

#[test]
fn silence_ends_it_after_the_deadline() {
    let mut rig = Rig::new(config("a"));
    rig.settle();
    rig.now = secs(2);
    let mut asked = Vec::new();
    let ended = loop {
        match rig.elector.next(rig.now()) {
            Action::Sleep(until) => rig.now = until,
            Action::End => break rig.now,
            request => {
                asked.push((rig.now, matches!(request, Action::Get)));
                rig.elector.answer(rig.now(), Answer::Failed);
            }
        }
    };
    assert_eq!(ended, secs(12));
    // Each try renews and, failing that, reads; then once more to give it back.
    let tries: Vec<u64> = asked
        .iter()
        .filter(|(_, get)| *get)
        .map(|(at, _)| at.as_secs())
        .collect();
    assert_eq!(tries, [2, 4, 6, 8, 10, 12]);
    assert!(
        ended < rig.elector.observed_at() + secs(15),
        "before others may take over"
    );
}

#[test]
fn an_answer_that_comes_too_late_does_not_help() {
    let mut rig = Rig::new(config("a"));
    rig.settle();
    rig.now = secs(2);
    let request = rig.elector.next(rig.now());
    assert!(matches!(request, Action::Put(_)));
    assert_eq!(rig.elector.deadline(), Some(secs(12)));
    rig.now = secs(12);
    assert_eq!(rig.elector.next(rig.now()), Action::Get, "to give it back");
    assert!(!rig.elector.leads());
}

#[test]
fn giving_back_outlasts_a_conflict() {
    let mut rig = Rig::new(config("a"));
    rig.settle();
    rig.elector.stop();
    let get = rig.elector.next(rig.now());
    assert_eq!(get, Action::Get);
    let answer = rig.server.answer(&get);
    rig.elector.answer(rig.now(), answer);
    let put = rig.elector.next(rig.now());
    rig.server
        .touch(|lease| lease.metadata.labels = Some([].into()));
    let answer = rig.server.answer(&put);
    assert!(matches!(answer, Answer::Conflict));
    rig.elector.answer(rig.now(), answer);
    assert_eq!(rig.settle(), None);
    assert_eq!(holder(rig.lease()), "");
}

#[test]
fn it_is_kept_if_so_wished() {
    let mut keeping = config("a");
    keeping.release_on_stop = false;
    let mut rig = Rig::new(keeping);
    rig.settle();
    rig.elector.stop();
    assert_eq!(rig.settle(), None);
    assert_eq!(holder(rig.lease()), "a");
}

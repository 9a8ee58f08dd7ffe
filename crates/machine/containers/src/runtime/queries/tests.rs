//! The queries without any runtime: time and answers are what the tests give.

use std::collections::HashSet;

use super::super::{InspectResult, ListResult, RuntimeError};
use super::*;
use crate::container::tests::identity;

const LAST_QUICK: Duration = Duration::from_millis(50 + 100 + 200 + 400);

struct Rig {
    scheduler: QueryScheduler,
    now: Duration,
}

fn id(n: usize) -> String {
    format!("{n:064}")
}

fn path(n: usize) -> CgroupPath {
    format!("/docker/{}", id(n)).into()
}

fn known(n: usize) -> InspectResult {
    let mut identity = identity(&id(n));
    identity.pid = Some(7);
    InspectResult::CgroupTree(Box::new(identity))
}

fn starting(n: usize) -> InspectResult {
    InspectResult::Starting(Box::new(identity(&id(n))))
}

impl Rig {
    fn new(runtimes: usize) -> Self {
        Self {
            scheduler: QueryScheduler::new(runtimes),
            now: Duration::from_secs(1),
        }
    }

    fn up(runtimes: usize) -> Self {
        let mut rig = Self::new(runtimes);
        for runtime in 0..runtimes {
            rig.scheduler.up(runtime);
            rig.scheduler
                .listed(runtime, Ok(ListResult::Full(Vec::new())), rig.now);
        }
        rig.scheduler.take_calls();
        rig
    }

    fn want(&mut self, n: usize) {
        let query = Query::Name {
            path: path(n),
            incarnation: n as Incarnation,
            id: id(n).into(),
        };
        self.scheduler.query(query, self.now);
    }

    fn forget(&mut self, n: usize) {
        let query = Query::Forget {
            path: path(n),
            incarnation: n as Incarnation,
            exit: true,
        };
        self.scheduler.query(query, self.now);
    }

    /// Lets time pass and returns the calls that became due, in words.
    fn after(&mut self, pause: Duration) -> Vec<String> {
        self.now += pause;
        self.scheduler.tick(self.now, &|_, _| true);
        self.calls()
    }

    fn calls(&mut self) -> Vec<String> {
        let words = |call| match call {
            Call::Inspect {
                runtime,
                incarnation,
                ..
            } => format!("inspect {incarnation} at {runtime}"),
            Call::List { runtime } => format!("list at {runtime}"),
            Call::Exit {
                runtime,
                incarnation,
                ..
            } => format!("exit {incarnation} at {runtime}"),
        };
        self.scheduler.take_calls().into_iter().map(words).collect()
    }

    fn says(&mut self, runtime: usize, n: usize, seen: Result<InspectResult, RuntimeError>) {
        self.scheduler
            .inspected(runtime, &path(n), n as Incarnation, seen, self.now);
    }

    fn replies(&mut self) -> Vec<String> {
        let words = |answer| match answer {
            Reply::Named { incarnation, .. } => format!("named {incarnation}"),
            Reply::Unclaimed { incarnation, .. } => format!("unclaimed {incarnation}"),
            Reply::Ended {
                incarnation,
                exit_code,
                ..
            } => format!("ended {incarnation} {exit_code:?}"),
        };
        self.scheduler
            .take_replies()
            .into_iter()
            .map(words)
            .collect()
    }
}

#[test]
fn every_runtime_is_asked_and_the_first_that_knows_wins() {
    let mut rig = Rig::up(2);
    rig.want(1);
    assert_eq!(
        rig.after(Duration::ZERO),
        ["inspect 1 at 0", "inspect 1 at 1"]
    );
    rig.says(1, 1, Ok(known(1)));
    assert_eq!(rig.replies(), ["named 1"]);
    rig.says(0, 1, Ok(InspectResult::Unknown));
    assert_eq!(rig.after(Duration::from_secs(600)), [""; 0]);
    assert_eq!(rig.replies(), [""; 0]);
}

#[test]
fn rounds_grow_apart_and_never_end() {
    let mut rig = Rig::up(1);
    rig.want(1);
    let mut asked_at = Vec::new();
    for _ in 0..400_000 {
        if !rig.after(Duration::from_millis(1)).is_empty() {
            asked_at.push(rig.now - Duration::from_secs(1));
            rig.says(0, 1, Ok(InspectResult::Unknown));
        }
    }
    let millis: Vec<u128> = asked_at.iter().map(Duration::as_millis).collect();
    assert_eq!(millis[..6], [1, 51, 151, 351, 751, 1551]);
    let last = &asked_at[asked_at.len() - 2..];
    assert_eq!(last[1] - last[0], LONGEST_PAUSE);
    assert_eq!(rig.replies(), ["unclaimed 1"]);
    // A late answer is still welcome.
    assert_eq!(rig.after(LONGEST_PAUSE).len(), 1);
    rig.says(0, 1, Ok(known(1)));
    assert_eq!(rig.replies(), ["named 1"]);
}

#[test]
fn a_container_without_a_process_is_waited_for_a_little() {
    let mut rig = Rig::up(1);
    rig.want(1);
    let start = rig.now;
    while rig.now - start <= LAST_QUICK {
        if !rig.after(Duration::from_millis(10)).is_empty() {
            rig.says(0, 1, Ok(starting(1)));
        }
    }
    assert_eq!(rig.replies(), ["named 1"]);
    assert_eq!(rig.after(Duration::from_secs(1)), ["inspect 1 at 0"]);
    rig.says(0, 1, Ok(known(1)));
    assert_eq!(rig.replies(), ["named 1"]);
    assert_eq!(rig.after(Duration::from_secs(600)), [""; 0]);
}

#[test]
fn a_silent_runtime_does_not_keep_the_others_from_speaking() {
    let mut rig = Rig::up(2);
    rig.want(1);
    rig.after(Duration::ZERO);
    rig.says(0, 1, Ok(InspectResult::Unknown));
    assert_eq!(rig.replies(), [""; 0]);
    rig.after(SAY_WITHIN);
    assert_eq!(rig.replies(), ["unclaimed 1"]);
    // It is given up, and the rounds go on with the other alone.
    rig.scheduler.down(1, rig.now);
    assert_eq!(rig.after(FIRST_PAUSE), ["inspect 1 at 0"]);
}

#[test]
fn nothing_to_ask_is_said_at_once() {
    let mut rig = Rig::new(2);
    rig.want(1);
    assert_eq!(rig.after(Duration::ZERO), [""; 0]);
    rig.scheduler.down(0, rig.now);
    assert!(rig.scheduler.reachable());
    rig.scheduler.down(1, rig.now);
    assert!(!rig.scheduler.reachable());
    assert_eq!(rig.replies(), ["unclaimed 1"]);
}

#[test]
fn a_runtime_that_comes_is_asked_for_everything_once() {
    let mut rig = Rig::new(1);
    rig.scheduler.down(0, rig.now);
    (1..=100).for_each(|n| rig.want(n));
    rig.after(Duration::from_secs(1));
    rig.replies();
    rig.scheduler.up(0);
    assert_eq!(rig.after(Duration::ZERO), ["list at 0"]);
    let listing = ListResult::Full(vec![known(3), known(5), starting(6), known(777)]);
    rig.scheduler.listed(0, Ok(listing), rig.now);
    let mut replies = rig.replies();
    replies.retain(|answer| answer.starts_with("named"));
    replies.sort();
    assert_eq!(replies, ["named 3", "named 5"]);
}

#[test]
fn many_at_once_are_one_listing_and_only_the_listed_are_inspected() {
    let mut rig = Rig::up(1);
    (1..=50).for_each(|n| rig.want(n));
    assert_eq!(rig.after(Duration::ZERO), ["list at 0"]);
    // One that came after the listing was asked for cannot be in it.
    rig.want(51);
    assert_eq!(rig.after(Duration::ZERO), ["inspect 51 at 0"]);
    let ids: HashSet<String> = [id(2), id(51)].into();
    rig.scheduler.listed(0, Ok(ListResult::Ids(ids)), rig.now);
    assert_eq!(rig.calls(), ["inspect 2 at 0"]);
}

#[test]
fn where_listing_fails_questions_go_one_by_one() {
    let mut rig = Rig::up(1);
    (1..=50).for_each(|n| rig.want(n));
    assert_eq!(rig.after(Duration::ZERO), ["list at 0"]);
    let too_large = Err(RuntimeError::TooLarge(1));
    rig.scheduler.listed(0, too_large, rig.now);
    assert_eq!(rig.after(FIRST_PAUSE).len(), 50);
}

#[test]
fn a_restart_refreshes_the_named_and_says_only_what_changed() {
    let mut rig = Rig::up(1);
    rig.want(1);
    rig.after(Duration::ZERO);
    rig.says(0, 1, Ok(known(1)));
    rig.replies();
    rig.scheduler.down(0, rig.now);
    rig.scheduler.up(0);
    assert_eq!(rig.calls(), ["list at 0"]);
    rig.scheduler
        .listed(0, Ok(ListResult::Full(vec![known(1)])), rig.now);
    assert_eq!(rig.replies(), [""; 0]);
    let mut renamed = identity(&id(1));
    renamed.pid = Some(7);
    renamed.image = "other".to_owned();
    rig.scheduler.event(0, Event::Changed(id(1)), rig.now);
    assert_eq!(rig.after(Duration::ZERO), ["inspect 1 at 0"]);
    rig.says(0, 1, Ok(InspectResult::CgroupTree(Box::new(renamed))));
    assert_eq!(rig.replies(), ["named 1"]);
    // Forgotten by its runtime, it keeps its name.
    rig.scheduler.event(0, Event::Changed(id(1)), rig.now);
    rig.after(Duration::ZERO);
    rig.says(0, 1, Ok(InspectResult::Unknown));
    assert_eq!(rig.replies(), [""; 0]);
}

#[test]
fn an_event_shortens_the_wait() {
    let mut rig = Rig::up(1);
    rig.want(1);
    rig.after(Duration::ZERO);
    rig.says(0, 1, Err(RuntimeError::Unsupported));
    rig.scheduler.event(0, Event::Changed(id(1)), rig.now);
    assert_eq!(rig.after(Duration::ZERO), ["inspect 1 at 0"]);
    rig.scheduler.event(0, Event::Changed(id(2)), rig.now);
    assert_eq!(rig.after(Duration::ZERO), [""; 0]);
}

#[test]
fn exit_codes_by_event_before_after_and_by_question() {
    let mut rig = Rig::up(1);
    for n in 1..=4 {
        rig.want(n);
        rig.after(Duration::ZERO);
        rig.says(0, n, Ok(known(n)));
    }
    rig.replies();
    rig.scheduler.event(0, Event::Exited(id(1), 3), rig.now);
    rig.forget(1);
    assert_eq!(rig.replies(), ["ended 1 Some(3)"]);

    rig.forget(2);
    assert_eq!(rig.calls(), ["exit 2 at 0"]);
    rig.scheduler.ended(path(2), 2, None);
    rig.scheduler.event(0, Event::Exited(id(2), 4), rig.now);
    assert_eq!(rig.replies(), ["ended 2 Some(4)"]);

    rig.forget(3);
    rig.scheduler.ended(path(3), 3, Some(5));
    assert_eq!(rig.replies(), ["ended 3 Some(5)"]);

    rig.scheduler.down(0, rig.now);
    rig.forget(4);
    assert_eq!(rig.replies(), ["ended 4 None"]);
    assert!(rig.scheduler.entries.is_empty() && rig.scheduler.by_id.is_empty());
    assert!(rig.scheduler.timers.is_empty());
}

#[test]
fn a_former_life_is_not_confused_with_the_present_one() {
    let mut rig = Rig::up(1);
    rig.want(1);
    rig.after(Duration::ZERO);
    let again = Query::Name {
        path: path(1),
        incarnation: 9,
        id: id(1).into(),
    };
    rig.scheduler.query(again, rig.now);
    rig.says(0, 1, Ok(known(1)));
    rig.forget(1);
    assert_eq!(rig.replies(), [""; 0]);
    assert_eq!(rig.scheduler.entries.len(), 1);
    assert_eq!(rig.after(Duration::ZERO), ["inspect 9 at 0"]);
}

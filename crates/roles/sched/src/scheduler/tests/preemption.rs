//! Making room: victims, budgets, nominations.

use super::*;
use crate::extender::Answer;

#[test]
fn less_important_pods_make_room() {
    let mut world = world();
    world.node("n", "2");
    world.asking("low", "1500m", r#","nodeName":"n""#);
    world.asking("other", "500m", r#","nodeName":"n","priority":3"#);
    world.asking("high", "1", r#","priority":10"#);
    world.run();
    assert!(
        world
            .log
            .contains(&"event low Preempted: Preempted by pod high on node n".to_owned()),
        "{:?}",
        world.log
    );
    world.check(&[
        "high Unschedulable: 0/1 nodes are available: 1 Insufficient cpu.",
        "high nominated Set(\"n\")",
        "evict low",
        "bind high n",
    ]);
}

#[test]
fn several_victims_go_before_the_last_wakes_the_preemptor() {
    let mut world = world();
    world.node("n", "3");
    for name in ["a", "b", "c"] {
        world.asking(name, "1", r#","nodeName":"n""#);
    }
    world.asking("high", "3", r#","priority":10"#);
    let cycle = world.scheduler.step(world.now).unwrap();
    let evictions: Vec<_> = cycle
        .actions
        .iter()
        .filter(|action| matches!(action.kind, ActionKind::Evict { .. }))
        .map(|action| action.id)
        .collect();
    assert_eq!(evictions.len(), 2);
    // Not tried while victims are still being evicted, whatever happens.
    world.delete("a");
    assert!(world.scheduler.step(world.now).is_none());
    world
        .scheduler
        .finished(evictions[0], ActionResult::Done, world.now);
    let last = world
        .scheduler
        .finished(evictions[1], ActionResult::Done, world.now);
    assert!(
        last.iter()
            .any(|action| matches!(action.kind, ActionKind::Evict { .. }))
    );
    world.delete("b");
    world.execute(last);
    world.run();
    assert!(
        world.log.contains(&"bind high n".to_owned()),
        "{:?}",
        world.log
    );
}

#[test]
fn who_may_never_preempt_says_so() {
    let mut world = world();
    world.node("n", "1");
    world.asking("low", "1", r#","nodeName":"n""#);
    world.asking("p", "1", r#","priority":10,"preemptionPolicy":"Never""#);
    world.run().check(&[
        "p Unschedulable: 0/1 nodes are available: 1 Insufficient cpu. no new claims to deallocate, \
         preemption: not eligible due to preemptionPolicy=Never.",
    ]);
}

#[test]
fn a_budget_protects_where_there_is_a_choice() {
    let mut world = world();
    for node in ["a", "b"] {
        world.node(node, "1");
        world.asking(
            &format!("on-{node}"),
            "1",
            &format!(r#","nodeName":"{node}""#),
        );
    }
    let budget = decode::disruption_budget(
        br#"{"metadata":{"name":"b","namespace":"d"},"spec":{"selector":{"matchLabels":{"app":"on-a"}}},"status":{"disruptionsAllowed":0}}"#,
        world.scheduler.names_mut(),
    );
    world
        .scheduler
        .observe(Observation::Budget(budget.unwrap()), world.now);
    world.asking("high", "1", r#","priority":10"#);
    world.run();
    assert!(
        world.log.contains(&"evict on-b".to_owned()),
        "{:?}",
        world.log
    );
}

#[test]
fn nominated_pods_keep_their_place_from_those_below() {
    let mut world = world();
    world.node("n", "2");
    world.asking("low", "2", r#","nodeName":"n""#);
    world.asking("high", "2", r#","priority":10"#);
    let cycle = world.scheduler.step(world.now).unwrap();
    let eviction = cycle
        .actions
        .iter()
        .find(|action| matches!(action.kind, ActionKind::Evict { .. }))
        .unwrap()
        .id;
    // The room is free, but promised.
    world.asking("sneaky", "2", r#","priority":5"#);
    world
        .scheduler
        .finished(eviction, ActionResult::Done, world.now);
    world.delete("low");
    world.run();
    assert!(
        world.log.contains(&"bind high n".to_owned()),
        "{:?}",
        world.log
    );
    assert!(!world.log.iter().any(|line| line.starts_with("bind sneaky")));
}

/// Extenders that leave nobody to evict, or give no answer, end the preemption, not the attempt.
#[test]
fn extenders_may_spare_everybody() {
    for (error, expected) in [
        (
            None,
            "no new claims to deallocate, preemption: no candidate node for preemption",
        ),
        (Some("boom"), "preemption: boom"),
    ] {
        let mut world = world();
        world.scheduler.engine.extenders = vec![Rule {
            preempts: true,
            ..Rule::default()
        }];
        world.node("n", "2");
        world.asking("low", "2", r#","nodeName":"n""#);
        world.asking("high", "2", r#","priority":10"#);
        let cycle = world.scheduler.step(world.now).unwrap();
        assert!(matches!(cycle.outcome, Outcome::Asking(_)));
        let answer = Answer {
            error: error.map(str::to_owned),
            ..Answer::default()
        };
        let cycle = world.scheduler.answer(answer, world.now).unwrap();
        let Outcome::Unschedulable { message } = cycle.outcome else {
            panic!("{:?}", cycle.outcome);
        };
        assert_eq!(
            message,
            format!("0/1 nodes are available: 1 Insufficient cpu. {expected}")
        );
    }
}

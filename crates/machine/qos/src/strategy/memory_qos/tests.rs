use super::*;
use crate::fixture::{World, container, wanted};
use serde_json::json;

const ROOT: &str = "/kubepods.slice";
const TIER: &str = "/kubepods.slice/kubepods-burstable.slice";
const POD: &str = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-poda.slice";
const CONTAINER: &str = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-poda.slice/cri-containerd-ca.scope";
const MIB: u64 = 1 << 20;

fn found(world: &World) -> Plan {
    match plan(&world.input()) {
        Outcome::Plan(plan) => plan,
        Outcome::Keep(note) => panic!("{note:?}"),
    }
}

fn world(memory: Json, annotation: Option<Json>) -> World {
    let mut rest = container("a", json!({"memory": "100Mi"}), json!({"memory": "200Mi"}));
    if let Some(annotation) = annotation {
        rest["metadata"] =
            json!({"annotations": {"koordinator.sh/memoryQOS": annotation.to_string()}});
    }
    World::new(4)
        .policy(json!({"resourceQOSStrategy": {"lsClass": {"memoryQOS": memory}}}))
        .pod("a", "LS", "Burstable", rest)
}

fn size(bytes: u64) -> Option<Value> {
    Some(Value::Bytes(Some(bytes)))
}

#[test]
fn by_request_and_limit() {
    let memory = json!({"enable": true, "minLimitPercent": 50, "lowLimitPercent": 40, "throttlingPercent": 80});
    let plan = found(&world(memory, None));
    for path in [POD, CONTAINER] {
        assert_eq!(wanted(&plan, path, Knob::MemoryMin), size(50 * MIB));
        // It is never less than what is kept for good.
        assert_eq!(wanted(&plan, path, Knob::MemoryLow), size(50 * MIB));
        assert_eq!(
            wanted(&plan, path, Knob::WmarkRatio),
            Some(Value::Number(95))
        );
    }
    for path in [TIER, ROOT] {
        assert_eq!(wanted(&plan, path, Knob::MemoryMin), size(50 * MIB));
        assert_eq!(wanted(&plan, path, Knob::MemoryLow), size(40 * MIB));
        assert_eq!(wanted(&plan, path, Knob::WmarkRatio), None);
        assert_eq!(
            wanted(&plan, path, Knob::MemoryPriority),
            Some(Value::Number(0))
        );
    }
    assert_eq!(wanted(&plan, CONTAINER, Knob::MemoryHigh), size(180 * MIB));
    assert_eq!(wanted(&plan, POD, Knob::MemoryHigh), None);
}

#[test]
fn what_is_off_changes_nothing() {
    let plan = found(&world(
        json!({"enable": false, "minLimitPercent": 50}),
        None,
    ));
    assert_eq!(wanted(&plan, POD, Knob::MemoryMin), size(0));
    assert_eq!(
        wanted(&plan, CONTAINER, Knob::MemoryHigh),
        Some(Value::Bytes(None))
    );
    assert_eq!(
        wanted(&plan, CONTAINER, Knob::WmarkScaleFactor),
        Some(Value::Number(50))
    );
}

#[test]
fn a_pods_own_word() {
    let on = || json!({"enable": true, "minLimitPercent": 50, "wmarkRatio": 80});
    let own = |annotation| found(&world(on(), Some(annotation)));
    let plan = own(json!({"policy": "none", "minLimitPercent": 10}));
    assert_eq!(wanted(&plan, POD, Knob::MemoryMin), size(0));
    let plan = own(json!({"policy": "auto", "minLimitPercent": 10}));
    assert_eq!(wanted(&plan, POD, Knob::MemoryMin), size(10 * MIB));
    assert_eq!(
        wanted(&plan, POD, Knob::WmarkRatio),
        Some(Value::Number(95))
    );
    let plan = own(json!({"lowLimitPercent": 60}));
    assert_eq!(wanted(&plan, POD, Knob::MemoryMin), size(50 * MIB));
    assert_eq!(wanted(&plan, POD, Knob::MemoryLow), size(60 * MIB));
    assert_eq!(
        wanted(&plan, POD, Knob::WmarkRatio),
        Some(Value::Number(80))
    );
    let plan = own(json!("no object"));
    assert_eq!(wanted(&plan, POD, Knob::MemoryMin), size(50 * MIB));
}

#[test]
fn without_a_limit_the_node_is_the_limit() {
    let memory = json!({"enable": true, "throttlingPercent": 50, "minLimitPercent": 100});
    let mut world = world(memory, None);
    world.pods[0].containers[0].limits.clear();
    let expected = (100 * MIB + (64 * 1024 * MIB - 100 * MIB) / 2) / 4096 * 4096;
    assert_eq!(
        wanted(&found(&world), CONTAINER, Knob::MemoryHigh),
        size(expected)
    );
    // Never below what is kept for good.
    world.pods[0].containers[0]
        .limits
        .insert("memory".into(), "1Mi".parse().unwrap());
    assert_eq!(
        wanted(&found(&world), CONTAINER, Knob::MemoryHigh),
        size(100 * MIB)
    );
}

#[test]
fn best_effort_pods_by_what_is_lent() {
    let rest = container(
        "a",
        json!({"kubernetes.io/batch-memory": "100Mi", "memory": "1Gi"}),
        json!({"kubernetes.io/batch-memory": "200Mi"}),
    );
    let world = World::new(4)
        .policy(json!({"resourceQOSStrategy": {"beClass": {"memoryQOS": {"enable": true, "lowLimitPercent": 10, "throttlingPercent": 50}}}}))
        .pod("a", "BE", "Burstable", rest);
    let plan = found(&world);
    assert_eq!(wanted(&plan, POD, Knob::MemoryLow), size(10 * MIB));
    assert_eq!(wanted(&plan, CONTAINER, Knob::MemoryHigh), size(150 * MIB));
}

#[test]
fn page_cache_of_pods() {
    #[track_caller]
    fn check(memory: Json, enable: Option<bool>, limit: Option<u64>, sync: Option<bool>) {
        let plan = found(&world(memory, None));
        let switch = |on: Option<bool>| on.map(Value::Switch);
        assert_eq!(
            wanted(&plan, POD, Knob::PageCacheLimitEnable),
            switch(enable)
        );
        assert_eq!(
            wanted(&plan, POD, Knob::PageCacheLimitSize),
            limit.and_then(size)
        );
        assert_eq!(wanted(&plan, POD, Knob::PageCacheLimitSync), switch(sync));
        assert_eq!(wanted(&plan, CONTAINER, Knob::PageCacheLimitEnable), None);
    }
    check(json!({"enable": true}), None, None, None);
    check(
        json!({"enable": true, "pageCacheLimitPercent": 25}),
        Some(true),
        Some(50 * MIB),
        Some(false),
    );
    check(
        json!({"enable": true, "pageCacheLimitSize": "1Gi", "pageCacheReclaimSync": true}),
        Some(true),
        Some(200 * MIB),
        Some(true),
    );
    check(
        json!({"enable": true, "pageCacheLimitSize": 0}),
        Some(false),
        None,
        None,
    );
    check(
        json!({"enable": true, "pageCacheLimitSize": "1Mi", "pageCacheEnable": false}),
        Some(false),
        None,
        None,
    );
}

/// As koordlet 1.8.0 computed them.
#[test]
fn values_are_those_of_the_original() {
    let mut rows = 0;
    for line in include_str!("../../../testdata/memory.jsonl").lines() {
        let row: Json = serde_json::from_str(line).unwrap();
        let memory = json!({
            "enable": true, "minLimitPercent": row["min"], "lowLimitPercent": row["low"], "throttlingPercent": row["high"],
        });
        let be = row["be"] == true;
        let name = if be {
            "kubernetes.io/batch-memory"
        } else {
            "memory"
        };
        let amount = |field: &str| match &row[field] {
            Json::Null => json!({}),
            bytes => json!({name: bytes}),
        };
        let rest = container("a", amount("req"), amount("lim"));
        let class = if be { "beClass" } else { "lsClass" };
        let mut world = World::new(4)
            .policy(json!({"resourceQOSStrategy": {class: {"memoryQOS": memory}}}))
            .pod("a", if be { "BE" } else { "LS" }, "Burstable", rest);
        let allocatable = &mut world.node.allocatable;
        allocatable.insert("memory".into(), (1_u64 << 32).to_string().parse().unwrap());
        let plan = found(&world);
        for (name, expected) in row["got"].as_object().unwrap() {
            let path = if name.starts_with("pod") {
                POD
            } else {
                CONTAINER
            };
            let knob = match name.split_once('.').unwrap().1 {
                "min" => Knob::MemoryMin,
                "low" => Knob::MemoryLow,
                _ => Knob::MemoryHigh,
            };
            let bytes: i64 = expected.as_str().unwrap().parse().unwrap();
            // It writes nothing that is less than nothing.
            let expected =
                (bytes >= 0).then(|| Value::Bytes((bytes < i64::MAX).then_some(bytes as u64)));
            assert_eq!(wanted(&plan, path, knob), expected, "{name} of {row}");
        }
        rows += 1;
    }
    assert!(rows >= 100);
}

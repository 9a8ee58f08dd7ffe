//! Patches that grow: copies of copies, operations without end, keys without end.

use fastrand::Rng;
use serde_json::{Value, json};

use super::class::{APPLY_PATCH, JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, Shot};
use super::made_up::{depth, extreme, nested, object_of, pick, pointers, with_raw};

/// Objects that these patch: made when they are first applied to.
const TARGETS: [&str; 4] = [
    "v1/configmaps",
    "apps/v1/deployments",
    "v1/services",
    "policy/v1/poddisruptionbudgets",
];

pub fn shot(random: &mut Rng, number: u64) -> Shot {
    let kind = pick(random, &TARGETS);
    let (collection, object) = object_of(kind, number % 8);
    let path = format!("{collection}/x-{}", number % 8);
    // Something to patch has to be there.
    if random.u8(..4) == 0 {
        return Shot::new(
            "POST",
            collection,
            super::class::JSON,
            object.to_string().into_bytes(),
        );
    }
    match random.u8(..6) {
        0 | 1 => Shot::new(
            "PATCH",
            path,
            JSON_PATCH,
            operations(random, &object).into_bytes(),
        ),
        2 => {
            let media = pick(random, &[MERGE_PATCH, STRATEGIC_PATCH]);
            let depth = depth(random);
            Shot::new("PATCH", path, media, nested(random, depth).into_bytes())
        }
        3 => {
            let places = pointers(&object);
            let place = &places[random.usize(..places.len())];
            let depth = depth(random);
            let raw = nested(random, depth);
            let body = with_raw(&object, place, &raw);
            let media = pick(random, &[MERGE_PATCH, STRATEGIC_PATCH, APPLY_PATCH]);
            Shot::new("PATCH", applied(path, media), media, body.into_bytes())
        }
        4 => {
            let body = lists(random).to_string();
            let media = pick(random, &[STRATEGIC_PATCH, APPLY_PATCH, MERGE_PATCH]);
            Shot::new("PATCH", applied(path, media), media, body.into_bytes())
        }
        _ => {
            let mut object = object;
            let places = pointers(&object);
            for _ in 0..random.usize(1..6) {
                let place = &places[random.usize(..places.len())];
                if let Some(value) = object.pointer_mut(place) {
                    *value = extreme(random);
                }
            }
            let media = pick(random, &[STRATEGIC_PATCH, APPLY_PATCH, MERGE_PATCH]);
            Shot::new(
                "PATCH",
                applied(path, media),
                media,
                object.to_string().into_bytes(),
            )
        }
    }
}

fn applied(path: String, media: &str) -> String {
    match media == APPLY_PATCH {
        true => format!("{path}?fieldManager=m&force=true"),
        false => path,
    }
}

/// Most double something: its depth, its width, or its length.
fn operations(random: &mut Rng, object: &Value) -> String {
    let count = pick(random, &[1, 8, 16, 17, 40, 500, 9_999, 10_001]);
    let mut operations = Vec::with_capacity(count);
    let seed = pick(
        random,
        &[
            "/metadata/annotations",
            "/metadata/labels",
            "/spec",
            "/data",
            "/metadata",
        ],
    );
    let inside = format!("{seed}/again");
    match random.u8(..5) {
        // A copy of the whole into itself.
        0 => operations
            .extend((0..count).map(|_| json!({"op": "copy", "from": seed, "path": inside}))),
        // A copy of each under another name: twice as wide each time.
        1 => {
            operations.extend((0..count).map(
                |index| json!({"op": "copy", "from": seed, "path": format!("{seed}/k{index}")}),
            ))
        }
        // Each goes below the last.
        2 => {
            let mut at = seed.to_owned();
            for _ in 0..count.min(2_000) {
                at.push_str("/a");
                operations.push(json!({"op": "add", "path": at, "value": {}}));
            }
        }
        3 => operations
            .extend((0..count).map(|_| json!({"op": "move", "from": seed, "path": inside}))),
        _ => {
            let places = pointers(object);
            for _ in 0..count.min(500) {
                let from = &places[random.usize(..places.len())];
                let to = &places[random.usize(..places.len())];
                let op = pick(
                    random,
                    &["add", "copy", "move", "test", "remove", "replace", "none"],
                );
                operations
                    .push(json!({"op": op, "from": from, "path": to, "value": extreme(random)}));
            }
        }
    }
    Value::Array(operations).to_string()
}

/// Lists whose elements are found by keys, and the orders that go with them.
fn lists(random: &mut Rng) -> Value {
    let count = pick(random, &[10, 1_000, 20_000]);
    let same = random.bool();
    let name = |index: usize| format!("n{}", if same { index % 2 } else { index });
    let items: Vec<Value> = (0..count)
        .map(|index| json!({"name": name(index), "image": "i", "containerPort": index, "port": index, "protocol": "TCP"}))
        .collect();
    let order: Vec<Value> = (0..count)
        .map(|index| json!({"name": name(count - index)}))
        .collect();
    match random.u8(..5) {
        0 => {
            json!({"spec": {"template": {"spec": {"containers": items, "$setElementOrder/containers": order}}}})
        }
        1 => json!({"spec": {"ports": items}}),
        2 => {
            json!({"metadata": {"$deleteFromPrimitiveList/finalizers": vec!["x"; count], "finalizers": vec!["y/z"; count]}})
        }
        3 => {
            json!({"metadata": {"ownerReferences": (0..count).map(|index| json!({"uid": name(index), "name": "n", "kind": "K", "apiVersion": "v1"})).collect::<Vec<_>>()}})
        }
        _ => {
            json!({"spec": {"template": {"spec": {"tolerations": items, "volumes": order, "imagePullSecrets": order}}}})
        }
    }
}

//! What the garbage collector is told to look at.

use super::*;

fn write(store: &Store, key: &str, metadata: Value) {
    let expect = match store.get("pods", key) {
        Some(current) => Expect::Revision(current.revision),
        None => Expect::Absent,
    };
    let mut object = json!({ "metadata": metadata });
    let attributes = Attributes::default();
    let written = store.begin_put("pods", key, expect, &mut object, &attributes);
    assert!(written.is_ok());
}

fn delete(store: &Store, key: &str) {
    let expect = Expect::Revision(store.get("pods", key).unwrap().revision);
    assert!(store.begin_delete("pods", key, expect).is_ok());
}

fn owned(chores: &Chores) -> Vec<&str> {
    let mut keys: Vec<&str> = chores.owned.iter().map(|(_, key)| key.as_ref()).collect();
    keys.sort_unstable();
    keys
}

#[test]
fn only_what_changed_is_looked_at() {
    let store = memory();
    write(&store, "a/owner", json!({"uid": "u"}));
    for key in ["a/1", "a/2"] {
        write(&store, key, json!({"ownerReferences": [{"uid": "u"}]}));
    }
    assert_eq!(owned(&store.take_chores()), ["a/1", "a/2"]);
    // Nothing new about its owners.
    write(
        &store,
        "a/1",
        json!({"labels": {}, "ownerReferences": [{"uid": "u"}]}),
    );
    assert!(owned(&store.take_chores()).is_empty());
    assert_eq!(store.dependents("u").len(), 2);
    delete(&store, "a/owner");
    let chores = store.take_chores();
    assert_eq!(owned(&chores), ["a/1", "a/2"]);
    assert!(chores.gone.contains("u"));
}

#[test]
fn what_waits_for_its_dependents_is_told() {
    let store = memory();
    let going =
        json!({"uid": "u", "finalizers": ["orphan"], "deletionTimestamp": "2026-01-01T00:00:00Z"});
    write(
        &store,
        "a/stays",
        json!({"uid": "v", "finalizers": ["orphan"]}),
    );
    write(&store, "a/goes", going);
    let parting = store.take_chores().parting;
    let keys: Vec<&str> = parting.iter().map(|(_, key)| key.as_ref()).collect();
    assert_eq!(keys, ["a/goes"]);
}

#[test]
fn nobody_who_collects_means_nothing_that_grows() {
    let store = memory();
    for n in 0..50 {
        let uid = format!("u{n}");
        write(&store, "a/owner", json!({"uid": uid}));
        let dependent = json!({"uid": "d", "ownerReferences": [{"uid": uid}]});
        write(&store, "a/dependent", dependent);
        delete(&store, "a/owner");
        delete(&store, "a/dependent");
    }
    assert!(store.shared.state.lock().kinship.is_empty());
}

#[tokio::test]
async fn everything_owned_is_looked_at_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("store.redb");
    {
        let store = open(&file, &Options::default());
        let dependent = json!({"ownerReferences": [{"uid": "u"}]});
        write(&store, "a/1", dependent);
        write(&store, "a/2", json!({}));
        assert!(store.flush().await);
    }
    let store = open(&file, &Options::default());
    assert_eq!(owned(&store.take_chores()), ["a/1"]);
    assert_eq!(store.dependents("u").len(), 1);
}

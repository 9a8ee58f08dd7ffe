use serde_json::json;

use super::*;

fn pod(name: &str) -> Value {
    json!({"metadata": {"name": name}})
}

fn put(store: &Store, key: &str, expect: Expect) -> u64 {
    let (stored, _durable) = store
        .put("pods", key, expect, &mut pod(key), Attributes::default())
        .unwrap();
    stored.revision
}

fn keys(page: &Page) -> Vec<&str> {
    page.items.iter().map(|item| item.key.as_ref()).collect()
}

#[test]
fn writes_raise_one_revision_and_check_the_old_one() {
    let store = Store::in_memory();
    let first = put(&store, "a/x", Expect::Absent);
    let second = put(&store, "a/x", Expect::Revision(first));
    assert_eq!((first, second), (2, 3));
    let refused = store.put(
        "pods",
        "a/x",
        Expect::Revision(first),
        &mut pod("x"),
        Attributes::default(),
    );
    assert_eq!(refused.unwrap_err().0.unwrap().revision, second);
    assert_eq!(
        store.get("pods", "a/x").unwrap().value()["metadata"]["resourceVersion"],
        "3"
    );
}

#[test]
fn pages_of_one_snapshot() {
    let store = Store::in_memory();
    for key in ["x/1", "x-2/1", "x/2", "x/3"] {
        put(&store, key, Expect::Absent);
    }
    let all = |_: &Stored| true;
    let first = store.list("pods", "", None, None, 2, all).unwrap();
    assert_eq!(keys(&first), ["x-2/1", "x/1"]);
    assert_eq!(first.remaining, 2);
    // Changes in between do not show.
    let (gone, _durable) = store
        .delete(
            "pods",
            "x/2",
            Expect::Revision(store.get("pods", "x/2").unwrap().revision),
        )
        .unwrap();
    put(&store, "x/4", Expect::Absent);
    let second = store
        .list("pods", "", Some("x/1"), Some(first.revision), 10, all)
        .unwrap();
    assert_eq!(keys(&second), ["x/2", "x/3"]);
    assert_eq!(gone.revision, first.revision + 1);
    let future = store.list("pods", "", None, Some(99), 10, all).unwrap_err();
    assert_eq!(future, RevisionError::Future { current: 7 });
}

#[tokio::test]
async fn followers_see_every_change_in_order() {
    let store = Store::in_memory();
    let first = put(&store, "a/1", Expect::Absent);
    let second = put(&store, "a/2", Expect::Absent);
    let mut watch = store.watch("pods", "", Some(first)).unwrap();
    assert_eq!(watch.backlog.len(), 1);
    assert_eq!(watch.backlog[0].revision, second);
    let third = put(&store, "a/1", Expect::Revision(first));
    let event = watch.tail.next().await.unwrap();
    assert_eq!((event.change, event.revision), (Change::Modified, third));
    assert_eq!(event.before.as_ref().unwrap().revision, first);
    store.end_watches("pods");
    assert!(watch.tail.next().await.is_none());
}

#[test]
fn an_old_revision_expires_when_the_log_is_cut() {
    let store = Store::in_memory();
    let filler = "x".repeat(1 << 20);
    for n in 0..1_100 {
        let mut object = json!({"metadata": {}, "data": if n < 60 { filler.as_str() } else { "" }});
        let key = format!("a/{n}");
        let written = store.put(
            "pods",
            &key,
            Expect::Absent,
            &mut object,
            Attributes::default(),
        );
        drop(written.unwrap());
    }
    assert!(matches!(
        store.watch("pods", "", Some(2)),
        Err(RevisionError::Expired { .. })
    ));
    assert!(store.watch("pods", "", Some(1_000)).is_ok());
}

#[tokio::test]
async fn what_was_acknowledged_is_there_after_reopening() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("store.redb");
    let last = {
        let store = Store::open(&file, |_, _| Attributes::default()).unwrap();
        let (kept, durable) = store
            .put(
                "pods",
                "a/1",
                Expect::Absent,
                &mut pod("1"),
                Attributes::default(),
            )
            .unwrap();
        assert!(durable.wait().await);
        put(&store, "a/2", Expect::Absent);
        let (_, durable) = store
            .delete("pods", "a/2", Expect::Revision(kept.revision + 1))
            .unwrap();
        assert!(durable.wait().await);
        store.revision()
    };
    // The journal's thread lets go of the file when its last write is done.
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
    let store = loop {
        match Store::open(&file, |_, _| Attributes::default()) {
            Ok(store) => break store,
            Err(error) => assert!(std::time::Instant::now() < deadline, "{error}"),
        }
        std::thread::yield_now();
    };
    assert!(store.get("pods", "a/1").is_some());
    assert!(store.get("pods", "a/2").is_none());
    assert!(store.revision() > last);
    assert!(matches!(
        store.watch("pods", "", Some(last)),
        Err(RevisionError::Expired { .. })
    ));
}

#[tokio::test]
async fn what_somebody_has_to_look_after_disturbs() {
    let store = Store::in_memory();
    let write = |mut object: Value| {
        let before = store.revision();
        let expect = match store.get("pods", "a/x") {
            Some(current) => Expect::Revision(current.revision),
            None => Expect::Absent,
        };
        let written = store.put("pods", "a/x", expect, &mut object, Attributes::default());
        assert!(written.is_ok());
        let disturbed = store.disturbed_since(before);
        futures::FutureExt::now_or_never(disturbed).is_some()
    };
    let owned = json!({"name": "x", "ownerReferences": [{"uid": "u"}]});
    assert!(!write(json!({"metadata": {"name": "x"}})));
    assert!(write(json!({"metadata": owned})));
    assert!(!write(json!({"metadata": owned, "status": {}})));
    assert!(write(
        json!({"metadata": {"name": "x", "ownerReferences": [{"uid": "v"}]}})
    ));
    assert!(write(
        json!({"metadata": {"name": "x", "deletionTimestamp": "2026-01-01T00:00:00Z"}})
    ));
}

#[test]
fn nobody_else_reads_the_file() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("objects");
    std::fs::write(&file, "").unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
    let _store = Store::open(&file, |_, _| Attributes::default()).unwrap();
    let mode = file.metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn what_follows_a_page_counts_wanted_or_not() {
    let store = Store::in_memory();
    for key in ["a", "b", "c"] {
        put(&store, key, Expect::Absent);
    }
    let page = |limit, wanted: &str| {
        let page = store.list("pods", "", None, None, limit, |one| &*one.key == wanted);
        let page = page.unwrap();
        (page.items.len(), page.remaining)
    };
    assert_eq!(page(1, "a"), (1, 2));
    assert_eq!(page(1, "c"), (1, 0));
    assert_eq!(page(2, "a"), (1, 0));
}

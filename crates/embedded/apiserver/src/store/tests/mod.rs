mod damage;
mod disk;
mod expiry;
mod follow;
mod ownership;

use serde_json::json;

use super::*;

fn pod(name: &str) -> Value {
    json!({"metadata": {"name": name}})
}

fn memory() -> Store {
    Store::in_memory(Options::default())
}

fn no_attributes(_: &str, _: &Value) -> Attributes {
    Attributes::default()
}

fn open(file: &Path, options: &Options) -> Store {
    until_free(|| Store::open(file, options.clone(), no_attributes))
}

/// The journal's thread lets go of the file when its last write is done.
fn until_free<T>(open: impl Fn() -> Result<T, PersistError>) -> T {
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    loop {
        match open() {
            Ok(opened) => return opened,
            Err(error) => assert!(std::time::Instant::now() < deadline, "{error}"),
        }
        std::thread::yield_now();
    }
}

/// For stores in memory, where every write has happened when it has begun.
fn put(store: &Store, key: &str, expect: Expect) -> u64 {
    let (stored, _durable) = store
        .begin_put("pods", key, expect, &mut pod(key), &Attributes::default())
        .unwrap();
    stored.revision
}

async fn put_kept(store: &Store, key: &str, expect: Expect) -> Result<u64, WriteError> {
    let (mut object, attributes) = (pod(key), Attributes::default());
    let stored = store.put("pods", key, expect, &mut object, attributes);
    Ok(stored.await?.revision)
}

fn keys(page: &Page) -> Vec<&str> {
    page.items.iter().map(|item| item.key.as_ref()).collect()
}

fn all(_: &Stored) -> bool {
    true
}

#[test]
fn writes_raise_one_revision_and_check_the_old_one() {
    let store = memory();
    let first = put(&store, "a/x", Expect::Absent);
    let second = put(&store, "a/x", Expect::Revision(first));
    assert_eq!((first, second), (2, 3));
    let refused = store.begin_put(
        "pods",
        "a/x",
        Expect::Revision(first),
        &mut pod("x"),
        &Attributes::default(),
    );
    let Err(Refusal::Mismatch(Mismatch(present))) = refused else {
        panic!("{refused:?}");
    };
    assert_eq!(present.unwrap().revision, second);
    assert_eq!(
        store.get("pods", "a/x").unwrap().value()["metadata"]["resourceVersion"],
        "3"
    );
}

#[test]
fn pages_of_one_snapshot() {
    let store = memory();
    for key in ["x/1", "x-2/1", "x/2", "x/3"] {
        put(&store, key, Expect::Absent);
    }
    let first = store.list("pods", "", None, None, 2, all).unwrap();
    assert_eq!(keys(&first), ["x-2/1", "x/1"]);
    assert_eq!(first.remaining, 2);
    // Changes in between do not show.
    let present = store.get("pods", "x/2").unwrap().revision;
    let (gone, _durable) = store
        .begin_delete("pods", "x/2", Expect::Revision(present))
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
    let store = memory();
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

fn put_filled(store: &Store, key: &str, expect: Expect, bytes: usize) -> u64 {
    let mut object = json!({"metadata": {}, "data": "x".repeat(bytes)});
    let attributes = Attributes::default();
    let written = store.begin_put("pods", key, expect, &mut object, &attributes);
    written.unwrap().0.revision
}

#[test]
fn an_old_revision_expires_when_the_log_is_cut() {
    let store = memory();
    for n in 0..1_100 {
        let bytes = if n < 60 { 1 << 20 } else { 0 };
        put_filled(&store, &format!("a/{n}"), Expect::Absent, bytes);
    }
    assert!(matches!(
        store.watch("pods", "", Some(2)),
        Err(RevisionError::Expired { .. })
    ));
    assert!(store.watch("pods", "", Some(1_000)).is_ok());
}

#[test]
fn the_log_is_bounded_by_what_it_takes_not_by_how_many() {
    let store = memory();
    let mut revision = put_filled(&store, "a/x", Expect::Absent, 1 << 20);
    for _ in 0..100 {
        revision = put_filled(&store, "a/x", Expect::Revision(revision), 1 << 20);
    }
    let state = store.shared.state.lock();
    let held: usize = state.shelves["pods"].log.iter().map(|e| e.weight()).sum();
    assert!(held <= LOG_BYTES, "{held}");
    assert_eq!(held, state.log_bytes);
    assert_eq!(state.order.len(), state.shelves["pods"].log.len());
}

/// Puts an object of a megabyte again and again, and says what of all that is still in memory.
fn rewrite(store: &Store, shelf: &str, times: usize) -> Vec<std::sync::Weak<Stored>> {
    let attributes = Attributes::default();
    let mut expect = Expect::Absent;
    let states = (0..times).map(|_| {
        let mut object = json!({"metadata": {}, "data": "x".repeat(1 << 20)});
        let written = store.begin_put(shelf, "a/x", expect, &mut object, &attributes);
        let (stored, _durable) = written.unwrap();
        expect = Expect::Revision(stored.revision);
        Arc::downgrade(&stored)
    });
    states.collect()
}

fn in_memory(states: &[std::sync::Weak<Stored>]) -> usize {
    let states = states.iter().filter_map(std::sync::Weak::upgrade);
    states.map(|stored| stored.size()).sum()
}

#[tokio::test]
async fn followers_that_do_not_read_are_cut_off_before_they_cost_much() {
    let store = memory();
    let shelves = ["pods", "secrets", "services", "nodes"];
    // Some have read nothing at all, not even what was there.
    let mut slow: Vec<Tail> = Vec::new();
    let mut states = Vec::new();
    for shelf in shelves {
        let watch = store.watch(shelf, "", None).unwrap();
        slow.push(watch.follow());
        states.extend(rewrite(&store, shelf, 1));
        let watch = store.watch(shelf, "", None).unwrap();
        assert_eq!(watch.present.len(), 1);
        slow.push(watch.follow());
    }
    let mut fast = store.watch("events", "", None).unwrap().tail;
    states.extend(rewrite(&store, "events", 300));
    // They are behind by more than is kept, although nothing happened where they look.
    let held = in_memory(&states);
    assert!(held <= 100 << 20, "{held}");
    for tail in &mut slow {
        assert!(tail.next_present().is_none() && tail.next().await.is_none());
    }
    assert!(fast.next().await.is_none());
    // Who reads gets everything.
    let mut tail = store.watch("events", "", None).unwrap().tail;
    let expect = Expect::Revision(store.get("events", "a/x").unwrap().revision);
    let mut object = pod("x");
    let written = store.begin_put("events", "a/x", expect, &mut object, &Attributes::default());
    let (stored, _durable) = written.unwrap();
    assert_eq!(tail.next().await.unwrap().revision, stored.revision);
}

#[tokio::test]
async fn a_follower_of_many_small_changes_is_cut_off() {
    let store = memory();
    let mut slow = store.watch("pods", "", None).unwrap().tail;
    let mut revision = put(&store, "a/x", Expect::Absent);
    for _ in 0..20_000 {
        revision = put(&store, "a/x", Expect::Revision(revision));
    }
    assert!(slow.next().await.is_none());
}

/// What is deleted and made anew is counted as well.
#[test]
fn a_log_of_deletions_is_bounded() {
    let store = memory();
    let mut states = Vec::new();
    for _ in 0..40 {
        states.extend(rewrite(&store, "pods", 1));
        let present = store.get("pods", "a/x").unwrap().revision;
        let gone = store.begin_delete("pods", "a/x", Expect::Revision(present));
        states.push(Arc::downgrade(&gone.unwrap().0));
    }
    let held = in_memory(&states);
    assert!(held <= LOG_BYTES, "{held}");
}

#[test]
fn followers_that_left_are_forgotten_where_nothing_happens() {
    let store = memory();
    for _ in 0..100 {
        drop(store.watch("pods", "", None).unwrap());
    }
    let _stays = store.watch("pods", "", None).unwrap();
    assert_eq!(store.shared.state.lock().shelves["pods"].watchers.len(), 1);
}

#[test]
fn a_resource_that_is_gone_leaves_nothing_behind() {
    let store = memory();
    let mut since = 0;
    for n in 0..3 {
        let revision = put(&store, "a/1", Expect::Absent);
        let gone = store.begin_delete("pods", "a/1", Expect::Revision(revision));
        since = gone.unwrap().0.revision;
        assert!(store.watch("pods", "", Some(since)).is_ok());
        store.end_watches("pods");
        let state = store.shared.state.lock();
        assert!(state.shelves.is_empty(), "{n}");
        assert_eq!((state.order.len(), state.log_bytes), (0, 0));
    }
    // Another of the same name does not pretend to know what was before it.
    put(&store, "a/2", Expect::Absent);
    assert!(store.watch("pods", "", Some(since)).is_ok());
    assert!(matches!(
        store.watch("pods", "", Some(since - 1)),
        Err(RevisionError::Expired { .. })
    ));
}

#[tokio::test]
async fn what_was_acknowledged_is_there_after_reopening() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("store.redb");
    let last = {
        let store = open(&file, &Options::default());
        put_kept(&store, "a/1", Expect::Absent).await.unwrap();
        let second = put_kept(&store, "a/2", Expect::Absent).await.unwrap();
        let expect = Expect::Revision(second);
        store.delete("pods", "a/2", expect).await.unwrap();
        store.revision()
    };
    let store = open(&file, &Options::default());
    assert!(store.get("pods", "a/1").is_some());
    assert!(store.get("pods", "a/2").is_none());
    // Nobody has seen a later revision, so none is left out.
    assert_eq!(store.revision(), last);
    assert!(store.watch("pods", "", Some(last)).is_ok());
    for shelf in ["pods", "nodes"] {
        assert!(matches!(
            store.watch(shelf, "", Some(last - 1)),
            Err(RevisionError::Expired { .. })
        ));
    }
}

#[tokio::test]
async fn what_somebody_has_to_look_after_disturbs() {
    let store = memory();
    let write = |mut object: Value| {
        let before = store.revision();
        let expect = match store.get("pods", "a/x") {
            Some(current) => Expect::Revision(current.revision),
            None => Expect::Absent,
        };
        let attributes = Attributes::default();
        let written = store.begin_put("pods", "a/x", expect, &mut object, &attributes);
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
    let _store = open(&file, &Options::default());
    let mode = file.metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn what_follows_a_page_counts_wanted_or_not() {
    let store = memory();
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

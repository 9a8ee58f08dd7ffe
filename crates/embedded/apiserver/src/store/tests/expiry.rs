//! What nobody writes is forgotten.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicI64, Ordering};

use super::*;

/// Each test has a clock of its own: they run side by side.
macro_rules! clock {
    ($name:ident) => {
        static $name: AtomicI64 = AtomicI64::new(1_000_000);
    };
}

fn options(clock: fn() -> Timestamp) -> Options {
    Options {
        clock,
        expiry: Some(Expiry {
            shelf: "events",
            after: SignedDuration::from_mins(60),
            attributes: no_attributes,
        }),
        ..Options::default()
    }
}

fn at(seconds: &AtomicI64) -> Timestamp {
    Timestamp::from_second(seconds.load(Ordering::Relaxed)).unwrap()
}

fn put(store: &Store, shelf: &str, key: &str) -> Durable {
    let expect = match store.get(shelf, key) {
        Some(current) => Expect::Revision(current.revision),
        None => Expect::Absent,
    };
    let mut object = json!({"metadata": {"name": key}, "count": 1});
    let attributes = Attributes::default();
    let written = store.begin_put(shelf, key, expect, &mut object, &attributes);
    written.unwrap().1
}

#[tokio::test]
async fn events_are_forgotten_and_followers_told() {
    clock!(NOW);
    let store = Store::in_memory(options(|| at(&NOW)));
    drop(put(&store, "events", "a/old"));
    drop(put(&store, "pods", "a/old"));
    NOW.fetch_add(1_800, Ordering::Relaxed);
    drop(put(&store, "events", "a/young"));
    drop(put(&store, "events", "a/old-and-counted-again"));
    let mut watch = store.watch("events", "", None).unwrap();
    NOW.fetch_add(1_799, Ordering::Relaxed);
    assert_eq!(store.expire(100), 0);
    // Ages are known to a minute.
    NOW.fetch_add(61, Ordering::Relaxed);
    assert_eq!(store.expire(100), 1);
    let event = watch.tail.next().await.unwrap();
    assert_eq!(event.change, Change::Deleted);
    assert_eq!(event.object.key.as_ref(), "a/old");
    let object = event.object.value();
    assert_eq!(object["count"], 1);
    assert_eq!(
        object["metadata"]["resourceVersion"],
        event.revision.to_string()
    );
    assert_eq!(event.revision, store.revision());
    assert_eq!((store.count("events"), store.count("pods")), (2, 1));
}

#[test]
fn a_write_makes_it_young_again() {
    clock!(NOW);
    let store = Store::in_memory(options(|| at(&NOW)));
    drop(put(&store, "events", "a/1"));
    drop(put(&store, "events", "a/2"));
    NOW.fetch_add(3_000, Ordering::Relaxed);
    drop(put(&store, "events", "a/1"));
    NOW.fetch_add(1_000, Ordering::Relaxed);
    assert_eq!(store.expire(100), 1);
    assert!(store.get("events", "a/1").is_some());
    NOW.fetch_add(3_000, Ordering::Relaxed);
    assert_eq!(store.expire(100), 1);
    assert_eq!(store.count("events"), 0);
}

#[test]
fn few_at_a_time() {
    clock!(NOW);
    let store = Store::in_memory(options(|| at(&NOW)));
    for n in 0..250 {
        drop(put(&store, "events", &format!("a/{n}")));
    }
    NOW.fetch_add(7_200, Ordering::Relaxed);
    let counts: Vec<usize> = (0..4).map(|_| store.expire(100)).collect();
    assert_eq!(counts, [100, 100, 50, 0]);
}

#[tokio::test]
async fn ages_survive_a_restart() {
    clock!(NOW);
    let options = options(|| at(&NOW));
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("store.redb");
    {
        let store = open(&file, &options);
        assert!(put(&store, "events", "a/1").wait().await);
        NOW.fetch_add(600, Ordering::Relaxed);
        assert!(put(&store, "events", "a/2").wait().await);
        NOW.fetch_add(600, Ordering::Relaxed);
        assert!(put(&store, "events", "a/3").wait().await);
    }
    // The time that nobody ran counts as well.
    NOW.fetch_add(2_400, Ordering::Relaxed);
    let store = open(&file, &options);
    let expired = async || {
        let count = store.expire(100);
        assert!(store.flush().await);
        count
    };
    assert_eq!(expired().await, 1);
    assert!(store.get("events", "a/1").is_none());
    NOW.fetch_add(600, Ordering::Relaxed);
    assert_eq!(expired().await, 1);
    assert!(store.get("events", "a/2").is_none());
    NOW.fetch_add(600, Ordering::Relaxed);
    assert_eq!(expired().await, 1);
    assert_eq!(store.count("events"), 0);
}

#[tokio::test]
async fn what_older_versions_wrote_is_forgotten_in_its_turn() {
    clock!(NOW);
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("store.redb");
    {
        // No times are known of these.
        let store = open(&file, &Options::default());
        assert!(put(&store, "events", "a/1").wait().await);
    }
    {
        let (database, _, _) = until_free(|| persist::open(&mut persist::file(&file), false));
        let transaction = database.begin_write().unwrap();
        let counters = redb::TableDefinition::<&str, u64>::new("counters");
        let mut counters = transaction.open_table(counters).unwrap();
        counters.remove("written").unwrap();
        drop(counters);
        transaction.commit().unwrap();
    }
    let store = open(&file, &options(|| at(&NOW)));
    NOW.fetch_add(36_000, Ordering::Relaxed);
    assert_eq!(store.expire(100), 0);
    assert!(put(&store, "pods", "a/1").wait().await);
    NOW.fetch_add(3_600, Ordering::Relaxed);
    assert_eq!(store.expire(100), 1);
}

fn labels(shelf: &str, object: &Value) -> Attributes {
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    Attributes {
        labels: vec![(shelf.into(), name.replace('/', "-").into())],
        fields: Vec::new(),
    }
}

/// Those that have left memory.
fn away(store: &Store) -> usize {
    let state = store.shared.state.lock();
    let objects = state.shelves["events"].objects.values();
    let away = objects.filter(|stored| matches!(stored.body, Body::Away(_)));
    away.count()
}

#[tokio::test]
async fn events_leave_memory_and_are_read_as_before() {
    clock!(NOW);
    let mut options = options(|| at(&NOW));
    options.expiry.as_mut().unwrap().attributes = labels;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("store.redb");
    let store = until_free(|| Store::open(&file, options.clone(), labels));
    let filler = "x".repeat(4 << 10);
    let write = |key: String| {
        let expect = match store.get("events", &key) {
            Some(current) => Expect::Revision(current.revision),
            None => Expect::Absent,
        };
        let mut object = json!({"metadata": {"name": key}, "message": filler});
        let attributes = labels("events", &object);
        let written = store.begin_put("events", &key, expect, &mut object, &attributes);
        written.unwrap()
    };
    for n in 0..8_000 {
        drop(write(format!("a/{n:05}")));
    }
    assert!(store.flush().await);
    let gone = away(&store);
    assert!((2_000..7_000).contains(&gone), "{gone}");
    // A file of the disk's, and none of a folder's.
    let names = std::fs::read_dir(dir.path()).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let names: BTreeSet<String> = names.collect();
    let own = ["store.lock", "store.redb", "store.roll"];
    assert_eq!(names, own.map(str::to_owned).into());

    let check = |stored: &Stored| {
        let value = stored.value();
        assert_eq!(value["metadata"]["name"], &*stored.key);
        let revision = stored.revision.to_string();
        assert_eq!(value["metadata"]["resourceVersion"], revision);
        assert_eq!(value["message"], filler);
        assert_eq!(stored.bytes().len(), stored.size());
    };
    let page = store
        .list("events", "", None, None, usize::MAX, all)
        .unwrap();
    assert_eq!(page.items.len(), 8_000);
    page.items.iter().for_each(|stored| check(stored));
    let terms = crate::selector::parse_labels("events in (a-00001, a-07999)").unwrap();
    let selector = Selector {
        labels: terms,
        fields: Vec::new(),
    };
    let selected = |stored: &Stored| stored.is_selected_by(&selector);
    let found = store.list("events", "", None, None, 10, selected).unwrap();
    assert_eq!(keys(&found), ["a/00001", "a/07999"]);

    // What is written again is in memory again; what is deleted is told as it was.
    let before = store.revision();
    let (_, durable) = write("a/00001".to_owned());
    assert!(durable.wait().await);
    let second = store.get("events", "a/00002").unwrap().revision;
    let deleted = store.delete("events", "a/00002", Expect::Revision(second));
    check(&deleted.await.unwrap());
    let again = store.get("events", "a/00001").unwrap();
    assert!(matches!(again.body, Body::Here(_)));
    let watch = store.watch("events", "", Some(before)).unwrap();
    let told: Vec<Change> = watch.backlog.iter().map(|event| event.change).collect();
    assert_eq!(told, [Change::Modified, Change::Deleted]);
    check(watch.backlog[0].before.as_ref().unwrap());
    let past = store.list("events", "", None, Some(before), usize::MAX, all);
    let past = past.unwrap();
    assert_eq!(past.items.len(), 8_000);
    check(&past.items[1]);
    check(&past.items[2]);
    drop((page, found, past, watch, again));

    // After a restart none is in memory.
    assert!(store.flush().await);
    drop(store);
    let store = until_free(|| Store::open(&file, options.clone(), labels));
    assert_eq!(away(&store), 7_999);
    check(&store.get("events", "a/00001").unwrap());
    NOW.fetch_add(7_200, Ordering::Relaxed);
    while store.expire(5_000) > 0 {
        assert!(store.flush().await);
    }
    assert_eq!(store.count("events"), 0);
}

//! Whatever happens to the file: starting does not panic, and what is shown is as it was written, or is named as dropped.

use std::collections::BTreeMap;
use std::path::PathBuf;

use redb::{Database, TableDefinition};

use super::*;

struct Kept {
    dir: tempfile::TempDir,
    file: PathBuf,
    /// What was acknowledged, by place.
    objects: BTreeMap<String, Value>,
    revision: u64,
}

/// A store with objects small and large, some of which were changed and deleted again.
async fn kept() -> Kept {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("objects.redb");
    let store = open(&file, &Options::default());
    let mut objects = BTreeMap::new();
    for n in 0..60_usize {
        let (shelf, key) = (["secrets", "configmaps"][n % 2], format!("a/{n:03}"));
        let size = if n % 20 == 7 { 9_000 } else { n * 7 };
        let mut object = json!({"metadata": {"name": format!("{n:03}")}, "data": "x".repeat(size)});
        let attributes = Attributes::default();
        let expect = Expect::Absent;
        let written = store.put(shelf, &key, expect, &mut object, attributes.clone());
        let mut revision = written.await.unwrap().revision;
        if n % 3 == 0 {
            object["data"] = "second".into();
            let expect = Expect::Revision(revision);
            let written = store.put(shelf, &key, expect, &mut object, attributes);
            revision = written.await.unwrap().revision;
        }
        if n % 5 == 0 {
            let expect = Expect::Revision(revision);
            store.delete(shelf, &key, expect).await.unwrap();
        } else {
            objects.insert(format!("{shelf} {key}"), object);
        }
    }
    let revision = store.revision();
    assert!(store.flush().await);
    drop(store);
    // All is closed when it can be opened again.
    drop(open(&file, &Options::default()));
    let lock = || persist::lock(&file);
    drop(until_free(lock));
    Kept {
        dir,
        file,
        objects,
        revision,
    }
}

/// Opens a store made of these bytes, with and without leave to drop what cannot be vouched for.
fn check(kept: &Kept, what: &str, bytes: &[u8], roll: Option<&[u8]>) -> Outcome {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("objects.redb");
    std::fs::write(&file, bytes).unwrap();
    if let Some(roll) = roll {
        std::fs::write(roll::path(&file), roll).unwrap();
    }
    let opened = |restore| {
        let options = Options {
            restore,
            ..Options::default()
        };
        Store::open(&file, options, no_attributes)
    };
    let first = opened(false);
    let refused = match &first {
        Ok(_) => None,
        Err(PersistError::Damaged { dropped, .. }) => Some(dropped.clone()),
        Err(error) => panic!("{what}: {error}"),
    };
    if refused.is_some() {
        assert_eq!(
            std::fs::read(&file).unwrap(),
            bytes,
            "{what}: it was changed"
        );
    }
    let store = match first {
        Ok(store) => store,
        Err(_) => opened(true).unwrap_or_else(|error| panic!("{what}: {error}")),
    };
    let dropped = store.rescue().map(|rescue| rescue.dropped.clone());
    if let Some(rescue) = store.rescue() {
        assert_eq!(
            std::fs::read(&rescue.aside).unwrap(),
            bytes,
            "{what}: no copy"
        );
    }
    assert_eq!(
        refused,
        dropped
            .clone()
            .filter(|dropped| !dropped.names.is_empty() || dropped.more),
        "{what}"
    );
    let dropped = dropped.unwrap_or_default();
    let mut missing: Vec<&String> = kept.objects.keys().collect();
    for shelf in ["secrets", "configmaps"] {
        for item in store
            .list(shelf, "", None, None, usize::MAX, all)
            .unwrap()
            .items
        {
            let name = format!("{shelf} {}", item.key);
            assert_eq!(
                Some(&item.value()),
                kept.objects.get(&name),
                "{what}: {name}"
            );
            missing.retain(|one| **one != name);
        }
    }
    let unnamed = missing.iter().filter(|name| !dropped.names.contains(name));
    let unnamed = unnamed.count();
    assert!(
        unnamed == 0 || dropped.more,
        "{what}: {unnamed} are gone without a word"
    );
    assert!(store.revision() >= kept.revision || dropped.more, "{what}");
    Outcome {
        was_damaged: store.rescue().is_some(),
        missing: missing.len(),
        unnamed,
    }
}

struct Outcome {
    was_damaged: bool,
    missing: usize,
    unnamed: usize,
}

/// How many places of a file are tried; all of them if asked to take long.
fn places(length: usize) -> Vec<usize> {
    if std::env::var_os("PLIMSOLL_LONG").is_some() {
        return (0..length).collect();
    }
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    // The header, where everything hangs on every byte, is gone through more closely.
    let head = (0..320).step_by(3);
    head.chain((0..100).map(|_| random.usize(..length)))
        .collect()
}

#[tokio::test]
async fn a_changed_byte_is_noticed_and_costs_its_object_at_most() {
    let kept = kept().await;
    let whole = std::fs::read(&kept.file).unwrap();
    let roll = std::fs::read(roll::path(&kept.file)).unwrap();
    let outcome = check(&kept, "whole", &whole, Some(&roll));
    assert!(!outcome.was_damaged);
    let mut noticed = 0;
    for at in places(whole.len()) {
        let mut changed = whole.clone();
        changed[at] ^= 1 << (at % 8);
        let outcome = check(&kept, &format!("byte {at}"), &changed, Some(&roll));
        assert!(outcome.missing <= 1, "byte {at}: {}", outcome.missing);
        assert_eq!(outcome.unnamed, 0, "byte {at}");
        noticed += usize::from(outcome.was_damaged);
    }
    assert!(noticed > 20, "{noticed}");
}

#[tokio::test]
async fn a_cut_file_yields_what_is_left() {
    let kept = kept().await;
    let whole = std::fs::read(&kept.file).unwrap();
    let roll = std::fs::read(roll::path(&kept.file)).unwrap();
    let pages = (0..whole.len()).step_by(4096);
    let every = if std::env::var_os("PLIMSOLL_LONG").is_some() {
        1
    } else {
        1 + whole.len() / 4096 / 40
    };
    for length in pages.step_by(every) {
        for length in [length, length + 1000] {
            let cut = &whole[..length.min(whole.len() - 1)];
            let outcome = check(&kept, &format!("{length} bytes"), cut, Some(&roll));
            assert_eq!(outcome.unnamed, 0, "{length} bytes");
        }
    }
}

/// A roll that ends early vouches for nothing that came later.
#[tokio::test]
async fn a_cut_file_beside_a_cut_roll() {
    let kept = kept().await;
    let whole = std::fs::read(&kept.file).unwrap();
    let roll = std::fs::read(roll::path(&kept.file)).unwrap();
    for part in 0..5 {
        let length = roll.len() * part / 5;
        let ends = |at: &usize| *at == 0 || roll[at - 1] == b'\n';
        let lines = &roll[..(0..=length).rev().find(ends).unwrap_or(0)];
        for quarters in 1..4 {
            let cut = &whole[..whole.len() * quarters / 4];
            let what = format!("{part} fifths of the roll, {quarters} quarters of the file");
            let outcome = check(&kept, &what, cut, Some(lines));
            assert!(outcome.was_damaged, "{what}");
        }
    }
}

/// Without the roll, what is damaged has names only as far as the file tells them.
#[tokio::test]
async fn a_damaged_file_without_its_roll() {
    let kept = kept().await;
    let whole = std::fs::read(&kept.file).unwrap();
    assert!(!check(&kept, "whole", &whole, None).was_damaged);
    for at in places(whole.len()).into_iter().step_by(4) {
        let mut changed = whole.clone();
        changed[at] ^= 0x40;
        check(&kept, &format!("byte {at}"), &changed, None);
    }
}

/// The roll alone is damaged: nothing is lost.
#[tokio::test]
async fn a_damaged_roll_is_written_anew() {
    let kept = kept().await;
    let whole = std::fs::read(&kept.file).unwrap();
    let roll = std::fs::read(roll::path(&kept.file)).unwrap();
    for at in places(roll.len()).into_iter().step_by(2) {
        let mut changed = roll.clone();
        changed[at % roll.len()] ^= 4;
        let outcome = check(&kept, &format!("byte {at}"), &whole, Some(&changed));
        assert_eq!(outcome.missing, 0);
    }
    let outcome = check(&kept, "half", &whole, Some(&roll[..roll.len() / 2]));
    assert!(!outcome.was_damaged && outcome.missing == 0);
}

/// A state from before the last writes is a whole file, and yet not what was acknowledged.
#[tokio::test]
async fn an_older_state_is_noticed() {
    let kept = kept().await;
    let older = std::fs::read(&kept.file).unwrap();
    let store = open(&kept.file, &Options::default());
    let mut object = json!({"metadata": {"name": "new"}});
    let written = store.put(
        "secrets",
        "a/new",
        Expect::Absent,
        &mut object,
        Attributes::default(),
    );
    written.await.unwrap();
    drop(store);
    let lock = || persist::lock(&kept.file);
    drop(until_free(lock));
    let roll = std::fs::read(roll::path(&kept.file)).unwrap();
    let dir = tempfile::tempdir_in(kept.dir.path()).unwrap();
    let file = dir.path().join("objects.redb");
    std::fs::write(&file, older).unwrap();
    std::fs::write(roll::path(&file), roll).unwrap();
    let refused = Store::open(&file, Options::default(), no_attributes).unwrap_err();
    let text = refused.to_string();
    assert!(
        text.contains("secrets a/new") && text.contains("--restore"),
        "{text}"
    );
}

#[test]
fn what_was_kept_without_checksums_gets_them() {
    const OLD: TableDefinition<'_, &str, (u64, &[u8])> = TableDefinition::new("objects");
    const COUNTERS: TableDefinition<'_, &str, u64> = TableDefinition::new("counters");
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("objects.redb");
    let database = Database::create(&file).unwrap();
    let transaction = database.begin_write().unwrap();
    {
        let mut table = transaction.open_table(OLD).unwrap();
        let body = br#"{"metadata":{"name":"old"}}"#;
        table.insert("pods\0a/old", (7, body.as_slice())).unwrap();
        let mut counters = transaction.open_table(COUNTERS).unwrap();
        counters.insert("revision", 9).unwrap();
    }
    transaction.commit().unwrap();
    drop(database);
    for _ in 0..2 {
        let store = open(&file, &Options::default());
        assert_eq!(store.revision(), 9);
        let old = store.get("pods", "a/old").unwrap();
        assert_eq!(
            (old.revision, old.value()["metadata"]["name"].as_str()),
            (7, Some("old"))
        );
    }
    let listed = roll::read(&roll::path(&file)).unwrap().unwrap();
    assert_eq!((listed.rows.len(), listed.revision), (1, 9));
}

/// Bytes as they were written and yet no object: they are named, kept, and no reason not to start.
#[tokio::test]
async fn what_cannot_be_read_is_left_out() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("objects.redb");
    let contents = persist::Contents {
        revision: 5,
        records: [("pods\0a/good", "{}"), ("pods\0a/deep", "[[[")]
            .map(|(row, body)| record::Record::new(row, 4, body.as_bytes()).into())
            .into(),
        ..persist::Contents::default()
    };
    let database = (persist::file(&file).open)().unwrap();
    persist::write_all(&database, &contents).unwrap();
    drop(database);
    for _ in 0..2 {
        let store = open(&file, &Options::default());
        assert!(
            store.unreadable()[0].starts_with("pods a/deep: "),
            "{:?}",
            store.unreadable()
        );
        assert!(store.get("pods", "a/deep").is_none());
        assert!(store.get("pods", "a/good").is_some());
    }
    let store = open(&file, &Options::default());
    put_kept(&store, "a/deep", Expect::Absent).await.unwrap();
    drop(store);
    assert!(open(&file, &Options::default()).unreadable().is_empty());
}

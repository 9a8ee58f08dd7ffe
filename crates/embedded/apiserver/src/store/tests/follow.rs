use std::collections::BTreeMap;

use super::*;

/// What is known of two shelves, kept by what the store says has changed.
#[derive(Default)]
struct Known {
    at: Option<u64>,
    objects: BTreeMap<(usize, String), u64>,
    listed: usize,
}

impl Known {
    fn learn(&mut self, follower: &Follower) {
        let news = follower.news(self.at);
        if news.is_all {
            self.objects.clear();
            self.listed += 1;
        }
        for item in news.items {
            let place = (item.shelf, item.key.to_string());
            match item.object {
                Some(object) => self.objects.insert(place, object.revision),
                None => self.objects.remove(&place),
            };
        }
        self.at = Some(news.revision);
    }
}

const SHELVES: [&str; 2] = ["pods", "nodes"];

fn stored(store: &Store) -> BTreeMap<(usize, String), u64> {
    let mut all = BTreeMap::new();
    for (shelf, name) in SHELVES.iter().enumerate() {
        let page = store.list(name, "", None, None, usize::MAX, super::all);
        let items = page.unwrap().items;
        all.extend(
            items
                .iter()
                .map(|item| ((shelf, item.key.to_string()), item.revision)),
        );
    }
    all
}

fn write(store: &Store, shelf: &str, key: &str, object: &Value, delete: bool) {
    let current = store.get(shelf, key);
    let expect = match &current {
        Some(current) => Expect::Revision(current.revision),
        None => Expect::Absent,
    };
    if delete {
        let _ = store.begin_delete(shelf, key, expect);
        return;
    }
    let attributes = Attributes::default();
    let written = store.begin_put(shelf, key, expect, &mut object.clone(), &attributes);
    assert!(written.is_ok());
}

#[test]
fn who_follows_knows_what_is_stored() {
    let seed = 20_261_119;
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let store = memory();
    let follower = store.follow(&SHELVES);
    let mut known = Known::default();
    known.learn(&follower);
    for _ in 0..2000 {
        let shelf = ["pods", "nodes", "secrets"][random.usize(..3)];
        let key = ["a", "b", "c", "d"][random.usize(..4)];
        let before = follower.changed();
        write(&store, shelf, key, &pod(key), random.bool());
        // What is written elsewhere is no news.
        assert!(shelf != "secrets" || follower.changed() == before);
        if random.u8(..4) == 0 {
            if known.at < Some(follower.changed()) {
                known.learn(&follower);
            }
            assert_eq!(known.objects, stored(&store));
        }
    }
    assert_eq!(known.listed, 1);
}

#[test]
fn who_was_away_too_long_looks_at_everything() {
    let store = memory();
    let follower = store.follow(&SHELVES);
    let mut known = Known::default();
    write(&store, "pods", "a", &pod("a"), false);
    known.learn(&follower);
    write(&store, "pods", "a", &pod("a"), true);
    let big = json!({"metadata": {"name": "b"}, "data": "x".repeat(LOG_BYTES / 4)});
    for _ in 0..6 {
        write(&store, "nodes", "b", &big, false);
    }
    known.learn(&follower);
    assert_eq!(known.listed, 2);
    assert_eq!(known.objects, stored(&store));
}

#[test]
fn a_shelf_that_is_followed_stays() {
    let store = memory();
    let follower = store.follow(&["things.example.com"]);
    write(&store, "things.example.com", "a", &pod("a"), false);
    write(&store, "things.example.com", "a", &pod("a"), true);
    store.end_watches("things.example.com");
    let before = follower.changed();
    write(&store, "things.example.com", "a", &pod("a"), false);
    assert!(follower.changed() > before);
}

/// Nothing is made in what is going, even if readers do not see yet that it is.
#[tokio::test]
async fn what_is_new_needs_a_home_that_stays() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder.path().join("objects"), &Options::default());
    let make = async |key: &str| {
        let homes = [("namespaces", "n")];
        let (mut object, attributes) = (pod(key), Attributes::default());
        store
            .put_new("pods", key, &homes, &mut object, attributes)
            .await
    };
    assert!(matches!(make("n/a").await, Err(NewError::Homeless(_))));
    let attributes = Attributes::default();
    let mut home = json!({"metadata": {"name": "n"}});
    let made = store.begin_put("namespaces", "n", Expect::Absent, &mut home, &attributes);
    let (made, durable) = made.unwrap();
    assert!(make("n/a").await.is_ok() && durable.wait().await);
    assert!(matches!(
        make("n/a").await,
        Err(NewError::Write(WriteError::Mismatch(_)))
    ));
    home["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    let expect = Expect::Revision(made.revision);
    let (_, marked) = store
        .begin_put("namespaces", "n", expect, &mut home, &attributes)
        .unwrap();
    // The mark is under way; nobody has waited for it.
    assert!(matches!(make("n/b").await, Err(NewError::Homeless(_))));
    assert!(marked.wait().await);
    assert!(matches!(make("n/c").await, Err(NewError::Homeless(_))));
    assert_eq!(store.count("pods"), 1);
}

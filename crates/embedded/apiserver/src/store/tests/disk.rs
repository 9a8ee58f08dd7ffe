//! Nothing is shown before it is on disk, and what a full disk refuses was never there.

use std::fs::OpenOptions;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use http_body_util::{BodyExt, Full};
use parking_lot::{Condvar, Mutex};
use plimsoll_serving::CaBundle;
use redb::backends::FileBackend;
use redb::{BackendError, Database, StorageBackend};

use super::super::persist::Opener;
use super::*;
use crate::auth::User;
use crate::credentials::Credentials;
use crate::embed;
use crate::server::{Server, Trusted};

/// A file on a disk that can be full, or slow.
#[derive(Debug)]
struct Disk {
    file: FileBackend,
    limits: Arc<Limits>,
}

#[derive(Debug)]
struct Limits {
    /// How many bytes the file may have.
    room: AtomicU64,
    /// Nothing is flushed while this is set.
    is_stuck: Mutex<bool>,
    freed: Condvar,
    /// The next flush happens, and says that it did not.
    lies: AtomicBool,
}

impl Limits {
    fn check(&self, end: u64) -> io::Result<()> {
        if end > self.room.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        Ok(())
    }

    fn set_room(&self, bytes: u64) {
        self.room.store(bytes, Ordering::Relaxed);
    }

    fn set_stuck(&self, stuck: bool) {
        *self.is_stuck.lock() = stuck;
        self.freed.notify_all();
    }
}

impl StorageBackend for Disk {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.file.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        // As of a file with holes: it is the writes that need room.
        self.file.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut stuck = self.limits.is_stuck.lock();
        while *stuck {
            self.limits.freed.wait(&mut stuck);
        }
        drop(stuck);
        self.file.sync_data()?;
        if self.limits.lies.swap(false, Ordering::Relaxed) {
            return Err(io::Error::other("a lie"));
        }
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.limits.check(offset + data.len() as u64)?;
        self.file.write(offset, data)
    }

    fn close(&self) -> io::Result<()> {
        self.file.close()
    }

    fn try_lock_range(&self, from: Bound<u64>, to: Bound<u64>) -> Result<bool, BackendError> {
        self.file.try_lock_range(from, to)
    }

    fn try_lock_shared_range(
        &self,
        from: Bound<u64>,
        to: Bound<u64>,
    ) -> Result<bool, BackendError> {
        self.file.try_lock_shared_range(from, to)
    }

    fn unlock_range(&self, from: Bound<u64>, to: Bound<u64>) -> Result<(), BackendError> {
        self.file.unlock_range(from, to)
    }
}

struct Rig {
    store: Store,
    limits: Arc<Limits>,
    path: PathBuf,
    _dir: tempfile::TempDir,
}

fn rig() -> Rig {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store.redb");
    let limits = Arc::new(Limits {
        room: AtomicU64::new(u64::MAX),
        is_stuck: Mutex::new(false),
        freed: Condvar::new(),
        lies: AtomicBool::new(false),
    });
    let (opened, limited) = (path.clone(), limits.clone());
    let opener = Opener {
        path: path.clone(),
        lock: None,
        open: Box::new(move || {
            let mut how = OpenOptions::new();
            how.read(true).write(true).create(true).truncate(false);
            let file = how.open(&opened).map_err(|error| error.to_string())?;
            let disk = Disk {
                file: FileBackend::new(file).map_err(|error| error.to_string())?,
                limits: limited.clone(),
            };
            Database::builder()
                .create_with_backend(disk)
                .map_err(|error| error.to_string())
        }),
        size: Box::new(|| 0),
    };
    let store = Store::open_with(opener, dir.path(), Options::default(), no_attributes).unwrap();
    Rig {
        store,
        limits,
        path,
        _dir: dir,
    }
}

async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !is_so().await {
        assert!(Instant::now() < deadline, "{what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn begin(store: &Store, key: &str, bytes: usize) -> Durable {
    let mut object = json!({"metadata": {"name": key}, "data": "x".repeat(bytes)});
    let attributes = Attributes::default();
    let written = store.begin_put("pods", key, Expect::Absent, &mut object, &attributes);
    written.unwrap().1
}

#[tokio::test]
async fn nobody_sees_what_is_not_on_disk() {
    let rig = rig();
    let store = &rig.store;
    let first = put_kept(store, "a/1", Expect::Absent).await.unwrap();
    let mut watch = store.watch("pods", "", None).unwrap();
    rig.limits.set_stuck(true);
    let created = begin(store, "a/2", 10);
    let (_, deleted) = store
        .begin_delete("pods", "a/1", Expect::Revision(first))
        .unwrap();
    assert!(store.get("pods", "a/2").is_none());
    assert!(store.get("pods", "a/1").is_some());
    assert_eq!(store.revision(), first);
    let page = store.list("pods", "", None, None, 10, all).unwrap();
    assert_eq!((keys(&page), page.revision), (vec!["a/1"], first));
    assert!(watch.tail.try_next().is_none());
    let late = store.watch("pods", "", None).unwrap();
    assert_eq!((late.present.len(), late.revision), (1, first));
    // Those who write build on it.
    let latest = store.latest("pods", "a/");
    let latest: Vec<&str> = latest.iter().map(|one| one.key.as_ref()).collect();
    assert_eq!(latest, ["a/2"]);
    let again = store.begin_delete("pods", "a/1", Expect::Revision(first));
    assert!(matches!(again, Err(Refusal::UnderWay(_))), "{again:?}");
    rig.limits.set_stuck(false);
    assert!(created.wait().await && deleted.wait().await);
    assert!(store.get("pods", "a/2").is_some());
    assert!(store.get("pods", "a/1").is_none());
    let changes = [
        watch.tail.next().await.unwrap(),
        watch.tail.next().await.unwrap(),
    ];
    let changes = changes.map(|event| (event.change, event.revision));
    assert_eq!(
        changes,
        [(Change::Added, first + 1), (Change::Deleted, first + 2)]
    );
}

#[tokio::test]
async fn who_writes_the_same_waits_for_the_first() {
    let rig = rig();
    let store = &rig.store;
    rig.limits.set_stuck(true);
    let first = begin(store, "a/1", 10);
    let second = put_kept(store, "a/1", Expect::Absent);
    tokio::pin!(second);
    assert!(futures::poll!(&mut second).is_pending());
    rig.limits.set_stuck(false);
    assert!(first.wait().await);
    let Err(WriteError::Mismatch(Mismatch(Some(present)))) = second.await else {
        panic!("it is there");
    };
    assert_eq!(present.revision, store.get("pods", "a/1").unwrap().revision);
}

#[tokio::test]
async fn a_full_disk_refuses_and_recovers() {
    let rig = rig();
    let store = &rig.store;
    let first = put_kept(store, "a/1", Expect::Absent).await.unwrap();
    let mut watch = store.watch("pods", "", None).unwrap();
    assert_eq!(store.trouble(), None);
    rig.limits.set_room(rig.path.metadata().unwrap().len());
    // Some fit in; from the first that does not on, all fail.
    let begun: Vec<Durable> = (0..50)
        .map(|n| begin(store, &format!("b/{n:02}"), 100_000))
        .collect();
    let mut kept = vec!["a/1".to_owned()];
    let mut refused = 0;
    for (n, durable) in begun.into_iter().enumerate() {
        if durable.wait().await {
            assert_eq!(refused, 0, "{n}");
            kept.push(format!("b/{n:02}"));
        } else {
            refused += 1;
        }
    }
    assert!(refused > 10, "{refused}");
    assert!(store.trouble().is_some());
    assert!(!store.flush().await);
    // What was acknowledged is seen, and nothing else.
    let last = first + kept.len() as u64 - 1;
    assert_eq!(store.revision(), last);
    let page = store.list("pods", "", None, None, 100, all).unwrap();
    assert_eq!(keys(&page), kept);
    assert_eq!(store.latest("pods", "").len(), kept.len());
    for _ in 1..kept.len() {
        assert!(watch.tail.try_next().is_some());
    }
    assert!(watch.tail.try_next().is_none());
    let refused = put_kept(store, "c/1", Expect::Absent).await;
    assert!(matches!(refused, Err(WriteError::NotKept)), "{refused:?}");
    // There is room again.
    rig.limits.set_room(u64::MAX);
    until("the disk works again", async || store.trouble().is_none()).await;
    let second = put_kept(store, "c/1", Expect::Absent).await.unwrap();
    assert_eq!(second, last + 1);
    kept.push("c/1".to_owned());
    assert_eq!(watch.tail.next().await.unwrap().revision, second);
    assert!(store.flush().await);
    let Rig {
        store, path, _dir, ..
    } = rig;
    drop(store);
    let store = open(&path, &Options::default());
    let page = store.list("pods", "", None, None, 100, all).unwrap();
    assert_eq!(keys(&page), kept);
}

/// What memory shows and what the file holds must not part ways, whatever the disk says.
#[tokio::test]
async fn a_commit_in_doubt_is_looked_up() {
    for n in 0..6 {
        let rig = rig();
        let store = &rig.store;
        put_kept(store, "a/1", Expect::Absent).await.unwrap();
        // A commit is more than one flush: each in turn says that it failed.
        let lie_at = n;
        let mut told = Vec::new();
        for key in ["a/2", "a/3", "a/4"] {
            if told.len() == lie_at % 3 {
                rig.limits.lies.store(true, Ordering::Relaxed);
            }
            told.push(put_kept(store, key, Expect::Absent).await.is_ok());
        }
        until("the disk works again", async || store.trouble().is_none()).await;
        let last = put_kept(store, "a/5", Expect::Absent).await;
        assert!(last.is_ok(), "{told:?} {:?}", store.trouble());
        let shown = store.list("pods", "", None, None, 100, all).unwrap();
        let shown: Vec<(String, u64)> = shown
            .items
            .iter()
            .map(|item| (item.key.to_string(), item.revision))
            .collect();
        for (key, told) in ["a/2", "a/3", "a/4"].iter().zip(told) {
            let is_shown = shown.iter().any(|(shown, _)| shown == key);
            assert_eq!(is_shown, told, "{key}");
        }
        let Rig {
            store, path, _dir, ..
        } = rig;
        drop(store);
        let store = open(&path, &Options::default());
        let kept = store.list("pods", "", None, None, 100, all).unwrap();
        let kept: Vec<(String, u64)> = kept
            .items
            .iter()
            .map(|item| (item.key.to_string(), item.revision))
            .collect();
        assert_eq!(shown, kept);
    }
}

async fn ask(server: &Server, method: http::Method, path: &str, body: &Value) -> (u16, String) {
    let request = http::Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", "application/json")
        .extension(Trusted(User::master("test")))
        .body(Full::from(body.to_string()))
        .unwrap();
    let answer = server.handle(request).await;
    let status = answer.status().as_u16();
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8_lossy(&body).into_owned())
}

#[tokio::test]
async fn health_follows_the_disk() {
    let rig = rig();
    let credentials = Credentials::obtain(None, &[], &[]).unwrap();
    let trust = CaBundle::from_pem(credentials.authority.as_bytes()).unwrap();
    let authority = embed::authority(&credentials, Timestamp::now, &rig.store).unwrap();
    let server = Server::new(rig.store, authority, trust).await;
    const MAPS: &str = "/api/v1/namespaces/default/configmaps";
    let (get, post) = (http::Method::GET, http::Method::POST);
    let map = |name: &str| json!({"metadata": {"name": name}, "data": {"k": "x".repeat(200_000)}});
    let probe = async |path: &str| ask(&server, http::Method::GET, path, &json!({})).await;
    assert_eq!(probe("/readyz").await, (200, "ok".to_owned()));
    rig.limits.set_room(rig.path.metadata().unwrap().len());
    let mut kept = Vec::new();
    let refused = loop {
        assert!(kept.len() < 100, "the disk is never full");
        let name = format!("m{:02}", kept.len());
        let (status, text) = ask(&server, post.clone(), MAPS, &map(&name)).await;
        if status != 201 {
            break (status, text);
        }
        kept.push(name);
    };
    assert_eq!(refused.0, 500, "{}", refused.1);
    assert!(refused.1.contains("was not stored"), "{}", refused.1);
    for (path, code, text) in [
        (
            "/readyz",
            500,
            "[+]ping ok\n[+]log ok\n[-]etcd failed: reason withheld\nreadyz check failed\n",
        ),
        (
            "/livez?verbose",
            500,
            "[+]ping ok\n[+]log ok\n[-]etcd failed: reason withheld\nlivez check failed\n",
        ),
        ("/readyz?exclude=etcd", 200, "ok"),
        ("/readyz/ping", 200, "ok"),
    ] {
        assert_eq!(probe(path).await, (code, text.to_owned()), "{path}");
    }
    let (code, text) = probe("/readyz/etcd").await;
    assert_eq!(code, 500);
    assert!(text.starts_with("internal server error: "), "{text}");
    // What can be read is what was acknowledged.
    let (_, list) = ask(&server, get.clone(), MAPS, &json!({})).await;
    let list: Value = serde_json::from_str(&list).unwrap();
    let names: Vec<&str> = list["items"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|map| map["metadata"]["name"].as_str())
        .collect();
    assert_eq!(names, kept);
    rig.limits.set_room(u64::MAX);
    until("it is ready again", async || {
        probe("/readyz").await.0 == 200
    })
    .await;
    let (status, text) = ask(&server, post, MAPS, &map("after")).await;
    assert_eq!(status, 201, "{text}");
}

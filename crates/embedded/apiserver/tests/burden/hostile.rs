//! What clients do to be a burden.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::StreamExt;
use http::Request;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Frame;
use hyper_util::rt::{TokioExecutor, TokioIo};
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::client::Client;
use crate::rig::{BIG, BIG_BYTES, Rig};

const MAPS: &str = "/api/v1/namespaces/tenant/configmaps";
/// What one client holds open at a time.
const HELD: usize = 40;
/// Of each kind.
const CLIENTS: usize = 2;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    SilentSockets,
    SlowHeads,
    LongHeads,
    SlowBodies,
    SlowReaders,
    ManyStreams,
    ManyWatches,
    HugeLists,
    BigUpdates,
    Storms,
    Floods,
}

impl Kind {
    const ALL: [Self; 11] = [
        Self::SilentSockets,
        Self::SlowHeads,
        Self::LongHeads,
        Self::SlowBodies,
        Self::SlowReaders,
        Self::ManyStreams,
        Self::ManyWatches,
        Self::HugeLists,
        Self::BigUpdates,
        Self::Storms,
        Self::Floods,
    ];
}

/// How often what was done, and how often it was refused in one way or another.
type Book = Arc<Mutex<BTreeMap<Kind, (u64, u64)>>>;

pub struct Clients {
    tasks: JoinSet<()>,
    book: Book,
}

/// Starts clients of every kind.
pub fn start(rig: &Rig, seed: u64, until: Instant) -> Clients {
    let mut tasks = JoinSet::new();
    let book = Book::default();
    for (number, kind) in Kind::ALL
        .into_iter()
        .cycle()
        .take(CLIENTS * Kind::ALL.len())
        .enumerate()
    {
        let client = match kind {
            Kind::SilentSockets | Kind::SlowHeads | Kind::LongHeads | Kind::SlowBodies => {
                &rig.nobody
            }
            _ => &rig.editor,
        };
        let (client, book) = (client.clone(), book.clone());
        let mut random = fastrand::Rng::with_seed(seed.wrapping_add(number as u64));
        tasks.spawn(async move {
            while Instant::now() < until {
                let done = act(kind, &client, &mut random, until).await;
                let mut book = book.lock();
                let entry = book.entry(kind).or_default();
                entry.0 += 1;
                entry.1 += u64::from(done.is_err());
            }
        });
    }
    Clients { tasks, book }
}

impl Clients {
    /// Ends all, and says what they did.
    pub async fn end(mut self) -> BTreeMap<String, (u64, u64)> {
        self.tasks.shutdown().await;
        let book = self.book.lock();
        book.iter()
            .map(|(kind, counts)| (format!("{kind:?}"), *counts))
            .collect()
    }
}

/// Holds on to something for a while.
async fn hold<T>(random: &mut fastrand::Rng, until: Instant, held: T) {
    let long = Duration::from_millis(random.u64(200..3000));
    let rest = until.saturating_duration_since(Instant::now());
    tokio::time::sleep(long.min(rest)).await;
    drop(held);
}

async fn act(
    kind: Kind,
    client: &Client,
    random: &mut fastrand::Rng,
    until: Instant,
) -> io::Result<()> {
    let mut held = Vec::new();
    match kind {
        Kind::SilentSockets => {
            for _ in 0..HELD {
                held.push(TcpStream::connect(client.address).await?);
            }
            hold(random, until, held).await;
        }
        Kind::SlowHeads | Kind::LongHeads => {
            let mut held = Vec::new();
            for _ in 0..HELD / 4 {
                let mut stream = client.open().await?;
                let head = match kind {
                    Kind::SlowHeads => {
                        client.head("GET", "/version", 0)[..random.usize(1..60)].to_owned()
                    }
                    _ => format!(
                        "GET / HTTP/1.1\r\nX: {}",
                        "y".repeat(random.usize(10_000..900_000))
                    ),
                };
                stream.write_all(head.as_bytes()).await?;
                held.push(stream);
            }
            hold(random, until, held).await;
        }
        Kind::SlowBodies => {
            let mut held = Vec::new();
            for _ in 0..HELD / 2 {
                let sent = random.usize(..500_000);
                held.push(client.unfinished(3 << 20, sent).await?);
            }
            hold(random, until, held).await;
        }
        Kind::SlowReaders => {
            let mut held = Vec::new();
            for _ in 0..HELD / 4 {
                let mut sent = client.send("GET", MAPS, "").await?;
                sent.0.read_exact(&mut [0; 100]).await?;
                held.push(sent);
            }
            hold(random, until, held).await;
        }
        Kind::ManyStreams => streams(client, random, until).await?,
        Kind::ManyWatches => {
            let mut held = Vec::new();
            for _ in 0..HELD / 2 {
                let path = format!("{MAPS}?watch=true&timeoutSeconds={}", i64::MAX);
                held.push(client.send("GET", &path, "").await?);
            }
            hold(random, until, held).await;
        }
        Kind::HugeLists => {
            let (status, body) = client.get(MAPS).await?;
            assert!(
                status == 429 || body.len() > BIG * BIG_BYTES / 2,
                "{status}"
            );
        }
        Kind::BigUpdates => {
            let path = format!("{MAPS}/big-{}", random.usize(..BIG));
            let body = format!(
                r#"{{"metadata":{{"labels":{{"n":"{}"}}}}}}"#,
                random.u32(..)
            );
            client.ask("PATCH", &path, &body).await?;
        }
        Kind::Storms => {
            let name = format!("storm-{}", random.u32(..5));
            let body = format!(
                r#"{{"metadata":{{"name":"{name}"}},"data":{{"a":"{}"}}}}"#,
                "x".repeat(random.usize(..200_000))
            );
            client.ask("POST", MAPS, &body).await?;
            client.ask("DELETE", &format!("{MAPS}/{name}"), "").await?;
        }
        Kind::Floods => flood(client, random, until).await?,
    }
    Ok(())
}

/// Many requests on one connection, each with a body that does not end, and answers that are not taken.
async fn streams(client: &Client, random: &mut fastrand::Rng, until: Instant) -> io::Result<()> {
    let stream = TokioIo::new(client.open_http2().await?);
    let (mut sender, connection) = hyper::client::conn::http2::Builder::new(TokioExecutor::new())
        .initial_stream_window_size(1000)
        .handshake(stream)
        .await
        .map_err(io::Error::other)?;
    let connection = tokio::spawn(connection);
    let mut asked = Vec::new();
    for n in 0..HELD * 2 {
        let request = |method: &str, path: &str| {
            let uri = format!("https://localhost{path}");
            let token = format!("Bearer {}", client.token);
            let request = Request::builder().method(method).uri(uri);
            request
                .header("authorization", token)
                .header("content-type", "application/json")
        };
        let piece = Bytes::from(vec![b' '; random.usize(..10_000)]);
        let request = if n % 2 == 0 {
            let endless = futures::stream::iter([Ok::<_, io::Error>(Frame::data(piece))]);
            let endless = StreamBody::new(endless.chain(futures::stream::pending()));
            request("POST", MAPS).body(endless.boxed_unsync())
        } else {
            let body = Full::default().map_err(|never| match never {});
            request("GET", MAPS).body(body.boxed_unsync())
        };
        // Whoever is hung up on begins anew.
        if sender.ready().await.is_err() {
            break;
        }
        asked.push(tokio::spawn(sender.send_request(request.unwrap())));
    }
    hold(random, until, ()).await;
    for task in asked {
        task.abort();
    }
    connection.abort();
    Ok(())
}

/// Frames that cost nothing to send and something to answer.
async fn flood(client: &Client, random: &mut fastrand::Rng, until: Instant) -> io::Result<()> {
    const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    const SETTINGS: &[u8] = &[0, 0, 0, 4, 0, 0, 0, 0, 0];
    const PING: &[u8] = &[0, 0, 8, 6, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8];
    let mut stream = client.open_http2().await?;
    stream.write_all(PREFACE).await?;
    stream.write_all(SETTINGS).await?;
    let frame = if random.bool() { SETTINGS } else { PING };
    let many = frame.repeat(1000);
    let reads = random.bool();
    let (mut reader, mut writer) = tokio::io::split(stream);
    let ignored = async move {
        if reads {
            let _ = tokio::io::copy(&mut reader, &mut tokio::io::sink()).await;
        }
        std::future::pending::<()>().await
    };
    let flood = async {
        while Instant::now() < until {
            writer.write_all(&many).await?;
        }
        Ok(())
    };
    let for_long = Duration::from_millis(random.u64(500..2000));
    tokio::select! {
        () = ignored => Ok(()),
        outcome = flood => outcome,
        () = tokio::time::sleep(for_long) => Ok(()),
    }
}

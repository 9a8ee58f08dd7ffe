//! Pages that are larger than what may be held of them.

use super::*;

/// Whatever else there is, by any way of writing it, is not on a port of metrics.
#[tokio::test]
async fn a_port_of_metrics_has_nothing_else() {
    let house = Rig::showing(
        Shown::Metrics,
        Machine::new(),
        Mounts::default(),
        Auth::default(),
        Limits::default(),
    );
    for path in [
        "/metrics",
        "/metrics/cadvisor",
        "/metrics/resource",
        "/metrics/self",
        "/extra-metrics",
        "/healthz",
        "/readyz",
    ] {
        assert_eq!(house.get(path).await.status, 200, "{path}");
    }
    for path in [
        "/",
        "/api/v2.0/ps",
        "/api/v1.3/machine",
        "/%61pi/v2.0/ps",
        "//api/v2.0/ps",
        "/metrics/../api/v2.0/ps",
        "/metrics/%2e%2e/api/v2.0/ps",
        "/stats/summary",
        "/containers/",
        "/docker/",
        "/debug/plan",
        "/debug/sources",
        "/debug/extra",
        "/validate/",
        "/static/x",
        "/nonsense",
    ] {
        for method in ["GET", "POST", "HEAD", "OPTIONS"] {
            let answer = house.ask(method, path, "").await;
            assert_eq!(answer.status, 403, "{method} {path}");
        }
    }
}
use crate::exposition::number::Number;
use crate::exposition::{Exporter, Kind, LabelPolicy, Text, TextWriter};
use crate::http::body::{Body, CHUNK_SIZE};
use crate::http::messages::MessageWriter;
use plimsoll_metrics::to_delimited_protobuf;

const MESSAGES: (&str, &str) = (
    "accept",
    "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited",
);
const ZIPPED: (&str, &str) = ("accept-encoding", "gzip");
/// A page of this many lines is some megabytes.
const MANY: usize = 1 << 20;

fn rig(limits: Limits) -> Rig {
    let mut machine = Machine::new();
    machine.lines = MANY;
    Rig::with(machine, Mounts::default(), Auth::default(), limits)
}

async fn ask(rig: &Rig, target: &str, headers: &[(&str, &str)]) -> http::Response<Body> {
    let mut request = Request::builder().uri(target);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(Full::new(Bytes::new())).unwrap();
    serve(Arc::clone(&rig.shared), request).await
}

/// The pieces that a body comes in.
async fn pieces(reply: http::Response<Body>) -> Vec<Bytes> {
    let mut body = reply.into_body();
    let mut pieces = Vec::new();
    while let Some(frame) = body.frame().await {
        pieces.push(frame.unwrap().into_data().unwrap());
    }
    pieces
}

#[tokio::test]
async fn every_format_comes_in_small_pieces() {
    let rig = rig(Limits::default());
    let text = pieces(ask(&rig, "/metrics", &[]).await).await;
    let whole = text.concat();
    assert_eq!(whole.len(), "# Cadvisor None\n".len() + 4 * MANY);
    let messages = pieces(ask(&rig, "/metrics", &[MESSAGES]).await).await;
    assert_eq!(messages.concat(), to_delimited_protobuf(&whole));
    let zipped = pieces(ask(&rig, "/metrics", &[ZIPPED]).await).await;
    let mut unzipped = Vec::new();
    let zip = zipped.concat();
    let mut decoder = flate2::read::GzDecoder::new(&zip[..]);
    std::io::Read::read_to_end(&mut decoder, &mut unzipped).unwrap();
    assert!(unzipped == whole);
    for (format, pieces) in [("text", text), ("messages", messages), ("gzip", zipped)] {
        let largest = pieces.iter().map(Bytes::len).max();
        assert!(largest <= Some(CHUNK_SIZE), "{format}: {largest:?}");
    }
}

/// As the original: a short answer says how long it is, a long one does not, and `HEAD` has no body.
#[tokio::test]
async fn lengths() {
    let rig = rig(Limits::default());
    let long = ask(&rig, "/metrics", &[]).await;
    assert!(!long.headers().contains_key("content-length"));
    drop(long);
    let head = rig.ask("HEAD", "/metrics", "").await;
    assert_eq!((head.status, head.header("content-length")), (200, ""));
    let mut short = Machine::new();
    short.lines = 10;
    let short = Rig::with(short, Mounts::default(), Auth::default(), Limits::default());
    for method in ["GET", "HEAD"] {
        let answer = short.ask(method, "/metrics", "").await;
        assert_eq!(answer.header("content-length"), "56", "{method}");
    }
    let zipped = short.ask_with("GET", "/metrics", "", &[ZIPPED]).await;
    assert_eq!(
        zipped.header("content-length"),
        zipped.bytes.len().to_string()
    );
}

#[tokio::test]
async fn no_more_at_once_than_allowed() {
    let rig = rig(Limits {
        renders: 1,
        turn: Duration::from_millis(1),
        ..Limits::default()
    });
    let first = ask(&rig, "/metrics", &[]).await;
    assert_eq!(first.status(), 200);
    for target in ["/metrics", "/metrics/cadvisor", "/metrics/resource"] {
        let refused = rig.get(target).await;
        assert_eq!(refused.status, 503, "{target}");
        assert_eq!(refused.header("retry-after"), "1", "{target}");
        assert_eq!(refused.body, "too many large answers at once\n");
    }
    // What is of another kind is answered, and first of all what tells how the agent is.
    for target in [
        "/metrics/self",
        "/stats/summary",
        "/api/v1.3/subcontainers",
        "/healthz",
    ] {
        assert_eq!(rig.get(target).await.status, 200, "{target}");
    }
    drop(first);
    let _place = rig.shared.pages.acquire().await.unwrap();
}

/// Somebody who comes when there are as many as allowed waits a while.
#[tokio::test]
async fn the_next_waits_for_its_turn() {
    let rig = rig(Limits {
        renders: 1,
        turn: Duration::from_secs(60),
        ..Limits::default()
    });
    let first = ask(&rig, "/metrics", &[]).await;
    let (first, second) = tokio::join!(pieces(first), ask(&rig, "/metrics", &[]));
    assert_eq!(second.status(), 200);
    assert_eq!(pieces(second).await.concat(), first.concat());
}

/// Whoever reads too slowly is cut off, and holds neither a thread nor what the page is made of.
#[tokio::test]
async fn a_reader_has_only_so_long() {
    let rig = rig(Limits {
        renders: 1,
        // Longer than it takes to begin, on a slow machine, too.
        answer: Duration::from_secs(2),
        ..Limits::default()
    });
    let slow = ask(&rig, "/metrics", &[]).await;
    assert_eq!(slow.status(), 200);
    drop(rig.shared.pages.acquire().await.unwrap());
    slow.into_body().collect().await.unwrap_err();
}

/// Written straight from what was gathered, messages say what the text says, to the letter.
#[test]
fn messages_and_text_are_the_same_page() {
    let machine = Machine::new();
    let mut awkward = identity(Namespace::Docker, "box", "0123");
    awkward.labels.insert("a".into(), "q\"uo\\te\nd,}ü".into());
    awkward.labels.insert("zz".into(), String::new());
    machine.add("/docker/0123", Some(awkward));
    for container in machine.observer.store.all() {
        let mut state = container.lock();
        state.spec.cpu_quota_us = 1000;
        state.latest.cpu.per_cpu_ns = vec![1, 1_234_567_890_123_456_789];
        state.latest.memory.cache = u64::MAX;
        let rows = &mut state.latest.io.service_bytes;
        rows.push(plimsoll_host::cgroup::IoRow::new(8, 0));
        rows[0].set(plimsoll_host::cgroup::IoOp::Read, 5);
    }
    let exporter = Exporter::new(Arc::clone(&machine.observer), LabelPolicy::default());
    for dialect in [Dialect::Cadvisor, Dialect::Kubelet] {
        let containers = exporter.containers(dialect, &machine.observer.store.all());
        let mut listed = Text::default();
        listed.single("listed", Kind::Gauge, "Of nothing.", Number::Float(-0.5));
        listed.family("none", Kind::Counter, "Has no series.");
        let mut page = Gathered::default();
        page.containers(containers, "container_scrape_error", listed)
            .written(b"# HELP h H.\n# TYPE h histogram\nh_sum 1\nh_count 2\n".to_vec());
        let (mut text, mut messages) = (Vec::new(), Vec::new());
        let mut writer = TextWriter::new(&mut text);
        page.write(&mut writer).unwrap();
        writer.finish().unwrap();
        let mut writer = MessageWriter::new(&mut messages);
        page.write(&mut writer).unwrap();
        writer.finish().unwrap();
        assert!(text.len() > 10_000);
        assert_eq!(messages, to_delimited_protobuf(&text), "{dialect:?}");
    }
}

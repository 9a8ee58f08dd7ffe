//! Clients that dawdle, send rubbish, or do not read, on connections without sockets and a clock that jumps.

use super::*;
use plimsoll_serving::{Peer, Protocol, ServerContext, serve_connection};
use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

fn limits() -> Limits {
    Limits {
        head: Duration::from_secs(10),
        idle: Duration::from_secs(180),
        ..Limits::default()
    }
}

fn open(rig: &Rig) -> (DuplexStream, tokio::task::JoinHandle<()>) {
    let (client, server) = duplex(16 << 10);
    let shared = Arc::clone(&rig.shared);
    let house = ServerContext::new(
        kit::Limits::from(&shared.limits),
        true,
        Arc::clone(&rig.sockets),
        shared.draining.clone(),
    );
    let peer = Peer::new(SocketAddr::from((Ipv4Addr::LOCALHOST, 1)), &[]);
    let task = tokio::spawn(async move {
        let service = tower::service_fn(move |request| {
            let answer = serve(Arc::clone(&shared), request);
            async move { Ok::<_, Infallible>(answer.await) }
        });
        serve_connection(server, Protocol::Http1, peer, &house, service).await;
    });
    (client, task)
}

fn rig() -> Rig {
    Rig::with(Machine::new(), Mounts::default(), Auth::default(), limits())
}

async fn all(client: &mut DuplexStream) -> String {
    let mut text = Vec::new();
    // A connection that is cut off may end in an error; what came before counts.
    let _ = client.read_to_end(&mut text).await;
    String::from_utf8_lossy(&text).into_owned()
}

async fn answer(client: &mut DuplexStream) -> String {
    let mut text = Vec::new();
    while !text.ends_with(b"ok") {
        let byte = client.read_u8().await.unwrap();
        text.push(byte);
    }
    String::from_utf8(text).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_head_that_never_ends() {
    let rig = rig();
    let (mut client, task) = open(&rig);
    let began = tokio::time::Instant::now();
    client
        .write_all(b"GET / HTTP/1.1\r\nHost: x\r\nX-Slow: ")
        .await
        .unwrap();
    task.await.unwrap();
    assert_eq!(began.elapsed().as_secs(), 10);
}

#[tokio::test(start_paused = true)]
async fn a_head_that_comes_drop_by_drop() {
    let rig = rig();
    let (mut client, task) = open(&rig);
    let began = tokio::time::Instant::now();
    let drip = tokio::spawn(async move {
        for byte in
            b"GET / HTTP/1.1\r\nHost: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
        {
            if client.write_all(&[*byte]).await.is_err() {
                return;
            }
            tokio::time::sleep(Duration::from_secs(3)).await;
        }
    });
    task.await.unwrap();
    assert!(began.elapsed().as_secs() <= 12, "{:?}", began.elapsed());
    drip.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn half_a_body_does_not_hold_up_the_end() {
    let rig = rig();
    let (mut client, task) = open(&rig);
    client
        .write_all(
            b"POST /api/v1.3/containers/ HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{\"num",
        )
        .await
        .unwrap();
    // Long enough for the head to be read: the clock jumps only when everybody waits.
    tokio::time::sleep(Duration::from_millis(10)).await;
    let began = tokio::time::Instant::now();
    rig.drain.stop();
    let text = all(&mut client).await;
    assert!(text.starts_with("HTTP/1.1 408 "), "{text}");
    task.await.unwrap();
    assert!(
        began.elapsed() < Duration::from_secs(2),
        "{:?}",
        began.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn nothing_at_all() {
    let rig = rig();
    let (client, task) = open(&rig);
    let began = tokio::time::Instant::now();
    task.await.unwrap();
    assert_eq!(began.elapsed().as_secs(), 10);
    drop(client);
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_is_kept_a_while() {
    let rig = rig();
    let (mut client, task) = open(&rig);
    for _ in 0..3 {
        client
            .write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
            .await
            .unwrap();
        assert!(answer(&mut client).await.starts_with("HTTP/1.1 200 OK\r\n"));
        // A scraper comes back every minute.
        tokio::time::sleep(Duration::from_secs(60)).await;
    }
    let began = tokio::time::Instant::now();
    task.await.unwrap();
    assert_eq!(began.elapsed().as_secs(), 120);
}

/// With a clock of its own: one that jumps stands still while a thread makes a page.
#[tokio::test]
async fn a_client_that_does_not_read() {
    let limits = Limits {
        stalled: Duration::from_millis(200),
        ..limits()
    };
    let mut machine = Machine::new();
    machine.lines = 1 << 20;
    let rig = Rig::with(machine, Mounts::default(), Auth::default(), limits);
    let (mut client, task) = open(&rig);
    client
        .write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        .await
        .unwrap();
    task.await.unwrap();
    assert_eq!(rig.shared.counters.in_flight(), 0);
    // The thread that made the page goes on to the next.
    let all = u32::try_from(rig.shared.limits.renders).unwrap();
    let _all = rig.shared.renders.acquire_many(all).await.unwrap();
    drop(client);
}

/// What is answered is the kit's to test; here it must be counted and do no harm.
#[tokio::test]
async fn rubbish() {
    let rig = rig();
    let refused = [
        (
            &b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n"[..],
            "400 Bad Request",
        ),
        (
            b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
            "400 Bad Request",
        ),
        (
            b"GET /healthz HTTP/1.1\r\n\r\n",
            "400 Bad Request: missing required Host header",
        ),
        (
            b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\nGARBAGE\r\n\r\n",
            "400 Bad Request",
        ),
    ];
    let count = refused.len();
    for (garbage, expected) in refused {
        let (mut client, task) = open(&rig);
        client.write_all(garbage).await.unwrap();
        let text = all(&mut client).await;
        let (_, body) = text.rsplit_once("\r\n\r\n").unwrap();
        assert_eq!(body, expected, "{garbage:?}");
        drop(client);
        task.await.unwrap();
    }
    let counters = &rig.shared.counters;
    assert_eq!(counters.requests("malformed", 400), count as u64);
    let line =
        format!("plimsoll_http_requests_total{{code=\"400\",handler=\"malformed\"}} {count}\n");
    let page = families(counters);
    assert!(page.contains(&line), "{page}");
    assert_eq!(rig.get("/healthz").await.status, 200);
    assert_eq!(counters.panics(), 0);
}

#[tokio::test]
async fn a_head_too_large() {
    let rig = rig();
    let (mut client, task) = open(&rig);
    let flood = tokio::spawn(async move {
        let _ = client.write_all(b"GET / HTTP/1.1\r\n").await;
        for _ in 0..100_000 {
            if client
                .write_all(b"X-Filler: aaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n")
                .await
                .is_err()
            {
                break;
            }
        }
        all(&mut client).await
    });
    task.await.unwrap();
    let text = flood.await.unwrap();
    assert!(
        text.starts_with("HTTP/1.1 431 Request Header Fields Too Large\r\n")
            && text.ends_with("\r\n\r\n431 Request Header Fields Too Large"),
        "{text}"
    );
    assert_eq!(rig.shared.counters.requests("malformed", 431), 1);
}

#[tokio::test]
async fn events_as_they_happen() {
    let rig = Rig::new();
    let (mut client, task) = open(&rig);
    let request = "GET /api/v1.3/events?stream=true&all_events=true&subcontainers=true HTTP/1.1\r\nHost: x\r\n\r\n";
    client.write_all(request.as_bytes()).await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(client.read_u8().await.unwrap());
    }
    let head = String::from_utf8(head).unwrap().to_ascii_lowercase();
    assert!(
        head.contains("transfer-encoding: chunked") && !head.contains("content-type"),
        "{head}"
    );
    rig.machine.event("/a", Detail::ContainerCreation);
    let mut line = Vec::new();
    while !line.ends_with(b"}\n\r\n") {
        line.push(client.read_u8().await.unwrap());
    }
    let line = String::from_utf8(line).unwrap();
    assert!(line.contains(r#"{"container_name":"/a","#), "{line}");
    rig.drain.stop();
    assert_eq!(all(&mut client).await, "0\r\n\r\n");
    task.await.unwrap();
}

#[tokio::test]
async fn a_stream_nobody_reads_is_dropped() {
    let rig = Rig::new();
    let (mut client, task) = open(&rig);
    let request = "GET /api/v1.3/events?stream=true&all_events=true&subcontainers=true HTTP/1.1\r\nHost: x\r\n\r\n";
    client.write_all(request.as_bytes()).await.unwrap();
    let mut first = [0; 64];
    client.read_exact(&mut first).await.unwrap();
    // The thread that adds events is never held up, however many there are.
    for _ in 0..5000 {
        rig.machine.event("/a", Detail::ContainerCreation);
    }
    let rest = all(&mut client).await;
    assert!(!rest.ends_with("0\r\n\r\n"), "must not look complete");
    task.await.unwrap();
    assert!(families(&rig.shared.counters).contains("streams_dropped_total 1\n"));
}

#[tokio::test]
async fn a_stream_whose_client_left_leaves_nothing() {
    let rig = Rig::new();
    let (mut client, task) = open(&rig);
    let free = rig.shared.streams.available_permits();
    let request = "GET /api/v1.3/events?stream=true HTTP/1.1\r\nHost: x\r\n\r\n";
    client.write_all(request.as_bytes()).await.unwrap();
    let mut first = [0; 15];
    client.read_exact(&mut first).await.unwrap();
    assert_eq!(rig.shared.streams.available_permits(), free - 1);
    drop(client);
    task.await.unwrap();
    // The place comes back when the stream's task has noticed.
    let all = u32::try_from(free).unwrap();
    let _all = rig.shared.streams.acquire_many(all).await.unwrap();
}

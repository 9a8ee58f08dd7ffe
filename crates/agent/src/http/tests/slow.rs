//! Clients that dawdle, send rubbish, or do not read, on connections without sockets and a clock that jumps.

use super::*;
use crate::http::server::connection;
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
    let task = tokio::spawn(connection(server, Arc::clone(&rig.shared)));
    (client, task)
}

fn rig() -> Rig {
    Rig::with(Machine::new(), Places::default(), Auth::default(), limits())
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

#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_read() {
    let rig = rig();
    let (mut client, task) = open(&rig);
    let began = tokio::time::Instant::now();
    client
        .write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        .await
        .unwrap();
    task.await.unwrap();
    assert_eq!(began.elapsed().as_secs(), 30);
    assert_eq!(rig.shared.counters.in_flight(), 0);
    drop(client);
}

#[tokio::test]
async fn rubbish() {
    let rig = rig();
    let refused = [
        (
            &b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n"[..],
            "400 Bad Request: invalid HTTP method parsed",
        ),
        (
            b"GET\r\n\r\n",
            "400 Bad Request: invalid HTTP method parsed",
        ),
        (
            b"GET / HTTP/9.9\r\n\r\n",
            "400 Bad Request: invalid HTTP version parsed",
        ),
        (
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            "400 Bad Request: invalid HTTP version parsed (found HTTP2 preface)",
        ),
        (
            b"\0\0\0\0\r\n\r\n",
            "400 Bad Request: invalid HTTP method parsed",
        ),
        (
            b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
            "400 Bad Request: invalid content-length parsed",
        ),
        (
            b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
            "400 Bad Request: invalid content-length parsed",
        ),
        (
            b"GET / HTTP/1.1\r\nHost: x\r\nbad header\r\n\r\n",
            "400 Bad Request: invalid HTTP header parsed",
        ),
        (
            b"GET / HTTP/1.1\r\n\r\n",
            "400 Bad Request: missing required Host header",
        ),
        (
            b"GET / HTTP/1.0\r\nHost: x\r\nHost: x\r\n\r\n",
            "400 Bad Request: too many Host headers",
        ),
        (
            b"GET / HTTP/1.1\r\nHost: x/y\r\n\r\n",
            "400 Bad Request: malformed Host header",
        ),
    ];
    let count = refused.len();
    for (garbage, expected) in refused {
        let (mut client, task) = open(&rig);
        client.write_all(garbage).await.unwrap();
        let text = all(&mut client).await;
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert_eq!(body, expected, "{garbage:?}");
        for line in [
            "400 Bad Request",
            "\r\nContent-Type: text/plain; charset=utf-8",
            "\r\nConnection: close",
        ] {
            assert!(head.contains(line), "{garbage:?}: {head}");
        }
        drop(client);
        task.await.unwrap();
    }
    let counted = rig.shared.counters.requests("malformed", 400);
    assert_eq!(counted, count as u64);
    assert_eq!(rig.get("/healthz").await.status, 200);
    assert_eq!(rig.shared.counters.panics(), 0);
}

#[tokio::test]
async fn rubbish_after_a_request() {
    let rig = rig();
    let (mut client, task) = open(&rig);
    client
        .write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\nGARBAGE\r\n\r\n")
        .await
        .unwrap();
    let text = all(&mut client).await;
    let (first, second) = text.split_once("\r\n\r\nokHTTP/1.1 ").unwrap();
    assert!(first.starts_with("HTTP/1.1 200 OK\r\n"), "{text}");
    assert!(
        second.ends_with("\r\n\r\n400 Bad Request: invalid HTTP method parsed"),
        "{text}"
    );
    drop(client);
    task.await.unwrap();
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
    rig.drain.send(true).unwrap();
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
    assert!(
        String::from_utf8(rig.shared.counters.render())
            .unwrap()
            .contains("streams_dropped_total 1\n")
    );
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

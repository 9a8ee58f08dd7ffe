//! What is no request, and what only looks like the answer to one that is none.

use super::*;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tower::service_fn;

async fn all(client: &mut DuplexStream) -> String {
    let mut text = String::new();
    let reading = client.read_to_string(&mut text);
    tokio::time::timeout(SOON, reading).await.unwrap().unwrap();
    text
}

#[tokio::test]
async fn rubbish_is_told_what_is_wrong() {
    for (garbage, expected) in [
        (
            &b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n"[..],
            "400 Bad Request",
        ),
        (b"GET\r\n\r\n", "400 Bad Request"),
        (b"\0\0\0\0\r\n\r\n", "400 Bad Request"),
        (b"GET / HTTP/9.9\r\n\r\n", "400 Bad Request"),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "400 Bad Request"),
        (
            b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
            "400 Bad Request",
        ),
        (
            b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
            "400 Bad Request",
        ),
        (
            b"GET / HTTP/1.1\r\nHost: x\r\nbad header\r\n\r\n",
            "400 Bad Request",
        ),
        (
            b"GET / HTTP/1.1\r\n\r\n",
            "400 Bad Request: missing required Host header",
        ),
        (
            b"GET / HTTP/1.0\r\nHost: x\r\nHost: x\r\n\r\n",
            "400 Bad Request",
        ),
        (
            b"GET / HTTP/1.1\r\nHost: x/y\r\n\r\n",
            "400 Bad Request: malformed Host header",
        ),
        (
            b"GET / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\n",
            "Unsupported transfer encoding",
        ),
        (
            b"GET / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
            "Unsupported transfer encoding",
        ),
    ] {
        let asked = Arc::new(AtomicUsize::new(0));
        let seen = Arc::clone(&asked);
        let service = service_fn(move |request| {
            seen.fetch_add(1, Ordering::Relaxed);
            describe(request)
        });
        let (mut client, task, house) = open(Protocol::Http1, service);
        client.write_all(garbage).await.unwrap();
        let text = all(&mut client).await;
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert_eq!(body, expected, "{garbage:?}");
        // HTTP/1.0 is answered as such by what reaches a service.
        let status = match expected.starts_with("400 ") {
            true => " 400 Bad Request",
            false => " 501 Not Implemented",
        };
        assert!(head.contains(status), "{garbage:?}: {head}");
        for line in [
            "\r\nContent-Type: text/plain; charset=utf-8",
            "\r\nConnection: close",
        ] {
            assert_eq!(head.matches(line).count(), 1, "{garbage:?}: {head}");
        }
        drop(client);
        task.await.unwrap();
        assert_eq!(house.counters.malformed_requests(), 1, "{garbage:?}");
        assert_eq!(asked.load(Ordering::Relaxed), 0, "{garbage:?}");
    }
}

#[tokio::test]
async fn host_trouble_is_said_in_the_status_line() {
    let (mut client, _task, _) = open(Protocol::Http1, service_fn(describe));
    client.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    let text = all(&mut client).await;
    let line = "HTTP/1.1 400 Bad Request: missing required Host header\r\n";
    assert!(text.starts_with(line), "{text}");
}

#[tokio::test]
async fn rubbish_after_a_request() {
    let (mut client, task, house) = open(Protocol::Http1, service_fn(describe));
    client
        .write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\nGARBAGE\r\n\r\n")
        .await
        .unwrap();
    let text = all(&mut client).await;
    let (first, second) = text.split_once("\r\n\r\nHTTP/1.1 0HTTP/1.1 ").unwrap();
    assert!(first.starts_with("HTTP/1.1 200 OK\r\n"), "{text}");
    assert!(second.ends_with("\r\n\r\n400 Bad Request"), "{text}");
    drop(client);
    task.await.unwrap();
    assert_eq!(house.counters.malformed_requests(), 1);
}

/// With no spelling of headers asked for, hyper spells its own answer otherwise.
#[tokio::test]
async fn headers_in_small_letters() {
    let config = Config {
        title_case_headers: false,
        ..Config::loopback()
    };
    let serving = config.bind().await.unwrap().spawn(service_fn(describe));
    let mut client = TcpStream::connect(serving.local_addr()).await.unwrap();
    client.write_all(b"GARBAGE\r\n\r\n").await.unwrap();
    let mut text = String::new();
    client.read_to_string(&mut text).await.unwrap();
    assert!(text.ends_with("\r\n\r\n400 Bad Request"), "{text}");
}

/// A service's refusal may be bare, and its text may look like one: both must arrive, the connection going on.
#[tokio::test]
async fn a_service_may_refuse_without_a_word() {
    const LOOKALIKE: &str = "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n";
    let service = service_fn(|request: Request<Arriving>| async move {
        let text = match request.uri().path() {
            "/lookalike" => LOOKALIKE,
            _ => "",
        };
        let mut answer = Response::new(Full::new(Bytes::from(text)));
        *answer.status_mut() = http::StatusCode::NOT_FOUND;
        Ok::<_, Infallible>(answer)
    });
    let (mut client, task, house) = open(Protocol::Http1, service);
    for (request, body) in [
        ("GET / HTTP/1.1\r\nHost: x\r\n\r\n", ""),
        ("GET /lookalike HTTP/1.1\r\nHost: x\r\n\r\n", LOOKALIKE),
        (
            "PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nab",
            "",
        ),
    ] {
        client.write_all(request.as_bytes()).await.unwrap();
        let mut text = Vec::new();
        let reading = async {
            while !text.ends_with(b"\r\n\r\n") {
                text.push(client.read_u8().await.unwrap());
            }
            let mut rest = vec![0; body.len()];
            client.read_exact(&mut rest).await.unwrap();
            text.extend(rest);
        };
        tokio::time::timeout(SOON, reading).await.expect(request);
        let text = String::from_utf8(text).unwrap();
        assert!(text.starts_with("HTTP/1.1 404 Not Found\r\n"), "{text}");
        assert!(text.ends_with(&format!("\r\n\r\n{body}")), "{text}");
    }
    client.write_all(b"GARBAGE\r\n\r\n").await.unwrap();
    let text = all(&mut client).await;
    assert!(text.ends_with("\r\n\r\n400 Bad Request"), "{text}");
    drop(client);
    task.await.unwrap();
    assert_eq!(house.counters.malformed_requests(), 1);
}

#[tokio::test]
async fn somebody_of_many_groups() {
    let (mut client, _task, _house) = open(Protocol::Http1, service_fn(describe));
    let groups = "X-Remote-Group: g\r\n".repeat(300);
    let request = format!("GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{groups}\r\n");
    client.write_all(request.as_bytes()).await.unwrap();
    let text = all(&mut client).await;
    assert!(text.starts_with("HTTP/1.1 200 OK\r\n"), "{text}");
}

#[tokio::test]
async fn too_long_a_head() {
    let limits = Limits {
        header_bytes: 64 << 10,
        ..Limits::default()
    };
    let config = Config {
        limits,
        ..Config::loopback()
    };
    let serving = config.bind().await.unwrap().spawn(service_fn(describe));
    let mut client = TcpStream::connect(serving.local_addr()).await.unwrap();
    let head = format!(
        "GET / HTTP/1.1\r\nX-Long: {}\r\n\r\n",
        "a".repeat(400 << 10)
    );
    client.write_all(head.as_bytes()).await.unwrap();
    let mut text = String::new();
    client.read_to_string(&mut text).await.unwrap();
    let status = "431 Request Header Fields Too Large";
    assert!(
        text.starts_with(&format!("HTTP/1.1 {status}\r\n"))
            && text.ends_with(&format!("\r\n\r\n{status}")),
        "{text}"
    );
    let counters = serving.counters();
    assert_eq!(
        (counters.heads_too_large(), counters.malformed_requests()),
        (1, 0)
    );
}

#[tokio::test]
async fn over_tls_too() {
    let authority = Authority::new();
    let config = Config {
        tls: Some(Tls::new(authority.server().given())),
        ..Config::loopback()
    };
    let serving = config.bind().await.unwrap().spawn(service_fn(describe));
    let client = connector(&authority.pem(), None, Protocol::Http1);
    let mut stream = connect(&client, serving.local_addr()).await.unwrap();
    stream.write_all(b"GARBAGE\r\n\r\n").await.unwrap();
    let mut text = String::new();
    // Ended in order: TLS would report an error otherwise.
    stream.read_to_string(&mut text).await.unwrap();
    assert!(text.ends_with("\r\n\r\n400 Bad Request"), "{text}");
}
